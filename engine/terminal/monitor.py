"""Where a reply's time goes, in one line: live while it is waited for, exact once it is over."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from smoe_site.words import counted

Chunk = dict[str, Any]


class Monitor:
    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._sent = clock()
        self._state: Chunk = {}
        self._progress: Chunk | None = None
        self._usage: Chunk | None = None
        self._timings: Chunk = {}
        self._report: Chunk = {}
        self._first: float | None = None  # seconds to the first text
        self._size = 1  # tokens of the chunk at hand
        self._seen = 0

    def take(self, chunk: Chunk) -> None:
        facts = chunk.get("smoe") or {}
        self._size = facts.get("tokens", 1)
        if "state" in facts:
            self._state = facts
        else:
            self._report |= facts
        self._progress = chunk.get("prompt_progress") or self._progress
        self._usage = chunk.get("usage") or self._usage
        self._timings = chunk.get("timings") or self._timings

    def saw_text(self) -> None:
        self._seen += self._size
        if self._first is None:
            self._first = self._clock() - self._sent

    @property
    def began(self) -> bool:
        """Whether any text has come."""
        return self._first is not None

    def line(self) -> str:
        """What is waited for now, or how it goes."""
        if self._first is not None:
            return " · ".join([self._tokens(), *self._speed()])
        return f"{self._waiting()} · {self._clock() - self._sent:.1f} s"

    def _waiting(self) -> str:
        state = self._state.get("state")
        if state == "queued":
            return f"queued, position {self._state['position']}"
        if state == "booting":
            return f"booting {self._state['model']}"
        if self._progress:
            cached = self._progress["cache"]
            warmth = f"warm, {cached:,} cached" if cached else "cold"
            return f"prefilling {self._progress['processed']:,} of {self._progress['total']:,} · {warmth}"
        return "waiting"

    def summary(self) -> str:
        """Once it is over: exact where the server told its counts, else what was seen."""
        parts = [self._tokens(), *self._speed()]
        if self._usage:
            parts.append(self._prompt())
        if slid := self._report.get("context", {}).get("slid"):
            parts.append(f"{counted(slid, 'token')} out of the window")
        return " · ".join(parts)

    def _speed(self) -> list[str]:
        if self._first is None:
            return []
        spent = self._clock() - self._sent - self._first
        rate = self._timings.get("predicted_per_second") or (spent and self._seen / spent)
        return [f"{rate:.1f} tok/s", f"first after {self._first:.2f} s"]

    def _tokens(self) -> str:
        count = self._seen if self._usage is None else self._usage["completion_tokens"]
        return counted(count, "token")

    def _prompt(self) -> str:
        cached = (self._usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
        return f"prompt {self._usage['prompt_tokens']:,}, " + (f"warm, {cached:,} cached" if cached else "cold")
