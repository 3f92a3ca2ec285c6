"""POST /v1/chat/completions: parse, render chunks, answer.

Shapes: https://platform.openai.com/docs/api-reference/chat ; `timings`, `prompt_progress` and `return_progress` are
llama.cpp's; `reasoning_content` is DeepSeek's; `smoe` is ours (docs/api.md).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
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

from ..errors import Failure
from ..exchange import Request, new_id
from ..fields import Fields, tool_name, unhonoured
from ..replies import Reply
from ..report import report, waiting_state
from ..sampling import parse_sampling
from ..sse import Frame
from . import common, custom_tools, functions, parts
from .constraints import parse_constraint
from .messages import parse_messages
from .thinking import parse_thinking

MAX_TOP_LOGPROBS = 20
UNHONOURED = ("verbosity", "moderation", *common.UNHONOURED)
DONE = Frame("[DONE]")


@dataclass(slots=True)
class ChatCall:
    requests: list[GenerationRequest]
    stream: bool
    include_usage: bool = False
    return_progress: bool = False
    logprobs: bool = False
    functions: bool = False  # the older form of tools
    custom: frozenset[str] = frozenset()  # names of the tools that take free text
    ignored: tuple[str, ...] = ()
    id: str = field(default_factory=lambda: new_id("chatcmpl-"))
    created: int = field(default_factory=lambda: int(time.time()))

    def renderer(self) -> ChatStream:
        return ChatStream(self)

    def answer(self, replies: list[Reply]) -> dict[str, Any]:
        finished = [reply.finished for reply in replies]
        return {
            "id": self.id,
            "object": "chat.completion",
            "created": self.created,
            "model": finished[0].model,
            "choices": [self._choice(index, reply) for index, reply in enumerate(replies)],
            "usage": common.usage(common.total_usage(finished)),
            "timings": common.timings(finished[-1]),
            "smoe": report(finished[-1], self.ignored),
        }

    def _choice(self, index: int, reply: Reply) -> dict[str, Any]:
        calls = [self.told_call(call.id, call.name, call.text) for call in reply.tool_calls()]
        text = reply.joined("text")
        message: dict[str, Any] = {"role": "assistant", "content": text if text or not calls else None, "refusal": None}
        if reasoning := reply.joined("reasoning"):
            message["reasoning_content"] = reasoning
        if calls:
            message |= functions.in_message(**calls[0]["function"]) if self.functions else {"tool_calls": calls}
        return {
            "index": index,
            "message": message,
            "finish_reason": self.finish_reason(reply.finished),
            "logprobs": _logprobs(reply.logprobs) if self.logprobs else None,
        }

    def told_call(self, identity: str, name: str, arguments: str) -> dict[str, Any]:
        if name in self.custom:
            told = {"name": name, "input": custom_tools.input_of(arguments) if arguments else ""}
            return {"id": identity, "type": "custom", "custom": told}
        return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}

    def finish_reason(self, finished: Finished) -> str:
        if self.functions and finished.reason == "tool_calls":
            return functions.FINISH_REASON
        return common.FINISH_REASONS[finished.reason]


def parse(fields: Fields, request: Request) -> ChatCall:
    del request
    tools, custom, ignored = _tools(fields)
    tools = parts.allowed_tools(fields, tools)
    older = functions.are_meant(fields)
    reasoning, template_kwargs = parse_thinking(fields)
    options = fields.object("stream_options") or Fields({}, "stream_options")
    messages = parse_messages(fields)
    choices = fields.integer("n", 1, common.MAX_CHOICES, 1)
    generation = GenerationRequest(
        model=fields.string("model"),
        messages=messages,
        max_tokens=_max_tokens(fields),
        sampling=parse_sampling(fields),
        stop=common.stops(fields),
        logprobs=_wanted_logprobs(fields),
        tools=tools,
        tool_choice=(functions.parse_choice if older else parts.parse_tool_choice)(fields, tools),
        constraint=parse_constraint(fields),
        continue_final_message=_continues(fields, messages),
        reasoning=reasoning,
        template_kwargs=template_kwargs,
    )
    _refuse(fields)
    return ChatCall(
        requests=common.choices(generation, choices),
        stream=fields.boolean("stream"),
        include_usage=options.boolean("include_usage"),
        return_progress=fields.boolean("return_progress"),
        logprobs=generation.logprobs is not None,
        functions=older,
        custom=custom,
        ignored=ignored + unhonoured(fields, UNHONOURED),
    )


def _max_tokens(fields: Fields) -> int | None:
    older = common.max_tokens(fields, "max_tokens")
    newer = common.max_tokens(fields, "max_completion_tokens")
    return older if newer is None else newer


def _wanted_logprobs(fields: Fields) -> int | None:
    top = fields.integer("top_logprobs", 0, MAX_TOP_LOGPROBS)
    if fields.boolean("logprobs"):
        return top or 0
    if top:
        raise fields.fail("top_logprobs", "needs logprobs: true.")
    return None


def _tools(fields: Fields) -> tuple[list[dict[str, Any]], frozenset[str], tuple[str, ...]]:
    """-> function tools, the names of those that take free text, and what is not honoured, in words."""
    tools, custom, ignored = [], set(), []
    for item in fields.objects("tools"):
        match item.string("type", "function"):
            case "function":
                tools.append(parts.parse_function(item))
            case "custom":
                holder = item.object("custom") or item
                name = tool_name(holder)
                tools.append(custom_tools.as_function(holder, name))
                custom.add(name)
                ignored += custom_tools.unheld(holder)
            case kind:
                ignored.append(f"{item.path}: this server has no tool of type {kind[:40]!r}")
    return [*tools, *functions.parse_functions(fields)], frozenset(custom), tuple(ignored)


def _continues(fields: Fields, messages: list[dict[str, Any]]) -> bool:
    """A last assistant message with text is continued, unless `continue_final_message: false` says otherwise."""
    last = messages[-1]
    prefill = last["role"] == "assistant" and not last.get("tool_calls") and bool(last["content"])
    return prefill and fields.boolean("continue_final_message", True)


def _refuse(fields: Fields) -> None:
    """Fields that would change the answer and that a text model cannot honour."""
    modalities = fields.strings("modalities")
    if set(modalities) - {"text"}:
        raise fields.fail("modalities", "may only be ['text']: the models of this server write text.")
    for name in ("audio", "web_search_options"):
        if name in fields:
            raise fields.fail(name, "is not offered by this server.")


def _logprobs(tokens: Iterable[Any]) -> dict[str, Any]:
    return {"content": [common.token_logprob(token) for token in tokens], "refusal": None}


class ChatStream:
    """Events -> chat.completion.chunk frames."""

    def __init__(self, call: ChatCall):
        self.call = call
        self.model = call.requests[0].model or ""
        self.choice = 0
        self.opened: set[int] = set()
        self.state: dict[str, Any] | None = None
        self.finished: list[Finished] = []
        self.free_text: tuple[int, list[str]] | None = None  # index and arguments of an open call of a custom tool
        self.began = time.monotonic()

    def opening(self) -> list[Frame]:
        return [self._open(self.choice)]

    def event(self, choice: int, event: Event) -> list[Frame]:
        self.choice = choice
        self.model = getattr(event, "model", "") or self.model
        if (state := waiting_state(event)) is not None:
            return self._waiting(event, state)
        self.state = None
        frames = [] if choice in self.opened else [self._open(choice)]
        match event:
            case TextDelta():
                frames += self._text(event)
            case ReasoningDelta():
                frames.append(self._delta({"reasoning_content": event.text}, **self._count(event.tokens)))
            case ToolCallStart():
                frames += [*self._free_text(), self._call_start(event)]
            case ToolCallDelta():
                frames += self._call_delta(event)
            case Finished():
                frames += [*self._free_text(), self._finish(event)]
        return frames

    def keep_alive(self) -> list[Frame]:
        return [self._delta({}, **self._told_state())]

    def closing(self) -> list[Frame]:
        if not self.call.include_usage:
            return [DONE]
        total = common.usage(common.total_usage(self.finished))
        return [Frame(self._chunk([], usage=total, timings=common.timings(self.finished[-1]))), DONE]

    def failure(self, failure: Failure) -> list[Frame]:
        cut = [self._delta({}, finish_reason=common.CUT_SHORT, choice=index) for index in self._unfinished()]
        return [Frame(failure.openai()), *cut, DONE]

    def _unfinished(self) -> Iterable[int]:
        return range(len(self.finished), len(self.call.requests))

    def _open(self, choice: int) -> Frame:
        self.opened.add(choice)
        return self._delta({"role": "assistant", "content": ""}, choice=choice, **self._told_state())

    def _waiting(self, event: Event, state: dict[str, Any]) -> list[Frame]:
        """What changes while the client waits, told when it is news or asked for; keep_alive tells the rest."""
        before, self.state = self.state, state
        opened = self.choice in self.opened
        if isinstance(event, Prefill):
            frames = [] if opened else [self._open(self.choice)]
            if self.call.return_progress:
                frames.append(self._delta({}, prompt_progress=self._progress(event), **self._told_state()))
            return frames
        news = before is None or any(before.get(key) != state.get(key) for key in ("state", "position"))
        if opened and (news or self.call.return_progress):
            return [self._delta({}, **self._told_state())]
        return []

    def _progress(self, event: Prefill) -> dict[str, int]:
        elapsed = int((time.monotonic() - self.began) * 1000)
        return {"total": event.total, "cache": event.cached, "processed": event.done, "time_ms": elapsed}

    def _told_state(self) -> dict[str, Any]:
        return {} if self.state is None else {"smoe": self.state}

    def _text(self, event: TextDelta) -> list[Frame]:
        logprobs = _logprobs(event.logprobs) if self.call.logprobs else None
        if not event.text and not event.logprobs:
            return []
        return [self._delta({"content": event.text}, logprobs=logprobs, **self._count(event.tokens))]

    def _call_start(self, event: ToolCallStart) -> Frame:
        if self.call.functions:
            return self._delta(functions.in_message(event.name, ""))
        if event.name in self.call.custom:
            self.free_text = event.index, []
        return self._call_part(event.index, self.call.told_call(event.id, event.name, ""))

    def _call_delta(self, event: ToolCallDelta) -> list[Frame]:
        if self.call.functions:
            return [self._delta(functions.in_delta(event.arguments))]
        if self.free_text is not None:
            self.free_text[1].append(event.arguments)
            return []
        return [self._call_part(event.index, {"function": {"arguments": event.arguments}})]

    def _free_text(self) -> list[Frame]:
        """The open call's input, once it is whole: its text stands in JSON until then."""
        if self.free_text is None:
            return []
        (index, pieces), self.free_text = self.free_text, None
        return [self._call_part(index, {"custom": {"input": custom_tools.input_of("".join(pieces))}})]

    def _call_part(self, index: int, told: dict[str, Any]) -> Frame:
        return self._delta({"tool_calls": [{"index": index, **told}]})

    def _count(self, tokens: int) -> dict[str, Any]:
        """Of a delta, where it is not one: a client that stops the stream gets no usage, and can add these up."""
        return {"smoe": {"tokens": tokens}} if self.call.return_progress and tokens != 1 else {}

    def _finish(self, event: Finished) -> Frame:
        self.finished.append(event)
        extra: dict[str, Any] = {"smoe": report(event, self.call.ignored)}
        last = len(self.finished) == len(self.call.requests)
        if last and not self.call.include_usage:
            extra["usage"] = common.usage(common.total_usage(self.finished))
            extra["timings"] = common.timings(event)
        return self._delta({}, finish_reason=self.call.finish_reason(event), **extra)

    def _delta(
        self,
        delta: dict[str, Any],
        *,
        choice: int | None = None,
        finish_reason: str | None = None,
        logprobs: dict[str, Any] | None = None,
        **extra: Any,
    ) -> Frame:
        index = self.choice if choice is None else choice
        entry = {"index": index, "delta": delta, "finish_reason": finish_reason, "logprobs": logprobs}
        return Frame(self._chunk([entry], **extra))

    def _chunk(self, choices: list[dict[str, Any]], **extra: Any) -> dict[str, Any]:
        chunk = {
            "id": self.call.id,
            "object": "chat.completion.chunk",
            "created": self.call.created,
            "model": self.model,
            "choices": choices,
        }
        if self.call.include_usage:
            chunk["usage"] = None
        return chunk | extra
