"""Random JSON schemas from the keywords that constrained decoding enforces, and the judge of what was answered."""

from __future__ import annotations

import random
from typing import Any

import jsonschema

Schema = dict[str, Any]
Random = random.Random

NAMES = ["a", "b c", 'q"', "é", "long_name", "n1"]
PATTERNS = ["^[a-c]{2,4}$", "^(a|b)$", r"^\d{3}-\d{2}$", '^[^"]{1,3}$', "^é?$", r"^\.{1,2}$"]
FORMATS = ["date", "time", "date-time", "ipv4", "uuid"]
DEEPEST = 3  # where only scalars come


def judge(schema: Schema) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)


def random_schema(rng: Random, depth: int = 0) -> Schema:
    """depth: how deep it already stands; a start near DEEPEST makes answers short."""
    deep = [] if depth >= DEEPEST else [_object, _object, _array, _either, _referring]
    made = rng.choice([_string, _number, *deep])(rng, depth)
    return {"title": "Title", "description": "Says nothing.", **made} if rng.random() < 0.1 else made


def _string(rng: Random, depth: int) -> Schema:
    return rng.choice(
        [
            {"type": "string", "minLength": rng.randint(0, 2), "maxLength": rng.randint(2, 5)},
            {"type": "string", "pattern": rng.choice(PATTERNS)},
            {"type": "string", "format": rng.choice(FORMATS)},
            {"type": ["string", "null"], "maxLength": 3},
            {"enum": rng.sample(["x", "two words", 'é"', 3, None, 1.5, {"a": [1]}], rng.randint(1, 4))},
            {"const": rng.choice(["c", 0, False, [1, 2], {"k": None}, "\\\n"])},
        ]
    )


def _number(rng: Random, depth: int) -> Schema:
    return rng.choice(
        [
            {"type": "integer", "minimum": rng.randint(-20, 5), "maximum": rng.randint(5, 2000)},
            {"type": "integer", "exclusiveMinimum": rng.randint(-5, 5), "exclusiveMaximum": rng.randint(8, 12)},
            {"type": "integer", "multipleOf": rng.choice([2, 3, 7, 10]), "minimum": 0, "maximum": 100},
            {"type": "number", "minimum": -1.5, "maximum": rng.choice([1.5, 100.25])},
            {"type": "number", "multipleOf": 0.5, "minimum": 0, "maximum": 10},
            {"type": rng.choice(["boolean", "null"])},
        ]
    )


def _object(rng: Random, depth: int) -> Schema:
    names = rng.sample(NAMES, rng.randint(1, 4))
    schema: Schema = {
        "type": "object",
        "properties": {name: random_schema(rng, depth + 1) for name in names},
        "required": rng.sample(names, rng.randint(0, len(names))),
        "additionalProperties": False,
    }
    if rng.random() < 0.2:
        schema["patternProperties"] = {"^p_[a-z]$": _number(rng, depth)}
    if schema["required"] == names and rng.random() < 0.5:
        schema |= {"minProperties": len(names), "maxProperties": len(names)}
    return schema


def _array(rng: Random, depth: int) -> Schema:
    least, most = rng.randint(0, 1), rng.randint(1, 3)
    schema: Schema = {"type": "array", "items": random_schema(rng, depth + 1), "minItems": least, "maxItems": most}
    if rng.random() < 0.3:
        schema["prefixItems"] = [random_schema(rng, depth + 1)]
        schema["items"] = rng.choice([False, schema["items"]])
        schema["maxItems"] = 1 if schema["items"] is False else most
    return schema | ({"uniqueItems": False} if rng.random() < 0.2 else {})


def _either(rng: Random, depth: int) -> Schema:
    tagged = [
        {
            "type": "object",
            "properties": {"kind": {"const": kind}, "value": _number(rng, depth)},
            "required": ["kind"],
            "additionalProperties": False,
        }
        for kind in ("cat", "dog")
    ]
    first = {"type": "object", "properties": {"a": _number(rng, depth)}, "required": ["a"]}
    second = {"properties": {"b": _string(rng, depth)}, "additionalProperties": False}
    return rng.choice(
        [
            {"anyOf": [random_schema(rng, depth + 1) for _ in range(rng.randint(1, 3))]},
            {"oneOf": [{"const": 1, "title": "One"}, {"enum": [2, "three"]}]},
            {"oneOf": [{"type": "null"}, {"type": "string", "maxLength": 3}]},
            {"oneOf": tagged},
            {"allOf": [{"type": "integer", "minimum": 0}, {"maximum": 50}]},
            {"allOf": [first, {**second, "properties": {**second["properties"], "a": {}}}]},
        ]
    )


def _referring(rng: Random, depth: int) -> Schema:
    """Definitions stand at a schema's top only: below it, a plain object."""
    if depth:
        return _object(rng, depth)
    return {
        "$defs": {"thing": _object(rng, depth + 1)},
        "type": "object",
        "properties": {"first": {"$ref": "#/$defs/thing"}, "second": {"$ref": "#/$defs/thing"}},
        "required": ["first"],
        "additionalProperties": False,
    }
