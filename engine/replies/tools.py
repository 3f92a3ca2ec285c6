"""The request's tools, as parsers need them: which names there are, and what type a parameter's text has."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from ..json_text import without_lone_surrogates

_WORDS = {"True": True, "False": False, "None": None}  # a template writes Python's where it does not write JSON
_DEEPEST = 16  # references and alternatives within each other


@dataclass(frozen=True, slots=True)
class Tools:
    """Parameter schemas by name."""

    schemas: dict[str, dict[str, Any]]

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self.schemas)

    def parameters(self, tool: str) -> list[str]:
        properties = _member(self.schemas.get(tool), "properties")
        return list(properties) if isinstance(properties, dict) else []

    def typed(self, tool: str, parameter: str, text: str) -> Any:
        """An XML-style parameter's text as a type that its schema takes: strings stay as they are.

        Where something else is allowed beside strings, engine/constraints lets a string be written as JSON only.
        """
        schema = self.schemas.get(tool, {})
        of_parameter = _member(schema.get("properties"), parameter)
        if _is_plain_text(of_parameter):
            return text
        try:
            value = _read(text)
        except (ValueError, RecursionError):
            return text
        kinds = _kinds(of_parameter, schema, set())
        return value if kinds is None or _kind(value) & kinds or "string" not in kinds else text


def _is_plain_text(schema: Any) -> bool:
    if isinstance(values := _member(schema, "enum"), list):
        return all(isinstance(value, str) for value in values)
    return _member(schema, "type") == "string"


def _read(text: str) -> Any:
    """JSON without what only Python reads, which stays text. Raises ValueError, RecursionError."""
    word = text.strip()
    if word in _WORDS:
        return _WORDS[word]
    return without_lone_surrogates(json.loads(text, parse_constant=_number, parse_float=_number))


def _number(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(text)
    return number


def _kind(value: Any) -> set[str]:
    """The names of a value's types in a schema."""
    match value:
        case None:
            return {"null"}
        case bool():
            return {"boolean"}
        case int():
            return {"integer", "number"}
        case float():
            return {"number"}
        case str():
            return {"string"}
        case list():
            return {"array"}
        case _:
            return {"object"}


def _kinds(schema: Any, root: dict[str, Any], seen: set[str], depth: int = 0) -> set[str] | None:
    """Types that a schema takes, None where it does not tell. A reference is followed once: it may lead to itself."""
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return None
    if isinstance(reference := schema.get("$ref"), str):
        if reference in seen:
            return set()
        seen.add(reference)
        return _kinds(_referred(reference, root), root, seen, depth + 1)
    if "const" in schema or isinstance(schema.get("enum"), list):
        return set().union(*map(_kind, [schema["const"]] if "const" in schema else schema["enum"]))
    if kinds := schema.get("type"):
        return {kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if isinstance(kind, str)}
    for keyword in ("anyOf", "oneOf"):
        if isinstance(schema.get(keyword), list):
            each = [_kinds(alternative, root, seen, depth + 1) for alternative in schema[keyword]]
            return None if None in each else set().union(*each)
    parts = schema["allOf"] if isinstance(schema.get("allOf"), list) else []
    return next((kinds for part in parts if (kinds := _kinds(part, root, seen, depth + 1))), None)


def _referred(reference: str, root: dict[str, Any]) -> Any:
    """What `#/$defs/Name` stands for; None for what is not in the schema itself."""
    if not reference.startswith("#/"):
        return None
    found: Any = root
    for name in reference[2:].split("/"):
        found = _member(found, name.replace("~1", "/").replace("~0", "~"))
    return found


def _member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None
