"""One engine process in conversation: the hello, one open answer at a time, STATUS beside it.

A reader task takes everything that the engine writes and hands it to whom it belongs. What belongs to nobody means
that the boundaries between requests are lost: the engine is killed rather than trusted with another reply.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from . import protocol
from .errors import EngineFailed
from .process import EngineProcess
from .protocol import Done, Gen, Heat, Hello, Message, ProtocolError, Refused, Status

log = logging.getLogger("smoe.engine")


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds. The first three are of silence."""

    boot: float = 600.0  # a large trunk from a slow disk
    answer: float = 1800.0  # a version-1 engine says nothing during a prefill
    drain: float = 30.0  # after the client has gone
    stop: float = 2.0  # for each of: end of input, SIGTERM, SIGKILL
    status: float = 2.0
    lock: float = 5.0  # for an engine whose server was killed to end


class Answer:
    """What the engine says to one request, until its end, a failure, or both are of no interest."""

    def __init__(self, tag: int) -> None:
        self.tag = tag
        self.end: Done | Refused | None = None
        self._inbox: list[Message] = []
        self._failure: Exception | None = None
        self._wake = asyncio.Event()

    async def batch(self) -> list[Message]:
        """The messages that have come since, at least one until the end. Raises EngineFailed, ShuttingDown."""
        while not self._inbox:
            if self._failure:
                raise self._failure
            self._wake.clear()
            await self._wake.wait()
        messages, self._inbox = self._inbox, []
        return messages

    def take(self, message: Message) -> None:
        if isinstance(message, Done | Refused):
            self.end = message
        self._inbox.append(message)
        self._wake.set()

    def fail(self, error: Exception) -> None:
        self._failure = error
        self._wake.set()


