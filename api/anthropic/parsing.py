"""Anthropic messages -> the neutral request. Shared by messages and count_tokens, so that both count the same.

Shapes: https://docs.anthropic.com/en/api/messages
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from engine.errors import InvalidRequest
from engine.generation import MAX_STOPS
from engine.messages import Constraint, GenerationRequest, ToolChoice

from ..conversation import (
    Message,
    fold_system,
    function_tool,
    join_texts,
    merge_turns,
    tool_call,
    without_volatile_lines,
)
from ..errors import Refused
from ..fields import Fields, required, tool_name, type_name, unhonoured
from ..sampling import parse_sampling
from ..seal import unseal
from .client_tools import ClientTool, client_tool

UNHONOURED = ("context_management", "output_config.task_budget")
ROLES = ("user", "assistant", "system")
EFFORTS = ("low", "medium", "high", "xhigh", "max")
THINKING = ("enabled", "adaptive", "disabled")
TOOL_CHOICES = ("auto", "any", "tool", "none")
_TEMPLATE_EFFORTS = {"xhigh": "high", "max": "high"}
_IGNORED_BLOCKS = (
    "redacted_thinking",
    "mcp_tool_use",
    "mcp_tool_listing",
    "fallback",
    "server_tool_use",
    "container_upload",
    "mid_conv_system",
)
_CLIENT_TOOL_TYPES = (None, "custom", "function")


def parse_request(fields: Fields) -> tuple[GenerationRequest, tuple[str, ...]]:
    """-> the request and what of it is not honoured, in words. Raises InvalidRequest."""
    _refuse(fields)
    items = fields.objects("messages", required=True)
    if not items:
        raise fields.fail("messages", "must hold at least one message.")
    tools, hosted = _tools(fields, _referenced_tools(items))
    messages = _system(fields, hosted)
    for item in items:
        messages.extend(_messages(item))
    messages = merge_turns(fold_system(messages))
    config = fields.object("output_config") or Fields({}, "output_config")
    reasoning, template_kwargs = _reasoning(fields, config)
    request = GenerationRequest(
        model=fields.string("model"),
        messages=messages,
        max_tokens=fields.integer("max_tokens", 1),
        sampling=parse_sampling(fields),
        stop=_stops(fields),
        tools=tools,
        tool_choice=_tool_choice(fields, tools),
        constraint=_format(config.object("format") or fields.object("output_format")),
        continue_final_message=_is_prefill(messages),
        reasoning=reasoning,
        template_kwargs=template_kwargs,
    )
    ignored = [f"{path}: {name} runs on the provider's side; this server has none" for path, name in hosted]
    return request, (*ignored, *unhonoured(fields, UNHONOURED), *_citations(items))


def _refuse(fields: Fields) -> None:
    if "thread" in fields:
        raise Refused(
            "thread is not supported: this server keeps no conversations. Send the full history in messages.",
            "thread",
            "thread_unsupported_request",
            {"error_code": "thread_unsupported_request"},
        )
    for name in ("container", "mcp_servers"):
        if fields.raw(name):
            raise fields.fail(name, "is not offered by this server: it runs no code and calls no tool servers.")


def _is_prefill(messages: list[Message]) -> bool:
    last = messages[-1]
    return last["role"] == "assistant" and not last.get("tool_calls") and bool(last["content"])


# --- system and messages ---------------------------------------------------------------------------------------------


def _system(fields: Fields, hosted: list[tuple[str, str]]) -> list[Message]:
    """The system prompt as leading messages, without what changes although the conversation did not."""
    texts = [without_volatile_lines(_system_text(fields, "system"))]
    if hosted:
        names = ", ".join(name for _, name in hosted)
        texts.append(f"Not available in this conversation: {names}. Say so if asked to use it.")
    return [{"role": "system", "content": text} for text in texts if text]


def _system_text(fields: Fields, name: str) -> str:
    value = fields.raw(name, "")
    if isinstance(value, str):
        return value
    texts = [without_volatile_lines(_text(block)) for block in fields.objects(name)]
    return join_texts([text for text in texts if text])


def _text(block: Fields) -> str:
    if block.string("type", "text") != "text":
        raise block.fail("type", "must be 'text' here.")
    return required(block, "text")


def _messages(fields: Fields) -> list[Message]:
    role = fields.choice("role", ROLES)
    if role is None:
        raise fields.fail("role", "is required.")
    if not isinstance(fields.raw("content"), str | list):
        raise fields.fail("content", f"must be a string or an array of blocks, not {type_name(fields.raw('content'))}.")
    if role == "system":
        return [{"role": "system", "content": without_volatile_lines(_system_text(fields, "content"))}]
    if isinstance(fields.raw("content"), str):
        return [{"role": role, "content": fields.string("content")}]
    blocks = fields.objects("content")
    return [_assistant(blocks)] if role == "assistant" else _user(blocks)


def _assistant(blocks: list[Fields]) -> Message:
    texts: list[str] = []
    reasoning: list[str] = []
    calls: list[dict[str, Any]] = []
    for block in blocks:
        match block.string("type", "text"):
            case "text":
                texts.append(required(block, "text"))
            case "thinking":
                reasoning.append(block.string("thinking", "") or unseal(block.string("signature")) or "")
            case "tool_use":
                calls.append(tool_call(required(block, "id"), required(block, "name"), block.mapping("input")))
            case kind:
                texts += _other_block(block, kind)
    message: Message = {"role": "assistant", "content": join_texts([text for text in texts if text])}
    if thinking := join_texts([text for text in reasoning if text]):
        message["reasoning_content"] = thinking
    if calls:
        message["tool_calls"] = calls
    return message


def _user(blocks: list[Fields]) -> list[Message]:
    """Tool results first, each a message of its own, then what the user says beside them."""
    results: list[Message] = []
    texts: list[str] = []
    for block in blocks:
        match block.string("type", "text"):
            case "text":
                texts.append(required(block, "text"))
            case "tool_result":
                results.append(_tool_result(block))
            case kind:
                texts += _other_block(block, kind)
    if texts or not results:
        results.append({"role": "user", "content": join_texts(texts)})
    return results


def _tool_result(block: Fields) -> Message:
    content = block.raw("content", "")
    if isinstance(content, str):
        text = content
    else:
        text = join_texts([_result_text(part) for part in block.objects("content")])
    if block.boolean("is_error") and "error" not in text[:80].lower():
        text = f"Error: {text}"
    return {"role": "tool", "tool_call_id": required(block, "tool_use_id"), "content": text}


def _result_text(part: Fields) -> str:
    match part.string("type", "text"):
        case "text":
            return required(part, "text")
        case "tool_reference":
            return f"The tool {required(part, 'tool_name')} is available now."
        case "search_result":
            return join_texts([part.string("title", ""), part.string("source", ""), _system_text(part, "content")])
        case "document":
            return _document(part) or "[document left out: this model reads text only]"
        case kind:
            return f"[{kind} left out: this model reads text only]"


def _other_block(block: Fields, kind: str) -> list[str]:
    """Blocks that either side may hold: kept as text, known to carry none, or refused."""
    if kind in _IGNORED_BLOCKS or kind.endswith("_tool_result"):
        return []
    if kind == "document" and (text := _document(block)) is not None:
        return [text]
    if kind == "compaction":  # stands for the messages that it summarizes
        return [block.string("content")] if isinstance(block.raw("content"), str) else []
    if kind == "search_result":
        return [_result_text(block)]
    raise InvalidRequest(
        f"{block.path} is of type {kind[:40]!r}; the models of this server read text only. Send text blocks.",
        block.path,
    )


def _document(block: Fields) -> str | None:
    """A document's text where its source is text; None for files."""
    source = block.object("source") or Fields({}, block.at("source"))
    if source.raw("type") == "text":
        return join_texts([text for text in (block.string("title"), source.string("data", "")) if text])
    if source.raw("type") == "content":
        return _system_text(source, "content")
    return None


