"""What the worker is asked for, and what it tells: token ids only."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from fleet.catalog import ModelCard

from .messages import Booting, FinishReason, Prefill, Queued, Sampling, Timings
from .protocol import Token

# The ids accepted since the last call (none at first) -> the set of tokens allowed next, in the words of
# docs/serve-protocol.md, Masks. Called once for each token to be sampled.
MaskProvider = Callable[[Sequence[int]], str]


class Stages:
    """A generation's way by the clock here, also where it ends before the engine tells its own figures."""

    def __init__(self) -> None:
        self._began: dict[str, float] = {}  # time.monotonic(), in the order below

    def enter(self, stage: Literal["queue", "boot", "prefill", "decode"]) -> None:
        """The one before ends. One that was entered already goes on."""
        self._began.setdefault(stage, time.monotonic())

    def timings(self) -> Timings:
        """Until now."""
        ends = [*self._began.values(), time.monotonic()][1:]
        stages = zip(self._began.items(), ends, strict=True)
        return Timings(**{f"{stage}_ms": (end - began) * 1e3 for (stage, began), end in stages})


@dataclass(slots=True)
class Job:
    """stop_ids end the generation as the vault's own end of sequence does. `finished`: see `finish`.

    fit: the window that the engine turns out to have -> max_tokens. Raises ContextOverflow.
    """

    card: ModelCard
    ids: Sequence[int]
    max_tokens: int
    sampling: Sampling = field(default_factory=Sampling)
    stop_ids: tuple[int, ...] = ()
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    mask: MaskProvider | None = None
    client: str = ""
    fit: Callable[[int], int] | None = None
    finished: bool = False
    stages: Stages = field(default_factory=Stages)

    def finish(self) -> None:
        """The tokens told so far are enough: the worker ends the generation and tells `Ended` at once."""
        self.finished = True


@dataclass(frozen=True, slots=True)
class Tokens:
    """Those that came at once, in order."""

    tokens: list[Token]


@dataclass(frozen=True, slots=True)
class PromptTokens:
    """Ids of the prompt with their log probabilities, in order; all before the first `Tokens`."""

    tokens: list[Token]


@dataclass(frozen=True, slots=True)
class Ended:
    reason: FinishReason  # stop, length or cancel
    prompt: int
    cached: int
    generated: int
    slid: int
    context: int
    timings: Timings


WorkerEvent = Queued | Booting | Prefill | PromptTokens | Tokens | Ended
