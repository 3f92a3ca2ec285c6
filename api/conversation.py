"""What the protocols share in turning a client's messages into the neutral ones.

Order-stable: the same conversation, longer by a turn, gives the same messages with new ones at the end, so that the
engine finds its prefix again.
"""

from __future__ import annotations

import re
from typing import Any

from engine.errors import InvalidRequest
from engine.json_text import read_json

Message = dict[str, Any]

# A first system block of some clients: its hash changes with every conversation and says nothing to a model.
VOLATILE_LINE = re.compile(r"^x-anthropic-billing-header:[^\n]*(?:\n|$)", re.MULTILINE | re.IGNORECASE)


def without_volatile_lines(text: str) -> str:
    return VOLATILE_LINE.sub("", text) if "billing-header" in text else text


def join_texts(texts: list[str]) -> str:
    """Text blocks of one message; a list of one equals the plain string."""
    return "\n".join(texts)


def fold_system(messages: list[Message]) -> list[Message]:
    """System messages that lead become one; a later one joins the user's turn at its place, as a reminder.

    Most chat templates refuse a system message that is not the first, and moving it to the front would change the
    prefix of everything that came before it. Raises InvalidRequest where nothing remains.
    """
    head = 0
    while head < len(messages) and messages[head]["role"] == "system":
        head += 1
    leading = "\n\n".join(text for message in messages[:head] if (text := message["content"]))
    folded: list[Message] = [{"role": "system", "content": leading}] if leading else []
    for message in messages[head:]:
        if message["role"] == "system":
            reminder = f"<system-reminder>\n{message['content']}\n</system-reminder>"
            message = {"role": "user", "content": reminder, "folded": True}
        _append(folded, message)
    if not folded:
        raise InvalidRequest("The conversation holds no text: send at least one message that is not empty.", "messages")
    for message in folded:
        message.pop("folded", None)
    return folded


def _append(messages: list[Message], message: Message) -> None:
    """Joins a folded system message with the user's turn before or after it."""
    last = messages[-1] if messages else None
    adjacent = last is not None and last["role"] == message["role"] == "user"
    if adjacent and (message.get("folded") or last.get("folded")):
        last["content"] += "\n" + message["content"]
        last["folded"] = True
    else:
        messages.append(message)


def merge_turns(messages: list[Message]) -> list[Message]:
    """Consecutive user turns, which Anthropic's protocol reads as one, become one."""
    merged: list[Message] = []
    for message in messages:
        if merged and message["role"] == merged[-1]["role"] == "user":
            merged[-1] = {**message, "content": merged[-1]["content"] + "\n" + message["content"]}
        else:
            merged.append(message)
    return merged


def whole_arguments(text: str) -> dict[str, Any] | None:
    """A tool call's arguments; None where the text is no JSON object, as when the reply was cut off inside."""
    try:
        value = read_json(text) if text.strip() else {}
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def arguments_object(text: str) -> dict[str, Any]:
    """A tool call's arguments as they come back from a client: re-serialized, empty or not JSON at all."""
    value = whole_arguments(text)
    return {"raw": text} if value is None else value


def tool_call(identity: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def function_tool(name: str, description: str | None, parameters: dict[str, Any] | None, strict: bool = False) -> dict:
    """An OpenAI function tool in one stable form, whatever form and order of keys the client sent."""
    function: dict[str, Any] = {"name": name}
    if description:
        function["description"] = description
    function["parameters"] = parameters or {"type": "object", "properties": {}}
    if strict:
        function["strict"] = True
    return {"type": "function", "function": function}
