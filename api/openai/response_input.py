"""A Responses request's instructions, input items and tools -> neutral messages and tools."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from engine.errors import InvalidRequest

from ..conversation import Message, arguments_object, fold_system, tool_call, without_volatile_lines
from ..errors import Refused
from ..fields import Fields, required, tool_name
from ..seal import unseal
from . import custom_tools
from .messages import content_text
from .parts import parse_function, qualified

ROLES = ("system", "developer", "user", "assistant")
# What a hosted tool left behind in a conversation from elsewhere; it carries no text of its own.
_SILENT_ITEMS = (
    *("web_search_call", "file_search_call", "code_interpreter_call", "computer_call", "computer_call_output"),
    *("image_generation_call", "mcp_list_tools", "mcp_call", "mcp_approval_request", "mcp_approval_response"),
    *("local_shell_call", "local_shell_call_output", "tool_search_call", "tool_search_output"),
    *("shell_call", "shell_call_output", "apply_patch_call", "apply_patch_call_output", "program", "program_output"),
)


@dataclass(frozen=True, slots=True)
class ToolOrigin:
    """How a client names the tool behind a function's name."""

    name: str
    namespace: str | None = None
    custom: bool = False  # takes free text


@dataclass(slots=True)
class ToolSet:
    functions: list[dict[str, Any]] = field(default_factory=list)
    origins: dict[str, ToolOrigin] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)

    def add(self, tool: dict[str, Any], origin: ToolOrigin) -> None:
        self.functions.append(tool)
        self.origins[tool["function"]["name"]] = origin

    def origin(self, name: str) -> ToolOrigin:
        return self.origins.get(name, ToolOrigin(name))


def parse_tools(fields: Fields) -> ToolSet:
    tools = ToolSet()
    for item in fields.objects("tools"):
        _add_tool(tools, item, None)
    return tools


def _add_tool(tools: ToolSet, item: Fields, namespace: str | None) -> None:
    match item.string("type", "function"):
        case "function":
            tool = parse_function(item)
            origin = ToolOrigin(tool["function"]["name"], namespace)
            tool["function"]["name"] = qualified(origin.name, namespace)
            tools.add(tool, origin)
        case "custom":
            holder = item.object("custom") or item
            origin = ToolOrigin(tool_name(holder), namespace, custom=True)
            tools.ignored += custom_tools.unheld(holder)
            tools.add(custom_tools.as_function(holder, qualified(origin.name, namespace)), origin)
        case "namespace":
            for inner in item.objects("tools"):
                _add_tool(tools, inner, tool_name(item))
        case kind:
            tools.ignored.append(f"{item.path}: this server has no tool of type {kind[:40]!r}")


def parse_items(fields: Fields, recall: Callable[[str], dict[str, Any] | None]) -> list[Fields]:
    """The request's own items: none where it goes on with a response. recall: an earlier reply's item by its id."""
    value = fields.raw("input")
    if isinstance(value, str):
        return [Fields({"type": "message", "role": "user", "content": value}, "input")]
    items = fields.objects("input")
    if not items and not fields.string("previous_response_id"):
        raise fields.fail("input", "must hold at least one item where there is no previous_response_id.")
    return [_recalled(item, recall) if item.string("type") == "item_reference" else item for item in items]


def parse_conversation(instructions: str | None, items: Iterable[Fields]) -> list[Message]:
    """`instructions` lead the conversation and are none of its items: they hold for one response."""
    conversation = _Conversation()
    if instructions:
        conversation.messages.append({"role": "system", "content": without_volatile_lines(instructions)})
    for item in items:
        conversation.add(item)
    return fold_system(conversation.messages)


def _recalled(reference: Fields, recall: Callable[[str], dict[str, Any] | None]) -> Fields:
    item = recall(required(reference, "id"))
    if item is None:
        raise Refused(
            f"{reference.path} refers to an item that is not there: this server keeps those of its last replies, in "
            "memory. Send the items themselves, as clients do with store: false.",
            reference.path,
            "item_not_found",
        )
    return Fields(item, reference.path)


class _Conversation:
    """Items, which split one assistant turn into reasoning, text and calls, back into turns."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.reasoning: list[str] = []

    def add(self, item: Fields) -> None:
        match item.string("type", "message"):
            case "message":
                self._message(item)
            case "reasoning":
                if text := _reasoning_text(item):
                    self.reasoning.append(text)
            case "function_call" | "custom_tool_call":
                self._call(item)
            case "function_call_output" | "custom_tool_call_output":
                self._output(item)
            case "compaction":
                raise InvalidRequest(
                    f"{item.path} stands for a conversation that another server summarized and sealed: it cannot be "
                    "read here. Send the conversation itself.",
                    item.path,
                )
            case kind if kind not in _SILENT_ITEMS:
                raise InvalidRequest(f"{item.at('type')} {kind[:40]!r} is not known to this server.", item.at("type"))

    def _message(self, item: Fields) -> None:
        role = item.choice("role", ROLES, "user")
        text = content_text(item, optional=role == "assistant")
        if role == "assistant":
            self._assistant()["content"] = text
        elif role == "user":
            self.messages.append({"role": "user", "content": text})
        else:
            self.messages.append({"role": "system", "content": without_volatile_lines(text)})

    def _assistant(self) -> Message:
        """A new assistant turn, with the reasoning that came before it."""
        message: Message = {"role": "assistant", "content": ""}
        if self.reasoning:
            message["reasoning_content"] = "\n".join(self.reasoning)
            self.reasoning = []
        self.messages.append(message)
        return message

    def _call(self, item: Fields) -> None:
        name = qualified(required(item, "name"), item.string("namespace"))
        if item.string("type") == "custom_tool_call":
            arguments = {"input": item.string("input", "")}
        else:
            arguments = arguments_object(item.string("arguments", ""))
        last = self.messages[-1] if self.messages else None
        turn = last if last is not None and last["role"] == "assistant" and not self.reasoning else self._assistant()
        turn.setdefault("tool_calls", []).append(tool_call(required(item, "call_id"), name, arguments))

    def _output(self, item: Fields) -> None:
        text = content_text(item, optional=True, images="note", name="output")
        self.messages.append({"role": "tool", "tool_call_id": required(item, "call_id"), "content": text})


def _reasoning_text(item: Fields) -> str:
    sealed = unseal(item.string("encrypted_content"))
    if sealed is not None:
        return sealed
    parts = item.objects("content") or item.objects("summary")
    return "".join(part.string("text", "") for part in parts)
