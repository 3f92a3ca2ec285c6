"""POST /v1/completions: raw prompts, no chat template. Shapes: https://platform.openai.com/docs/api-reference/completions"""

from __future__ import annotations

import codecs
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from engine.messages import Echo, Event, Finished, GenerationRequest, TextDelta, TokenLogprob

from ..errors import Failure
from ..exchange import Request, new_id
from ..fields import Fields, unhonoured
from ..replies import Reply
from ..report import report, waiting_state
from ..sampling import parse_sampling
from ..sse import Frame
from . import common
from .constraints import parse_constraint

MAX_PROMPTS = 64
MAX_LOGPROBS = 20
DONE = Frame("[DONE]")


@dataclass(slots=True)
class CompletionCall:
    requests: list[GenerationRequest]
    stream: bool
    choices: int  # for each prompt
    include_usage: bool = False
    logprobs: bool = False
    ignored: tuple[str, ...] = ()
    id: str = field(default_factory=lambda: new_id("cmpl-"))
    created: int = field(default_factory=lambda: int(time.time()))

    def renderer(self) -> CompletionStream:
        return CompletionStream(self)

    def answer(self, replies: list[Reply]) -> dict[str, Any]:
        finished = [reply.finished for reply in replies]
        choices = [self._choice(index, reply) for index, reply in enumerate(replies)]
        return self.envelope(finished[0].model, choices) | {
            "usage": self.usage(finished),
            "timings": common.timings(finished[-1]),
            "smoe": report(finished[-1], self.ignored),
        }

    def _choice(self, index: int, reply: Reply) -> dict[str, Any]:
        echo = reply.echo or Echo("")
        logprobs = None
        if self.logprobs:
            parts = legacy_logprobs(echo.logprobs, 0), legacy_logprobs(reply.logprobs, len(echo.text))
            logprobs = {name: values + parts[1][name] for name, values in parts[0].items()}
        return choice(index, echo.text + reply.joined("text"), common.FINISH_REASONS[reply.finished.reason], logprobs)

    def usage(self, finished: list[Finished]) -> dict[str, Any]:
        """Every prompt counts once, every choice's reply counts."""
        groups = [finished[start : start + self.choices] for start in range(0, len(finished), self.choices)]
        totals = [common.usage(common.total_usage(group)) for group in groups]
        whole = totals[0]
        for other in totals[1:]:
            for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
                whole[name] += other[name]
            whole["prompt_tokens_details"]["cached_tokens"] += other["prompt_tokens_details"]["cached_tokens"]
        return whole

    def envelope(self, model: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": model,
            "choices": choices,
        }


def parse(fields: Fields, request: Request) -> CompletionCall:
    del request
    if fields.raw("suffix"):
        raise fields.fail("suffix", "is not supported: the models of this server only continue a prompt.")
    prompts = _prompts(fields)
    count = fields.integer("n", 1, common.MAX_CHOICES, 1)
    if fields.integer("best_of", 1, default=count) != count:
        raise fields.fail("best_of", "is not supported beyond n.")
    wanted = fields.integer("logprobs", 0, MAX_LOGPROBS)
    echo = fields.boolean("echo")
    options = fields.object("stream_options") or Fields({}, "stream_options")
    generation = GenerationRequest(
        model=fields.string("model"),
        max_tokens=common.max_tokens(fields, "max_tokens", 0 if echo else 1),
        sampling=parse_sampling(fields),
        stop=common.stops(fields),
        logprobs=wanted,
        echo=echo,
        constraint=parse_constraint(fields),
    )
    each = common.choices(generation, count)
    return CompletionCall(
        requests=[replace(one, **prompt) for prompt in prompts for one in each],
        stream=fields.boolean("stream"),
        choices=count,
        include_usage=options.boolean("include_usage"),
        logprobs=wanted is not None,
        ignored=unhonoured(fields, common.UNHONOURED),
    )


