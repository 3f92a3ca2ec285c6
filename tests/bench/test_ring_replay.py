"""The policies on sequences short enough to be followed by hand."""

import numpy as np
import pytest

from bench import ring_replay
from bench.ring_replay import Lfuda, Lru, NextUse, PerLayer, Pinned, least_misses, misses, replay, uses


def one_layer(text):
    return [(0, ord(letter)) for letter in text]


def hits(cache, sequence):
    return "".join("h" if cache.use(expert) else "." for expert in sequence)


def test_lru():
    # a b fill two slots; a again: hit; c drops b; b drops a; a drops c
    assert hits(Lru(2), one_layer("abacba")) == "..h..."


def test_lfu_keeps_what_is_used_often():
    # a counts 3 when c comes: b (1) goes, then c (2) for b, and a stays; lru drops a for c, and keeps b
    assert hits(Lfuda(2), one_layer("aaabcba")) == ".hh...h"
    assert hits(Lru(2), one_layer("aaabcba")) == ".hh..h."


def test_lfu_forgets_old_fame():
    # a: 3, b: 1. c drops b (age 1) and counts 2; d drops c (age 2) and counts 3; e drops the older of the equals, a.
    assert hits(Lfuda(2), one_layer("aaabcdea")) == ".hh....."


def test_each_layer_has_slots_of_its_own():
    sequence = [(0, 1), (1, 1), (1, 2), (0, 1), (1, 1)]
    assert hits(PerLayer(2, 2), sequence) == "...h."
    assert hits(PerLayer(3, 2), [(0, 1), (0, 2), (0, 1), (1, 1), (1, 2), (1, 1)]) == "..h..."  # two and one


def test_the_pinned_never_leave():
    popular = one_layer("ab")
    assert hits(Pinned(2, popular, share=0.5), one_layer("abcabc")) == "h..h.."
    assert hits(Pinned(3, popular, share=1.0), one_layer("abcabc")) == "hh.hhh"


def test_foresight():
    # Belady's own way with three slots on the textbook's sequence: 9 misses (Silberschatz, Operating System Concepts)
    sequence = one_layer("70120304230321201701")
    assert least_misses(3, [], sequence) == 9
    assert misses(Lru(3), [], sequence) == 12


def test_what_warms_is_not_counted():
    assert misses(Lru(2), one_layer("ab"), one_layer("ba")) == 0
    assert least_misses(2, one_layer("ab"), one_layer("ba")) == 0


def test_uses_are_in_the_order_of_decoding():
    routing = np.array([[[5, 1], [2, 0]], [[1, 5], [3, 2]]])
    assert uses(routing) == [(0, 1), (0, 5), (1, 0), (1, 2), (0, 1), (0, 5), (1, 2), (1, 3)]


def test_next_use_keeps_what_fits_of_a_cycle():
    cycle = [(layer, expert) for _ in range(5) for layer in range(3) for expert in range(4)]
    for slots in (3, 7, 11):
        warm, counted = cycle[:12], cycle[12:]
        least = least_misses(slots, warm, counted)  # knows where the sequence ends, too
        assert least <= misses(NextUse(slots, 3, 4), warm, counted) <= least + 1
        assert misses(Lru(slots), warm, counted) == 48


def test_next_use_keeps_the_popular():
    # 0 is in three passes of four and 1..3 in one each: 0 stays
    sequence = [(0, 0), (1, 1), (0, 0), (1, 2), (0, 0), (1, 3), (0, 0)]
    assert hits(NextUse(2, 2, 4), sequence) == "..h.h.h"


def test_no_policy_beats_foresight_and_all_agree_where_everything_fits():
    routing = np.random.default_rng(1).integers(0, 6, (20, 3, 2))
    for slots in (1, 4, 9):
        found = replay(routing, slots)
        assert found.pop("with foresight") <= min(found.values())
    assert len(set(replay(routing, 18).values())) == 1


def test_the_recorded_routing():
    """By a formula: of uniform routing a cache of s slots misses 1 - s / all; this one is mildly skewed."""
    routing = ring_replay.load(ring_replay.ROUTING, 48, 8)
    assert routing.shape == (240, 48, 8)
    assert (routing.min(), routing.max()) == (0, 127)
    slots = 1713
    uniform = 48 * 8 * (1 - slots / (48 * 128))
    missed = misses(Lru(slots), uses(routing[:120]), uses(routing[120:]))
    assert 0.9 * uniform < missed / 120 < uniform * 1.02


def test_the_table_and_the_advice():
    rows = [(4, 10, {"lru": 4.0, "lfu with aging": 3.0, "with foresight": 1.0})]
    assert ring_replay.table(rows, 500_000).splitlines() == [
        " ring  slots  lru  lfu with aging  with foresight",
        "4 GiB     10    2               2               0",
    ]
    assert ring_replay.advice(rows) == "4 GiB: lfu with aging, 25.0% less than lru"


@pytest.mark.parametrize("policy", [Lru, Lfuda])
def test_one_slot(policy):
    assert hits(policy(1), one_layer("aabba")) == ".h.h."
