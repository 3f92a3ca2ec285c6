"""Tools that take free text: the model is shown a function of one string, and what it writes there is the input."""

from __future__ import annotations

from typing import Any

from ..conversation import arguments_object, function_tool
from ..fields import Fields

_PARAMETERS = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The tool's input, as it is."}},
    "required": ["input"],
    "additionalProperties": False,
}


def as_function(fields: Fields, name: str) -> dict[str, Any]:
    return function_tool(name, fields.string("description"), _PARAMETERS)


def unheld(fields: Fields) -> tuple[str, ...]:
    """What of the tool is not honoured, in words."""
    form = fields.object("format")
    if form is None or form.string("type") != "grammar":
        return ()
    return (f"{form.path}: the input of a custom tool is free text here",)


def input_of(arguments: str) -> str:
    """The free text inside the function form in which the model wrote it."""
    value = arguments_object(arguments).get("input")
    return value if isinstance(value, str) else arguments
