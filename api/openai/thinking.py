"""Whether a chat request wants the model to think, in the spellings that clients have for it.

`reasoning_effort` is OpenAI's, `chat_template_kwargs` vLLM's. Clients choose the others by the model's name and send
them to whoever serves it: `enable_thinking` is Qwen's, `thinking` DeepSeek's, GLM's and Kimi's, `think` Ollama's,
`reasoning` OpenRouter's.
"""

from __future__ import annotations

from typing import Any

from ..fields import Fields
from . import parts

_KINDS = {"enabled": True, "disabled": False}


def parse_thinking(fields: Fields) -> tuple[bool | None, dict[str, Any]]:
    """-> whether to reason (None: as the template has it), and what the template is told. A yes or no goes first."""
    told = _inner(fields, "reasoning", "effort")
    effort = fields.choice("reasoning_effort", parts.EFFORTS, told if told in parts.EFFORTS else None)
    by_effort, template_kwargs = parts.parse_effort(effort)
    template_kwargs |= parts.parse_template_kwargs(fields)
    switches = (
        template_kwargs.pop("enable_thinking", None),
        fields.raw("enable_thinking"),
        fields.raw("think"),
        _inner(fields, "reasoning", "enabled"),
        next((on for kind, on in _KINDS.items() if _inner(fields, "thinking", "type") == kind), None),
    )
    return next((switch for switch in switches if isinstance(switch, bool)), by_effort), template_kwargs


def _inner(fields: Fields, name: str, inner: str) -> Any:
    """Of an object that no protocol here has: other forms of it say nothing."""
    value = fields.raw(name)
    return value.get(inner) if isinstance(value, dict) else None
