"""What is known of a generation once it is over: for the request log and the metrics. Holds no text."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from .messages import FinishReason, GenerationRequest, Timings, Usage

log = logging.getLogger("smoe.generation")


@dataclass(slots=True)
class Record:
    """error: the sentence that the client got. reason `cancel`: the client has gone. Times are time.time()."""

    request_id: str
    client: str
    requested: str | None  # the request's model
    model: str | None = None  # the vault that ran
    started: float = field(default_factory=time.time)
    ended: float = 0.0
    first_token: float | None = None
    usage: Usage = field(default_factory=lambda: Usage(0, 0, 0))
    timings: Timings = field(default_factory=Timings)
    reason: FinishReason | None = None
    error: str = ""
    protocol: str = ""
    endpoint: str = ""
    client_name: str = ""  # as its User-Agent says
    admitted: bool = False  # by those of `on_started` that count


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
