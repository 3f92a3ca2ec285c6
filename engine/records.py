"""What is known of a generation once it is over: for the request log and the metrics. No text unless asked."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .messages import (
    Event,
    FinishReason,
    GenerationRequest,
    ReasoningDelta,
    TextDelta,
    Timings,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)

log = logging.getLogger("smoe.generation")


@dataclass(slots=True)
class Record:
    """error: the sentence that the client got, with its folders. reason `cancel`: the client has gone.

    `ended` is time.time(), `started` and `first_token` are time.monotonic(). usage and timings of a generation that was
    left or failed: up to then.
    """

    request_id: str
    client: str
    requested: str | None  # the request's model
    model: str | None = None  # the vault that ran
    started: float = field(default_factory=time.monotonic)
    first_token: float | None = None
    ended: float = 0.0
    usage: Usage = field(default_factory=lambda: Usage(0, 0, 0))
    timings: Timings = field(default_factory=Timings)
    reason: FinishReason | None = None
    error: str = ""
    turned_away: bool = False  # no generation: the queue was full, or a limit of its key reached
    protocol: str = ""
    endpoint: str = ""
    client_name: str = ""  # as its User-Agent says
    admitted: bool = False  # by those of `on_started` that count
    prompt: str = ""  # with `--log-text` only, as is the reply
    reply: str = ""

    @property
    def is_whole(self) -> bool:
        """The reply came to its end, so its timings are the engine's own."""
        return not self.error and self.reason != "cancel"

    def hear(self, event: Event) -> None:
        """Keeps what the client is told of the reply: its text, thoughts and calls."""
        if isinstance(event, TextDelta | ReasoningDelta):
            self.reply += event.text
        elif isinstance(event, ToolCallStart):
            self.reply += f"\n[{event.name}] "
        elif isinstance(event, ToolCallDelta):
            self.reply += event.arguments


recent: deque[Record] = deque(maxlen=256)
on_started: list[Callable[[Record], None]] = []  # may raise GenerationError, which the client gets
on_finished: list[Callable[[Record], None]] = []  # called on the event loop: must not block


def new(request: GenerationRequest) -> Record:
    return Record(
        request.request_id,
        request.client,
        request.model,
        protocol=request.protocol,
        endpoint=request.endpoint,
        client_name=request.client_name,
    )


def prompt_text(request: GenerationRequest) -> str:
    """The prompt for people to read: raw text as it came, messages one after the other under their roles."""
    if request.text_prompt is not None:
        return request.text_prompt
    return "\n\n".join(f"{message['role']}: {_said(message)}" for message in request.messages)


def _said(message: dict[str, Any]) -> str:
    calls = [f"[{call['function']['name']}] {call['function']['arguments']}" for call in message.get("tool_calls", ())]
    return "\n".join(filter(None, [message.get("reasoning_content"), message.get("content"), *calls]))


def start(record: Record) -> None:
    """Raises what a listener has against this generation."""
    for ask in on_started:
        ask(record)


def finish(record: Record) -> None:
    record.ended = time.time()
    recent.append(record)
    for tell in on_finished:
        try:
            tell(record)
        except Exception:
            log.exception("a listener of finished generations failed")
