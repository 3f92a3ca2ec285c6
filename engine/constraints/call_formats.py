"""How each family writes a call, as grammar: the counterparts of engine/replies/families.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .marks import Marks
from .schemas import Schema, json_rule, part

# (marks, rule, tool name, prepared schema, what of the head has been written) -> rules
Rules = Callable[[Marks, str, str, Schema, str], str]


@dataclass(frozen=True, slots=True)
class CallFormat:
    """opening (call separator call)* closing, each call head NAME tail-of-head ARGUMENTS end.

    trigger: with what opening, or else head, begins, where no other text does; "" where the family has no such sign.
    """

    opening: str
    separator: str
    closing: str
    call: Rules
    trigger: str = ""


def _json_arguments(head: str, end: str) -> Rules:
    """`{name}` in head stands for the tool's name, `{n}` for a number of the call; the arguments are JSON."""

    def call(marks: Marks, rule: str, name: str, schema: Schema, written: str) -> str:
        opening = " /[0-9]{1,3}/ ".join(map(marks.literal, _head(head, name, written).split("{n}")))
        return f"{rule}: {opening} {rule}_args {marks.literal(end)}\n" + json_rule(f"{rule}_args", schema)

    return call


def _head(head: str, name: str, written: str) -> str:
    return head.removeprefix(written).replace("{name}", name)


@dataclass(frozen=True, slots=True)
class Tags:
    """Around one parameter's value: opening (with {key}), then closing; line breaks that stand inside and after it."""

    opening: str
    closing: str
    before_closing: str = ""
    after: str = "\n"


def _tagged_arguments(head: str, end: str, tags: Tags) -> Rules:
    """Each parameter between tags, in the schema's order, the required ones always; strings stand as they are."""

    def call(marks: Marks, rule: str, name: str, schema: Schema, written: str) -> str:
        required = set(schema.get("required", ()))
        uses, rules = [], []
        for number, (key, value) in enumerate(schema.get("properties", {}).items()):
            own = f"{rule}_p{number}"
            uses.append(own if key in required else own + "?")
            rules.append(_parameter(marks, own, key, part(value, schema), tags))
        opening = marks.literal(_head(head, name, written))
        return f"{rule}: {opening} {' '.join(uses)} {marks.literal(end)}\n" + "".join(rules)

    return call


def _parameter(marks: Marks, rule: str, key: str, schema: Schema, tags: Tags) -> str:
    opening = marks.literal(tags.opening.replace("{key}", key))
    if schema.get("type") == "string" and "enum" not in schema:
        text = marks.text_then(f"{rule}_v", tags.closing)
        return f"{rule}: {opening} {rule}_v {marks.literal(tags.after)}\n{text}"
    closing = marks.literal(tags.before_closing + tags.closing + tags.after)
    if "enum" in schema and all(isinstance(value, str) for value in schema["enum"]):
        values = " | ".join(marks.literal(value) for value in schema["enum"])
        return f"{rule}: {opening} ({values}) {closing}\n"
    return f"{rule}: {opening} {rule}_v {closing}\n" + json_rule(f"{rule}_v", schema)


HERMES = CallFormat(
    "", "\n", "", _json_arguments('<tool_call>\n{"name": "{name}", "arguments": ', "}\n</tool_call>"), "<tool_call>"
)
FORMATS = {
    "hermes": HERMES,
    "qwen-coder": CallFormat(
        "",
        "\n",
        "",
        _tagged_arguments(
            "<tool_call>\n<function={name}>\n",
            "</function>\n</tool_call>",
            Tags("<parameter={key}>\n", "</parameter>", "\n"),
        ),
        "<tool_call>",
    ),
    "glm": CallFormat(
        "",
        "\n",
        "",
        _tagged_arguments(
            "<tool_call>{name}\n",
            "</tool_call>",
            Tags("<arg_key>{key}</arg_key>\n<arg_value>", "</arg_value>"),
        ),
        "<tool_call>",
    ),
    "minimax": CallFormat(
        "<minimax:tool_call>\n",
        "\n",
        "\n</minimax:tool_call>",
        _tagged_arguments('<invoke name="{name}">\n', "</invoke>", Tags('<parameter name="{key}">', "</parameter>")),
        "<minimax:tool_call>",
    ),
    "deepseek-dsml": CallFormat(
        "<｜DSML｜function_calls>\n",
        "\n",
        "\n</｜DSML｜function_calls>",
        _tagged_arguments(
            '<｜DSML｜invoke name="{name}">\n',
            "</｜DSML｜invoke>",
            Tags('<｜DSML｜parameter name="{key}">', "</｜DSML｜parameter>"),
        ),
        "<｜DSML｜function_calls>",
    ),
    "deepseek": CallFormat(
        "<｜tool▁calls▁begin｜>",
        "",
        "<｜tool▁calls▁end｜>",
        _json_arguments("<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),
        "<｜tool▁calls▁begin｜>",
    ),
    "kimi": CallFormat(
        "<|tool_calls_section_begin|>",
        "",
        "<|tool_calls_section_end|>",
        _json_arguments("<|tool_call_begin|>functions.{name}:{n}<|tool_call_argument_begin|>", "<|tool_call_end|>"),
        "<|tool_calls_section_begin|>",
    ),
    "mistral": CallFormat(
        "[TOOL_CALLS][", ", ", "]", _json_arguments('{"name": "{name}", "arguments": ', "}"), "[TOOL_CALLS]"
    ),
    "mistral-named": CallFormat("", "", "", _json_arguments("[TOOL_CALLS]{name}[ARGS]", ""), "[TOOL_CALLS]"),
    "llama": CallFormat("", "; ", "", _json_arguments('{"name": "{name}", "parameters": ', "}")),
    "harmony": CallFormat(
        "",
        "<|start|>assistant",
        "",
        _json_arguments("<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>", "<|call|>"),
    ),
}


def call_format(family: str, marks: Marks) -> CallFormat:
    if family == "mistral" and "[ARGS]" in marks:
        return FORMATS["mistral-named"]
    return FORMATS.get(family, HERMES)
