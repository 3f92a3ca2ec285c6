"""Stop strings over a text that comes in pieces: what could be the head of one is held back until it is decided.

Where the text is cut never depends on how it was split: the stop string that is complete first ends it, and of
several that end at the same character the one that began first.
"""

from __future__ import annotations

from collections.abc import Iterable


class StopScanner:
    """`matched` is the stop string that ended the text."""

    def __init__(self, stops: Iterable[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._firsts = {stop[0] for stop in self._stops}
        self._longest = max(map(len, self._stops), default=1) - 1
        self._held = ""
        self.matched: str | None = None

    def feed(self, text: str) -> str:
        """What may be shown; after a match, nothing more."""
        if self.matched is not None:
            return ""
        if not self._stops:
            return text
        text = self._held + text
        if match := self._first_match(text):
            start, self.matched = match
            self._held = ""
            return text[:start]
        held = self._head_length(text)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def finish(self) -> str:
        """The text is over: what was held is no stop string."""
        held, self._held = self._held, ""
        return held

    def _first_match(self, text: str) -> tuple[int, str] | None:
        found = [(start + len(stop), start, stop) for stop in self._stops if (start := text.find(stop)) >= 0]
        return min(found)[1:] if found else None

    def _head_length(self, text: str) -> int:
        for start in range(max(0, len(text) - self._longest), len(text)):
            if text[start] in self._firsts and any(stop.startswith(text[start:]) for stop in self._stops):
                return len(text) - start
        return 0
