"""Who runs next: one turn at a time, first come first served.

A turn is joined, waited for, and left; whoever holds it may use the engine. `_next` is the whole policy.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator

from .errors import GenerationError, QueueFull

FIRST_GUESS = 10.0  # seconds that a turn takes, before any has been measured


class Turn:
    """A place in the queue. `position` 0 holds the engine, 1 runs next."""

    def __init__(self, client: str, model: str) -> None:
        self.client, self.model = client, model
        self.position = 0
        self.started = 0.0  # time.monotonic() at which it was granted
        self._failure: GenerationError | None = None
        self._changed = asyncio.Event()

    async def positions(self) -> AsyncIterator[int]:
        """Each new position until the turn is granted. Raises what closed the queue."""
        told = 0
        while self.position:
            if self._failure:
                raise self._failure
            if self.position != told:
                told = self.position
                yield told
            else:
                self._changed.clear()
                await self._changed.wait()

    def move(self, position: int) -> None:
        self.position = position
        if not position:
            self.started = time.monotonic()
        self._changed.set()

    def fail(self, error: GenerationError) -> None:
        self._failure = error
        self._changed.set()


class Turns:
    """limit: turns that may wait behind the one that runs."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.running: Turn | None = None
        self._waiting: deque[Turn] = deque()
        self._typical = FIRST_GUESS

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def join(self, client: str, model: str) -> Turn:
        """Raises QueueFull."""
        if self.waiting >= self.limit:
            raise QueueFull(
                f"{self.waiting} requests are waiting already (--max-queue {self.limit}): try again later.",
                self._retry_after(),
            )
        turn = Turn(client, model)
        self._waiting.append(turn)
        self._advance()
        return turn

    def join_first(self, model: str) -> Turn:
        """An operator's turn: before all that wait, and never refused."""
        turn = Turn("", model)
        self._waiting.appendleft(turn)
        self._advance()
        return turn

    def leave(self, turn: Turn) -> None:
        """Gives the engine on, or gives up the place in the queue."""
        if turn is self.running:
            self._typical += 0.2 * (time.monotonic() - turn.started - self._typical)
            self.running = None
        elif turn in self._waiting:
            self._waiting.remove(turn)
        self._advance()

    def close(self, error: GenerationError) -> None:
        """Everyone who waits gets `error`."""
        for turn in self._waiting:
            turn.fail(error)
        self._waiting.clear()

    def _advance(self) -> None:
        if self.running is None and self._waiting:
            self.running = self._next()
            self.running.move(0)
        for position, turn in enumerate(self._waiting, 1):
            if turn.position != position:
                turn.move(position)

    def _next(self) -> Turn:
        return self._waiting.popleft()

    def _retry_after(self) -> int:
        """Seconds until about half of those who wait have had their turn."""
        return max(1, min(300, math.ceil(self._typical * self.waiting / 2)))
