"""A client's JSON Schema -> what llguidance is given.

Exactly: what cannot be enforced is refused by name, never left out. Else it is left out, and no more than that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
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
_TYPE_NAMES = ("string", "number", "integer", "boolean", "array", "object", "null")
_VALUES = ("const", "default")  # null is a value there
_MOST_TRIALS = 256  # of one tool
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


def lenient_forms(schema: Schema) -> Iterator[Schema]:
    """For a tool that must be called and is not strict: its schema, then with less of what the library may refuse."""
    whole = prepared(schema, exact=False)
    yield whole
    trials = _Trials()
    followed = _with_followed_patterns(whole, trials)
    yield followed
    yield _by_parameter(followed, trials)


class _Trials:
    """Asks the library what it takes, so often only: a hostile schema would hold others up."""

    def __init__(self) -> None:
        self._left = _MOST_TRIALS

    def holds(self, schema: Schema) -> bool:
        self._left -= 1
        return self._left >= 0 and not fault_of(json_rule("start", schema))


def _with_followed_patterns(schema: Any, trials: _Trials) -> Any:
    """Without those that the library does not follow: look-around, back references, what is no regular expression."""
    if not isinstance(schema, dict):
        return schema
    kept = {
        key: _under(key, item, lambda inner: _with_followed_patterns(inner, trials)) for key, item in schema.items()
    }
    if "pattern" in kept and not trials.holds(_matching(kept["pattern"])):
        del kept["pattern"]
    if named := kept.get("patternProperties"):
        kept["patternProperties"] = {key: item for key, item in named.items() if trials.holds(_matching(key))}
    return kept


def _matching(pattern: Any) -> Schema:
    return {"type": "string", "pattern": pattern}


def _by_parameter(whole: Schema, trials: _Trials) -> Schema:
    """Of each parameter what the library can hold by itself, and which are required."""
    given = whole.get("properties", {})
    properties = {name: _first_that_holds(value, whole, trials) for name, value in given.items()}
    required = [name for name in whole.get("required", ()) if name in properties]
    kept = {"type": "object", "properties": properties, "required": required}
    if whole.get("additionalProperties") is False:
        kept["additionalProperties"] = False
    return part(kept, whole)


def _first_that_holds(value: Any, whole: Schema, trials: _Trials) -> Schema:
    value = value if isinstance(value, dict) else {}
    shape = {key: item for key, item in value.items() if key in _SHAPE}
    return next((form for form in (value, shape) if trials.holds(part(form, whole))), _bare(value))


def _bare(schema: Schema) -> Schema:
    types = schema.get("type")
    names = types if isinstance(types, list) else [types]
    return {"type": types} if names and all(name in _TYPE_NAMES for name in names) else {}


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
    given = _well_formed(schema, exact)
    simple = {key: _under(key, item, lambda inner: _simplified(inner, exact)) for key, item in given.items()}
    if simple.get("uniqueItems") is False:
        del simple["uniqueItems"]
    if "propertyNames" in simple:
        simple = _with_named_keys(simple)
    if _needs_unnamed_keys(simple):
        if exact:
            raise InvalidRequest(
                "the schema or grammar cannot be enforced: minProperties may ask for one key, or for as many as are "
                "required by name, and no more."
            )
        del simple["minProperties"]
    if isinstance(simple.get("oneOf"), list) and "anyOf" not in simple and _are_distinct_values(simple["oneOf"]):
        simple["anyOf"] = simple.pop("oneOf")
    return simple


def _under(keyword: str, item: Any, change: Callable[[Any], Any]) -> Any:
    """What stands under a keyword, its schemas changed."""
    if keyword in _MAPS:
        return {name: change(schema) for name, schema in item.items()}
    if keyword in _SCHEMAS:
        return [change(schema) for schema in item] if isinstance(item, list) else change(item)
    return item


def _well_formed(schema: Schema, exact: bool) -> Schema:
    """What this module and call_formats.py read has its type: raises InvalidRequest, or leaves the keyword out.

    One that is null is absent: programs in Go and C# write it so for an empty list.
    """
    schema = {keyword: item for keyword, item in schema.items() if item is not None or keyword in _VALUES}
    wrong = {keyword: kind for keyword, kind in _TYPES.items() if not isinstance(schema.get(keyword, kind()), kind)}
    for keyword, kind in wrong.items() if exact else ():
        what = "an object" if kind is dict else "an array"
        raise InvalidRequest(f"the schema or grammar cannot be enforced: {keyword} must be {what}.")
    if "required" not in wrong and not _are_strings(schema.get("required", [])):
        if exact:
            raise InvalidRequest("the schema or grammar cannot be enforced: required must hold strings only.")
        wrong["required"] = list
    return {keyword: item for keyword, item in schema.items() if keyword not in wrong}


def _with_named_keys(schema: Schema) -> Schema:
    """Zod's records: keys are strings anyway, and those of an enum are properties. Other `propertyNames` stay."""
    names = schema["propertyNames"]
    kept = {keyword: item for keyword, item in schema.items() if keyword != "propertyNames"}
    if names in (True, {}, {"type": "string"}):
        return kept
    keys = names.get("enum") if isinstance(names, dict) else None
    is_enum = _are_strings(keys) and names == {"type": "string", "enum": keys}
    if not is_enum or "properties" in schema or "patternProperties" in schema:
        return schema
    value = schema.get("additionalProperties", {})
    return {**kept, "properties": dict.fromkeys(keys, value), "additionalProperties": False}


def _are_strings(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


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
