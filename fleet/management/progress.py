"""Progress of long commands on stderr: one line that updates on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TextIO


class ProgressLine:
    """Call it with (done, total); at most four updates a second on a terminal, one every five elsewhere."""

    def __init__(self, label: str, unit: str, stream: TextIO | None = None) -> None:
        self._label = label
        self._unit = unit
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty()
        self._pause = 0.25 if self._terminal else 5.0
        self._first: tuple[float, int] | None = None  # time and count of the first call: what came before is no guide
        self._next = float("-inf")

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        self._first = self._first or (now, done)
        if now < self._next and done < total:
            return
        self._next = now + self._pause
        text = f"{self._label}: {done:,} of {total:,} {self._unit} ({100 * done // max(total, 1)} %)"
        started, before = self._first
        if before < done < total:
            text += f", {(now - started) / (done - before) * (total - done):,.0f} s left"
        if self._terminal:
            text = f"\r\x1b[K{text}" + ("\n" if done >= total else "")
        print(text, end="" if self._terminal else "\n", file=self._stream, flush=True)
