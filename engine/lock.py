"""At most one engine a data directory, over every server process of the machine.

The engine inherits the locked descriptor: where a server is killed, the lock stays held until its engine has ended
too, so that the next server can never start a second one beside it.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path

import psutil

from .errors import EngineFailed


class EngineLock:
    def __init__(self, data_dir: Path) -> None:
        self.path = data_dir / "engine.lock"
        self._descriptor: int | None = None

    @property
    def descriptor(self) -> int:
        """For the engine to inherit; held."""
        assert self._descriptor is not None
        return self._descriptor

    async def acquire(self, patience: float) -> None:
        """Waits `patience` seconds, in which an engine that has lost its server ends. Raises EngineFailed."""
        deadline = asyncio.get_running_loop().time() + patience
        while not self.try_acquire():
            if asyncio.get_running_loop().time() > deadline:
                raise EngineFailed(self._who())
            await asyncio.sleep(0.1)

    def try_acquire(self) -> bool:
        if self._descriptor is not None:
            return True
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        self.note(engine=None)
        return True

    def note(self, engine: int | None) -> None:
        """Tells whoever finds the lock held which processes hold it."""
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, f"{os.getpid()} {engine or 0}\n".encode(), 0)

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _who(self) -> str:
        try:
            server, engine = map(int, self.path.read_text().split())
        except ValueError:
            server = engine = 0
        if _runs(server):
            return (
                f"Another server (process {server}) owns the engine of {self.path.parent}: "
                "stop it, or give this one a --data-dir of its own."
            )
        return (
            f"An engine (process {engine}) whose server has ended is still running on {self.path.parent}: "
            f"end it with `kill {engine}`."
        )


def _runs(pid: int) -> bool:
    """A process that has ended and that its parent has not yet asked about does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
