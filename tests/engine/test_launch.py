"""The engine's command line: engines of version 1 get no flag that they do not know, unless it is asked for."""

from itertools import pairwise

from engine import launch
from smoe_site.options import Options


def test_flags_of_newer_engines_are_passed_where_they_say_something(card):
    plain = launch.command(Options(), card)
    assert not {"--ctx", "--memory", "--trunk"} & set(plain)
    asked = launch.command(Options(ctx=512, memory="6G", trunk="q8"), card)
    assert {("--ctx", "512"), ("--memory", "6G"), ("--trunk", "q8")} <= set(pairwise(asked))
