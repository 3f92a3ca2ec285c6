"""One Lark grammar (llguidance's dialect) for what a request demands of its whole reply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import InvalidRequest
from ..messages import Constraint, GenerationRequest
from .call_formats import CallFormat, call_format
from .faults import fault_of
from .marks import Marks
from .schemas import Schema, json_rule, lenient_forms, loosened, prepared

_ANALYSIS = "<|channel|>analysis<|message|>"


def grammar_for(request: GenerationRequest, family: str, marks: Marks, spaced: bool = False) -> str | None:
    """None where the request demands nothing. With tools and a schema, the reply is either of them.

    spaced: white space may stand wherever JSON has it, which a text that the client has begun may need.
    """
    if wants_strict_calls(request):
        return _strict_calls(request, call_format(family, marks), marks)
    must_call = request.tool_choice.mode in ("required", "named")
    answer = _answer_rules(request.constraint, spaced) if request.constraint and not must_call else None
    calls = _call_rules(request, family, marks) if must_call or (answer and _may_call(request)) else None
    if request.constraint and request.constraint.kind == "lark" and not calls:
        return request.constraint.value
    if not (answer or calls):
        return None
    alternatives = [name for name, rules in (("answer", answer), ("calls", calls)) if rules]
    body = " | ".join(alternatives)
    begun = answer is not None and request.continue_final_message
    start = f"start: {body}\n" if begun else _start(body, answer, family, marks)
    return start + (answer or "") + (calls or "")


def wants_strict_calls(request: GenerationRequest) -> bool:
    """Whether the reply is free but for the calls that it may make."""
    free = request.constraint is None and request.tool_choice.mode == "auto"
    return free and any(_function(tool).get("strict") for tool in request.tools)


def _strict_calls(request: GenerationRequest, form: CallFormat, marks: Marks) -> str | None:
    """Any text, with calls in it whose arguments are held; None where the family has no sign that a call begins."""
    if not form.trigger:
        return None
    rules = "start: (prose calls)* rest\n"
    rules += marks.text_then("prose", form.trigger) + marks.text_without("rest", form.trigger)
    if form.opening:
        opening = marks.literal(form.opening.removeprefix(form.trigger))
        rules += f"calls: {opening} call ({marks.literal(form.separator)} call)* {marks.literal(form.closing)}\n"
        return rules + _each_call(request.tools, form, marks)
    return rules + "calls: call\n" + _each_call(request.tools, form, marks, form.trigger)


def _each_call(
    tools: list[dict[str, Any]], form: CallFormat, marks: Marks, written: str = "", held: bool = False
) -> str:
    """The rule `call`. written: what stands of a call's head by then; held: tools that are not strict are too."""
    names = [f"call{number}" for number in range(len(tools))]
    rules = f"call: {' | '.join(names)}\n"
    for rule, tool in zip(names, map(_function, tools), strict=True):
        rules += _one_call(rule, tool, form, marks, written, held)
    return rules


def _one_call(rule: str, tool: dict[str, Any], form: CallFormat, marks: Marks, written: str, held: bool) -> str:
    """A strict tool is held to the letter or refused; any other one as far as the library can."""
    parameters = tool.get("parameters") or {"type": "object"}

    def rules(schema: Schema) -> str:
        return form.call(marks, rule, tool["name"], schema, written)

    def fault(rules: str) -> str:
        return fault_of(f"start: {rule}\n{rules}")

    if tool.get("strict"):
        return _held_to_the_letter(tool["name"], lambda: rules(prepared(parameters, exact=True)), fault)
    if not held:
        return rules(loosened(parameters))
    attempt = ""
    for attempt in map(rules, lenient_forms(parameters)):
        if not fault(attempt):
            break
    return attempt


def _held_to_the_letter(name: str, write: Callable[[], str], fault: Callable[[str], str]) -> str:
    try:
        rules = write()
        if found := fault(rules):
            raise InvalidRequest(f"the schema or grammar cannot be enforced: {found}")
    except InvalidRequest as error:
        raise InvalidRequest(f"strict tool {name[:80]!r}: {error.message}", "tools") from error
    return rules


def _may_call(request: GenerationRequest) -> bool:
    return bool(request.tools) and request.tool_choice.mode != "none"


def _start(body: str, answer: str | None, family: str, marks: Marks) -> str:
    """gpt-oss thinks in a channel of the same reply, and answers in another one."""
    if family != "harmony":
        return f"start: {body}\n"
    head = marks.literal("<|channel|>final<|message|>") + " " if answer else ""
    body = body.replace("answer", f"{head}answer")
    thinking = marks.text_then("thought", "<|end|>")
    return f"start: ({marks.literal(_ANALYSIS)} thought {marks.literal('<|start|>assistant')})? ({body})\n{thinking}"


def _answer_rules(constraint: Constraint, spaced: bool) -> str:
    if constraint.kind == "json_schema":
        return json_rule("answer", prepared(constraint.value, exact=True, spaced=spaced))
    if constraint.kind == "json_object":
        return json_rule("answer", prepared({"type": "object"}, exact=True, spaced=spaced))
    if constraint.kind == "regex":
        return f"answer: /{constraint.value.replace('/', chr(92) + '/')}/\n"
    return f"answer: %lark {{\n{constraint.value}\n}}\n"


def _call_rules(request: GenerationRequest, family: str, marks: Marks) -> str:
    form = call_format(family, marks)
    tools = request.tools
    if request.tool_choice.mode == "named":
        tools = [tool for tool in tools if _function(tool)["name"] == request.tool_choice.name]
    more = f"({marks.literal(form.separator)} call)*" if _may_repeat(request) else ""
    rules = f"calls: {marks.literal(form.opening)} call {more} {marks.literal(form.closing)}\n"
    return rules + _each_call(tools, form, marks, held=True)


def _may_repeat(request: GenerationRequest) -> bool:
    """A required call is one call: a model that is held to the format cannot say that it has called enough."""
    return request.tool_choice.mode == "auto" and request.tool_choice.parallel


def _function(tool: dict[str, Any]) -> dict[str, Any]:
    return tool.get("function", tool)
