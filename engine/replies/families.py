"""How each family of models writes its tool calls. Every function is a parser (see source.py) for a whole reply.

Sources: the models' own chat templates and tool-use documentation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from .json_calls import Malformed, json_call, json_object, json_value
from .output import Output
from .source import Source
from .tools import Tools

Parser = Generator[None, None, None]


@dataclass(frozen=True, slots=True)
class Tags:
    """How a call's parameters are written."""

    opening: str  # up to the name
    name: str  # as it stands there, `{}` in its place
    name_end: str
    value_end: str
    closings: tuple[str, ...]  # of the call
    after: tuple[str, ...]  # what may stand behind those


_QWEN_TAGS = Tags(
    "<parameter=",
    "{}>",
    ">",
    "</parameter>",
    ("</function>", "</tool_call>"),  # the first is forgotten at times
    ("</tool_call>", "<tool_call>", "<function="),
)


def plain(source: Source, out: Output, tools: Tools) -> Parser:
    """No tool calls."""
    yield from source.stream_until(["\0never\0"], out.text)


def hermes(source: Source, out: Output, tools: Tools) -> Parser:
    """Hermes, Qwen 2.5 and 3: <tool_call>{"name": ..., "arguments": ...}</tool_call>."""
    while (yield from source.stream_until(["<tool_call>"], out.text)) is not None:
        yield from _attempt(source, out, "<tool_call>", _hermes_call(source, out, tools))


def _hermes_call(source: Source, out: Output, tools: Tools) -> Parser:
    yield from _json_call(source, out, tools)
    yield from _closing(source, "</tool_call>")


def qwen_coder(source: Source, out: Output, tools: Tools) -> Parser:
    """Qwen3-Coder: <tool_call><function=name><parameter=key>value</parameter></function></tool_call>."""
    while (marker := (yield from source.stream_until(["<tool_call>", "<function="], out.text))) is not None:
        yield from _attempt(source, out, marker, _qwen_coder_call(source, out, tools, marker))


def _qwen_coder_call(source: Source, out: Output, tools: Tools, marker: str) -> Parser:
    if marker == "<tool_call>":
        yield from source.skip_space()
        if (yield from source.starts_with("{")):  # the same models fall back to Hermes JSON
            yield from _hermes_call(source, out, tools)
            return
        yield from _literal(source, "<function=")
    name = yield from _name(source, ">", tools)
    arguments = yield from _parameters(source, tools, name, _QWEN_TAGS)
    out.call(name, arguments)
    yield from _closing(source, "</tool_call>")


def minimax(source: Source, out: Output, tools: Tools) -> Parser:
    """MiniMax M2: <minimax:tool_call><invoke name="f"><parameter name="k">v</parameter></invoke>...."""
    while (yield from source.stream_until(["<minimax:tool_call>"], out.text)) is not None:
        yield from _attempt(
            source, out, "<minimax:tool_call>", _invokes(source, out, tools, "", "</minimax:tool_call>")
        )


def deepseek_dsml(source: Source, out: Output, tools: Tools) -> Parser:
    """DeepSeek V3.2: <｜DSML｜function_calls><｜DSML｜invoke name="f">...</｜DSML｜function_calls>."""
    opening = "<｜DSML｜function_calls>"
    while (yield from source.stream_until([opening], out.text)) is not None:
        yield from _attempt(source, out, opening, _invokes(source, out, tools, "｜DSML｜", "</｜DSML｜function_calls>"))


def _invokes(source: Source, out: Output, tools: Tools, prefix: str, closing: str) -> Parser:
    opening, value_end = f"<{prefix}parameter name=", f"</{prefix}parameter>"
    after = (closing, f"<{prefix}invoke name=")
    tags = Tags(opening, '"{}"', ">", value_end, (f"</{prefix}invoke>",), after)
    while True:
        if (yield from source.leads_to(closing)):
            return
        yield from _literal(source, f"<{prefix}invoke name=")
        name = yield from _name(source, ">", tools)
        out.call(name, (yield from _parameters(source, tools, name, tags)))


def glm(source: Source, out: Output, tools: Tools) -> Parser:
    """GLM 4.5 and later: <tool_call>name<arg_key>k</arg_key><arg_value>v</arg_value></tool_call>."""
    while (yield from source.stream_until(["<tool_call>"], out.text)) is not None:
        yield from _attempt(source, out, "<tool_call>", _glm_call(source, out, tools))


