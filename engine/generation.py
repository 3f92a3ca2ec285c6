"""One generation's way: catalog, prompt, worker, text. The only thing that api/ calls.

    async for event in stream(request): ...      # engine.messages.Event, ending with Finished
    await count_tokens(request) -> int           # the same templating, no engine
    await active_model() -> str | None           # the vault that an unknown or missing name runs on

All raise engine.errors. `stream` raises before its first event where the request cannot run at all; leaving the
iterator (break, aclose, cancelling the task) ends the generation in the engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial

from django.conf import settings

from fleet import catalog
from fleet.catalog import ModelCard

from . import masking, prompt, records
from .errors import GenerationError, InvalidRequest, ModelUnavailable, PromptTooLong, TurnedAway
from .job import Ended, Job, PromptTokens, Tokens, WorkerEvent
from .messages import Accepted, Event, Finished, FinishReason, GenerationRequest, Prefill, Usage
from .prompt import Codec, Prompt
from .records import Record
from .reply import Reply
from .window import exceeds, reply_budget
from .worker import get_worker

log = logging.getLogger("smoe.generation")
MAX_STOPS = 64  # an editor's completion sends 24, a role play one for each of its names
MAX_STOP_LENGTH = 4096  # characters; finding where a longer one begins could take longer than a token
# A longer text slides out of any window before its reply begins; tokenizing takes up to 330 bytes of a character.
CHARACTERS_A_POSITION = 16
LARGEST_WINDOW = 1 << 20  # positions, as --ctx has it
BREATH = 16  # events in a row before others get the event loop


async def stream(request: GenerationRequest) -> AsyncIterator[Event]:
    """Accepted [Queued..] [Booting..] Prefill.. [Echo] [text, reasoning and tool call deltas..] Finished."""
    record = records.new(request)
    keeps_text = settings.SMOE.log_text
    if keeps_text:
        record.prompt = records.prompt_text(request)
    try:
        records.start(record)
        async with contextlib.aclosing(_generate(request, record)) as events:
            async for event in events:
                if keeps_text:
                    record.hear(event)
                yield event
    except Exception as error:
        record.turned_away = isinstance(error, TurnedAway)
        record.error = error.message if isinstance(error, GenerationError) else f"internal error: {error!r}"
        raise
    finally:
        if not record.error and record.reason is None:
            record.reason = "cancel"
        records.finish(record)


async def count_tokens(request: GenerationRequest) -> int:
    """Ids of the prompt."""
    card = await resolve(request.model, request.vaults)
    return len((await _encode(card, request))[1].ids)


def may_not_fit(size: int, request: GenerationRequest) -> bool:
    """Whether a prompt of at most `size` ids might be refused for its length. Knows the active vault's window only."""
    return exceeds(size, request.max_tokens, get_worker().snapshot().context, request.may_slide)


async def active_model() -> str | None:
    """None where the fleet has nothing to serve."""
    card = await active_card()
    return card.id if card else None


async def active_card() -> ModelCard | None:
    """What the engine runs or boots, else what it would boot first. A vault that has left the fleet comes last."""
    running = get_worker().card
    if running and (card := await catalog.afind(running.id)):
        return card
    if running and catalog.is_there(running):  # being written at this moment
        return running
    return next(iter(await catalog.aservable()), running)


async def resolve(name: str | None, allowed: frozenset[str] | None = None) -> ModelCard:
    """A vault by its id; an unknown, legacy or missing name means the active one. Raises ModelUnavailable.

    allowed: those that the client's key may use, of which one stands in for an active vault that it may not; None means
    every one.
    """
    card = await _named(name) or await _default(allowed)
    if allowed is not None and card.id not in allowed:
        raise ModelUnavailable(f"This key may not use {card.id}; it may use {', '.join(sorted(allowed))}.")
    return card


async def _named(name: str | None) -> ModelCard | None:
    if not name or name == settings.SMOE.model_id:
        return None
    card = await catalog.afind(name)
    if card is None and (reason := await catalog.aunavailable(name)):
        raise ModelUnavailable(reason)
    return card


async def _default(allowed: frozenset[str] | None) -> ModelCard:
    active = await active_card()
    if active and allowed is not None and active.id not in allowed:
        return next((card for card in await catalog.aservable() if card.id in allowed), active)
    if active:
        return active
    raise ModelUnavailable(
        f"There is no vault to serve in {settings.SMOE.vault_dir}: put a pair of *.smoe and *.scout.safetensors there, "
        "or make the demo's with `make demo`."
    )


async def start() -> None:
    """Warms what the first request would wait for: the tokenizer and the engine, in the background."""
    try:
        if card := await active_card():
            get_worker().start(card)
            await prompt.codec_for(card)
    except GenerationError as error:
        log.error("%s", error.message)


