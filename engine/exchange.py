"""One job's talk with the engine: GEN, masks, the answer, and another try where a version-1 engine refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

from .errors import ContextOverflow, EngineFailed, InvalidRequest
from .job import Ended, Job, PromptTokens, Tokens
from .messages import Prefill, Timings
from .protocol import Done, Gen, Message, Progress, PromptToken, Refused, Token, unsupported_by_v1
from .session import Answer, Session

FIELDS = {"t": "temperature", "p": "top_p", "k": "top_k", "r": "repetition_penalty", "m": "min_p", "lb": "logit_bias"}
FIELDS |= {"pp": "presence_penalty", "fp": "frequency_penalty", "lp": "logprobs", "plp": "logprobs", "stop": "stop"}


class Exchange:
    """context: the window where the engine does not tell it."""

    def __init__(self, session: Session, job: Job, context: int) -> None:
        self._session, self._job = session, job
        self._context = session.hello.context or context
        self._ids = job.ids
        self._cut = 0  # ids of the prompt that were left out to fit the window
        self._was_reset = False
        self._cached = self._generated = 0
        self._tag = 0
        self._stopped = False

    async def events(self) -> AsyncIterator[Prefill | PromptTokens | Tokens | Ended]:
        self._refuse_what_v1_lacks()
        if self._job.fit:
            self._job.max_tokens = self._job.fit(self._context)
        while True:
            answer = await self._begin()
            if self._session.hello.version < 2:
                yield Prefill(self._job.card.id, 0, len(self._ids), 0)
            over = False
            while not over:
                messages = await answer.batch()
                events = self._digest(messages)
                await self._allow_next(events)
                for event in events:
                    yield event
                over = self._stopped or self._job.finished or messages[-1] is answer.end
            if isinstance(answer.end, Refused):
                await self._repair(answer.end)
            else:
                yield self._ended(answer.end or Done("stop"))
                return

    async def _begin(self) -> Answer:
        self._job.stages.enter("prefill")
        self._tag = self._session.next_tag()
        answer = self._session.generate(self._gen())
        await self._allow([])
        return answer

    async def _allow_next(self, events: list[Prefill | PromptTokens | Tokens]) -> None:
        if events and isinstance(events[-1], Tokens) and not self._stopped and self._generated < self._job.max_tokens:
            await self._allow([token.id for token in events[-1].tokens])

    async def _allow(self, accepted: list[int]) -> None:
        """In a thread: one step of a hostile grammar takes seconds."""
        if mask := self._job.mask:
            self._session.allow(self._tag, await asyncio.to_thread(mask, accepted))

    def _gen(self) -> Gen:
        job = self._job
        return Gen(
            self._ids,
            job.max_tokens,
            job.sampling,
            self._tag,
            job.stop_ids,
            job.logprobs,
            job.prompt_logprobs,
            mask=job.mask is not None,
        )

    def _digest(self, messages: list[Message]) -> list[Prefill | PromptTokens | Tokens]:
        events: list[Prefill | PromptTokens | Tokens] = []
        tokens: list[Token] = []
        if prompt := [message.token for message in messages if isinstance(message, PromptToken)]:
            events.append(PromptTokens(prompt))
        for message in messages:
            if isinstance(message, Token):
                tokens.append(message)
            elif isinstance(message, Progress):
                self._cached = message.cached
                events.append(Prefill(self._job.card.id, message.done, message.total, message.cached))
        if tokens := self._accept(tokens):
            events.append(Tokens(tokens))
        return events

    def _accept(self, tokens: list[Token]) -> list[Token]:
        if not tokens:
            return tokens
        self._job.stages.enter("decode")
        tokens = self._until_stop(tokens)
        self._generated += len(tokens)
        return tokens

    def _until_stop(self, tokens: list[Token]) -> list[Token]:
        """A version-1 engine knows the end-of-sequence ids of its launch only: the job's further ones are ours."""
        if self._session.hello.version >= 2 or not self._job.stop_ids:
            return tokens
        for index, token in enumerate(tokens):
            if token.id in self._job.stop_ids:
                self._stopped = True
                return tokens[:index]
        return tokens

    def _ended(self, done: Done) -> Ended:
        number = done.number
        slid = number("slid")
        if slid is None:
            slid = max(0, len(self._ids) + self._generated - self._context)
        return Ended(
            reason=done.reason if done.reason in ("stop", "length", "cancel") else "stop",
            prompt=int(number("prompt") or len(self._job.ids)),
            cached=int(number("cached") or self._cached),
            generated=self._generated,
            slid=int(slid) + self._cut,
            context=self._context,
            timings=self._timings(done),
        )

    def _timings(self, done: Done) -> Timings:
        """The engine's own figures, else what the clock here says."""
        number, clock = done.number, self._job.stages.timings()
        prefill, decode = number("prefill_ms"), number("decode_ms")
        counts = {"expert_hits": number("hits"), "expert_misses": number("misses"), "bytes_read": number("bytes")}
        return replace(
            clock,
            prefill_ms=clock.prefill_ms if prefill is None else prefill,
            decode_ms=clock.decode_ms if decode is None else decode,
            stall_ms=number("stall_ms"),
            **{name: None if count is None else int(count) for name, count in counts.items()},
        )

    # --- refusals ---------------------------------------------------------------------------------------------------

    def _refuse_what_v1_lacks(self) -> None:
        if self._session.hello.version < 2 and (lacking := unsupported_by_v1(self._gen())):
            raise InvalidRequest(
                f"This engine (serve protocol version 1) does not support {', '.join(lacking)}: leave it out.",
                lacking[0],
            )

    async def _repair(self, refused: Refused) -> None:
        """Returns where another try is worth it."""
        if refused.reason == "empty_suffix" and not self._was_reset:
            self._was_reset = True
            await self._session.reset().batch()
        elif refused.reason == "suffix_too_long" and not self._cut and len(self._ids) > self._context:
            self._cut = len(self._ids) - self._context
            self._ids = self._ids[self._cut :]
        else:
            raise self._refusal(refused)

    def _refusal(self, refused: Refused) -> Exception:
        prompt, asked = len(self._job.ids), self._job.max_tokens
        if refused.reason in ("ctx_overflow", "suffix_too_long"):
            return ContextOverflow(
                f"The prompt has {prompt} tokens, more than the engine can take with a window of {self._context}: "
                "shorten the conversation.",
                prompt,
                asked,
                self._context,
            )
        if refused.reason == "bad_request":
            name = FIELDS.get(refused.detail.removeprefix("field="))
            words = (
                f"This model cannot use the value of {name}"
                if name
                else f"The engine refused it: {refused.detail or 'no reason given'}"
            )
            return InvalidRequest(f"{words}.", name)
        if refused.reason == "read_failed":
            return EngineFailed(
                f"An expert of {self._job.card.id} could not be read ({refused.detail}): look after the vault's file "
                "and its disk, then try again."
            )
        return EngineFailed(f"The engine refused the request: {refused.reason} {refused.detail}".rstrip() + ".")
