"""The suites of tokens per second: what fits in memory, what does not, and how soon the first token comes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from fleet.vaultfile.writer import scout_path_of

from . import engine, peer
from .disk import sequential_seconds
from .files import drop_from_cache
from .limits import limited, read_ahead
from .plan import Plan
from .results import Measure, Sample

TUNED_READ_AHEAD = 128  # KiB: what serves llama.cpp's paging best
PROMPT = 512  # before decoding: random ids, so many that every expert has been used and what fits is in memory


def decode(plan: Plan) -> None:
    _side_by_side(plan, "decode", f"{plan.options.tokens} tokens", [PROMPT], plan.options.tokens)


def prefill(plan: Plan) -> None:
    _side_by_side(plan, "prefill", "fits", plan.options.prompts, 0)


def _side_by_side(plan: Plan, suite: str, case: str, prompts: Sequence[int], tokens: int) -> None:
    """Us, llama.cpp's default, and its mapped file, with the memory there is."""
    timeout = plan.options.timeout
    measures: dict[str, Measure] = {
        name: partial(engine.speed, subject, prompts, tokens, timeout) for name, subject in plan.subjects().items()
    }
    for name, mmap in {"llama.cpp": False, "llama.cpp mmap": True}.items():
        measures[name] = partial(peer.speed, plan.peer, prompts, tokens, timeout, mmap=mmap)
    plan.alternate(suite, case, measures)


def limits(plan: Plan) -> None:
    """Cold each time: nothing of the files is cached when a process starts."""
    for gib in plan.options.limits:
        measures: dict[str, Measure] = {name: partial(_ours, plan, name, gib) for name in plan.subjects()}
        measures["llama.cpp tuned"] = partial(_theirs, plan, gib, TUNED_READ_AHEAD)
        if not plan.options.tuned_only:
            measures["llama.cpp"] = partial(_theirs, plan, gib, None)
        plan.alternate("limits", f"{gib:g} GiB", measures)


def _ours(plan: Plan, name: str, gib: float) -> Sample:
    drop_from_cache(plan.vault, scout_path_of(plan.vault))
    with limited(gib) as group:
        subject = plan.subjects(prefix=group.prefix)[name]
        sample = engine.speed(subject, [PROMPT], plan.options.limited_tokens, plan.options.timeout)
        sample.metrics |= group.figures()
    return sample


def _theirs(plan: Plan, gib: float, read_ahead_kib: int | None) -> Sample:
    model = plan.peer.model
    drop_from_cache(model)
    with limited(gib) as group, read_ahead(model, read_ahead_kib):
        sample = peer.speed(
            plan.peer,
            [PROMPT],
            plan.options.limited_tokens,
            plan.options.timeout,
            mmap=True,
            prefix=group.prefix,
        )
        sample.metrics |= group.figures()
    return sample


def boot(plan: Plan) -> None:
    """To the first token of a cold start, beside the time that reading the trunk takes."""
    plan.alternate("boot", "cold", {name: partial(_boot, plan, name) for name in plan.subjects()})


def _boot(plan: Plan, name: str) -> Sample:
    scout = scout_path_of(plan.vault)
    drop_from_cache(plan.vault, scout)
    reading = sequential_seconds(scout)
    drop_from_cache(plan.vault, scout)
    sample = engine.first_token(plan.subjects()[name], plan.options.timeout)
    sample.metrics["trunk_reading_s"] = reading
    return sample
