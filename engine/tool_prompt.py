"""Tools for a model whose chat template knows none: the documented default, Hermes' format in plain text.

The tools are described at the end of the system message, calls are written as `<tool_call>` JSON, results come as
user messages in `<tool_response>`. engine/replies parses the calls as the hermes family.
"""

from __future__ import annotations

import json
from typing import Any

_INSTRUCTIONS = """# Tools

You may call one or more functions. Their signatures, one JSON object a line:
<tools>
{tools}
</tools>
To call a function, write its name and arguments as JSON within tags, and nothing after it:
<tool_call>
{{"name": "function name", "arguments": {{"argument": "value"}}}}
</tool_call>"""


def knows_tools(template: str) -> bool:
    """Whether a chat template uses the request's tools."""
    return "tools" in template


def describe_tools(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages with tools, calls and results as text, and no role or field that a plain template does not know."""
    plain = [_plain(message) for message in messages]
    if not tools:
        return plain
    lines = "\n".join(json.dumps(tool.get("function", tool), ensure_ascii=False) for tool in tools)
    section = _INSTRUCTIONS.format(tools=lines)
    if plain and plain[0]["role"] == "system":
        first = {**plain[0], "content": f"{plain[0]['content']}\n\n{section}"}
        return [first, *plain[1:]]
    return [{"role": "system", "content": section}, *plain]


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    content = message.get("content") or ""
    if message["role"] == "tool":
        return {"role": "user", "content": f"<tool_response>\n{content}\n</tool_response>"}
    calls = [_call_text(call["function"]) for call in message.get("tool_calls") or ()]
    return {"role": message["role"], "content": "\n".join(filter(None, [content, *calls]))}


def _call_text(function: dict[str, Any]) -> str:
    body = json.dumps({"name": function["name"], "arguments": function["arguments"]}, ensure_ascii=False)
    return f"<tool_call>\n{body}\n</tool_call>"
