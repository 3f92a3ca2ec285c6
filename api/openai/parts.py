"""Parsing that chat completions and responses share: tools, tool choice, output formats, reasoning effort."""

from __future__ import annotations

from typing import Any

from engine.messages import Constraint, ToolChoice

from ..conversation import function_tool
from ..fields import Fields, required

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
FORMATS = ("text", "json_object", "json_schema", "regex", "grammar", "lark")
TOOL_CHOICES = ("auto", "none", "required")
_TEMPLATE_EFFORTS = {"minimal": "low", "xhigh": "high", "max": "high"}
RESERVED_TEMPLATE_NAMES = {
    "add_generation_prompt",
    "chat_template",
    "continue_final_message",
    "conversation",
    "documents",
    "messages",
    "return_dict",
    "tokenize",
    "tools",
}


def parse_function(fields: Fields) -> dict[str, Any]:
    """A function tool, its fields either nested in `function` or flat beside `type`."""
    function = fields.object("function") or fields
    name = required(function, "name")
    if not name:
        raise function.fail("name", "must not be empty.")
    return function_tool(
        name, function.string("description"), function.mapping("parameters"), function.boolean("strict")
    )


def parse_tool_choice(fields: Fields, tools: list[dict[str, Any]]) -> ToolChoice:
    """`auto`, `none`, `required`, or one function by name."""
    parallel = fields.boolean("parallel_tool_calls", True)
    value = fields.raw("tool_choice", "auto")
    if isinstance(value, str):
        mode = fields.choice("tool_choice", TOOL_CHOICES)
        if mode == "required" and not tools:
            raise fields.fail("tool_choice", "is 'required', but the request has no function tools.")
        return ToolChoice(mode or "auto", parallel=parallel)
    chosen = Fields(value, fields.at("tool_choice"))
    if chosen.string("type", "function") not in ("function", "custom"):
        raise chosen.fail("type", "must be 'function': this server runs no tools of its own.")
    name = required(chosen.object("function") or chosen.object("custom") or chosen, "name")
    if name not in {tool["function"]["name"] for tool in tools}:
        raise fields.fail("tool_choice", f"names {name[:80]!r}, which is not among the request's tools.")
    return ToolChoice("named", name, parallel)


def parse_format(fields: Fields | None) -> Constraint | None:
    """response_format's or text.format's object: its schema nested in `json_schema`, or flat."""
    if fields is None:
        return None
    kind = fields.choice("type", FORMATS, "text")
    if kind == "json_object":
        return Constraint("json_object")
    if kind == "json_schema":
        holder = fields.object("json_schema") or fields
        if not isinstance(holder.raw("schema"), dict | bool):
            raise holder.fail("schema", "must be a JSON schema (an object).")
        return Constraint("json_schema", holder.raw("schema"))
    if kind == "regex":
        return Constraint("regex", required(fields, "regex" if "regex" in fields else "pattern"))
    if kind in ("grammar", "lark"):
        return Constraint("lark", required(fields, "grammar" if "grammar" in fields else "lark"))
    return None


def parse_effort(effort: str | None) -> tuple[bool | None, dict[str, Any]]:
    """-> whether to reason, and what a template that knows efforts is told."""
    if effort is None:
        return None, {}
    if effort in ("none", "minimal"):
        return False, {}
    return True, {"reasoning_effort": _TEMPLATE_EFFORTS.get(effort, effort)}


def parse_template_kwargs(fields: Fields) -> dict[str, Any]:
    given = fields.mapping("chat_template_kwargs")
    for name in given:
        if name in RESERVED_TEMPLATE_NAMES:
            raise fields.fail("chat_template_kwargs", f"may not set {name!r}: the server sets it.")
    return dict(given)
