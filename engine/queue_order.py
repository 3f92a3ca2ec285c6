"""In which order turns run: fair between clients, and without thrashing the engine between vaults. Pure, no clock.

Fairness. Turns are dealt into rounds as they come, at most one of each client to a round, and run by round, then by
arrival: start-time fair queueing (Goyal, Vin and Cheng, 1996) in which every turn costs the same. A client that asks
once waits for at most one turn of each other client, however many they have queued.

Stay. A switch of vaults is dear, so after one the engine stays for `stay` seconds, counted from the end of the first
turn on the new vault: turns on it run before those on others, and for `LINGER` seconds after each it also waits for
the next, since an agent asks again as soon as its tool has run. Without more work on its vault, or after the stay,
the next turn is the first of them all. Nothing starves: that first turn is served whenever a stay ends, and every new
turn's round lies after it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

LINGER = 2.0  # seconds


@dataclass(eq=False, slots=True)
class Place:
    """What the order knows of a turn."""

    client: str
    model: str  # "" for an operator's turn that is about no vault
    rank: tuple[int, int]  # round, arrival


class QueueOrder:
    """Times are seconds of any one clock."""

    def __init__(self, stay: float) -> None:
        self.stay = stay
        self._round = 0  # no place that comes from now on is dealt into it or one before
        self._arrivals = 0
        self._dealt: dict[str, int] = {}  # client -> its last round
        self._model = ""  # the vault that the engine is on
        self._settled: float | None = None  # when the first turn on it ended
        self._left = 0.0  # when the last one did

    def place(self, client: str, model: str) -> Place:
        round = 1 + max(self._round, self._dealt.get(client, 0))
        self._dealt[client] = round
        self._arrivals += 1
        return Place(client, model, (round, self._arrivals))

    def give_up(self, place: Place, waiting: Iterable[Place]) -> None:
        """`place` will not run: its client's later ones move up, and the next to come gets the round that is left."""
        client, free = place.client, place.rank[0]
        later = (other for other in waiting if other.client == client and other.rank > place.rank)
        for other in sorted(later, key=lambda other: other.rank):
            free, other.rank = other.rank[0], (free, other.rank[1])
        if self._dealt.get(client) == free:
            self._dealt[client] = free - 1

    def sorted(self, waiting: Iterable[Place], now: float) -> list[Place]:
        """As they would run if nothing else came."""
        stays = self._stays(now)
        return sorted(waiting, key=lambda place: (stays and place.model != self._model, place.rank))

    def pause(self, first: Place, now: float) -> float:
        """Seconds to wait for another turn on the engine's vault before `first`, the first of `sorted`, may run."""
        if first.model == self._model or not self._stays(now) or self._settled is None:
            return 0.0
        return max(0.0, min(self._settled + self.stay, self._left + LINGER) - now)

    def grant(self, place: Place, waiting: Iterable[Place]) -> None:
        """`place` runs; `waiting` are those that do not."""
        first = min((place, *waiting), key=lambda other: other.rank)
        self._round = max(self._round, first.rank[0])
        self._dealt = {client: round for client, round in self._dealt.items() if round > self._round}
        self.move(place.model)

    def move(self, model: str) -> None:
        """The engine is used on `model`."""
        if model and model != self._model:
            self._model, self._settled = model, None

    def leave(self, now: float) -> None:
        """The turn that ran has ended."""
        self._left = now
        if self._settled is None:
            self._settled = now

    def _stays(self, now: float) -> bool:
        return bool(self._model) and (self._settled is None or now < self._settled + self.stay)
