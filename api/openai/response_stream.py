"""Events -> the Responses stream: every item is added, filled by deltas and done, one after the other."""

from __future__ import annotations

from typing import Any

from engine.messages import Event, Finished, ReasoningDelta, TextDelta, ToolCallDelta, ToolCallStart

from ..errors import Failure
from ..exchange import new_id
from ..replies import Segment
from ..report import waiting_state
from ..sse import Frame
from . import custom_tools
from .response_items import ResponseDocument, item_of, last_status, reasoning_part, summary_part, text_part

_ID_PREFIXES = {"text": "msg_", "reasoning": "rs_", "tool_call": "fc_"}


class ResponseStream:
    def __init__(self, document: ResponseDocument):
        self.document = document
        self.sequence = 0
        self.opened = False
        self.items: list[dict[str, Any]] = []
        self.open: Segment | None = None
        self.open_id = ""
        self.logprobs: list[dict[str, Any]] = []
        self.state: dict[str, Any] | None = None

    def opening(self) -> list[Frame]:
        self.opened = True
        return [self._lifecycle("response.created", "in_progress"), *self.keep_alive()]

    def keep_alive(self) -> list[Frame]:
        extra = {"smoe": self.state} if self.state else {}
        return [self._lifecycle("response.in_progress", "in_progress", **extra)]

    def event(self, choice: int, event: Event) -> list[Frame]:
        del choice
        self.document.model = getattr(event, "model", "") or self.document.model
        before, self.state = self.state, waiting_state(event)
        if self.state is not None:
            return self._waiting(before)
        frames = [] if self.opened else self.opening()
        match event:
            case TextDelta():
                frames += self._text(event)
            case ReasoningDelta():
                frames += self._reasoning(event.text)
            case ToolCallStart():
                frames += [*self._done(), *self._add(Segment("tool_call", id=event.id, name=event.name))]
            case ToolCallDelta():
                frames += self._arguments(event.arguments)
            case Finished():
                frames += self._finish(event)
        return frames

    def closing(self) -> list[Frame]:
        return []

    def failure(self, failure: Failure) -> list[Frame]:
        start = [] if self.opened else self.opening()
        return [*start, self._frame("response.failed", response=self.document.failed(self.items, failure))]

    def _waiting(self, before: dict[str, Any] | None) -> list[Frame]:
        """The prompt's own event begins the stream; a change of state is told where it has begun."""
        if not self.opened:
            return self.opening() if self.state["state"] == "prefill" else []
        return [] if before is not None and before["state"] == self.state["state"] else self.keep_alive()

    def _lifecycle(self, kind: str, status: str, **extra: Any) -> Frame:
        return self._frame(kind, response=self.document.told(status, list(self.items), **extra))

    def _frame(self, kind: str, **fields: Any) -> Frame:
        self.sequence += 1
        return Frame({"type": kind, "sequence_number": self.sequence - 1, **fields}, kind)

    def _item_frame(self, kind: str, **fields: Any) -> Frame:
        return self._frame(kind, item_id=self.open_id, output_index=len(self.items), **fields)

    def _text(self, event: TextDelta) -> list[Frame]:
        if not event.text and not event.logprobs:
            return []
        frames = self._ensure("text")
        logprobs = self.document.told_logprobs(event.logprobs)
        self.logprobs += logprobs
        self.open.pieces.append(event.text)
        return [*frames, self._part_frame("text.delta", delta=event.text, logprobs=logprobs)]

    def _reasoning(self, text: str) -> list[Frame]:
        if not text:
            return []
        frames = self._ensure("reasoning")
        self.open.pieces.append(text)
        return [*frames, self._part_frame("text.delta", delta=text)]

    def _part_frame(self, event: str, **fields: Any) -> Frame:
        """Of the open item's one part, of text or of reasoning."""
        if self.open.kind == "reasoning" and self.document.summarized:
            return self._item_frame(f"response.reasoning_summary_{event}", summary_index=0, **fields)
        kind = "content" if event.startswith("part.") else "output" if self.open.kind == "text" else "reasoning"
        return self._item_frame(f"response.{kind}_{event}", content_index=0, **fields)

    def _arguments(self, text: str) -> list[Frame]:
        self.open.pieces.append(text)
        if not text or self._is_custom():
            return []
        return [self._item_frame("response.function_call_arguments.delta", delta=text)]

    def _is_custom(self) -> bool:
        return self.document.tools.origin(self.open.name).custom

    def _ensure(self, kind: str) -> list[Frame]:
        if self.open is not None and self.open.kind == kind:
            return []
        return [*self._done(), *self._add(Segment(kind))]

    def _add(self, segment: Segment) -> list[Frame]:
        self.open, self.open_id, self.logprobs = segment, new_id(_ID_PREFIXES[segment.kind]), []
        item = item_of(segment, self.document, self.open_id, "in_progress")
        frames = [self._frame("response.output_item.added", output_index=len(self.items), item=item)]
        if segment.kind != "tool_call":
            frames.append(self._part_frame("part.added", part=self._part()))
        return frames

    def _part(self) -> dict[str, Any]:
        if self.open.kind == "text":
            return text_part(self.open.text, self.logprobs)
        return (summary_part if self.document.summarized else reasoning_part)(self.open.text)

    def _done(self, finished: Finished | None = None) -> list[Frame]:
        """The events that end the open item, if any. finished: how the reply ended, where the item is its last."""
        if self.open is None:
            return []
        frames = self._content_done()
        status = last_status(self.open, finished) if finished else "completed"
        item = item_of(self.open, self.document, self.open_id, status)
        if self.open.kind == "text":
            item["content"] = [self._part()]
        frames.append(self._frame("response.output_item.done", output_index=len(self.items), item=item))
        self.items.append(item)
        self.open = None
        return frames

    def _content_done(self) -> list[Frame]:
        text = self.open.text
        if self.open.kind == "tool_call":
            return self._call_done(text)
        logprobs = {"logprobs": self.logprobs} if self.open.kind == "text" else {}
        done = self._part_frame("text.done", text=text, **logprobs)
        return [done, self._part_frame("part.done", part=self._part())]

    def _call_done(self, arguments: str) -> list[Frame]:
        if not self._is_custom():
            name = self.document.tools.origin(self.open.name).name
            return [self._item_frame("response.function_call_arguments.done", name=name, arguments=arguments)]
        text = custom_tools.input_of(arguments)
        return [
            self._item_frame("response.custom_tool_call_input.delta", delta=text),
            self._item_frame("response.custom_tool_call_input.done", input=text),
        ]

    def _finish(self, event: Finished) -> list[Frame]:
        frames = self._done(event)
        response = self.document.ended(self.items, event)
        return [*frames, self._frame(f"response.{response['status']}", response=response)]
