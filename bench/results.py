"""The measurements of a run: one CSV, a row a metric, appended as they come, and read again to go on.

A sample is one process measured once. Its rows are written together, the row `done` last: rows without it are those
of a sample that was interrupted, and are measured again.
"""

from __future__ import annotations

import csv
import io
import os
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path
from typing import NamedTuple

from . import machine
from .files import BenchError

DONE = "done"  # 1: measured; 0: it failed, the note says how


class Key(NamedTuple):
    suite: str  # decode, limits, ...
    case: str  # within the suite: a memory limit, a prompt's length
    subject: str  # who was measured, with its flags
    repeat: int


@dataclass(frozen=True, slots=True)
class Row:
    run: str
    suite: str
    case: str
    subject: str
    repeat: int
    metric: str  # its unit in its name
    value: float
    note: str
    load: float  # of the system in the minute before the sample
    command: str
    commit: str
    machine: str

    @property
    def key(self) -> Key:
        return Key(self.suite, self.case, self.subject, self.repeat)


@dataclass(slots=True)
class Sample:
    command: str
    metrics: dict[str, float] = field(default_factory=dict)
    failure: str = ""


Measure = Callable[[], Sample]


class Results:
    def __init__(self, path: Path, run: str) -> None:
        self._path, self._run = path, run
        self._about, self._commit = machine.about(), machine.commit()
        self.rows = mended(path)

    def has(self, key: Key) -> bool:
        return any(row.key == key and row.metric == DONE for row in self.rows)

    def add(self, key: Key, sample: Sample, load: float) -> None:
        figures = {**sample.metrics, DONE: float(not sample.failure)}
        rows = [
            Row(self._run, *key, name, value, sample.failure, load, sample.command, self._commit, self._about)
            for name, value in figures.items()
        ]
        append(self._path, rows)
        self.rows += rows

    def values(self, suite: str, case: str, subject: str, metric: str) -> list[float]:
        wanted = (suite, case, subject, metric)
        return [row.value for row in self.rows if (row.suite, row.case, row.subject, row.metric) == wanted]


def mended(path: Path) -> list[Row]:
    """A file's rows; those of a sample that was interrupted are taken out of the file first. Raises BenchError."""
    rows = read(path)
    done = {row.key for row in rows if row.metric == DONE}
    whole = [row for row in rows if row.key in done]
    if path.exists() and (len(whole) < len(rows) or not path.read_bytes().endswith(b"\n")):
        mending = path.with_suffix(".mending")
        mending.unlink(missing_ok=True)
        append(mending, whole)
        mending.replace(path)
    return whole


def read(path: Path) -> list[Row]:
    """Of a whole file or of none; a last line that was cut off is left out. Raises BenchError."""
    if not path.exists():
        return []
    whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
    lines = csv.DictReader(io.StringIO(whole))
    try:
        return [_row(line) for line in lines]
    except (KeyError, TypeError, ValueError) as error:
        raise BenchError(f"{path}: line {lines.line_num}: {error!r}; name another run with --run.") from None


def _row(line: Mapping[str, str]) -> Row:
    parse = {"repeat": int, "value": float, "load": float}
    return Row(**{f.name: parse.get(f.name, str)(line[f.name]) for f in fields(Row)})


def append(path: Path, rows: Iterable[Row]) -> None:
    """All or, where the machine stops, a part that `mended` removes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if not path.exists():
        writer.writerow([f.name for f in fields(Row)])
    writer.writerows([_short(value) for value in astuple(row)] for row in rows)
    with open(path, "ab") as file:
        file.write(text.getvalue().encode())
        file.flush()
        os.fsync(file.fileno())


def _short(value: object) -> object:
    return f"{value:.7g}" if isinstance(value, float) else value


class Spread(NamedTuple):
    median: float
    least: float
    most: float
    count: int


def spread(values: list[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values), len(values))
