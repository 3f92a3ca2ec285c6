"""OpenAI chat messages -> neutral messages."""

from __future__ import annotations

from typing import Any

from engine.errors import InvalidRequest

from ..conversation import Message, arguments_object, fold_system, join_texts, tool_call, without_volatile_lines
from ..fields import Fields, required, type_name

ROLES = ("system", "developer", "user", "assistant", "tool", "function")


def parse_messages(fields: Fields) -> list[Message]:
    items = fields.objects("messages", required=True)
    if not items:
        raise fields.fail("messages", "must hold at least one message.")
    return fold_system([_message(item) for item in items])


def _message(fields: Fields) -> Message:
    role = fields.choice("role", ROLES)
    if role is None:
        raise fields.fail("role", "is required.")
    if role in ("system", "developer"):
        return {"role": "system", "content": without_volatile_lines(content_text(fields))}
    if role == "assistant":
        return _assistant(fields)
    if role in ("tool", "function"):
        return _tool_result(fields)
    return {"role": "user", "content": content_text(fields)}


def _assistant(fields: Fields) -> Message:
    message: Message = {"role": "assistant", "content": content_text(fields, optional=True)}
    reasoning = fields.string("reasoning_content") or fields.string("reasoning")
    if reasoning:
        message["reasoning_content"] = reasoning
    calls = [_call(item, index) for index, item in enumerate(fields.objects("tool_calls"))]
    if legacy := fields.object("function_call"):
        calls.append(tool_call("call_0", required(legacy, "name"), arguments_object(legacy.string("arguments", ""))))
    if calls:
        message["tool_calls"] = calls
    return message


def _call(fields: Fields, index: int) -> dict[str, Any]:
    identity = fields.string("id") or f"call_{index}"
    if custom := fields.object("custom"):
        return tool_call(identity, required(custom, "name"), {"input": custom.string("input", "")})
    function = fields.object("function")
    if function is None:
        raise fields.fail("function", "is required.")
    arguments = function.raw("arguments", "")
    if isinstance(arguments, str):
        arguments = arguments_object(arguments)
    elif not isinstance(arguments, dict):
        raise function.fail("arguments", f"must be a string of JSON, not {type_name(arguments)}.")
    return tool_call(identity, required(function, "name"), arguments)


def _tool_result(fields: Fields) -> Message:
    message: Message = {"role": "tool", "content": content_text(fields, optional=True, images="note")}
    if identity := fields.string("tool_call_id"):
        message["tool_call_id"] = identity
    if name := fields.string("name"):
        message["name"] = name
    return message


def content_text(fields: Fields, optional: bool = False, images: str = "refuse", name: str = "content") -> str:
    """A message's content, or what `name` holds, as text: a string, an array of parts, or null where `optional`."""
    content = fields.raw(name)
    if isinstance(content, str):
        return content
    if content is None:
        if optional:
            return ""
        raise fields.fail(name, "is required.")
    if not isinstance(content, list):
        raise fields.fail(name, f"must be a string or an array of parts, not {type_name(content)}.")
    parts = [part for part in content if not (isinstance(part, str))]
    if len(parts) != len(content):
        raise fields.fail(name, 'must hold parts like {"type": "text", "text": ...}, not bare strings.')
    return join_texts([part_text(part, images) for part in fields.objects(name)])


def part_text(part: Fields, images: str) -> str:
    kind = part.string("type", "text")
    if kind in ("text", "input_text", "output_text"):
        return part.string("text", "") if "text" in part else required(part, "text")
    if kind == "refusal":
        return part.string("refusal", "")
    if images == "note" and kind in ("image_url", "input_image", "image", "file", "input_file"):
        return f"[{kind} left out: this model reads text only]"
    raise InvalidRequest(
        f"{part.path} is of type {kind[:40]!r}; the models of this server read text only. Send text parts.", part.path
    )
