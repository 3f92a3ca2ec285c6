"""Plain-text tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from unicodedata import combining, east_asian_width

UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns as wide as their longest cell; the last one is not padded."""
    lines = [list(head), *([_cell(value) for value in row] for row in rows)]
    widths = [max(_width(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join("  ".join(map(_pad, line, widths)).rstrip() for line in lines)


def human_bytes(count: float) -> str:
    """1536000 -> 1.5 MB (powers of 1000, as disks are sold)."""
    for unit in UNITS[:-1]:
        if abs(count) < 999.5:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 99.95 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} {UNITS[-1]}"


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return value.astimezone().strftime("%Y-%m-%d %H:%M")
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(value))


def _pad(text: str, width: int) -> str:
    return text + " " * (width - _width(text))


def _width(text: str) -> int:
    """Terminal cells: wide East Asian characters take two, combining marks none."""
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)
