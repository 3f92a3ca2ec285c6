"""Output items and the response object itself, as the stream's last event and the plain answer both tell them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from engine.messages import Finished, TokenLogprob

from ..conversation import whole_arguments
from ..errors import Failure
from ..exchange import new_id
from ..replies import Reply, Segment
from ..report import report
from ..seal import seal
from . import common, custom_tools
from .keeping import Keeper
from .response_input import ToolSet


@dataclass(slots=True)
class ResponseDocument:
    """What a response says about itself from its first event to its last."""

    id: str
    created: int
    model: str
    asked: dict[str, Any]
    tools: ToolSet = field(default_factory=ToolSet)
    logprobs: bool = False
    sealed_reasoning: bool = False
    summarized: bool = False  # reasoning goes out where its summary would: most clients show nothing else
    keeper: Keeper | None = None  # None: nothing is kept

    def told(self, status: str, output: list[dict[str, Any]], **extra: Any) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "model": self.model,
            "output": output,
            "usage": None,
            **self.asked,
            "store": self.keeper is not None,
            **extra,
        }

    def ended(self, items: list[dict[str, Any]], finished: Finished) -> dict[str, Any]:
        """Of a reply that came to its end, however early; only such a one is kept."""
        self.model = finished.model
        extra = {"usage": usage(finished), "smoe": report(finished, tuple(self.tools.ignored))}
        if _is_cut(finished):
            told = self.told("incomplete", items, incomplete_details={"reason": "max_output_tokens"}, **extra)
        else:
            told = self.told("completed", items, completed_at=int(time.time()), **extra)
        if self.keeper is not None and not self.keeper.keep(told):
            told["store"] = False
        return told

    def failed(self, items: list[dict[str, Any]], failure: Failure) -> dict[str, Any]:
        code = failure.code if failure.code == "context_length_exceeded" else "server_error"
        return self.told("failed", items, store=False, error={"code": code, "message": failure.message})

    def told_logprobs(self, tokens: list[TokenLogprob] | tuple[TokenLogprob, ...]) -> list[dict[str, Any]]:
        return [common.token_logprob(token) for token in tokens] if self.logprobs else []


def usage(finished: Finished) -> dict[str, Any]:
    counts = finished.usage
    return {
        "input_tokens": counts.prompt,
        "input_tokens_details": {"cached_tokens": counts.cached, "cache_write_tokens": 0},
        "output_tokens": counts.generated,
        "output_tokens_details": {"reasoning_tokens": counts.reasoning},
        "total_tokens": counts.prompt + counts.generated,
    }


def _is_cut(finished: Finished) -> bool:
    return common.FINISH_REASONS[finished.reason] == "length"


def last_status(segment: Segment, finished: Finished) -> str:
    """Of the item that a reply ends with. A call that is whole was not cut off: what would have followed it was."""
    whole = segment.kind == "tool_call" and whole_arguments(segment.text) is not None
    return "incomplete" if _is_cut(finished) and not whole else "completed"


def items_of(reply: Reply, document: ResponseDocument) -> list[dict[str, Any]]:
    items = [item_of(segment, document) for segment in reply.segments]
    if items:
        items[-1]["status"] = last_status(reply.segments[-1], reply.finished)
    return items


def item_of(
    segment: Segment, document: ResponseDocument, identity: str | None = None, status: str = "completed"
) -> dict[str, Any]:
    """A segment as an output item, with its content unless it is in progress."""
    done = status != "in_progress"
    if segment.kind == "text":
        content = [text_part(segment.text)] if done else []
        return {
            "id": identity or new_id("msg_"),
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": content,
        }
    if segment.kind == "reasoning":
        return _reasoning_item(segment, document, identity or new_id("rs_"), status, done)
    return _call_item(segment, document, identity, status, done)


def text_part(text: str, logprobs: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs or []}


def reasoning_part(text: str) -> dict[str, Any]:
    return {"type": "reasoning_text", "text": text}


def summary_part(text: str) -> dict[str, Any]:
    return {"type": "summary_text", "text": text}


def _reasoning_item(segment: Segment, document: ResponseDocument, identity: str, status: str, done: bool) -> dict:
    item = {
        "id": identity,
        "type": "reasoning",
        "status": status,
        "summary": [summary_part(segment.text)] if done and document.summarized else [],
        "content": [reasoning_part(segment.text)] if done and not document.summarized else [],
    }
    if document.sealed_reasoning:
        item["encrypted_content"] = seal(segment.text) if done else None
    return item


def _call_item(segment: Segment, document: ResponseDocument, identity: str | None, status: str, done: bool) -> dict:
    origin = document.tools.origin(segment.name)
    item: dict[str, Any] = {"call_id": segment.id, "name": origin.name, "status": status}
    if origin.namespace is not None:
        item["namespace"] = origin.namespace
    if origin.custom:
        text = custom_tools.input_of(segment.text) if done else ""
        return {"id": identity or new_id("ctc_"), "type": "custom_tool_call", "input": text, **item}
    text = segment.text if done else ""
    return {"id": identity or new_id("fc_"), "type": "function_call", "arguments": text, **item}
