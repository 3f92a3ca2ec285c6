"""Stop strings: the cut does not depend on how the text comes, and nothing is held longer than it must be."""

import random
import tracemalloc

from engine.stops import StopScanner


def scan(stops, pieces):
    scanner = StopScanner(stops)
    shown = [scanner.feed(piece) for piece in pieces]
    return shown, scanner.finish() if scanner.matched is None else "", scanner.matched


def expected(stops, text):
    """Read one character at a time: the first stop string that is complete ends the text before it."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if stop and text[:end].endswith(stop)]
        if complete:
            longest = max(complete, key=len)
            return text[: end - len(longest)], longest
    return text, None


def test_random_texts_in_random_pieces():
    chance = random.Random(1)
    for _ in range(3000):
        stops = ["".join(chance.choices("ab\n", k=chance.randrange(1, 5))) for _ in range(chance.randrange(4))]
        text = "".join(chance.choices("ab\nc", k=chance.randrange(25)))
        cuts = sorted(chance.choices(range(len(text) + 1), k=4))
        pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        shown, rest, matched = scan(stops, pieces)
        assert ("".join(shown) + rest, matched) == expected(stops, text)


def test_only_what_may_begin_a_stop_string_is_held():
    shown, rest, matched = scan(["###", "\nUser:"], ["abc", "#", "#d", "\nUs", "age"])
    assert shown == ["abc", "", "##d", "", "\nUsage"]
    assert (rest, matched) == ("", None)


def test_nothing_comes_after_a_match():
    shown, _, matched = scan(["END"], ["one E", "ND two", "three"])
    assert (shown, matched) == (["one ", "", ""], "END")


def test_without_stop_strings_nothing_is_held():
    assert scan(["", ""], ["a", "b"]) == (["a", "b"], "", None)


def test_a_long_stop_string_costs_memory_of_its_own_size():
    tracemalloc.start()
    try:
        shown, _, matched = scan(["ab" * 50_000 + "c"], ["xab" * 3, "ab" * 50_000, "c"])
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()
    assert (shown[-1], matched) == ("", "ab" * 50_000 + "c")
