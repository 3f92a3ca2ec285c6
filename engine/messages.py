"""What crosses between the protocols (api/), the prompt and the one engine: plain dataclasses, no I/O.

A protocol parses its JSON into a `GenerationRequest`; `engine.generation.stream` turns that into an async iterator
of the events at the end of this file; the protocol renders them. Nothing here knows HTTP, JSON shapes or asyncio.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

FinishReason = Literal["stop", "stop_sequence", "length", "tool_calls", "cancel"]


@dataclass(frozen=True, slots=True)
class Sampling:
    """Only what the request set; None leaves the launch flag's default in force."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    logit_bias: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Constraint:
    """What the reply's text must match. kind: json_schema (a dict), json_object (None), regex or lark (a str)."""

    kind: Literal["json_schema", "json_object", "regex", "lark"]
    value: Any = None
    param: str | None = field(default=None, compare=False)  # the field's path in the request


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """mode `named` requires the function `name`; `required` any of the tools."""

    mode: Literal["auto", "none", "required", "named"] = "auto"
    name: str | None = None
    parallel: bool = True


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One generation, in no protocol's shape.

    messages: chat-template dicts: role (system, user, assistant, tool), content (str), and where they apply
    `reasoning_content` (str), `tool_calls` ([{id, type: function, function: {name, arguments: dict}}]),
    `tool_call_id`, `name`. `text_prompt` (raw completions) or `prompt_ids` replace messages.
    tools: OpenAI function tools ([{type: function, function: {name, description, parameters}}]).
    """

    model: str | None
    messages: list[dict[str, Any]] = field(default_factory=list)
    text_prompt: str | None = None
    prompt_ids: list[int] | None = None
    max_tokens: int | None = None
    sampling: Sampling = Sampling()
    stop: tuple[str, ...] = ()
    logprobs: int | None = None  # None: not asked; 0: the chosen token's only; N: N alternatives too
    echo: bool = False  # the prompt comes back, with its log probabilities where these are asked for
    tools: list[dict[str, Any]] = field(default_factory=list)
    tool_choice: ToolChoice = ToolChoice()
    constraint: Constraint | None = None
    continue_final_message: bool = False  # the last assistant message is continued, not answered
    reasoning: bool | None = None  # None: the template's own default
    template_kwargs: dict[str, Any] = field(default_factory=dict)
    may_slide: bool = True  # False: refused where it does not fit the window, whatever --context-overflow says
    # Told to the queue and the request log only.
    request_id: str = ""
    client: str = ""  # key id or address: what the queue is fair between
    protocol: str = ""
    endpoint: str = ""
    client_name: str = ""  # as its User-Agent says
    vaults: frozenset[str] | None = None  # those that the client's key may use; None: every one


# --- events, in the order in which they can appear ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Accepted:
    """The first event: the request is in order, and its prompt fits the window or only the engine's boot will tell."""

    prompt: int  # ids


@dataclass(frozen=True, slots=True)
class Queued:
    """position 1 runs next. Repeated as it changes. `model` is the vault it will run on."""

    position: int
    model: str = ""


@dataclass(frozen=True, slots=True)
class Booting:
    """The engine starts on this vault first. Repeated about once a second."""

    model: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Prefill:
    """Ids of the prompt: done and cached are part of total. Comes at least once, before the first text."""

    model: str
    done: int
    total: int
    cached: int


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Natural logarithms; `text` may be part of a character, so `raw` has the token's bytes.

    Of a prompt's first id nothing is known: its logprob is None.
    """

    id: int
    text: str
    raw: bytes
    logprob: float | None
    top: tuple[tuple[int, str, bytes, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Echo:
    """The prompt, where the request asked for it: once, before the first text. logprobs: of each id, or none."""

    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Visible text, whole characters only. `tokens` ids were taken for it; logprobs only where asked for."""

    text: str
    tokens: int = 1
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    text: str
    tokens: int = 1


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    """Call `index` (0, 1, ... in this reply) begins."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A further piece of call `index`'s arguments: JSON text."""

    index: int
    arguments: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Exact token counts. cached is part of prompt; reasoning is part of generated."""

    prompt: int
    cached: int
    generated: int
    reasoning: int = 0


@dataclass(frozen=True, slots=True)
class Timings:
    """Milliseconds and counts of one generation. None where a version-1 engine does not tell."""

    queue_ms: float = 0.0
    boot_ms: float = 0.0
    prefill_ms: float = 0.0
    decode_ms: float = 0.0
    stall_ms: float | None = None
    expert_hits: int | None = None
    expert_misses: int | None = None
    bytes_read: int | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event, always exactly one unless an error is raised. `slid` positions have left the window."""

    reason: FinishReason
    usage: Usage
    timings: Timings
    model: str
    stop_sequence: str | None = None
    slid: int = 0
    context: int = 0  # the window's size in positions


Waiting = Accepted | Queued | Booting | Prefill
Event = Waiting | Echo | TextDelta | ReasoningDelta | ToolCallStart | ToolCallDelta | Finished
