"""A growing text that parsers read as if it were whole.

A parser is a generator: it yields when it needs text that has not come yet, and goes on when there is more. So a
format reads top to bottom, and `ReplyParser.feed` only appends and resumes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

Wait = Generator[None, None, None]


class Source:
    """What has come and not been taken. `closed`: nothing more will come; `cut`: although the model was not done."""

    def __init__(self) -> None:
        self._text = ""
        self._position = 0
        self._mark: int | None = None
        self.closed = self.cut = False

    def append(self, text: str) -> None:
        done = self._position if self._mark is None else self._mark
        self._text = self._text[done:] + text
        self._position -= done
        if self._mark is not None:
            self._mark = 0

    def mark(self) -> None:
        """Keep what is taken from here on, for `unmark`."""
        self._mark = self._position

    def unmark(self) -> str:
        """What was taken since `mark`."""
        start = self._position if self._mark is None else self._mark
        self._mark = None
        return self._text[start : self._position]

    @property
    def rest(self) -> str:
        return self._text[self._position :]

    def take(self, count: int) -> str:
        piece = self._text[self._position : self._position + count]
        self._position += count
        return piece

    def drop(self) -> None:
        """Take what is there, for nobody."""
        self._position = len(self._text)

    def need(self, count: int) -> Generator[None, None, bool]:
        """True once `count` characters are there, False when the text ends before."""
        while len(self._text) - self._position < count:
            if self.closed:
                return False
            yield
        return True

    def skip_space(self) -> Wait:
        while (yield from self.need(1)) and self._text[self._position].isspace():
            self._position += 1

    def starts_with(self, prefix: str) -> Generator[None, None, bool]:
        """Whether the text goes on with `prefix`, decided as early as it can be; takes nothing."""
        while True:
            have = self._text[self._position : self._position + len(prefix)]
            if have == prefix:
                return True
            if not prefix.startswith(have) or self.closed:
                return False
            yield

    def leads_to(self, prefix: str, passing: str | None = None) -> Generator[None, None, bool]:
        """Whether the text, after white space or any of `passing`, goes on with `prefix`.

        Takes both if so and nothing otherwise.
        """
        while True:
            body = self.rest.lstrip(passing)
            if body.startswith(prefix):
                self._position = len(self._text) - len(body) + len(prefix)
                return True
            if not prefix.startswith(body) or self.closed:
                return False
            yield

    def goes_on_with(self, prefixes: Sequence[str]) -> Generator[None, None, bool]:
        """Whether the text, after white space, goes on with one of these, or the model was done; takes nothing."""
        while True:
            body = self.rest.lstrip()
            if any(map(body.startswith, prefixes)):
                return True
            if self.closed:
                return not (body or self.cut)
            if not any(prefix.startswith(body) for prefix in prefixes):
                return False
            yield

    def stream_until(self, markers: Sequence[str], sink: Callable[[str], None]) -> Generator[None, None, str | None]:
        """Pass text to `sink` as it comes; take and return the first marker, or None at the end of the text."""
        while True:
            rest = self.rest
            found = min(((at, -len(m), m) for m in markers if (at := rest.find(m)) >= 0), default=None)
            if found is not None:
                at, _, marker = found
                _pass(self.take(at), sink)
                self.take(len(marker))
                return marker
            held = 0 if self.closed else _marker_head(rest, markers)
            _pass(self.take(len(rest) - held), sink)
            if self.closed:
                return None
            yield

    def text_until(self, markers: Sequence[str]) -> Generator[None, None, tuple[str, str | None]]:
        """As stream_until, with the text gathered."""
        pieces: list[str] = []
        marker = yield from self.stream_until(markers, pieces.append)
        return "".join(pieces), marker


def _pass(text: str, sink: Callable[[str], None]) -> None:
    if text:
        sink(text)


def _marker_head(text: str, markers: Sequence[str]) -> int:
    """Length of the longest end of `text` that could be the beginning of a marker."""
    longest = min(len(text), max(len(m) for m in markers) - 1)
    return next((n for n in range(longest, 0, -1) if any(m.startswith(text[-n:]) for m in markers)), 0)
