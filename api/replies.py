"""A whole reply, gathered from a generation's events: what the non-streaming answers are made of."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Literal

from engine import generation
from engine.messages import (
    Echo,
    Event,
    Finished,
    GenerationRequest,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
    ToolCallDelta,
    ToolCallStart,
)


@dataclass(slots=True)
class Segment:
    """A run of one kind of output, in the order in which the model wrote it."""

    kind: Literal["text", "reasoning", "tool_call"]
    pieces: list[str] = field(default_factory=list)
    id: str = ""  # of a tool call, as its name
    name: str = ""

    @property
    def text(self) -> str:
        """The text, or a tool call's arguments as JSON text."""
        return "".join(self.pieces)


@dataclass(slots=True)
class Reply:
    segments: list[Segment] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    echo: Echo | None = None
    finished: Finished | None = None
    _calls: dict[int, Segment] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        match event:
            case Echo():
                self.echo = event
            case TextDelta():
                self.logprobs.extend(event.logprobs)
                self._extend("text", event.text)
            case ReasoningDelta():
                self._extend("reasoning", event.text)
            case ToolCallStart():
                self._calls[event.index] = Segment("tool_call", id=event.id, name=event.name)
                self.segments.append(self._calls[event.index])
            case ToolCallDelta():
                self._calls[event.index].pieces.append(event.arguments)
            case Finished():
                self.finished = event

    def _extend(self, kind: Literal["text", "reasoning"], text: str) -> None:
        if not text:
            return
        if not self.segments or self.segments[-1].kind != kind:
            self.segments.append(Segment(kind))
        self.segments[-1].pieces.append(text)

    def joined(self, kind: Literal["text", "reasoning"]) -> str:
        return "".join(segment.text for segment in self.segments if segment.kind == kind)

    def tool_calls(self) -> list[Segment]:
        return [segment for segment in self.segments if segment.kind == "tool_call"]


async def collect(request: GenerationRequest) -> Reply:
    reply = Reply()
    async with contextlib.aclosing(generation.stream(request)) as events:
        async for event in events:
            reply.add(event)
    return reply