def _glm_call(source: Source, out: Output, tools: Tools) -> Parser:
    yield from source.skip_space()
    head, marker = yield from source.text_until(["\n", "<arg_key>", "</tool_call>"])
    name = _checked(head.strip(), tools)
    if marker == "\n":
        _, marker = yield from source.text_until(["<arg_key>", "</tool_call>"])
    arguments: dict[str, Any] = {}
    while marker == "<arg_key>":
        key = yield from _text_to(source, "</arg_key>")
        yield from _literal(source, "<arg_value>")
        value, _ = yield from _value(source, {"</arg_value>": ("<arg_key>", "</tool_call>")})
        arguments[key.strip()] = tools.typed(name, key.strip(), value)
        _, marker = yield from source.text_until(["<arg_key>", "</tool_call>"])
    if marker is None:
        raise Malformed
    out.call(name, arguments)


def mistral(source: Source, out: Output, tools: Tools) -> Parser:
    """Mistral: [TOOL_CALLS][{"name": ..., "arguments": ...}, ...], or since v11 [TOOL_CALLS]name[ARGS]{...}."""
    while (yield from source.stream_until(["[TOOL_CALLS]"], out.text)) is not None:
        yield from _attempt(source, out, "[TOOL_CALLS]", _mistral_calls(source, out, tools))


def _mistral_calls(source: Source, out: Output, tools: Tools) -> Parser:
    if not (yield from source.leads_to("[")):
        yield from _mistral_named_call(source, out, tools)
        return
    yield from _json_call(source, out, tools)
    while (yield from source.leads_to(",")):
        yield from _json_call(source, out, tools)
    yield from source.leads_to("]")


def _mistral_named_call(source: Source, out: Output, tools: Tools) -> Parser:
    head, marker = yield from source.text_until(["[CALL_ID]", "[ARGS]"])
    name, id = _checked(head.strip(), tools), None
    if marker == "[CALL_ID]":
        id = (yield from _text_to(source, "[ARGS]")).strip()
    out.call_start(name, id)
    yield from source.skip_space()
    yield from json_value(source, out.call_arguments)


def llama(source: Source, out: Output, tools: Tools) -> Parser:
    """Llama 3: the whole reply is {"name": ..., "parameters": ...}, several with ; between, or <|python_tag|> first."""
    yield from source.leads_to("<|python_tag|>")
    yield from source.skip_space()
    while (yield from source.starts_with("{")):
        yield from _attempt(source, out, "", json_call(source, out, tools.names))
        if (yield from source.leads_to(";")):
            yield from source.skip_space()
    if (yield from source.stream_until(["<|python_tag|>"], out.text)) is not None:
        yield from llama(source, out, tools)


def deepseek(source: Source, out: Output, tools: Tools) -> Parser:
    """DeepSeek V3, R1, V3.1: <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>...<｜tool▁call▁end｜><｜tool▁calls▁end｜>."""
    opening = "<｜tool▁calls▁begin｜>"
    while (yield from source.stream_until([opening], out.text)) is not None:
        yield from _attempt(source, out, opening, _deepseek_calls(source, out, tools))


def _deepseek_calls(source: Source, out: Output, tools: Tools) -> Parser:
    while True:
        if (yield from source.leads_to("<｜tool▁calls▁end｜>")):
            return
        yield from _literal(source, "<｜tool▁call▁begin｜>")
        head = yield from _text_to(source, "<｜tool▁sep｜>")
        body = yield from _text_to(source, "<｜tool▁call▁end｜>")
        fenced = re.match(r"\s*(\S+)\s*```json\s*(.*?)\s*```\s*$", body, re.DOTALL)  # V3 and R1: head is "function"
        name, arguments = (fenced[1], fenced[2]) if fenced else (head, body)
        out.call(_checked(name.strip(), tools), json_object(arguments))


def kimi(source: Source, out: Output, tools: Tools) -> Parser:
    """Kimi K2: <|tool_call_begin|>functions.name:0<|tool_call_argument_begin|>{...}<|tool_call_end|> in a section."""
    opening = "<|tool_calls_section_begin|>"
    while (yield from source.stream_until([opening], out.text)) is not None:
        yield from _attempt(source, out, opening, _kimi_calls(source, out, tools))


def _kimi_calls(source: Source, out: Output, tools: Tools) -> Parser:
    while True:
        _, marker = yield from source.text_until(["<|tool_call_begin|>", "<|tool_calls_section_end|>"])
        if marker != "<|tool_call_begin|>":
            return
        id = (yield from _text_to(source, "<|tool_call_argument_begin|>")).strip()
        name = id.removeprefix("functions.").rpartition(":")[0] or id
        out.call_start(_checked(name, tools), id)
        if (yield from source.leads_to("<|tool_call_end|>")):
            continue
        yield from source.skip_space()
        yield from json_value(source, out.call_arguments)
        yield from _closing(source, "<|tool_call_end|>")


