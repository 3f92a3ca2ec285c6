"""Who holds the engine: one turn at a time, operators first, the others in queue_order's order.

A turn is joined, waited for, and left; whoever holds it may use the engine.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator

from smoe_site.words import counted

from .errors import GenerationError, QueueFull
from .queue_order import Place, QueueOrder

FIRST_GUESS = 10.0  # seconds that a turn takes, before any has been measured


class Turn:
    """A place in the queue. `position` 0 holds the engine, 1 runs next."""

    def __init__(self, place: Place) -> None:
        self.place = place
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
    """limit: turns that may wait behind the one that runs. stay: seconds, as in queue_order."""

    def __init__(self, limit: int, stay: float) -> None:
        self.limit = limit
        self.running: Turn | None = None
        self._operators: deque[Turn] = deque()
        self._waiting: dict[Place, Turn] = {}
        self._order = QueueOrder(stay)
        self._timer: asyncio.TimerHandle | None = None
        self._typical = FIRST_GUESS

    @property
    def waiting(self) -> int:
        return len(self._operators) + len(self._waiting)

    def join(self, client: str, model: str) -> Turn:
        """Raises QueueFull."""
        if self.waiting >= self.limit:
            raise QueueFull(
                f"The queue is full: {counted(self.waiting, 'request')} waiting (--max-queue {self.limit}). "
                "Try again later.",
                self._retry_after(),
            )
        turn = Turn(self._order.place(client, model))
        self._waiting[turn.place] = turn
        self._advance()
        return turn

    def join_first(self, model: str) -> Turn:
        """An operator's turn: before all that wait, and never refused."""
        turn = Turn(Place("", model, (0, 0)))
        self._operators.appendleft(turn)
        self._advance()
        return turn

    def leave(self, turn: Turn) -> None:
        """Gives the engine on, or gives up the place in the queue."""
        if turn is self.running:
            self._typical += 0.2 * (time.monotonic() - turn.started - self._typical)
            self._order.leave(time.monotonic())
            self.running = None
        elif turn in self._operators:
            self._operators.remove(turn)
        elif self._waiting.pop(turn.place, None):
            self._order.give_up(turn.place, self._waiting)
        self._advance()

    def close(self, error: GenerationError) -> None:
        """Everyone who waits gets `error`."""
        for turn in (*self._operators, *self._waiting.values()):
            turn.fail(error)
        self._operators.clear()
        self._waiting.clear()

    def _advance(self) -> None:
        """Grants the next turn where that is due, and tells all others their positions."""
        if self.running is None and self.waiting:
            self._grant()
        turns = (self._waiting[place] for place in self._order.sorted(self._waiting, time.monotonic()))
        for position, turn in enumerate((*self._operators, *turns), 1):
            if turn.position != position:
                turn.move(position)

    def _grant(self) -> None:
        if self._operators:
            self.running = self._operators.popleft()
            self._order.move(self.running.place.model)
        elif place := self._due():
            self.running = self._waiting.pop(place)
            self._order.grant(place, self._waiting)
        if self.running:
            self.running.move(0)

    def _due(self) -> Place | None:
        """Whose turn it is; None while the engine stays on its vault for a turn that may still come."""
        if self._timer:
            self._timer.cancel()
        now = time.monotonic()
        place = self._order.sorted(self._waiting, now)[0]
        pause = self._order.pause(place, now)
        if not pause:
            return place
        self._timer = asyncio.get_running_loop().call_later(pause, self._advance)
        return None

    def _retry_after(self) -> int:
        """Seconds until about half of those who wait have had their turn."""
        return max(1, min(300, math.ceil(self._typical * self.waiting / 2)))
