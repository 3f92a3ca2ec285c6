"""A double of engine.generation that plays a list of events, pauses and errors, and remembers what it was asked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from engine.messages import (
    Echo,
    Event,
    Finished,
    GenerationRequest,
    Prefill,
    ReasoningDelta,
    TextDelta,
    Timings,
    TokenLogprob,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from engine.worker import EngineSnapshot

MODEL = "alpha"
USAGE = Usage(prompt=12, cached=5, generated=3, reasoning=1)
TIMINGS = Timings(queue_ms=1.0, boot_ms=0.0, prefill_ms=70.0, decode_ms=30.0, stall_ms=2.0)


def prefill(done: int = 12, total: int = 12, cached: int = 5) -> Prefill:
    return Prefill(MODEL, done, total, cached)


def finished(reason: str = "stop", **fields: Any) -> Finished:
    values = {"usage": USAGE, "timings": TIMINGS, "model": MODEL, "context": 4096, **fields}
    return Finished(reason, **values)


def text(*pieces: str) -> list[Event]:
    return [TextDelta(piece) for piece in pieces]


HELLO: list[Event] = [prefill(), *text("Hel", "lo"), finished()]
THINK_AND_CALL: list[Event] = [
    prefill(),
    ReasoningDelta("think "),
    ReasoningDelta("hard"),
    *text("Calling"),
    ToolCallStart(0, "call_a", "get"),
    ToolCallDelta(0, '{"x":'),
    ToolCallDelta(0, ' "1"}'),
    ToolCallStart(1, "call_b", "get"),
    ToolCallDelta(1, '{"x": "2"}'),
    finished("tool_calls"),
]


def snapshot(**fields: Any) -> EngineSnapshot:
    values = {
        "state": "up",
        "model": MODEL,
        "pid": None,
        "since": 1.0,
        "last_error": "",
        "waiting": 0,
        "running": False,
        "context": 4096,
        "protocol": 2,
        "boots": 1,
        **fields,
    }
    return EngineSnapshot(**values)


@dataclass
class Script:
    """steps: events are given, numbers are pauses in seconds, exceptions are raised."""

    steps: list[Event | float | Exception] = field(default_factory=lambda: list(HELLO))
    requests: list[GenerationRequest] = field(default_factory=list)
    counted: list[GenerationRequest] = field(default_factory=list)
    echoed: tuple[TokenLogprob, ...] = ()  # of the prompt
    closed: threading.Event = field(default_factory=threading.Event)

    @property
    def request(self) -> GenerationRequest:
        return self.requests[-1]

    async def stream(self, request: GenerationRequest) -> AsyncIterator[Event]:
        self.requests.append(request)
        text = request.text_prompt or "".join(token.text for token in self.echoed)
        echo = [Echo(text, self.echoed)] if request.echo else []
        try:
            for step in [*echo, *self.steps]:
                if isinstance(step, Exception):
                    raise step
                if isinstance(step, int | float):
                    await asyncio.sleep(step)
                else:
                    yield step
        finally:
            self.closed.set()

    async def count_tokens(self, request: GenerationRequest) -> int:
        self.counted.append(request)
        return 42
