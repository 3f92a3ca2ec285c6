"""A client's JSON Schema -> what llguidance is given. What cannot be enforced is refused by name, never left out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..errors import InvalidRequest

Schema = dict[str, Any]

# Compact JSON, one way to write it: free white space lets a small model fill its budget with line breaks.
_STYLE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_DEFINITIONS = ("$defs", "definitions")
_MAPS = (*_DEFINITIONS, "properties", "patternProperties")  # hold schemas by name
_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems", "items", "additionalProperties")  # hold one, or a list of them
_TYPES = {**dict.fromkeys(_MAPS, dict), **dict.fromkeys(("required", "enum"), list)}


def prepared(schema: Any, exact: bool) -> Schema:
    """exact: alternatives of a `oneOf` that could hold at once are refused; else such a `oneOf` counts as `anyOf`."""
    if isinstance(schema, bool):
        schema = {} if schema else {"enum": []}
    return {**_simplified(schema), "x-guidance": {**_STYLE, "coerce_one_of": not exact}}


def part(value: Any, whole: Schema) -> Schema:
    """A property's schema, to stand alone: with the definitions and the style of the prepared one that it is of."""
    value = value if isinstance(value, dict) else {}
    return {**value, **{name: whole[name] for name in (*_DEFINITIONS, "x-guidance") if name in whole}}


def loosened(schema: Schema) -> Schema:
    """For a tool whose arguments are not held: any of its parameters, strings as strings."""
    given = _checked(schema).get("properties", {})
    properties = {name: {"type": "string"} if _is_string(value) else {} for name, value in given.items()}
    return prepared({"type": "object", "properties": properties}, exact=False)


def _is_string(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "string"


def _simplified(schema: Any) -> Any:
    """The same schema in words that the library takes."""
    if not isinstance(schema, dict):
        return schema
    simple = {key: _simplified_under(key, item) for key, item in _checked(schema).items()}
    if simple.get("uniqueItems") is False:
        del simple["uniqueItems"]
    if _needs_unnamed_keys(simple):
        raise InvalidRequest(
            "the schema or grammar cannot be enforced: minProperties may ask for one key, or for as many as are "
            "required by name, and no more."
        )
    if isinstance(simple.get("oneOf"), list) and "anyOf" not in simple and _are_distinct_values(simple["oneOf"]):
        simple["anyOf"] = simple.pop("oneOf")
    return simple


def _simplified_under(keyword: str, item: Any) -> Any:
    if keyword in _MAPS:
        return {name: _simplified(schema) for name, schema in item.items()}
    if keyword in _SCHEMAS:
        return [_simplified(schema) for schema in item] if isinstance(item, list) else _simplified(item)
    return item


def _checked(schema: Schema) -> Schema:
    """Raises InvalidRequest where what this module and call_formats.py read has another type."""
    for keyword, kind in _TYPES.items():
        if keyword in schema and not isinstance(schema[keyword], kind):
            what = "an object" if kind is dict else "an array"
            raise InvalidRequest(f"the schema or grammar cannot be enforced: {keyword} must be {what}.")
    return schema


def _needs_unnamed_keys(schema: Schema) -> bool:
    """The library does not see that a key which the model chose freely is written twice: such keys count as one."""
    least = schema.get("minProperties")
    return isinstance(least, int) and least > max(1, len(schema.get("required", ())))


def _are_distinct_values(alternatives: Iterable[Any]) -> bool:
    """Whether each names its values, and none names another's: then at most one of them can hold."""
    seen: list[Any] = []
    for alternative in alternatives:
        if not isinstance(alternative, dict) or not ("const" in alternative or "enum" in alternative):
            return False
        values = [alternative["const"]] if "const" in alternative else alternative["enum"]
        if any(value in seen for value in values):
            return False
        seen += values
    return True
