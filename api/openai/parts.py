"""Parsing that chat completions and responses share: tools, tool choice, output formats, reasoning effort."""

from __future__ import annotations

from typing import Any

from engine.errors import InvalidRequest
from engine.messages import Constraint, ToolChoice

from ..conversation import function_tool
from ..fields import Fields, required, tool_name

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
FORMATS = ("text", "json_object", "json_schema", "regex", "grammar", "lark")
TOOL_CHOICES = ("auto", "none", "required")
ALLOWED_MODES = ("auto", "required")
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


def qualified(name: str, namespace: str | None) -> str:
    """The one name under which the model sees a tool of a namespace."""
    return f"{namespace}__{name}" if namespace else name


def parse_function(fields: Fields) -> dict[str, Any]:
    """A function tool, its fields either nested in `function` or flat beside `type`."""
    function = fields.object("function") or fields
    name, description = tool_name(function), function.string("description")
    return function_tool(name, description, function.mapping("parameters"), function.boolean("strict"))


def allowed_tools(fields: Fields, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What `tool_choice: {"type": "allowed_tools", ...}` leaves of the tools: the model sees no other ones."""
    choice = _allowed(fields)
    if choice is None:
        return tools
    names = []
    for item in choice.objects("tools", required=True):
        if item.string("type", "function") in ("function", "custom"):
            names.append(_tool_name(item))
            check_name(item, names[-1], tools)
    return [tool for tool in tools if tool["function"]["name"] in names]


def _allowed(fields: Fields) -> Fields | None:
    """The choice's object, which chat nests once more; None for other choices."""
    value = fields.raw("tool_choice")
    if not isinstance(value, dict) or value.get("type") != "allowed_tools":
        return None
    choice = Fields(value, fields.at("tool_choice"))
    return choice.object("allowed_tools") or choice


def _tool_name(fields: Fields) -> str:
    holder = fields.object("function") or fields.object("custom") or fields
    return qualified(required(holder, "name"), fields.string("namespace"))


def check_name(fields: Fields, name: str, tools: list[dict[str, Any]]) -> None:
    if name not in {tool["function"]["name"] for tool in tools}:
        raise InvalidRequest(f"{fields.path} names {name[:80]!r}, which is not among the request's tools.", fields.path)


def parse_tool_choice(fields: Fields, tools: list[dict[str, Any]]) -> ToolChoice:
    """`auto`, `none`, `required`, one function by name, or a mode for the allowed tools (which `tools` are by now)."""
    parallel = fields.boolean("parallel_tool_calls", True)
    mode = _mode(fields)
    if mode is not None:
        if mode == "required" and not tools:
            raise fields.fail("tool_choice", "is 'required', but the request has no function tools.")
        return ToolChoice(mode, parallel=parallel)
    chosen = Fields(fields.raw("tool_choice"), fields.at("tool_choice"))
    if chosen.string("type", "function") not in ("function", "custom"):
        raise chosen.fail("type", "must be 'function' or 'allowed_tools': this server runs no tools of its own.")
    name = _tool_name(chosen)
    check_name(chosen, name, tools)
    return ToolChoice("named", name, parallel)


def _mode(fields: Fields) -> str | None:
    """None where one function is named."""
    if (allowed := _allowed(fields)) is not None:
        return allowed.choice("mode", ALLOWED_MODES) or "auto"
    value = fields.raw("tool_choice", "auto")
    if isinstance(value, str):
        return fields.choice("tool_choice", TOOL_CHOICES, "auto")
    kind = value.get("type") if isinstance(value, dict) else None
    return kind if kind in TOOL_CHOICES else None  # editors write {"type": "auto"}


def parse_format(fields: Fields | None) -> Constraint | None:
    """response_format's or text.format's object: its schema nested in `json_schema`, or flat."""
    if fields is None:
        return None
    kind = fields.choice("type", FORMATS, "text")
    if kind == "json_object" and "schema" not in fields:
        return Constraint("json_object")
    if kind in ("json_object", "json_schema"):  # llama.cpp and others spell a schema as an object's
        holder = fields.object("json_schema") or fields
        if not isinstance(holder.raw("schema"), dict | bool):
            raise holder.fail("schema", "must be a JSON schema (an object).")
        return Constraint("json_schema", holder.raw("schema"), holder.at("schema"))
    if kind == "regex":
        name = "regex" if "regex" in fields else "pattern"
        return Constraint("regex", required(fields, name), fields.at(name))
    if kind in ("grammar", "lark"):
        name = "grammar" if "grammar" in fields else "lark"
        return Constraint("lark", required(fields, name), fields.at(name))
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
