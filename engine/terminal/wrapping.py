"""Text that comes in pieces, broken between words at the terminal's width."""

from __future__ import annotations

import re
import unicodedata

TAB = 8


class Wrapper:
    """Every piece is shown at once: a word that turns out too long for its line is taken back and begun anew below.

    `width` is 2 or more, so that every character fits.
    """

    def __init__(self) -> None:
        self._column = 0
        self._word = ""  # what stands at the end of the line since the last place for a break

    def feed(self, text: str, width: int) -> str:
        return "".join(self._place(part, width) for part in re.findall(r"\s|\S+", text))

    def _place(self, part: str, width: int) -> str:
        if part == "\n":
            return self._begin("")
        size = TAB - self._column % TAB if part == "\t" else columns(part)
        if self._column + size <= width:
            self._column += size
            self._word = "" if part.isspace() else self._word + part
            return part
        if part.isspace():
            return self._begin("")
        if len(part) > 1 and columns(self._word) + size > width:  # it must be broken inside
            return "".join(self._place(character, width) for character in part)
        return self._break() + self._place(part, width)

    def _break(self) -> str:
        size = columns(self._word)
        longer_than_a_line = size == self._column
        if longer_than_a_line or (self._word and wide(self._word[-1])):
            return self._begin("")
        back = f"\x1b[{size}D\x1b[K" if size else ""
        return back + self._begin(self._word)

    def _begin(self, word: str) -> str:
        """A new line that begins with `word`."""
        self._column, self._word = columns(word), word
        return f"\n{word}"


def wide(character: str) -> bool:
    """East Asian ones and emoji, which take two columns; a line may break after any."""
    return unicodedata.east_asian_width(character) in "WF"


def columns(text: str) -> int:
    """How many it takes; marks take none."""
    return sum(_columns(character) for character in text)


def _columns(character: str) -> int:
    if unicodedata.category(character) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if wide(character) else 1
