"""A client's JSON Schema -> what llguidance is given.

Exactly: what cannot be enforced is refused by name, never left out. Else it is left out, and no more than that.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ..errors import InvalidRequest
from .faults import fault_of

Schema = dict[str, Any]

# Compact JSON, one way to write it: free white space lets a small model fill its budget with line breaks.
_STYLE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_SPACED = {"whitespace_flexible": True}
_DEFINITIONS = ("$defs", "definitions")
_MAPS = (*_DEFINITIONS, "properties", "patternProperties")  # hold schemas by name
_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems", "items", "additionalProperties")  # hold one, or a list of them
_SHAPE = (*_SCHEMAS, *_DEFINITIONS, "type", "properties", "required", "enum", "const", "$ref")
_TYPES = {**dict.fromkeys(_MAPS, dict), **dict.fromkeys(("required", "enum"), list)}


def prepared(schema: Any, exact: bool, spaced: bool = False) -> Schema:
    """Not exact: a `oneOf` whose alternatives could hold at once counts as `anyOf`."""
    if isinstance(schema, bool):
        schema = {} if schema else {"enum": []}
    simple = _simplified(schema, exact)
    style = _SPACED if spaced else _STYLE
    return {**simple, "x-guidance": {**style, "coerce_one_of": not exact, "lenient": not exact}}


def json_rule(rule: str, schema: Schema) -> str:
    return f"{rule}: %json {json.dumps(schema, ensure_ascii=False)}\n"


def by_parameter(schema: Schema) -> Schema:
    """Where the library cannot hold the schema as a whole: of each parameter what it can, and which are required."""
    whole = prepared(schema, exact=False)
    given = whole.get("properties", {})
    properties = {name: _first_that_holds(value, whole) for name, value in given.items()}
    required = [name for name in whole.get("required", ()) if name in properties]
    kept = {"type": "object", "properties": properties, "required": required}
    if whole.get("additionalProperties") is False:
        kept["additionalProperties"] = False
    return part(kept, whole)


def _first_that_holds(value: Any, whole: Schema) -> Schema:
    value = value if isinstance(value, dict) else {}
    shape = {key: item for key, item in value.items() if key in _SHAPE}
    for candidate in (value, shape, {"type": value.get("type")}):
        if not fault_of(json_rule("start", part(candidate, whole))):
            return candidate
    return {}


def part(value: Any, whole: Schema) -> Schema:
    """A property's schema, to stand alone: with the definitions and the style of the prepared one that it is of."""
    value = value if isinstance(value, dict) else {}
    return {**value, **{name: whole[name] for name in (*_DEFINITIONS, "x-guidance") if name in whole}}


def loosened(schema: Schema) -> Schema:
    """For a tool whose arguments are not held: any of its parameters, strings as strings."""
    given = _well_formed(schema, exact=False).get("properties", {})
    properties = {name: {"type": "string"} if _is_string(value) else {} for name, value in given.items()}
    return prepared({"type": "object", "properties": properties}, exact=False)


def _is_string(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "string"


def _simplified(schema: Any, exact: bool) -> Any:
    """The same schema in words that the library takes."""
    if not isinstance(schema, dict):
        return schema
    simple = {key: _simplified_under(key, item, exact) for key, item in _well_formed(schema, exact).items()}
    if simple.get("uniqueItems") is False:
        del simple["uniqueItems"]
    if _needs_unnamed_keys(simple):
        if exact:
            raise InvalidRequest(
                "the schema or grammar cannot be enforced: minProperties may ask for one key, or for as many as are "
                "required by name, and no more."
            )
        del simple["minProperties"]
    if not exact:
        _drop_patterns(simple)
    if isinstance(simple.get("oneOf"), list) and "anyOf" not in simple and _are_distinct_values(simple["oneOf"]):
        simple["anyOf"] = simple.pop("oneOf")
    return simple


def _simplified_under(keyword: str, item: Any, exact: bool) -> Any:
    if keyword in _MAPS:
        return {name: _simplified(schema, exact) for name, schema in item.items()}
    if keyword in _SCHEMAS:
        return [_simplified(schema, exact) for schema in item] if isinstance(item, list) else _simplified(item, exact)
    return item


def _well_formed(schema: Schema, exact: bool) -> Schema:
    """What this module and call_formats.py read has its type: raises InvalidRequest, or leaves the keyword out."""
    wrong = {keyword: kind for keyword, kind in _TYPES.items() if not isinstance(schema.get(keyword, kind()), kind)}
    for keyword, kind in wrong.items() if exact else ():
        what = "an object" if kind is dict else "an array"
        raise InvalidRequest(f"the schema or grammar cannot be enforced: {keyword} must be {what}.")
    if not all(isinstance(name, str) for name in schema.get("required", ()) if "required" not in wrong):
        if exact:
            raise InvalidRequest("the schema or grammar cannot be enforced: required must hold strings only.")
        wrong["required"] = list
    return {keyword: item for keyword, item in schema.items() if keyword not in wrong}


def _drop_patterns(schema: Schema) -> None:
    """Those that the library does not follow: look-around, back references, what is no regular expression."""
    if "pattern" in schema and not _is_followed(schema["pattern"]):
        del schema["pattern"]
    if named := schema.get("patternProperties"):
        schema["patternProperties"] = {pattern: item for pattern, item in named.items() if _is_followed(pattern)}


def _is_followed(pattern: Any) -> bool:
    return not fault_of(json_rule("start", {"type": "string", "pattern": pattern}))


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
