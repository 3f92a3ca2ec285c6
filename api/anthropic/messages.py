"""POST /v1/messages: parse, render the stream's typed events, answer.

The order of events is https://docs.anthropic.com/en/docs/build-with-claude/streaming : message_start, then for every
block start, deltas and stop, then message_delta with the usage and message_stop. `ping` may stand anywhere; before
message_start it says that the prompt, whose size message_start tells, is still to be counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from engine.messages import (
    Event,
    Finished,
    GenerationRequest,
    Prefill,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
)

from ..conversation import whole_arguments
from ..errors import Failure
from ..exchange import Request, new_id
from ..fields import Fields
from ..replies import Reply, Segment
from ..report import report, waiting_state
from ..seal import seal
from ..sse import Frame
from .parsing import parse_request, thinking_is_shown

STOP_REASONS = {
    "stop": "end_turn",
    "stop_sequence": "stop_sequence",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "cancel": "max_tokens",  # the reply was cut short: of the protocol's words the true one
}


@dataclass(slots=True)
class MessagesCall:
    requests: list[GenerationRequest]
    stream: bool
    request_id: str
    thinking_shown: bool = True
    ignored: tuple[str, ...] = ()
    id: str = field(default_factory=lambda: new_id("msg_"))

    def renderer(self) -> MessagesStream:
        return MessagesStream(self)

    def answer(self, replies: list[Reply]) -> dict[str, Any]:
        reply = replies[0]
        finished = reply.finished
        content = [self._block(segment) for segment in reply.segments] or [{"type": "text", "text": ""}]
        return {
            **message(self.id, finished.model, content),
            "stop_reason": STOP_REASONS[finished.reason],
            "stop_sequence": finished.stop_sequence,
            "usage": usage(finished),
            "smoe": report(finished, self.ignored),
        }

    def _block(self, segment: Segment) -> dict[str, Any]:
        if segment.kind == "text":
            return {"type": "text", "text": segment.text}
        if segment.kind == "reasoning":
            shown = segment.text if self.thinking_shown else ""
            return {"type": "thinking", "thinking": shown, "signature": seal(segment.text)}
        arguments = whole_arguments(segment.text) or {}  # the protocol has no place for half an object
        return {"type": "tool_use", "id": segment.id, "name": segment.name, "input": arguments}


def parse(fields: Fields, request: Request) -> MessagesCall:
    if fields.raw("compaction"):
        raise fields.fail("compaction", "is not offered by this server: it summarizes no conversations by itself.")
    generation, ignored = parse_request(fields)
    return MessagesCall([generation], fields.boolean("stream"), request.id, thinking_is_shown(fields), ignored)


def message(identity: str, model: str, content: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": identity,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": None,
        "stop_sequence": None,
    }


def input_usage(prompt: int, cached: int) -> dict[str, int]:
    """input_tokens counts what was not cached; the two add up to the prompt."""
    return {"input_tokens": prompt - cached, "cache_creation_input_tokens": 0, "cache_read_input_tokens": cached}


def usage(finished: Finished) -> dict[str, Any]:
    counts = finished.usage
    return input_usage(counts.prompt, counts.cached) | {"output_tokens": counts.generated}


class MessagesStream:
    """Events -> typed frames. At most one block is open; `index` is the next block's."""

    def __init__(self, call: MessagesCall):
        self.call = call
        self.started = False
        self.index = 0
        self.open: Segment | None = None
        self.state: dict[str, Any] | None = None

    def opening(self) -> list[Frame]:
        return self.keep_alive()

    def keep_alive(self) -> list[Frame]:
        return [_frame("ping", **({"smoe": self.state} if self.state else {}))]

    def event(self, choice: int, event: Event) -> list[Frame]:
        del choice
        self.state = waiting_state(event)
        match event:
            case Prefill():
                return [] if self.started else [self._start(event)]
            case TextDelta():
                return self._delta("text", {"type": "text", "text": ""}, "text_delta", "text", event.text)
            case ReasoningDelta():
                return self._thinking(event.text)
            case ToolCallStart():
                block = {"type": "tool_use", "id": event.id, "name": event.name, "input": {}}
                return [*self._stop(), self._open(Segment("tool_call", id=event.id), block)]
            case ToolCallDelta():
                delta = {"type": "input_json_delta", "partial_json": event.arguments}
                return [self._content_delta(delta)] if event.arguments else []
            case Finished():
                return self._finish(event)
        return []

    def closing(self) -> list[Frame]:
        return [_frame("message_stop")]

    def failure(self, failure: Failure) -> list[Frame]:
        return [Frame(failure.anthropic(self.call.request_id), "error")]

    def _start(self, prefill: Prefill) -> Frame:
        self.started = True
        told = message(self.call.id, prefill.model, [])
        told["usage"] = input_usage(prefill.total, prefill.cached) | {"output_tokens": 0}
        return _frame("message_start", message=told)

    def _thinking(self, text: str) -> list[Frame]:
        block = {"type": "thinking", "thinking": "", "signature": ""}
        frames = self._delta("reasoning", block, "thinking_delta", "thinking", text)
        if not self.call.thinking_shown:
            frames = [frame for frame in frames if frame.event != "content_block_delta"]
        return frames

    def _delta(self, kind: str, block: dict[str, Any], delta: str, name: str, text: str) -> list[Frame]:
        """`text` in the open block where it is of this kind, else in a new one."""
        if not text:
            return []
        frames = []
        if self.open is None or self.open.kind != kind:
            frames = [*self._stop(), self._open(Segment(kind), block)]
        self.open.pieces.append(text)
        return [*frames, self._content_delta({"type": delta, name: text})]

    def _content_delta(self, delta: dict[str, Any]) -> Frame:
        return _frame("content_block_delta", index=self.index - 1, delta=delta)

    def _open(self, segment: Segment, block: dict[str, Any]) -> Frame:
        self.open = segment
        self.index += 1
        return _frame("content_block_start", index=self.index - 1, content_block=block)

    def _stop(self) -> list[Frame]:
        if self.open is None:
            return []
        segment, self.open = self.open, None
        stop = _frame("content_block_stop", index=self.index - 1)
        if segment.kind == "reasoning":
            return [self._content_delta({"type": "signature_delta", "signature": seal(segment.text)}), stop]
        return [stop]

    def _finish(self, event: Finished) -> list[Frame]:
        frames = []
        if self.index == 0:  # a message without any block makes clients ask again
            frames.append(self._open(Segment("text"), {"type": "text", "text": ""}))
        ended = {"stop_reason": STOP_REASONS[event.reason], "stop_sequence": event.stop_sequence}
        told = report(event, self.call.ignored)
        return [*frames, *self._stop(), _frame("message_delta", delta=ended, usage=usage(event), smoe=told)]


def _frame(kind: str, **fields: Any) -> Frame:
    return Frame({"type": kind, **fields}, kind)
