"""What the terminal shows. Text from a model never reaches it with control characters in it."""

from __future__ import annotations

import re
import shutil
from typing import TextIO

from .wrapping import Wrapper

CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
ERASE_LINE = "\r\x1b[K"
ERASE_BELOW = "\x1b[J"
# From anywhere: makes room for a line below (IND, RI), remembers the place (DECSC) and goes there.
BELOW, BACK = "\x1bD\x1bM\x1b7\x1bD\r", "\x1b8"
DIM, PLAIN = "\x1b[2m", "\x1b[0m"


class Screen:
    """`live`: a person's terminal, with a status line, dimmed notes and lines of its width; else plain lines."""

    def __init__(self, out: TextIO, live: bool):
        self._out = out
        self._live = live
        self._status = ""  # what erases the status line, while there is one
        self._wrapper = Wrapper()

    def status(self, text: str) -> None:
        if self._live:
            self._put(f"{ERASE_LINE}{DIM}{text[: _width()]}{PLAIN}")
            self._status = ERASE_LINE

    def status_below(self, text: str) -> None:
        """Under text that goes on."""
        if self._live:
            self._put(f"{self._status}{BELOW}{DIM}{text[: _width()]}{PLAIN}{BACK}")
            self._status = ERASE_BELOW

    def text(self, text: str, dim: bool = False) -> None:
        self._clear()
        safe = CONTROLS.sub("", text)
        if self._live:
            safe = self._wrapper.feed(safe, _width())
        self._put(f"{DIM}{safe}{PLAIN}" if dim and self._live else safe)

    def note(self, text: str) -> None:
        self.text(text, dim=True)
        self.text("\n")

    def _clear(self) -> None:
        self._put(self._status)
        self._status = ""

    def _put(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def _width() -> int:
    """Asked each time, for windows change. Less one: in the last column terminals differ about what a next one does."""
    return max(shutil.get_terminal_size().columns - 1, 2)
