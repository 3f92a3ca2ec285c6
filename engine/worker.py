"""Owns the one engine process: queue, switch, cancel, respawn.

The interface that generation.py, api/ and the admin use (all coroutines of the server's event loop):

    worker = get_worker()                         # one for the process
    async for event in worker.stream(job): ...    # Queued, Booting, Prefill, Tokens, Ended
    await worker.switch(card); await worker.unload(); await worker.reset(); await worker.close()
    await worker.status() -> dict                 # the engine's STATUS figures, {} when it is down
    worker.snapshot() -> EngineSnapshot           # no I/O: for /health, /v1/models, the console
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class EngineSnapshot:
    """`since`: time.time() of the last change of state. `waiting` requests stand in the queue behind `running`."""

    state: Literal["up", "booting", "down"]
    model: str | None  # the vault that is up or booting
    pid: int | None
    since: float
    last_error: str
    waiting: int
    running: bool
    context: int  # the window in positions
    protocol: int | None  # the serve protocol's version, once it is up
    boots: int  # engine processes started so far


class Worker:
    def snapshot(self) -> EngineSnapshot:
        raise NotImplementedError

    async def status(self) -> dict[str, int | float | str]:
        raise NotImplementedError

    async def unload(self) -> None:
        raise NotImplementedError


def get_worker() -> Worker:
    raise NotImplementedError
