"""Messages and tools in other forms: what a strict chat template refuses in one it may take in another."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from itertools import islice, takewhile
from typing import Any

Message = dict[str, Any]
Messages = list[Message]
SHORT_ID = 9  # characters


def attempts(messages: Messages) -> Iterator[Messages]:
    """The messages, then in the forms that stricter templates take.

    Merged, without late or any system messages, with an answer to every result; each with the calls as they came, with
    ids of Mistral's length, with the arguments as text, and a call at a time as Llama's want them.
    """
    tried: list[Messages] = []
    for spell in (list, _with_short_ids, _with_text_arguments, _one_call_at_a_time):
        spelled = spell(messages)
        for arrange in (list, _merge, lambda m: _merge(_late_system_as_user(m)), lambda m: _merge(_fold_system(m))):
            arranged = arrange(spelled)
            for form in (arranged, _with_every_result_answered(arranged)):
                if form not in tried:
                    tried.append(form)
                    yield form


def tool_forms(tools: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """The tools, and with a description each: some templates put it behind other text without looking."""
    yield tools
    if any("description" not in tool["function"] for tool in tools):
        yield [{**tool, "function": {"description": "", **tool["function"]}} for tool in tools]


def for_harmony(messages: Messages) -> Messages:
    """gpt-oss's template writes only the first call of a message, and refuses text beside reasoning and a call."""
    return [_with_text_as_reasoning(message) for message in _one_call_at_a_time(messages)]


def _with_text_as_reasoning(message: Message) -> Message:
    if not message.get("tool_calls"):
        return message
    reasoning = "\n\n".join(filter(None, (message.get("reasoning_content"), message.get("content"))))
    return {**message, "content": "", "reasoning_content": reasoning}


def _one_call_at_a_time(messages: Messages) -> Messages:
    """A message for each call, right behind it its result."""
    single: Messages = []
    results: Messages = []
    for at, message in enumerate(messages):
        calls = message.get("tool_calls") or ()
        if len(calls) > 1:
            results = list(takewhile(lambda m: m["role"] == "tool", islice(messages, at + 1, None)))
            single += _split(message, results)
        elif not any(message is result for result in results):
            single.append(message)
    return single


def _split(message: Message, results: Messages) -> Messages:
    """Results of none of the calls come last."""
    ids = [call["id"] for call in message["tool_calls"]]
    split: Messages = []
    for call in message["tool_calls"]:
        said = {"role": "assistant", "content": ""} if split else message
        split.append({**said, "tool_calls": [call]})
        split += [result for result in results if result.get("tool_call_id") == call["id"]]
    return split + [result for result in results if result.get("tool_call_id") not in ids]


def _merge(messages: Messages) -> Messages:
    """Neighbours of one role become one message; tool results stay apart."""
    merged: Messages = []
    for message in messages:
        if merged and message["role"] == merged[-1]["role"] != "tool":
            merged[-1] = _joined(merged[-1], message)
        else:
            merged.append(message)
    return merged


def _joined(first: Message, second: Message) -> Message:
    joined = {**first, **second, "content": "\n\n".join(filter(None, (first.get("content"), second.get("content"))))}
    if calls := [*(first.get("tool_calls") or ()), *(second.get("tool_calls") or ())]:
        joined["tool_calls"] = calls
    return joined


def _late_system_as_user(messages: Messages) -> Messages:
    return messages[:1] + [{**m, "role": "user"} if m["role"] == "system" else m for m in messages[1:]]


def _fold_system(messages: Messages) -> Messages:
    return [{**m, "role": "user"} if m["role"] == "system" else m for m in messages]


def _with_every_result_answered(messages: Messages) -> Messages:
    """Where roles must alternate, a user's words may not follow the results that stand beside them in one turn."""
    answered: Messages = []
    for message in messages:
        last = answered[-1] if answered else {"role": ""}
        if message["role"] == "user" and (last["role"] == "tool" or last.get("tool_calls")):
            answered.append({"role": "assistant", "content": ""})
        answered.append(message)
    return answered


def _with_short_ids(messages: Messages) -> Messages:
    """Clients bring ids of other models; the same id is always written the same, for the prefix's sake."""
    return [_with_calls(_short_result_id(m), lambda call: {**call, "id": _short_id(call["id"])}) for m in messages]


def _short_result_id(message: Message) -> Message:
    return message if message["role"] != "tool" else {**message, "tool_call_id": _short_id(message.get("tool_call_id"))}


def _short_id(id: str | None) -> str:
    """Nine letters and digits, as Mistral's templates demand."""
    if id and len(id) == SHORT_ID and id.isascii() and id.isalnum():
        return id
    return hashlib.sha256((id or "").encode()).hexdigest()[:SHORT_ID]


def _with_text_arguments(messages: Messages) -> Messages:
    """DeepSeek's templates put them behind other text as they are."""

    def spelled(call: Message) -> Message:
        function = call["function"]
        return {**call, "function": {**function, "arguments": json.dumps(function["arguments"], ensure_ascii=False)}}

    return [_with_calls(message, spelled) for message in messages]


def _with_calls(message: Message, change: Callable[[Message], Message]) -> Message:
    calls = message.get("tool_calls")
    return {**message, "tool_calls": [change(call) for call in calls]} if calls else message
