"""POST /v1/responses: parse, render the stream's events, answer. Unless `store` is false, a response is kept a while.

Shapes: https://platform.openai.com/docs/api-reference/responses and .../responses-streaming
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Any

from engine.messages import GenerationRequest
from engine.window import slides

from ..errors import Refused
from ..exchange import Request, new_id
from ..fields import Fields, unhonoured
from ..replies import Reply
from ..sampling import parse_sampling
from . import parts
from .keeping import Keeper
from .kept_responses import Piece, kept_responses
from .response_input import parse_conversation, parse_items, parse_tools
from .response_items import ResponseDocument, items_of
from .response_stream import ResponseStream

TRUNCATIONS = ("auto", "disabled")
SUMMARIES = ("auto", "concise", "detailed")
NO_SUMMARY = "none"  # a word of some clients' settings
_LOGPROBS = "message.output_text.logprobs"
_ENCRYPTED = "reasoning.encrypted_content"
MAX_TOP_LOGPROBS = 20
UNHONOURED = ("text.verbosity", "moderation", "context_management")


@dataclass(slots=True)
class ResponsesCall:
    requests: list[GenerationRequest]
    stream: bool
    document: ResponseDocument

    def renderer(self) -> ResponseStream:
        return ResponseStream(self.document)

    def answer(self, replies: list[Reply]) -> dict[str, Any]:
        reply = replies[0]
        items = items_of(reply, self.document)
        if self.document.logprobs:
            _attach_logprobs(items, reply, self.document)
        return self.document.ended(items, reply.finished)


def _attach_logprobs(items: list[dict[str, Any]], reply: Reply, document: ResponseDocument) -> None:
    """All of a reply's log probabilities belong to its text; they stand with the first text item."""
    for item in items:
        if item["type"] == "message":
            item["content"][0]["logprobs"] = document.told_logprobs(reply.logprobs)
            return


def parse(fields: Fields, request: Request) -> ResponsesCall:
    _refuse(fields)
    tools = parse_tools(fields)
    offered = parts.allowed_tools(fields, tools.functions)
    earlier = _earlier(fields, request.client.id)
    items = parse_items(fields, partial(kept_responses.find_item, request.client.id))
    thinking = fields.object("reasoning") or Fields({}, "reasoning")
    effort = thinking.choice("effort", parts.EFFORTS)
    words = [thinking.choice(name, (*SUMMARIES, NO_SUMMARY)) for name in ("summary", "generate_summary")]
    summary = next((word for word in words if word in SUMMARIES), None)
    reasoning, template_kwargs = parts.parse_effort(effort)
    text = fields.object("text") or Fields({}, "text")
    include = fields.strings("include")
    logprobs = fields.integer("top_logprobs", 0, MAX_TOP_LOGPROBS, 0) if _LOGPROBS in include else None
    generation = GenerationRequest(
        model=fields.string("model"),
        messages=parse_conversation(fields.string("instructions"), [*map(_kept_item, earlier), *items]),
        max_tokens=fields.integer("max_output_tokens", 1),
        sampling=parse_sampling(fields),
        logprobs=logprobs,
        tools=offered,
        tool_choice=parts.parse_tool_choice(fields, offered),
        constraint=parts.parse_format(text.object("format")),
        reasoning=reasoning,
        template_kwargs=template_kwargs | parts.parse_template_kwargs(fields),
        may_slide=fields.choice("truncation", TRUNCATIONS) != "disabled",
    )
    tools.ignored += unhonoured(fields, UNHONOURED)
    keeper = None
    if fields.boolean("store", True):
        keeper = Keeper(request.client.id, earlier, [item.values for item in items])
    document = ResponseDocument(
        id=new_id("resp_"),
        created=int(time.time()),
        model=generation.model or "",
        asked=_asked(fields, generation) | {"reasoning": {"effort": effort, "summary": summary}},
        tools=tools,
        logprobs=logprobs is not None,
        sealed_reasoning=_ENCRYPTED in include,
        summarized=summary is not None,
        keeper=keeper,
    )
    return ResponsesCall([generation], fields.boolean("stream"), document)


def _asked(fields: Fields, generation: GenerationRequest) -> dict[str, Any]:
    """The request's fields that a response repeats."""
    return {
        "instructions": fields.string("instructions"),
        "max_output_tokens": fields.integer("max_output_tokens", 1),
        "metadata": fields.mapping("metadata"),
        "parallel_tool_calls": fields.boolean("parallel_tool_calls", True),
        "previous_response_id": fields.string("previous_response_id") or None,
        "temperature": fields.number("temperature"),
        "text": fields.mapping("text") or {"format": {"type": "text"}},
        "tool_choice": fields.raw("tool_choice", "auto"),
        "tools": [item.values for item in fields.objects("tools")],
        "top_p": fields.number("top_p"),
        "truncation": "auto" if slides(generation.may_slide) else "disabled",
    }


def _earlier(fields: Fields, client: str) -> tuple[Piece, ...]:
    """The conversation that the request goes on with."""
    identity = fields.string("previous_response_id")
    if not identity:
        return ()
    if (response := kept_responses.find(client, identity)) is None:
        raise Refused(
            f"Previous response with id {identity[:80]!r} not found: this server keeps the last responses, in memory, "
            "and each for the client that asked for it. Send the whole conversation in input.",
            "previous_response_id",
            "previous_response_not_found",
        )
    return response.conversation()


def _kept_item(piece: Piece) -> Fields:
    return Fields(piece.item(), "previous_response_id")


def _refuse(fields: Fields) -> None:
    for name in ("conversation", "prompt"):
        if name in fields:
            raise fields.fail(
                name,
                "is not supported: this server has no such objects. Name a previous_response_id, or send the whole "
                "conversation in input.",
            )
    if fields.boolean("background"):
        raise fields.fail("background", "is not supported: this server answers while the client waits.")
