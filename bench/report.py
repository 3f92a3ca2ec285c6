"""What a run found, as text: medians with their range, the ratio to the peer, the ceilings."""

from __future__ import annotations

from collections.abc import Iterable

from . import geometry
from .plan import Plan
from .results import DONE, Results, Row, spread

TUNED = "llama.cpp tuned"
RING = "ring"  # tells its own table
UNBOUNDED = ("demo", "depth")  # another geometry than the ceilings', and a context, which they leave out
PEERS = ("llama.cpp", "llama.cpp mmap", TUNED)


def run(plan: Plan) -> None:
    print(text(plan.results, plan.options.layers))


def text(results: Results, layers: int) -> str:
    lines = []
    for suite, case in _unique((row.suite, row.case) for row in results.rows if row.suite != RING):
        lines.append(f"\n{suite}, {case}")
        rows = [row for row in results.rows if (row.suite, row.case) == (suite, case)]
        for subject in _unique(row.subject for row in rows):
            lines += _subject([row for row in rows if row.subject == subject])
        lines += _ratios(results, suite, case)
    return "\n".join([*lines, *_ceilings(results, layers)])


def _unique(items: Iterable) -> list:
    return list(dict.fromkeys(items))


def _subject(rows: list[Row]) -> list[str]:
    lines = [f"  {rows[0].subject}"]
    for metric in _unique(row.metric for row in rows):
        values = [row.value for row in rows if row.metric == metric]
        if metric != DONE:
            lines.append(f"    {metric:32} {_told(values)}")
    failures = _unique(row.note for row in rows if row.metric == DONE and row.note)
    return [*lines, *(f"    failed: {note}" for note in failures)]


def _told(values: list[float]) -> str:
    found = spread(values)
    if found.count == 1:
        return f"{found.median:.4g}"
    return f"{found.median:.4g} ({found.least:.4g} to {found.most:.4g}, {found.count} times)"


def _ratios(results: Results, suite: str, case: str) -> list[str]:
    """Ours beside each form of the peer, of everything that is told in tokens per second."""
    rows = [row for row in results.rows if (row.suite, row.case) == (suite, case)]
    ours = _unique(row.subject for row in rows if row.subject.startswith("smoe"))
    metrics = _unique(row.metric for row in rows if row.metric.endswith("_tok_s"))
    lines = []
    for subject in ours:
        for peer in PEERS:
            for metric in metrics:
                if ratio := median_ratio(results, suite, case, metric, subject, peer):
                    lines.append(f"  {metric}: {subject} is {ratio:.2f} x {peer}")
    return lines


def median_ratio(results: Results, suite: str, case: str, metric: str, one: str, other: str) -> float | None:
    sides = [results.values(suite, case, subject, metric) for subject in (one, other)]
    return spread(sides[0]).median / spread(sides[1]).median if all(sides) else None


def _ceilings(results: Results, layers: int) -> list[str]:
    """Decoding beside what the bytes that it reads would take at the bandwidths measured with it, else in this run."""
    memory = max(
        (row.value for row in results.rows if row.suite == "machine" and row.metric.startswith("memory_")), default=0
    )
    disk = max(
        (
            row.value
            for row in results.rows
            if row.suite == "machine" and row.metric.startswith("disk_") and row.metric.endswith("_gb_s")
        ),
        default=0,
    )
    cases = (
        (row.suite, row.case, row.subject)
        for row in results.rows
        if row.metric == "decode_tok_s" and row.suite not in UNBOUNDED
    )
    known = memory > 0 and disk > 0
    lines = [
        _ceiling(results, place, layers, memory * 1e9, disk * 1e9)
        for place in _unique(cases)
        if place[2].startswith("smoe") and (known or results.values(*place, "memory_gb_s"))
    ]
    own = f": memory {memory:.1f} GB/s, disk {disk:.2f} GB/s" if known else ""
    return [f"\nceilings{own}", *lines] if lines else []


def _ceiling(results: Results, place: tuple[str, str, str], layers: int, memory: float, disk: float) -> str:
    def median(metric: str) -> float:
        return spread(results.values(*place, metric)).median

    if results.values(*place, "memory_gb_s"):
        memory, disk = median("memory_gb_s") * 1e9, median("disk_gb_s") * 1e9
    computed = bytes_computed(layers, median("trunk_bytes"), median("slot_bytes"))
    allowed = 1 / max(computed / memory, median("decode_bytes_per_token") / disk)
    found = median("decode_tok_s")
    suite, case, subject = place
    rates = f"memory {memory / 1e9:.1f}, disk {disk / 1e9:.2f} GB/s"
    return f"  {suite} {case}, {subject}: {found:.2f} of {allowed:.2f} tok/s ({found / allowed:.0%}; {rates})"


def bytes_computed(layers: int, trunk: float, slot: float) -> float:
    """What a token reads from memory: the trunk, where its embedding is not, and top-k experts a layer."""
    a = geometry.plan(layers).architecture
    return trunk + a.layers * a.top_k * slot