def _citations(items: list[Fields]) -> Iterator[str]:
    """Blocks whose citations the answer will not have."""
    for item in items:
        for block in item.objects("content") if isinstance(item.raw("content"), list) else ():
            citations = block.raw("citations")
            if isinstance(citations, dict) and citations.get("enabled"):
                yield f"{block.at('citations')}: answers here cite nothing"


# --- tools -----------------------------------------------------------------------------------------------------------


def _referenced_tools(items: list[Fields]) -> list[str]:
    """Names that tool_reference blocks have loaded, in the order of the conversation."""
    names: dict[str, None] = {}
    for item in items:
        for block in item.raw("content") if isinstance(item.raw("content"), list) else ():
            parts = block.get("content") if isinstance(block, dict) else None
            for part in parts if isinstance(parts, list) else ():
                if isinstance(part, dict) and part.get("type") == "tool_reference":
                    names[str(part.get("tool_name"))] = None
    return list(names)


def _tools(fields: Fields, referenced: list[str]) -> tuple[list[dict[str, Any]], list[tuple[str, str]]]:
    """-> function tools, and those (path, name) that only the provider could run.

    A deferred tool is not shown until a tool_reference loads it; loaded ones stand last, in the order of loading,
    wherever the client inserts them: the tools before them, and so the prompt's head, stay the same.
    """
    tools: dict[str, dict[str, Any]] = {}
    hosted = []
    for item in fields.objects("tools"):
        name = tool_name(item) if item.string("type") != "mcp_toolset" else "mcp_toolset"
        known = _client_tool(item)
        if known is None:
            hosted.append((item.path, name))
        elif not item.boolean("defer_loading") or name in referenced:
            description = _description(item, known.description)
            schema = item.mapping("input_schema") or known.input_schema
            tools[name] = function_tool(name, description, schema, item.boolean("strict"))
    loaded = [tools.pop(name) for name in referenced if name in tools]
    return [*tools.values(), *loaded], hosted


