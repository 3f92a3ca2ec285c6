"""Typed reading of a JSON object: every wrong type is an InvalidRequest that names the field's path.

A field that is absent or null has its default; fields that nobody reads are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from engine.errors import InvalidRequest

_REQUIRED: Any = object()
_BREAKS_A_CALL = re.compile(r"[\x00-\x1f\x7f-\x9f\"'\\<>]")
MAX_TOOL_NAME = 128
_NAMES = {str: "a string", bool: "a boolean", dict: "an object", list: "an array", int: "an integer", float: "a number"}


def type_name(value: Any) -> str:
    """A JSON value's type in words."""
    return "null" if value is None else _NAMES.get(type(value), "another type")


class Fields:
    """One object of a request's body; `path` is its place in it, "" for the body itself."""

    __slots__ = ("path", "values")

    def __init__(self, values: Any, path: str = ""):
        if not isinstance(values, dict):
            what = path or "The request body"
            raise InvalidRequest(f"{what} must be an object, not {type_name(values)}.", path or None)
        self.values = values
        self.path = path

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def at(self, name: str | int) -> str:
        return f"{self.path}.{name}" if self.path else str(name)

    def fail(self, name: str, sentence: str) -> InvalidRequest:
        """The error to raise: `sentence` goes on after the field's path."""
        return InvalidRequest(f"{self.at(name)} {sentence}", self.at(name))

    def raw(self, name: str, default: Any = None) -> Any:
        value = self.values.get(name)
        return default if value is None else value

    def _typed(self, name: str, kind: type, default: Any) -> Any:
        value = self.values.get(name)
        if value is None:
            if default is _REQUIRED:
                raise self.fail(name, "is required.")
            return default
        if isinstance(value, kind) and not (kind is not bool and isinstance(value, bool)):
            return value
        raise self.fail(name, f"must be {_NAMES[kind]}, not {type_name(value)}.")

    def string(self, name: str, default: Any = None) -> Any:
        return self._typed(name, str, default)

    def boolean(self, name: str, default: Any = False) -> Any:
        return self._typed(name, bool, default)

    def integer(self, name: str, low: int | None = None, high: int | None = None, default: Any = None) -> Any:
        value = self.values.get(name)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        elif value is None or not isinstance(value, int) or isinstance(value, bool):
            value = self._typed(name, int, default)
        return self._bounded(name, value, low, high)

    def number(self, name: str, low: float | None = None, high: float | None = None, default: Any = None) -> Any:
        value = self.values.get(name)
        if not isinstance(value, int | float) or isinstance(value, bool):
            value = self._typed(name, float, default)
        return self._bounded(name, value, low, high)

    def _bounded(self, name: str, value: Any, low: float | None, high: float | None) -> Any:
        if value is None or ((low is None or value >= low) and (high is None or value <= high)):
            return value
        bounds = f"at least {low}" if high is None else f"from {low} to {high}"
        raise self.fail(name, f"must be {bounds}, not {value}.")

    def choice(self, name: str, words: Iterable[str], default: Any = None) -> Any:
        value = self.string(name, default)
        if value is not None and value not in (words := tuple(words)):
            raise self.fail(name, f"must be one of {', '.join(words)}, not {value[:40]!r}.")
        return value

    def object(self, name: str) -> Fields | None:
        """The nested object, None where it is absent."""
        value = self._typed(name, dict, None)
        return None if value is None else Fields(value, self.at(name))

    def mapping(self, name: str) -> dict[str, Any]:
        return self._typed(name, dict, None) or {}

    def objects(self, name: str, required: bool = False) -> list[Fields]:
        """An array of objects."""
        values = self._typed(name, list, _REQUIRED if required else None) or []
        return [Fields(value, f"{self.at(name)}.{index}") for index, value in enumerate(values)]

    def strings(self, name: str, most: int | None = None) -> tuple[str, ...]:
        """A string or an array of strings, as a tuple."""
        value = self.values.get(name)
        values = [value] if isinstance(value, str) else self._typed(name, list, [])
        for index, item in enumerate(values):
            if not isinstance(item, str):
                raise InvalidRequest(
                    f"{self.at(name)}.{index} must be a string, not {type_name(item)}.", f"{self.at(name)}.{index}"
                )
        if most is not None and len(values) > most:
            raise self.fail(name, f"may hold at most {most} strings, not {len(values)}.")
        return tuple(values)


def unhonoured(fields: Fields, names: Iterable[str]) -> tuple[str, ...]:
    """Which of these fields are there, in words: those that would change the answer and come as a matter of course.

    A name may be a path; a value that asks for nothing (false, empty) is none.
    """
    told = []
    for name in names:
        value: Any = fields.values
        for step in name.split("."):
            value = value.get(step) if isinstance(value, dict) else None
        if value:
            told.append(f"{fields.at(name)}: this server does not have it")
    return tuple(told)


def required(fields: Fields, name: str) -> str:
    """A string that must be there."""
    return fields.string(name, _REQUIRED)


def tool_name(fields: Fields) -> str:
    """The name of a tool that the model is to be shown. More than the protocols take: names of MCP tools have dots."""
    name = required(fields, "name")
    if not name:
        raise fields.fail("name", "must not be empty.")
    if len(name) > MAX_TOOL_NAME:
        raise fields.fail("name", f"may have at most {MAX_TOOL_NAME} characters, not {len(name)}.")
    if wrong := _BREAKS_A_CALL.search(name):
        raise fields.fail(
            "name",
            f"holds {wrong[0]!r}: a call of it could not be read. Use no quotes, backslashes, angle brackets or "
            "control characters; letters, digits, _ and - are safe everywhere.",
        )
    return name
