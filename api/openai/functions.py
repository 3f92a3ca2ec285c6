"""The older form of tools: `functions`, `function_call`, and at most one call a reply. Deprecated, and still sent."""

from __future__ import annotations

from typing import Any

from engine.messages import ToolChoice

from ..fields import Fields, required
from . import parts

FINISH_REASON = "function_call"
CHOICES = ("auto", "none")


def are_meant(fields: Fields) -> bool:
    """Whether the request's tools and the reply's call have this form."""
    return "functions" in fields and "tools" not in fields


def parse_functions(fields: Fields) -> list[dict[str, Any]]:
    return [parts.parse_function(item) for item in fields.objects("functions")]


def parse_choice(fields: Fields, tools: list[dict[str, Any]]) -> ToolChoice:
    value = fields.raw("function_call", "auto")
    if isinstance(value, str):
        return ToolChoice(fields.choice("function_call", CHOICES, "auto"), parallel=False)
    chosen = Fields(value, fields.at("function_call"))
    name = required(chosen, "name")
    parts.check_name(chosen, name, tools)
    return ToolChoice("named", name, parallel=False)


def in_message(name: str, arguments: str) -> dict[str, Any]:
    """What a message has in the place of tool_calls, as a delta's first piece has it."""
    return {"function_call": {"name": name, "arguments": arguments}}


def in_delta(arguments: str) -> dict[str, Any]:
    return {"function_call": {"arguments": arguments}}