def _client_tool(item: Fields) -> ClientTool | None:
    """What the protocol knows of a tool that the client runs: nothing of one of its own making. None for the others."""
    kind = item.string("type")
    is_own = kind in _CLIENT_TOOL_TYPES or "input_schema" in item
    return client_tool(kind) or (ClientTool("", {}) if is_own else None)


def _description(tool: Fields, default: str) -> str:
    """With the examples that may stand beside it: a template knows no field for them."""
    examples = [json.dumps(example.values, ensure_ascii=False) for example in tool.objects("input_examples")]
    if not examples:
        return tool.string("description", default)
    return "\n".join([tool.string("description", default), "Examples of its input:", *examples]).lstrip()


def _tool_choice(fields: Fields, tools: list[dict[str, Any]]) -> ToolChoice:
    choice = fields.object("tool_choice")
    if choice is None:
        return ToolChoice()
    parallel = not choice.boolean("disable_parallel_tool_use")
    match choice.choice("type", TOOL_CHOICES, "auto"):
        case "any":
            if not tools:
                raise fields.fail("tool_choice", "is 'any', but the request has no tools that the client runs.")
            return ToolChoice("required", parallel=parallel)
        case "tool":
            name = required(choice, "name")
            if name not in {tool["function"]["name"] for tool in tools}:
                raise choice.fail("name", f"{name[:80]!r} is not among the request's tools that the client runs.")
            return ToolChoice("named", name, parallel)
        case mode:
            return ToolChoice(mode, parallel=parallel)


# --- the rest --------------------------------------------------------------------------------------------------------


def _stops(fields: Fields) -> tuple[str, ...]:
    texts = fields.strings("stop_sequences", MAX_STOPS)
    if any(not text for text in texts):
        raise fields.fail("stop_sequences", "holds an empty string; every one needs at least one character.")
    return texts


def _format(fields: Fields | None) -> Constraint | None:
    if fields is None:
        return None
    fields.choice("type", ("json_schema",))
    if not isinstance(fields.raw("schema"), dict | bool):
        raise fields.fail("schema", "must be a JSON schema (an object).")
    return Constraint("json_schema", fields.raw("schema"), fields.at("schema"))


def _reasoning(fields: Fields, config: Fields) -> tuple[bool | None, dict[str, Any]]:
    """Off unless asked for, as the protocol has it; adaptive leaves it to the template, which is told the effort."""
    effort = config.choice("effort", EFFORTS)
    thinking = fields.object("thinking")
    kind = None if thinking is None else thinking.choice("type", THINKING)
    if thinking is not None:
        thinking.integer("budget_tokens", 0)
    if kind in (None, "disabled"):
        return False, {}
    return None if kind == "adaptive" else True, {} if effort is None else {
        "reasoning_effort": _TEMPLATE_EFFORTS.get(effort, effort)
    }


def thinking_is_shown(fields: Fields) -> bool:
    """`display: omitted` wants thinking blocks without their text."""
    thinking = fields.object("thinking")
    return thinking is None or thinking.string("display") != "omitted"
