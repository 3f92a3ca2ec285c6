"""What the worker is asked for, and what it tells: token ids only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fleet.catalog import ModelCard

from .messages import Booting, FinishReason, Prefill, Queued, Sampling, Timings
from .protocol import Token

# The ids accepted since the last call (none at first) -> the set of tokens allowed next, in the words of
# docs/serve-protocol.md, Masks. Called once for each token to be sampled.
MaskProvider = Callable[[Sequence[int]], str]


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