def harmony(source: Source, out: Output, tools: Tools) -> Parser:
    """gpt-oss: <|channel|>analysis, commentary or final [to=functions.f]<|message|>...<|end|>, <|call|>, <|return|>."""
    ends = ["<|end|>", "<|call|>", "<|return|>", "<|start|>"]
    yield from source.skip_space()
    if not (yield from source.starts_with("<|")):
        yield from source.stream_until(ends, out.text)
    while True:
        header, marker = yield from source.text_until(["<|message|>"])
        if marker is None:
            return
        yield from source.stream_until(ends, _harmony_sink(header, out, tools))


def _harmony_sink(header: str, out: Output, tools: Tools) -> Callable[[str], None]:
    recipient = re.search(r"to=(?:functions\.)?([^\s<]+)", header)
    if recipient and recipient[1] in tools.names:
        out.call_start(recipient[1])
        return out.call_arguments
    return out.reasoning if re.search(r"<\|channel\|>\s*analysis", header) else out.text


# --- shared steps ------------------------------------------------------------------------------------------------


def _attempt(source: Source, out: Output, opening: str, call: Parser) -> Parser:
    """Run `call`; where it turns out to be none, what it took comes back as text. What was begun stays a call.

    Where the reply was cut off inside, what is not told yet is no text: raw marks would go into the history.
    Without an opening there is no mark, and what has begun may be an answer in JSON.
    """
    before = out.calls
    source.mark()
    malformed = False
    try:
        yield from call
    except (Malformed, ValueError, RecursionError):
        malformed = True
    taken = source.unmark()
    if source.cut and (opening or out.calls > before):
        source.drop()
        out.drop_space()
    elif malformed and out.calls == before:
        out.text(opening + taken)


def _json_call(source: Source, out: Output, tools: Tools) -> Parser:
    """A call that is told stays one: what follows it is not its JSON, and may be the mark that closes it."""
    before = out.calls
    try:
        yield from json_call(source, out, tools.names)
    except Malformed:
        if out.calls == before:
            raise


def _closing(source: Source, tag: str) -> Parser:
    """Takes the tag if it is there, and brackets that nothing has opened: models forget one and write the other."""
    yield from source.leads_to(tag, passing=" \t\r\n}]")


def _literal(source: Source, text: str) -> Parser:
    if not (yield from source.leads_to(text)):
        raise Malformed


def _text_to(source: Source, marker: str) -> Generator[None, None, str]:
    text, found = yield from source.text_until([marker])
    if found is None:
        raise Malformed
    return text


def _name(source: Source, closing: str, tools: Tools) -> Generator[None, None, str]:
    return _checked((yield from _text_to(source, closing)).strip().strip("\"'"), tools)


def _checked(name: str, tools: Tools) -> str:
    if not name or (tools.schemas and name not in tools.schemas):
        raise Malformed
    return name


def _parameters(source: Source, tools: Tools, tool: str, tags: Tags) -> Generator[None, None, dict[str, Any]]:
    """Parameters written as tags, up to one that closes the call. Where a value's own tag lacks, the next ends it."""
    arguments: dict[str, Any] = {}
    _, marker = yield from source.text_until([tags.opening, *tags.closings])
    while marker == tags.opening:
        head = yield from _text_to(source, tags.name_end)
        key = head.split('" ')[0].strip().strip("\"'")  # DSML adds attributes: name="k" string="true"
        others = tuple(tags.name.format(name) for name in tools.parameters(tool) if name not in (key, *arguments))
        ends = {tags.value_end: (tags.opening, *tags.closings), tags.opening: others}
        value, marker = yield from _value(source, ends | dict.fromkeys(tags.closings, tags.after))
        arguments[key] = tools.typed(tool, key, _trim_line(value))
        if marker == tags.value_end:
            _, marker = yield from source.text_until([tags.opening, *tags.closings])
    if marker is None:
        raise Malformed
    return arguments


def _value(source: Source, ends: dict[str, tuple[str, ...]]) -> Generator[None, None, tuple[str, str]]:
    """Text up to the first mark that one of its followers comes after: any other is the value's own, as in XML code."""
    text = ""
    while True:
        piece, marker = yield from source.text_until(list(ends))
        text += piece
        if marker is None:
            raise Malformed
        if (yield from source.goes_on_with(ends[marker])):
            return text, marker
        text += marker


def _trim_line(value: str) -> str:
    """Qwen3-Coder puts a value on lines of its own: one line break at each end is not the value's."""
    return value.removeprefix("\n").removesuffix("\n")
