"""Which experts a cache should keep: recorded routings, replayed under several policies and sizes.

A routing is int32 [tokens, layers, experts a token]. The first half warms the cache (and, for a pinned set, tells which
experts are popular); misses are counted in the second.
"""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from . import geometry
from .plan import Plan
from .results import Sample

ROUTING = Path(__file__).parent / "data-small" / "routing-30b-geometry.i32"
SIZES_GIB = (1, 2, 4, 6, 8, 12)  # of the ring alone
PINNED_SHARE = 0.5  # of the slots, for the set that never leaves

Expert = tuple[int, int]  # layer, number


class Cache(Protocol):
    def use(self, expert: Expert) -> bool:
        """Whether it was there; it is now."""


class Lru:
    """Out goes what was used longest ago."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._held: OrderedDict[Hashable, None] = OrderedDict()

    def use(self, expert: Hashable) -> bool:
        hit = expert in self._held
        self._held[expert] = None
        self._held.move_to_end(expert)
        if len(self._held) > self._slots:
            self._held.popitem(last=False)
        return hit


class Lfuda:
    """Out goes the lowest count; what comes in starts at the count of what went out last, so that old fame fades.

    LFU with dynamic aging (Arlitt et al. 2000).
    """

    def __init__(self, slots: int) -> None:
        self._slots, self._age, self._clock = slots, 0, 0
        self._priority: dict[Hashable, tuple[int, int]] = {}  # count and last use: among equals the oldest goes
        self._heap: list[tuple[int, int, Hashable]] = []  # also outdated entries

    def use(self, expert: Hashable) -> bool:
        hit = expert in self._priority
        if not hit and len(self._priority) == self._slots:
            self._evict()
        self._clock += 1
        count = self._priority[expert][0] if hit else self._age
        self._priority[expert] = (count + 1, self._clock)
        heapq.heappush(self._heap, (count + 1, self._clock, expert))
        return hit

    def _evict(self) -> None:
        while True:
            count, clock, expert = heapq.heappop(self._heap)
            if self._priority.get(expert) == (count, clock):
                del self._priority[expert]
                self._age = count
                return


class NextUse:
    """Out goes what is likely to be needed last: the engine's own policy (engine/native/next_use.h).

    The inverse of the share of its recent turns (faded) in which an expert was used, and the part of a pass until
    its turn comes.
    """

    def __init__(self, slots: int, layers: int, experts: int, half_life: float = 32) -> None:
        count = layers * experts
        self._free, self._experts, self._fade = slots, experts, 0.5 ** (1 / half_life)
        self._held = np.zeros(count, bool)
        self._uses = np.zeros(count)  # faded as of the last one
        self._used = np.zeros(count, int)  # turns up to the last use
        self._turns = np.zeros(count, int)  # so far: one more where its turn in this pass has come
        self._current = 0

    def use(self, expert: Expert) -> bool:
        place = expert[0] * self._experts + expert[1]
        hit = bool(self._held[place])
        if not hit and self._free == 0:
            held = np.flatnonzero(self._held)
            self._held[held[np.argmax(self._distance(held))]] = False
            self._free += 1
        self._free -= not hit
        self._advance(place)
        self._uses[place] = self._uses[place] * self._fade ** (self._turns[place] - self._used[place]) + 1
        self._used[place] = self._turns[place]
        self._held[place] = True
        return hit

    def _advance(self, place: int) -> None:
        if place <= self._current:
            self._turns[self._current + 1 :] += 1
            self._current = -1
        self._turns[self._current + 1 : place + 1] += 1
        self._current = place

    def _distance(self, places: np.ndarray) -> np.ndarray:
        turns = self._turns[places]
        most = (1 - self._fade**turns) / (1 - self._fade)
        share = self._uses[places] * self._fade ** (turns - self._used[places]) / most
        return 1 / (share + 1e-6) + ((places - self._current - 1) % len(self._held)) / len(self._held)


class PerLayer:
    """As many slots for each layer, the least recently used of the layer out first."""

    def __init__(self, slots: int, layers: int) -> None:
        each, more = divmod(slots, layers)
        self._layers = [Lru(each + (layer < more)) for layer in range(layers)]

    def use(self, expert: Expert) -> bool:
        return self._layers[expert[0]].use(expert[1])


class Pinned:
    """The most popular never leave; the least recently used of the others does."""

    def __init__(self, slots: int, popular: Iterable[Expert], share: float = PINNED_SHARE) -> None:
        count = int(slots * share)
        self._pinned = {expert for expert, _ in zip(popular, range(count), strict=False)}
        self._rest = Lru(slots - len(self._pinned))

    def use(self, expert: Expert) -> bool:
        return expert in self._pinned or self._rest.use(expert)


def load(path: Path, layers: int, top_k: int) -> np.ndarray:
    return np.fromfile(path, "<i4").reshape(-1, layers, top_k)


def uses(routing: np.ndarray) -> list[Expert]:
    """In the order in which decoding asks for them: a layer's experts in ascending order."""
    return [
        (layer, int(expert)) for token in routing for layer, chosen in enumerate(token) for expert in sorted(chosen)
    ]