async def _generate(request: GenerationRequest, record: Record) -> AsyncIterator[Event]:
    _check(request)
    card = await resolve(request.model, request.vaults)
    record.model = card.id
    codec, encoded = await _encode(card, request)
    job = await _job(request, card, codec, encoded)
    yield Accepted(len(encoded.ids))
    reply = Reply(codec, request, encoded)
    breaths = Breaths()
    try:
        async with contextlib.aclosing(get_worker().stream(job)) as events:
            async for event in events:
                for told in _told(event, reply, job, record):
                    yield told
                    await breaths.take()
    finally:
        if record.reason is None:  # its client has left, or it failed: the time that it took was taken
            record.timings = job.stages.timings()


async def _encode(card: ModelCard, request: GenerationRequest) -> tuple[Codec, Prompt]:
    window = get_worker().window(card)
    most = _most_characters(window or max(settings.SMOE.window, card.trained_context or 0))
    if prompt.is_long(request, most) or len(request.prompt_ids or ()) > most:
        raise PromptTooLong(most)
    codec = await prompt.codec_for(card)
    return codec, await prompt.encode(codec, card, request)


def _most_characters(window: int) -> int:
    return max(prompt.LONG, CHARACTERS_A_POSITION * min(window, LARGEST_WINDOW))


def _told(event: WorkerEvent, reply: Reply, job: Job, record: Record) -> Iterator[Event]:
    """What the client gets for one of the worker's events; `record` follows."""
    if isinstance(event, Tokens):
        record.first_token = record.first_token or time.monotonic()
        yield from reply.echo()
        yield from _text(event, reply, job)
        record.usage = _usage(record.usage.prompt, record.usage.cached, reply)
    elif isinstance(event, PromptTokens):
        reply.feed_prompt(event.tokens)
    elif isinstance(event, Ended):
        yield from reply.echo()
        yield from reply.finish(cut=event.reason != "stop")
        yield _finished(event, reply, job.card, record)
    else:
        if isinstance(event, Prefill):
            record.usage = _usage(event.total, event.cached, reply)
        yield event


def _text(event: Tokens, reply: Reply, job: Job) -> Iterator[Event]:
    for token in event.tokens:
        yield from reply.feed(token)
        if reply.is_over:
            job.finish()
            return


class Breaths:
    """Gives others the event loop now and then: an engine may be faster than the network."""

    def __init__(self) -> None:
        self._unbroken = 0

    async def take(self) -> None:
        self._unbroken += 1
        if self._unbroken >= BREATH:
            self._unbroken = 0
            await asyncio.sleep(0)


async def _job(request: GenerationRequest, card: ModelCard, codec: Codec, encoded: Prompt) -> Job:
    fit = partial(reply_budget, len(encoded.ids), request.max_tokens, may_slide=request.may_slide)
    return Job(
        card=card,
        ids=encoded.ids,
        max_tokens=fit(get_worker().window(card)),
        fit=fit,
        sampling=request.sampling,
        stop_ids=tuple(sorted(codec.eos_ids.difference(card.eos_ids))),
        logprobs=request.logprobs,
        prompt_logprobs=request.logprobs if request.echo else None,
        mask=await masking.masks_for(request, card, codec, encoded),
        client=request.client,
    )


def _check(request: GenerationRequest) -> None:
    if len(request.stop) > MAX_STOPS:
        raise InvalidRequest(f"There are {len(request.stop)} stop strings: at most {MAX_STOPS} are supported.", "stop")
    if (longest := max(map(len, request.stop), default=0)) > MAX_STOP_LENGTH:
        raise InvalidRequest(
            f"A stop string has {longest} characters: at most {MAX_STOP_LENGTH} are supported.", "stop"
        )
    least = 0 if request.echo else 1
    if request.max_tokens is not None and request.max_tokens < least:
        raise InvalidRequest(f"max_tokens is {request.max_tokens}: it must be at least {least}.", "max_tokens")


def _finished(ended: Ended, reply: Reply, card: ModelCard, record: Record) -> Finished:
    record.reason = _reason(ended, reply)
    record.usage = _usage(ended.prompt, ended.cached, reply)
    record.timings = ended.timings
    return Finished(
        reason=record.reason,
        usage=record.usage,
        timings=ended.timings,
        model=card.id,
        stop_sequence=reply.stopped_by,
        slid=ended.slid,
        context=ended.context,
    )


def _reason(ended: Ended, reply: Reply) -> FinishReason:
    if reply.stopped_by is not None:
        return "stop_sequence"
    if reply.calls and (reply.is_over or ended.reason == "stop"):
        return "tool_calls"
    return ended.reason


def _usage(prompt_ids: int, cached: int, reply: Reply) -> Usage:
    return Usage(prompt_ids, cached, reply.generated, reply.reasoning)
