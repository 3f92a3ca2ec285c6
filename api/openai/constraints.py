"""What a reply in chat or completions must match: `response_format`, and the same in other servers' spelling.

llama.cpp's is `json_schema`; vLLM's are `guided_*` and, since 0.12, `structured_outputs`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from engine.json_text import read_json
from engine.messages import Constraint

from ..fields import Fields, required
from . import parts


def parse_constraint(fields: Fields) -> Constraint | None:
    """Raises InvalidRequest where two of them constrain the reply."""
    found = parts.parse_format(fields.object("response_format"))
    told = "response_format"
    for holder, name, read in _spelled(fields):
        if name not in holder:
            continue
        if found:
            raise holder.fail(name, f"and {told} both say what the reply must match: send one of them.")
        found, told = read(holder, name), holder.at(name)
    return found


def _spelled(fields: Fields) -> list[tuple[Fields, str, Callable[[Fields, str], Constraint]]]:
    outputs = fields.object("structured_outputs") or Fields({}, "structured_outputs")
    return [
        (fields, "json_schema", _schema),
        (fields, "guided_json", _schema),
        (fields, "guided_regex", _regex),
        (fields, "guided_choice", _choice),
        (outputs, "json", _schema),
        (outputs, "regex", _regex),
        (outputs, "choice", _choice),
    ]


def _schema(fields: Fields, name: str) -> Constraint:
    """An object, or its text."""
    value: Any = fields.raw(name)
    if isinstance(value, str):
        try:
            value = read_json(value)
        except ValueError as error:
            raise fields.fail(name, f"is text that is no JSON: {error}.") from error
    if not isinstance(value, dict | bool):
        raise fields.fail(name, "must be a JSON schema (an object).")
    return Constraint("json_schema", value, fields.at(name))


def _regex(fields: Fields, name: str) -> Constraint:
    return Constraint("regex", required(fields, name), fields.at(name))


def _choice(fields: Fields, name: str) -> Constraint:
    texts = fields.strings(name)
    if not all(texts) or not texts:
        raise fields.fail(name, "must be an array of texts that are not empty.")
    alternatives = " | ".join(json.dumps(text, ensure_ascii=False) for text in texts)
    return Constraint("lark", f"start: {alternatives}", fields.at(name))
