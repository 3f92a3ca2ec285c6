"""Owns the one engine process: queue, switch, cancel, respawn.

The interface that generation.py, api/ and the admin use (all coroutines of the server's event loop):

    worker = get_worker()                         # one for the process
    async for event in worker.stream(job): ...    # Queued, Booting, Prefill, Tokens, Ended
    await worker.switch(card); await worker.unload(); await worker.reset(); await worker.close()
    await worker.status() -> dict                 # the engine's STATUS figures, {} when it is down
    worker.snapshot() -> EngineSnapshot           # no I/O: for /health, /v1/models, the console

Who holds the running turn (turns.py) may start, stop and talk to the engine; nobody else. A turn is given on only
when the engine is back at a boundary between requests, so that no reply can reach into the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from django.conf import settings

from fleet.catalog import ModelCard
from smoe_site.options import Options

from . import happenings, launch
from .errors import EngineFailed, GenerationError, ModelUnavailable, ShuttingDown
from .exchange import Exchange
from .job import Job, WorkerEvent
from .lock import EngineLock
from .messages import Booting, Queued
from .process import EngineProcess
from .protocol import Heat
from .session import Limits, Session
from .turns import Turn, Turns

log = logging.getLogger("smoe.worker")
BOOT_RETRIES = 2  # boots that may fail in a row before the worker waits between them


@dataclass(frozen=True, slots=True)
class EngineSnapshot:
    """`since`: time.time() of the last change of state. `waiting` requests stand in the queue behind `running`."""

    state: Literal["up", "booting", "down"]
    model: str | None  # the vault that is up or booting
    pid: int | None  # of the engine's process until it has ended, also while it is being stopped
    since: float
    last_error: str
    waiting: int
    running: bool
    context: int  # the window in positions
    protocol: int | None  # the serve protocol's version, once it is up
    boots: int  # engine processes started so far
    seconds: float = 0.0  # in this state; a step of the clock moves `since` only


@dataclass(slots=True)
class _Failures:
    """Boots of one vault that failed in a row, the last at `at` (time.monotonic())."""

    count: int
    at: float
    error: GenerationError

    @property
    def pause(self) -> float:
        """Seconds: 1, 2, 4 ... 30."""
        return min(30.0, 2.0 ** (self.count - BOOT_RETRIES))


class Worker:
    def __init__(self, options: Options, limits: Limits | None = None) -> None:
        self.options, self.limits = options, limits or Limits()
        self.lock = EngineLock(options.data_dir)
        self._turns = Turns(options.max_queue, options.min_stay)
        self._session: Session | None = None
        self._card: ModelCard | None = None  # the session's, or that of the boot
        self._boot: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures: dict[str, _Failures] = {}
        self._last_error = ""
        self._note_change()
        self._boots = 0
        self._booted: str | None = None  # the vault that was up last
        self._crashed = False  # since the last boot
        self._closing = False

    # --- what others may ask ----------------------------------------------------------------------------------------

    async def stream(self, job: Job) -> AsyncIterator[WorkerEvent]:
        """Raises engine.errors. Closing the iterator at any time ends the generation."""
        self._refuse_when_closing()
        turn = self._turns.join(job.client, job.card.id)
        job.stages.enter("queue")
        try:
            async with contextlib.aclosing(turn.positions()) as positions:
                async for position in positions:
                    yield Queued(position, job.card.id)
            granted = time.monotonic()
            job.stages.enter("boot")
            boot = self._ensure(job.card)
            while boot and not boot.done():
                yield Booting(job.card.id, time.monotonic() - granted)
                await asyncio.wait({boot}, timeout=1.0)
            if boot:
                boot.result()
            exchange = Exchange(self._session, job, self.options.window)
            async with contextlib.aclosing(exchange.events()) as events:
                async for event in events:
                    yield event
        finally:
            self._leave(turn)

    def start(self, card: ModelCard) -> None:
        """Boots in the background, unless someone has asked for the engine already."""
        if self._turns.running is None and not self._closing:
            self._ensure(card)

    async def switch(self, card: ModelCard) -> None:
        """After the running generation and before those that wait."""
        async with self._operator(card.id):
            if boot := self._ensure(card):
                await asyncio.shield(boot)

    async def unload(self) -> None:
        """Ends the engine after the running generation; the next request starts it again."""
        async with self._operator(""):
            await _cancel(self._boot)
            await self._retire()

    async def reset(self) -> None:
        """Drops the conversations that the engine has cached."""
        async with self._operator(""):
            if self._session and self._session.alive and self._session.settled:  # one that boots has none
                await self._session.reset().batch()

    async def status(self) -> dict[str, Any]:
        return await self._session.status() if self._session else {}

    async def heat(self) -> Heat | None:
        """Uses of each expert since the boot; None where the engine is down or does not tell."""
        return await self._session.heat() if self._session else None

    def warm(self, model: str, uses: Sequence[Sequence[int]]) -> None:
        """Tells the engine how often each expert was used in earlier runs, if it is up on this vault."""
        if self._session and self._card and self._card.id == model:
            self._session.warm(uses)

    def snapshot(self) -> EngineSnapshot:
        session = self._session
        up = session is not None and session.alive and not self._is_booting
        shown = self._card if up or self._is_booting else None
        return EngineSnapshot(
            state="up" if up else "booting" if self._is_booting else "down",
            model=shown.id if shown else None,
            pid=session.process.pid if session and session.process.returncode is None else None,
            since=self._since,
            last_error=self._last_error,
            waiting=self._turns.waiting,
            running=self._turns.running is not None,
            context=(session.hello.context if session else None) or self.options.window,
            protocol=session.hello.version if up else None,
            boots=self._boots,
            seconds=time.monotonic() - self._changed,
        )

    def window(self, card: ModelCard) -> int | None:
        """Positions that the engine has on this vault; None where only its boot will tell."""
        session = self._session
        if self._is_on(card) and session and session.alive and not self._is_booting:
            return session.hello.context or self.options.window
        return self.options.ctx or None

    @property
    def card(self) -> ModelCard | None:
        """Of the vault that is up or booting."""
        return self._card if self._is_booting or (self._session and self._session.alive) else None

    async def close(self) -> None:
        """Everyone gets ShuttingDown; the engine has ended and the lock is free on return."""
        self._closing = True
        error = ShuttingDown("The server is shutting down.")
        self._turns.close(error)
        if self._session:
            self._session.fail_answer(error)
        await _cancel(self._boot)
        await self._retire()
        self.lock.release()

    # --- turns ------------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _operator(self, model: str) -> AsyncIterator[None]:
        self._refuse_when_closing()
        turn = self._turns.join_first(model)
        try:
            async with contextlib.aclosing(turn.positions()) as positions:
                async for _ in positions:
                    pass
            yield
        finally:
            self._leave(turn)

    def _leave(self, turn: Turn) -> None:
        """Never waits: it also runs where a client's task is being cancelled."""
        session = self._session
        if turn is not self._turns.running or session is None or session.settled or self._is_booting:
            self._turns.leave(turn)
            return
        session.abandon()
        self._spawn(self._leave_settled(turn, session))

    async def _leave_settled(self, turn: Turn, session: Session) -> None:
        await session.until_settled()
        self._turns.leave(turn)

    def _refuse_when_closing(self) -> None:
        if self._closing:
            raise ShuttingDown("The server is shutting down.")

    def _spawn(self, coroutine: Any) -> asyncio.Task[None]:
        # In a context of its own: the engine outlives the request that happened to start it.
        task = asyncio.create_task(coroutine, context=contextvars.Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # --- the process ------------------------------------------------------------------------------------------------

    @property
    def _is_booting(self) -> bool:
        return self._boot is not None and not self._boot.done()

    def _is_on(self, card: ModelCard) -> bool:
        """Whether the engine that is up or booting is this vault's."""
        return self._card is not None and _launched_by(self._card) == _launched_by(card)

    def _ensure(self, card: ModelCard) -> asyncio.Task[None] | None:
        """None where the engine is up on this vault, else the boot to wait for. Raises the last boot's failure."""
        same = self._is_on(card)
        if self._is_booting and same:
            return self._boot
        if not self._is_booting and same and self._session and self._session.alive:
            return None
        self._pause_after_failures(card)
        self._card = card
        self._boot = self._spawn(self._restart(card, self._boot))
        self._boot.add_done_callback(_retrieve)  # whoever asked may have gone
        return self._boot

    async def _restart(self, card: ModelCard, unwanted_boot: asyncio.Task[None] | None) -> None:
        await _cancel(unwanted_boot)
        await self._retire()
        self._note_change()
        try:
            await self._spawn_engine(card)
        except GenerationError as error:
            self._note_failure(card, error)
            raise
        finally:
            self._note_change()
        self._failures.pop(card.id, None)
        self._last_error = ""

    async def _spawn_engine(self, card: ModelCard) -> None:
        await self.lock.acquire(self.limits.lock)
        log.info("starting the engine on %s", card.id)
        started = time.monotonic()
        process = await EngineProcess.spawn(
            launch.command(self.options, card), [self.lock.descriptor], launch.environment(self.options, card)
        )
        self._boots += 1
        self.lock.note(process.pid)
        self._session = session = Session(process, self.limits, self._on_end)
        try:
            hello = await session.handshake()
        except BaseException as error:
            await session.stop()
            raise _boot_error(card, session, error) from None
        log.info("the engine is up on %s (serve protocol %d, process %d)", card.id, hello.version, process.pid)
        self._tell_boot(card, process.pid, hello.version, time.monotonic() - started)

    def _tell_boot(self, card: ModelCard, pid: int, version: int, seconds: float) -> None:
        kind = "respawn" if self._crashed else "switch" if self._booted not in (None, card.id) else "boot"
        self._crashed, self._booted = False, card.id
        message = f"The engine runs {card.id} after {seconds:.1f} s."
        happenings.tell(kind, card.id, message, pid=pid, protocol=version, seconds=round(seconds, 3))

    def _note_change(self) -> None:
        self._since, self._changed = time.time(), time.monotonic()

    async def _retire(self) -> None:
        if session := self._session:
            await session.stop()
            self._session = None

    def _on_end(self, session: Session) -> None:
        if session.failure != "stopped" and session.greeted:  # one that never served is told by its boot
            self._last_error = f"The engine ended ({session.failure})."
            log.error("the engine (process %d) ended: %s", session.process.pid, session.failure)
            self._crashed = True
            happenings.tell(
                "crash",
                self._card.id if self._card else "",
                self._last_error,
                pid=session.process.pid,
                exit_code=session.process.returncode,
                stderr=session.process.last_lines,
            )
        if session is self._session:
            self._note_change()

    def _note_failure(self, card: ModelCard, error: GenerationError) -> None:
        before = self._failures.get(card.id)
        self._failures[card.id] = _Failures(before.count + 1 if before else 1, time.monotonic(), error)
        self._last_error = error.message
        log.error("%s", error.message)
        happenings.tell("failed", card.id, error.message)

    def _pause_after_failures(self, card: ModelCard) -> None:
        failures = self._failures.get(card.id)
        if failures and failures.count >= BOOT_RETRIES and time.monotonic() < failures.at + failures.pause:
            raise failures.error


def _launched_by(card: ModelCard) -> tuple[Any, ...]:
    """What an engine process is started with and keeps: another vault, or other contents, need another process."""
    return card.vault_path, card.scout_path, card.fingerprint, card.eos_ids


def _boot_error(card: ModelCard, session: Session, error: BaseException) -> BaseException:
    """An engine that ends by itself has refused this vault; everything else is no fault of the vault."""
    if not isinstance(error, GenerationError):
        return error
    if (session.process.returncode or 0) > 0:
        return ModelUnavailable(f"The engine cannot serve {card.id} ({session.process.end_in_words()}).")
    return EngineFailed(f"{error.message} The vault was {card.id}.")


async def _cancel(task: asyncio.Task[None] | None) -> None:
    if task is not None and not task.done():
        task.cancel()
        await asyncio.wait({task})


def _retrieve(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()


_worker: Worker | None = None


def get_worker() -> Worker:
    """The process's one worker, made at the first call."""
    global _worker
    if _worker is None:
        _worker = Worker(settings.SMOE)
    return _worker


async def close_worker() -> None:
    """Ends the process's worker; get_worker makes a new one after (a server that stops keeps its closed one)."""
    global _worker
    worker, _worker = _worker, None
    if worker:
        await worker.close()
