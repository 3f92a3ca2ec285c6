"""Decoding speed against the memory limit, ours and the peer's, as an SVG that needs nothing to be drawn."""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape

from .plan import Plan
from .results import Results, Spread, spread

WIDTH, HEIGHT = 760, 440
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 48, 52
COLOURS = ("#0b62c4", "#00897b", "#7b3fb5", "#d1495b", "#e08a1e", "#6b6b6b")
DECADE = (1, 2, 5)
METRIC = "decode_tok_s"

Series = dict[str, dict[float, Spread]]  # subject -> GiB -> tok/s


def run(plan: Plan) -> None:
    found = series(plan.results)
    if not found:
        print("plot: the run has no measurements under memory limits (python -m bench limits)")
        return
    path = plan.options.results / f"{plan.options.run}.svg"
    path.write_text(svg(found, plan.results.rows[0].machine), encoding="utf-8")
    print(f"plot: {path.name}")


def series(results: Results) -> Series:
    places = {(row.subject, row.case) for row in results.rows if row.suite == "limits" and row.metric == METRIC}
    found: Series = {}
    for subject, case in sorted(places, key=lambda place: (not place[0].startswith("smoe"), place)):
        limit = float(case.removesuffix(" GiB"))
        found.setdefault(subject, {})[limit] = spread(results.values("limits", case, subject, METRIC))
    return {subject: dict(sorted(points.items())) for subject, points in found.items()}


class Scale:
    """Gigabytes -> x, evenly; tokens per second -> y, by their logarithm."""

    def __init__(self, found: Series) -> None:
        points = [(limit, s) for line in found.values() for limit, s in line.items()]
        self.limits = sorted({limit for limit, _ in points})
        self.low, self.high = decades(min(s.least for _, s in points), max(s.most for _, s in points))

    def x(self, limit: float) -> float:
        first, last = self.limits[0], self.limits[-1]
        return LEFT + (limit - first) / max(last - first, 1e-9) * (WIDTH - LEFT - RIGHT)

    def y(self, speed: float) -> float:
        share = math.log(speed / self.low) / math.log(self.high / self.low)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    def ticks(self) -> Iterable[float]:
        exponents = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        values = (digit * 10.0**exponent for exponent in exponents for digit in DECADE)
        return (value for value in values if self.low * 0.999 <= value <= self.high * 1.001)


def decades(least: float, most: float) -> tuple[float, float]:
    """The nearest of ..., 0.1, 0.2, 0.5, 1, ... below and above."""
    steps = [digit * 10.0**exponent for exponent in range(-6, 7) for digit in DECADE]
    low = max(step for step in steps if step < least)
    return low, min(step for step in steps if step > most)


def svg(found: Series, caption: str) -> str:
    scale = Scale(found)
    drawn = [*_grid(scale), *(part for n, item in enumerate(found.items()) for part in _line(scale, n, *item))]
    title = _text(LEFT, 24, "Decoding, tokens per second, against the memory limit", size=15, weight="bold")
    note = _text(LEFT, 40, caption, colour="#666", size=11)
    body = "\n".join([title, note, *drawn])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>\n{body}\n</svg>\n'
    )


def _grid(scale: Scale) -> Iterable[str]:
    for speed in scale.ticks():
        y = scale.y(speed)
        yield f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>'
        yield _text(LEFT - 8, y + 4, f"{speed:g}", anchor="end")
    for limit in scale.limits:
        x = scale.x(limit)
        yield f'<path d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#eee"/>'
        yield _text(x, HEIGHT - BOTTOM + 18, f"{limit:g}", anchor="middle")
    yield _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, "memory limit, GiB", anchor="middle")


def _line(scale: Scale, number: int, subject: str, points: dict[float, Spread]) -> Iterable[str]:
    colour = COLOURS[number % len(COLOURS)]
    places = [(scale.x(limit), s) for limit, s in points.items()]
    path = " ".join(f"{x:.1f},{scale.y(s.median):.1f}" for x, s in places)
    yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>'
    for x, s in places:
        yield f'<path d="M{x:.1f} {scale.y(s.least):.1f}V{scale.y(s.most):.1f}" stroke="{colour}"/>'
        told = f"<title>{s.median:.3g}</title>"
        yield f'<circle cx="{x:.1f}" cy="{scale.y(s.median):.1f}" r="4" fill="{colour}">{told}</circle>'
    y = HEIGHT - BOTTOM - 14 - 18 * number
    yield f'<rect x="{WIDTH - RIGHT - 196}" y="{y - 9}" width="12" height="12" fill="{colour}"/>'
    yield _text(WIDTH - RIGHT - 178, y + 1, subject)


def _text(
    x: float,
    y: float,
    words: str,
    *,
    anchor: str = "start",
    colour: str = "#333",
    size: int = 12,
    weight: str = "normal",
) -> str:
    style = f'text-anchor="{anchor}" fill="{colour}" font-size="{size}" font-weight="{weight}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(words)}</text>'
