"""Tool calls written as JSON objects: {"name": "f", "arguments": {...}}, read while they arrive."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator
from typing import Any

from ..json_text import read_json
from .output import Output
from .source import Source

NAME_KEYS = ("name", "function")
ARGUMENT_KEYS = ("arguments", "parameters", "args")


class Malformed(Exception):
    """This is no tool call; what was taken is given back as text."""


_STRUCTURE = re.compile(r'["{}\[\]<]')  # outside of a string, < is no JSON but the mark that closes a call
_STRING_STOP = re.compile(r'["\\]')
_CONTROL = re.compile(r"[\x00-\x1f]")
_ESCAPES = '"\\/bfnrtu'


def json_string(source: Source) -> Generator[None, None, str]:
    """The JSON string that begins here, decoded."""
    if not (yield from source.starts_with('"')):
        raise Malformed
    pieces: list[str] = []
    yield from _delimited(source, pieces.append)
    return read_json("".join(pieces))


def json_value(source: Source, sink: Callable[[str], None]) -> Generator[None, None, None]:
    """One JSON value, its raw text passed to `sink` as it comes. Raises Malformed where it does not end."""
    if not (yield from source.need(1)):
        raise Malformed
    if source.rest[0] in '{["':
        yield from _delimited(source, sink)
    else:
        yield from _scalar(source, sink)


def json_object(text: str) -> dict[str, Any]:
    """The object that a whole text is; an empty one of an empty text."""
    text = text.strip() or "{}"
    if text[0] != "{":
        raise Malformed
    return read_json(_Extent().advance(text)[1])


def _delimited(source: Source, sink: Callable[[str], None]) -> Generator[None, None, None]:
    extent = _Extent()
    while True:
        count, text = extent.advance(source.rest)
        source.take(count)
        if text:
            sink(text)
        if extent.complete:
            return
        if source.closed and not (source.cut or extent.broken):
            sink(extent.give_up())
        if extent.broken or source.closed:
            raise Malformed
        yield


class _Extent:
    """How far a string, an object or an array reaches, and its text as JSON."""

    def __init__(self) -> None:
        self.complete = False
        self.broken = False  # what follows is no JSON
        self._closers: list[str] = []
        self._in_string = False
        self._escaped = False

    def advance(self, text: str) -> tuple[int, str]:
        """-> how many characters of `text`, which goes on where the last one ended, belong to the value; their JSON."""
        at, pieces = 0, []
        while at < len(text) and not (self.complete or self.broken):
            read = self._in_string_from if self._in_string else self._outside_from
            at, piece = read(text, at)
            pieces.append(piece)
        return at, "".join(pieces)

    def _in_string_from(self, text: str, at: int) -> tuple[int, str]:
        if self._escaped:
            self._escaped = False
            return at + 1, _escape_of(text[at])
        stop = _STRING_STOP.search(text, at)
        end = stop.end() if stop else len(text)
        if stop and stop[0] == "\\":
            self._escaped = True
        elif stop:
            self._in_string = False
            self.complete = not self._closers
        return end, _CONTROL.sub(lambda found: "\\" + _escape_of(found[0]), text[at:end])

    def _outside_from(self, text: str, at: int) -> tuple[int, str]:
        mark = _STRUCTURE.search(text, at)
        if not mark:
            return len(text), text[at:]
        if mark[0] == '"':
            self._in_string = True
        elif mark[0] in "{[":
            self._closers.append("}" if mark[0] == "{" else "]")
        elif mark[0] in self._closers:
            missing = ""
            while (closer := self._closers.pop()) != mark[0]:
                missing += closer
            self.complete = not self._closers
            return mark.end(), text[at : mark.start()] + missing + mark[0]
        else:
            return mark.start(), text[at : mark.start()] + self.give_up()
        return mark.end(), text[at : mark.end()]

    def give_up(self) -> str:
        """Nothing more belongs to the value: the brackets that it lacks, but for a string that is still open."""
        self.broken = True
        return "" if self._in_string else "".join(reversed(self._closers))


def _escape_of(char: str) -> str:
    """What stands behind a backslash for a character that a model has put there, or should have.

    Line breaks as they are and a pattern's `\\d` are no JSON, and what a model means by them is plain.
    """
    if char in _ESCAPES:
        return char
    return json.dumps(char)[2:-1] if _CONTROL.match(char) else "\\" + char


def _scalar(source: Source, sink: Callable[[str], None]) -> Generator[None, None, None]:
    raw = ""
    while (yield from source.need(1)) and source.rest[0] not in ",}] \t\r\n":
        raw += source.take(1)
    try:
        json.loads(raw)
    except ValueError:
        raise Malformed from None
    sink(raw)


def json_call(source: Source, out: Output, known: frozenset[str]) -> Generator[None, None, None]:
    """One call object. The name must be `known` (any, where that is empty); arguments stream once it is read."""
    call = _Call(out, known)
    yield from _expect(source, "{")
    while not (yield from source.leads_to("}")):
        yield from source.skip_space()
        key = yield from json_string(source)
        yield from _expect(source, ":")
        yield from source.skip_space()
        yield from call.member(source, key)
        yield from source.leads_to(",")
    call.end()


def _expect(source: Source, char: str) -> Generator[None, None, None]:
    if not (yield from source.leads_to(char)):
        raise Malformed


class _Call:
    """The members read so far of one call object. It is told once its name and the first of its arguments are there."""

    def __init__(self, out: Output, known: frozenset[str]) -> None:
        self._out, self._known = out, known
        self._name: str | None = None
        self._told = False
        self._arguments = ""  # those that came before the name

    def member(self, source: Source, key: str) -> Generator[None, None, None]:
        if key in NAME_KEYS and self._name is None and source.rest[:1] in ("", '"'):
            self._name = yield from json_string(source)
            if self._known and self._name not in self._known:
                raise Malformed
        elif key in ARGUMENT_KEYS:
            yield from self._read_arguments(source)
        else:
            yield from json_value(source, lambda piece: None)

    def _read_arguments(self, source: Source) -> Generator[None, None, None]:
        if (yield from source.starts_with('"')):  # JSON within a JSON string
            if (text := (yield from json_string(source))).strip():
                self._tell(text)
        elif (yield from source.starts_with("null")):
            yield from json_value(source, lambda piece: None)
        else:
            yield from json_value(source, self._tell)

    def _tell(self, piece: str) -> None:
        if self._name is None:
            self._arguments += piece
            return
        if not self._told:
            self._begin(self._name)
        self._out.call_arguments(piece)

    def _begin(self, name: str) -> None:
        self._told = True
        self._out.call_start(name)

    def end(self) -> None:
        if self._name is None:
            raise Malformed
        if not self._told:
            self._begin(self._name)
            self._out.call_arguments(self._arguments or "{}")