class Session:
    """`hello` is known after `handshake`. `on_end` is called once, when the process has been reaped."""

    def __init__(
        self, process: EngineProcess, limits: Limits, on_end: Callable[[Session], None] = lambda session: None
    ) -> None:
        self.process, self.limits = process, limits
        self.hello = Hello()
        self.failure = ""  # why it ended, once it has
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._parser = protocol.Parser()
        self._greeting: asyncio.Future[Hello] = self._loop.create_future()
        self._answer: Answer | None = None
        self._settled = asyncio.Event()  # at a boundary between requests
        self._asked: dict[str, asyncio.Future[Any]] = {}  # status, heat: questions that are not answered yet
        self._tags = 0
        self._watch: asyncio.TimerHandle | None = None
        self._silence = self._heard = 0.0
        self._reader = asyncio.create_task(self._read())

    # --- life -------------------------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        return not self.failure and self.process.returncode is None

    @property
    def greeted(self) -> bool:
        """It has said that it can serve."""
        return self._greeting.done() and self._greeting.exception() is None

    @property
    def settled(self) -> bool:
        """Nothing is owed: the next request may be written. A dead engine owes nothing."""
        return self._settled.is_set()

    async def handshake(self) -> Hello:
        """Raises EngineFailed where the engine ends, or stays silent for too long, before it can serve."""
        self._expect(self.limits.boot)
        self.process.write(protocol.HELLO)
        self.hello = await asyncio.shield(self._greeting)
        self._settle()
        return self.hello

    async def stop(self) -> None:
        """The process has ended and been reaped on return."""
        self.failure = self.failure or "stopped"
        await self.process.stop(self.limits.stop)
        await self._reader

    def kill(self, why: str) -> None:
        self.failure = self.failure or why
        self.process.kill()

    # --- requests ---------------------------------------------------------------------------------------------------

    def supports(self, feature: str) -> bool:
        return feature in self.hello.features

    def next_tag(self) -> int:
        self._tags += 1
        return self._tags

    def generate(self, gen: Gen) -> Answer:
        return self._ask(gen.tag, protocol.gen_line(gen, self.hello.version))

    def reset(self) -> Answer:
        return self._ask(0, protocol.RESET)

    def allow(self, tag: int, allowed: str) -> None:
        """The set of tokens for the next one of generation `tag` that has no set yet."""
        self.process.write(protocol.mask_line(tag, allowed))

    def abandon(self) -> None:
        """Nobody reads the open answer any more: ends it where the engine can, and lets it run out where not."""
        if self._answer is not None:
            if self.supports("cancel") and self._answer.tag:
                self.process.write(protocol.cancel_line(self._answer.tag))
            self._expect(self.limits.drain)

    async def until_settled(self) -> None:
        await self._settled.wait()

    def fail_answer(self, error: Exception) -> None:
        if self._answer is not None:
            self._answer.fail(error)

    async def status(self) -> dict[str, Any]:
        """The engine's figures; {} where it does not tell any, or not in time."""
        status = await self._question("status", protocol.STATUS)
        return status.figures if status else {}

    async def heat(self) -> Heat | None:
        """How often each expert was used since the boot; None where it does not tell."""
        return await self._question("heat", protocol.HEAT)

    def warm(self, uses: Sequence[Sequence[int]]) -> None:
        """Experts are read ahead while nothing is asked, those with most uses first."""
        if self.alive and self.supports("warm"):
            self.process.write(protocol.warm_line(uses))

    async def _question(self, feature: str, line: bytes) -> Any:
        """The answer to a line that may be written at any time. One at a time: askers share its answer."""
        if not (self.alive and self.supports(feature)):
            return None
        if feature not in self._asked:
            self._asked[feature] = self._loop.create_future()
            self.process.write(line)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.limits.status):
                return await asyncio.shield(self._asked[feature])
        return None

    def _ask(self, tag: int, line: bytes) -> Answer:
        assert self.settled, "a request may only be written at a boundary"
        answer = Answer(tag)
        if not self.alive:
            answer.fail(EngineFailed(f"The engine has ended ({self._end_in_words()})."))
            return answer
        self._answer = answer
        self._settled.clear()
        self._expect(self.limits.answer)
        self.process.write(line)
        return answer

    # --- what comes back --------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        try:
            while data := await self.process.read():
                for message in self._parser.feed(data):
                    self._route(message)
        except ProtocolError as error:
            self.kill(f"it broke the serve protocol: {error}")
        finally:
            await self._end()

    def _route(self, message: Message) -> None:
        if self._answer is not None and not isinstance(message, Status | Hello | Heat):
            self._heard = self.process.last_output
            self._answer.take(message)
            if self._answer.end is not None:
                self._settle()
        elif isinstance(message, Status | Heat):
            self._tell_asked("status" if isinstance(message, Status) else "heat", message)
        elif not self._greeting.done() and isinstance(message, Hello | Refused):
            self._greet(message)
        else:
            raise ProtocolError(f"{type(message).__name__} that belongs to no request")

    def _greet(self, message: Hello | Refused) -> None:
        hello = message if isinstance(message, Hello) else Hello(version=1)
        self._parser.version = hello.version
        self._greeting.set_result(hello)

    def _settle(self) -> None:
        self._answer = None
        self._silence = 0.0
        self._settled.set()

    async def _end(self) -> None:
        """stdout is closed: an engine that lives on without it is of no use."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.limits.stop):
                await self.process.wait()
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        self.failure = self.failure or self.process.end_in_words()
        self._tell_end()
        self._on_end(self)

    def _tell_end(self) -> None:
        if self._watch:
            self._watch.cancel()
        error = EngineFailed(
            f"The engine ended during this generation ({self._end_in_words()}). Try again: it restarts."
        )
        self.fail_answer(error)
        self._settle()
        if not self._greeting.done():
            self._greeting.set_exception(EngineFailed(f"The engine could not start ({self._end_in_words()})."))
            self._greeting.exception()  # retrieved: nobody may be waiting
        for feature in list(self._asked):
            self._tell_asked(feature, None)

    def _tell_asked(self, feature: str, answer: Status | Heat | None) -> None:
        future = self._asked.pop(feature, None)
        if future is not None and not future.done():
            future.set_result(answer)

    def _end_in_words(self) -> str:
        end = self.process.end_in_words()
        return end if self.failure in ("", "stopped", end) else f"{self.failure}; {end}"

    # --- silence ----------------------------------------------------------------------------------------------------

    def _expect(self, silence: float) -> None:
        """Something must be heard at least every `silence` seconds, until the next boundary."""
        self._silence = silence
        self._heard = self._loop.time()
        if self._watch:
            self._watch.cancel()
        self._watch = self._loop.call_later(silence, self._check_silence)

    def _check_silence(self) -> None:
        """Re-arms itself instead of being re-armed by each token, which would cost more than the token."""
        if not self._silence:
            return
        # While booting any line is a sign of life; later only the answer is: STATUS is answered by another thread.
        heard = self._heard if self._greeting.done() else max(self._heard, self.process.last_output)
        quiet = self._loop.time() - heard
        if quiet < self._silence:
            self._watch = self._loop.call_later(self._silence - quiet, self._check_silence)
        else:
            self.kill(f"it was silent for {self._silence:.0f} seconds")
