"""The suites of tokens per second: what fits in memory, what does not, and how soon the first token comes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from fleet.vaultfile.writer import scout_path_of

from . import demo as demo_model
from . import engine, peer
from .ceilings import beside
from .disk import sequential_seconds
from .files import drop_from_cache
from .limits import limited, read_ahead
from .machine import touch_memory
from .peer import Peer
from .plan import Plan
from .results import Measure, Sample

TUNED_READ_AHEAD = 128  # KiB: what serves llama.cpp's paging best
BOOT_MEMORY = 4 << 30  # bytes: more than a boot takes until its first token
PROMPT = 512  # before decoding: random ids, so many that every expert has been used and what fits is in memory


def decode(plan: Plan) -> None:
    measures = _side_by_side(plan, plan.vault, plan.peer, [PROMPT], plan.options.tokens)
    plan.alternate("decode", f"{plan.options.tokens} tokens", measures)


def prefill(plan: Plan) -> None:
    plan.alternate("prefill", "fits", _side_by_side(plan, plan.vault, plan.peer, plan.options.prompts, 0))


def depth(plan: Plan) -> None:
    """Behind a long context: what attention costs."""
    for tokens in plan.options.depths:
        window = f"--ctx {tokens + PROMPT + 2 * plan.options.tokens}"
        ours = {
            name: partial(
                engine.speed,
                subject.with_flags(*window.split()),
                [PROMPT],
                plan.options.tokens,
                plan.options.timeout,
                tokens,
            )
            for name, subject in plan.subjects(plan.vault).items()
        }
        theirs = partial(
            peer.speed, plan.peer, [PROMPT], plan.options.tokens, plan.options.timeout, mmap=False, depth=tokens
        )
        plan.alternate("depth", f"behind {tokens} tokens", ours | {"llama.cpp": theirs})


def demo(plan: Plan) -> None:
    """Real weights: the vault that is made from a GGUF beside that GGUF, and the bytes of both."""
    made = demo_model.obtain(plan.options.data)
    peer_of = plan.peer_of(made.gguf)
    measures = _side_by_side(plan, made.smoe, peer_of, plan.options.prompts, plan.options.tokens)
    plan.alternate("demo", made.smoe.stem, measures)
    sizes = {"vault_bytes": made.smoe, "scout_bytes": scout_path_of(made.smoe), "gguf_bytes": made.gguf}
    figures = {name: float(path.stat().st_size) for name, path in sizes.items()}
    plan.once("demo", made.smoe.stem, "files", lambda: Sample("", figures))


def _side_by_side(plan: Plan, vault: Path, theirs: Peer, prompts: Sequence[int], tokens: int) -> Mapping[str, Measure]:
    """Us, llama.cpp's default, and its mapped file, with the memory there is."""
    timeout = plan.options.timeout
    ours = {
        name: partial(beside, plan, vault, partial(engine.speed, subject, prompts, tokens, timeout))
        for name, subject in plan.subjects(vault).items()
    }
    return ours | {
        name: partial(peer.speed, theirs, prompts, tokens, timeout, mmap=mmap)
        for name, mmap in {"llama.cpp": False, "llama.cpp mmap": True}.items()
    }


def limits(plan: Plan) -> None:
    """Cold each time: nothing of the files is cached when a process starts."""
    for gib in plan.options.limits:
        measures: dict[str, Measure] = {
            name: partial(beside, plan, plan.vault, partial(_ours, plan, name, gib))
            for name in plan.subjects(plan.vault)
        }
        measures["llama.cpp tuned"] = partial(_theirs, plan, gib, TUNED_READ_AHEAD)
        if not plan.options.tuned_only:
            measures["llama.cpp"] = partial(_theirs, plan, gib, None)
        plan.alternate("limits", f"{gib:g} GiB", measures)


def _ours(plan: Plan, name: str, gib: float) -> Sample:
    drop_from_cache(plan.vault, scout_path_of(plan.vault))
    with limited(gib) as group:
        subject = plan.subjects(plan.vault, group.prefix)[name]
        sample = engine.speed(subject, plan.options.limited_prompts, plan.options.limited_tokens, plan.options.timeout)
        sample.metrics |= group.figures()
    return sample


def _theirs(plan: Plan, gib: float, read_ahead_kib: int | None) -> Sample:
    model = plan.peer.model
    drop_from_cache(model)
    with limited(gib) as group, read_ahead(model, read_ahead_kib):
        sample = peer.speed(
            plan.peer,
            plan.options.limited_prompts,
            plan.options.limited_tokens,
            plan.options.timeout,
            mmap=True,
            prefix=group.prefix,
        )
        sample.metrics |= group.figures()
    return sample


def boot(plan: Plan) -> None:
    """To the first token of a cold start, beside the time that reading the trunk takes: with memory as it is found, and
    with memory that was in use just before, for a virtual machine's host may have to find what long was free."""
    for case, held in {"cold": 0, "cold, memory at hand": BOOT_MEMORY}.items():
        plan.alternate("boot", case, {name: partial(_boot, plan, name, held) for name in plan.subjects(plan.vault)})


def _boot(plan: Plan, name: str, held: int) -> Sample:
    scout = scout_path_of(plan.vault)
    drop_from_cache(plan.vault, scout)
    reading = sequential_seconds(scout)
    drop_from_cache(plan.vault, scout)
    touch_memory(held)
    sample = engine.first_token(plan.subjects(plan.vault)[name], plan.options.timeout)
    sample.metrics["trunk_reading_s"] = reading
    return sample