def misses(cache: Cache, warm: Sequence[Expert], counted: Sequence[Expert]) -> int:
    for expert in warm:
        cache.use(expert)
    return sum(not cache.use(expert) for expert in counted)


def least_misses(slots: int, warm: Sequence[Expert], counted: Sequence[Expert]) -> int:
    """Of a cache that knows the future (Belady): out goes what is needed last."""
    following = _next_uses([*warm, *counted])
    held: dict[Expert, int] = {}
    heap: list[tuple[int, Expert]] = []
    missed = 0
    for place, expert in enumerate([*warm, *counted]):
        if expert not in held:
            missed += place >= len(warm)
            if len(held) == slots:
                _evict_latest(held, heap)
        held[expert] = following[place]
        heapq.heappush(heap, (-following[place], expert))
    return missed


def _evict_latest(held: dict[Expert, int], heap: list[tuple[int, Expert]]) -> None:
    while True:
        when, expert = heapq.heappop(heap)
        if held.get(expert) == -when:
            del held[expert]
            return


def _next_uses(sequence: Sequence[Expert]) -> list[int]:
    """For each place, where its expert is used next."""
    places: dict[Expert, deque[int]] = defaultdict(deque)
    for place, expert in enumerate(sequence):
        places[expert].append(place)
    following = []
    for expert in sequence:
        places[expert].popleft()
        following.append(places[expert][0] if places[expert] else len(sequence))
    return following


def policies(layers: int, experts: int, popular: list[Expert]) -> dict[str, Callable[[int], Cache]]:
    return {
        "lru": Lru,
        "lfu with aging": Lfuda,
        "next use": lambda slots: NextUse(slots, layers, experts),
        "lru per layer": lambda slots: PerLayer(slots, layers),
        "pinned half + lru": lambda slots: Pinned(slots, popular),
        "pinned nearly all + lru": lambda slots: Pinned(slots, popular, 0.9),
    }


def replay(routing: np.ndarray, slots: int) -> dict[str, float]:
    """Misses a token of each policy, and of the best that there could be."""
    half = len(routing) // 2
    warm, counted = uses(routing[:half]), uses(routing[half:])
    popular = [expert for expert, _ in Counter(warm).most_common()]
    made = policies(routing.shape[1], int(routing.max()) + 1, popular)
    found = {name: misses(make(slots), warm, counted) for name, make in made.items()}
    found["with foresight"] = least_misses(slots, warm, counted)
    return {name: count / (len(routing) - half) for name, count in found.items()}


def run(plan: Plan) -> None:
    path = plan.options.routing or ROUTING
    layers, top_k = plan.options.routing_shape or (geometry.LAYERS, geometry.plan().architecture.top_k)
    routing, record = load(path, layers, top_k), geometry.plan().padded_size
    rows = [(gib, slots, replay(routing, slots)) for gib in SIZES_GIB if (slots := int(gib * 2**30 / record))]
    for gib, slots, found in rows:
        megabytes = {
            f"{policy.replace(' ', '_')}_mb_per_token": count * record / 1e6 for policy, count in found.items()
        }
        sample = Sample(f"{slots} slots of {record} bytes", megabytes)
        plan.once("ring", f"{path.stem}, {gib:g} GiB", "replay", lambda sample=sample: sample)
    print(table(rows, record))
    print(advice(rows))


def table(rows: list[tuple[float, int, dict[str, float]]], record: int) -> str:
    """Megabytes read a token."""
    names = list(rows[0][2])
    lines = [["ring", "slots", *names]]
    for gib, slots, found in rows:
        lines.append([f"{gib:g} GiB", str(slots), *(f"{found[name] * record / 1e6:.0f}" for name in names)])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def advice(rows: list[tuple[float, int, dict[str, float]]]) -> str:
    lines = []
    for gib, _, found in rows:
        real = {name: count for name, count in found.items() if name != "with foresight"}
        best = min(real, key=lambda name: real[name])
        less = 1 - real[best] / real["lru"] if real["lru"] else 0.0
        lines.append(f"{gib:g} GiB: {best}, {less:.1%} less than lru")
    return "\n".join(lines)