def _prompts(fields: Fields) -> list[dict[str, Any]]:
    """A string, a list of strings, a list of token ids or a list of such lists -> arguments of the neutral request."""
    value = fields.raw("prompt")
    if isinstance(value, str):
        return [{"text_prompt": value}]
    if not isinstance(value, list) or not value:
        raise fields.fail("prompt", "must be a string, or an array of strings or token ids that is not empty.")
    items = [value] if all(_is_id(item) for item in value) else value
    if len(items) > MAX_PROMPTS:
        raise fields.fail("prompt", f"may hold at most {MAX_PROMPTS} prompts, not {len(items)}.")
    return [_prompt(fields, index, item) for index, item in enumerate(items)]


def _prompt(fields: Fields, index: int, item: Any) -> dict[str, Any]:
    if isinstance(item, str):
        return {"text_prompt": item}
    if isinstance(item, list) and item and all(_is_id(identity) for identity in item):
        return {"prompt_ids": item}
    raise fields.fail("prompt", f"holds neither text nor token ids at {index}.")


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def choice(index: int, text: str, finish_reason: str | None, logprobs: dict[str, Any] | None) -> dict[str, Any]:
    return {"index": index, "text": text, "finish_reason": finish_reason, "logprobs": logprobs}


def legacy_logprobs(tokens: Sequence[TokenLogprob], offset: int) -> dict[str, list[Any]]:
    """The completions form: parallel lists; offsets in characters of the choice's text."""
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    offsets = []
    for token in tokens:
        offsets.append(offset)
        offset += len(decode(token.raw)) if token.text else 0
    return {
        "tokens": [_legacy_text(token.text, token.raw) for token in tokens],
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": [None if token.logprob is None else _alternatives(token) for token in tokens],
        "text_offset": offsets,
    }


def _alternatives(token: TokenLogprob) -> dict[str, float]:
    """Best first; of those that read alike the best."""
    found: dict[str, float] = {}
    for _, text, raw, logprob in token.top:
        found.setdefault(_legacy_text(text, raw), logprob)
    return found


def _legacy_text(text: str, raw: bytes) -> str:
    """A part of a character as OpenAI writes it: `bytes:\\xf0\\x9f`. Alternatives would else all have one name."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
    return text


class CompletionStream:
    """Events -> text_completion frames."""

    def __init__(self, call: CompletionCall):
        self.call = call
        self.model = call.requests[0].model or ""
        self.choice = 0
        self.offsets: defaultdict[int, int] = defaultdict(int)
        self.state: dict[str, Any] | None = None
        self.finished: list[Finished] = []

    def opening(self) -> list[Frame]:
        return self.keep_alive()

    def keep_alive(self) -> list[Frame]:
        told = {} if self.state is None else {"smoe": self.state}
        return [self._frame([choice(self.choice, "", None, None)], **told)]

    def event(self, index: int, event: Event) -> list[Frame]:
        self.choice = index
        self.model = getattr(event, "model", "") or self.model
        self.state = waiting_state(event)
        if isinstance(event, Echo | TextDelta):
            return [self._text(index, event)]
        if isinstance(event, Finished):
            return [self._finish(index, event)]
        return []

    def closing(self) -> list[Frame]:
        if not self.call.include_usage:
            return [DONE]
        return [self._frame([], usage=self.call.usage(self.finished)), DONE]

    def failure(self, failure: Failure) -> list[Frame]:
        unfinished = range(len(self.finished), len(self.call.requests))
        cut = [self._frame([choice(index, "", common.CUT_SHORT, None)]) for index in unfinished]
        return [Frame(failure.openai()), *cut, DONE]

    def _text(self, index: int, event: Echo | TextDelta) -> Frame:
        logprobs = legacy_logprobs(event.logprobs, self.offsets[index]) if self.call.logprobs else None
        self.offsets[index] += len(event.text)
        return self._frame([choice(index, event.text, None, logprobs)])

    def _finish(self, index: int, event: Finished) -> Frame:
        self.finished.append(event)
        extra: dict[str, Any] = {"smoe": report(event, self.call.ignored), "timings": common.timings(event)}
        if len(self.finished) == len(self.call.requests) and not self.call.include_usage:
            extra["usage"] = self.call.usage(self.finished)
        return self._frame([choice(index, "", common.FINISH_REASONS[event.reason], None)], **extra)

    def _frame(self, choices: list[dict[str, Any]], **extra: Any) -> Frame:
        unasked = {"usage": None} if self.call.include_usage else {}
        return Frame(self.call.envelope(self.model, choices) | unasked | extra)
