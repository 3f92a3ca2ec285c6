"""The bodies that generation endpoints take, as JSON Schema. Limits and words are those that the parsing modules use.

null stands for an absent field everywhere, as api/fields.py reads it; unknown fields are ignored.
"""

from __future__ import annotations

from typing import Any

from engine.generation import MAX_STOPS

from .. import sampling
from ..anthropic import parsing as anthropic
from ..fields import MAX_TOOL_NAME
from ..openai import chat, common, completions, functions, messages, parts, response_input, responses, stored

Schema = dict[str, Any]

STRING, BOOLEAN, OBJECT = {"type": "string"}, {"type": "boolean"}, {"type": "object"}


def optional(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def body(required: list[str] | tuple[str, ...] = (), **properties: Schema) -> Schema:
    """An object; what is not required may also be null."""
    told = {name: schema if name in required else optional(schema) for name, schema in properties.items()}
    return {"type": "object", "properties": told, **({"required": list(required)} if required else {})}


def integer(low: int, high: int | None = None) -> Schema:
    return {"type": "integer", "minimum": low, **({} if high is None else {"maximum": high})}


def limit(least: int) -> Schema:
    return either(integer(least), {"const": common.NO_LIMIT})


def words(choices: tuple[str, ...]) -> Schema:
    return {"enum": list(choices)}


def array(items: Schema, least: int = 0, most: int | None = None) -> Schema:
    bounds = {"minItems": least} if least else {}
    return {"type": "array", "items": items, **bounds, **({} if most is None else {"maxItems": most})}


def either(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


def stops(most: int) -> Schema:
    text = {"type": "string", "minLength": 1}
    return either(text, array(text, most=most))


SAMPLING = {
    **{name: {"type": "number", "minimum": low, "maximum": high} for name, (low, high) in sampling.NUMBERS.items()},
    **{
        name: {"type": "number", "exclusiveMinimum": 0, "maximum": sampling.LARGEST_REPETITION_PENALTY}
        for name in sampling.REPETITION_PENALTIES
    },
    "top_k": integer(*sampling.TOP_K),
    "seed": integer(*sampling.SEED),
    "logit_bias": {
        "type": "object",
        "propertyNames": {"pattern": f"^[0-9]{{1,{sampling.LONGEST_ID}}}$"},
        "additionalProperties": optional(
            {"type": "number", "minimum": -sampling.LARGEST_BIAS, "maximum": sampling.LARGEST_BIAS}
        ),
    },
}
COMMON = {"model": STRING, "stream": BOOLEAN, **SAMPLING}
STREAM_OPTIONS = body(include_usage=BOOLEAN)
CHOICE = array({"type": "string", "minLength": 1}, least=1)
FORMAT = body(type=words(parts.FORMATS), json_schema=OBJECT, schema=OBJECT, regex=STRING, grammar=STRING)
CONSTRAINTS = {
    "response_format": FORMAT,
    "json_schema": either(OBJECT, STRING),
    "guided_json": either(OBJECT, STRING),
    "guided_regex": STRING,
    "guided_choice": CHOICE,
    "structured_outputs": body(json=either(OBJECT, STRING), regex=STRING, choice=CHOICE),
}
TOOL_NAME = {"type": "string", "minLength": 1, "maxLength": MAX_TOOL_NAME}
FUNCTION = body(["name"], name=TOOL_NAME, description=STRING, parameters=OBJECT, strict=BOOLEAN)
OPENAI_TOOLS = array(body(type=STRING, function=FUNCTION, custom=body(["name"], name=TOOL_NAME, description=STRING)))
OPENAI_TOOL_CHOICE = either(words(parts.TOOL_CHOICES), OBJECT)
TEMPLATE_KWARGS = {"type": "object", "propertyNames": {"not": {"enum": sorted(parts.RESERVED_TEMPLATE_NAMES)}}}
PART = body(type=STRING, text=STRING)
CONTENT = either(STRING, array(PART))

CHAT_MESSAGE = body(
    ["role"],
    role=words(messages.ROLES),
    content=CONTENT,
    name=STRING,
    reasoning_content=STRING,
    tool_call_id=STRING,
    tool_calls=array(OBJECT),
)
CHAT = body(
    ["messages"],
    messages=array(CHAT_MESSAGE, least=1),
    max_tokens=limit(1),
    max_completion_tokens=limit(1),
    n=integer(1, common.MAX_CHOICES),
    stop=stops(MAX_STOPS),
    logprobs=BOOLEAN,
    top_logprobs=integer(0, chat.MAX_TOP_LOGPROBS),
    tools=OPENAI_TOOLS,
    tool_choice=OPENAI_TOOL_CHOICE,
    parallel_tool_calls=BOOLEAN,
    functions=array(FUNCTION),
    function_call=either(words(functions.CHOICES), OBJECT),
    **CONSTRAINTS,
    reasoning_effort=words(parts.EFFORTS),
    chat_template_kwargs=TEMPLATE_KWARGS,
    continue_final_message=BOOLEAN,
    stream_options=STREAM_OPTIONS,
    return_progress=BOOLEAN,
    **COMMON,
)

TOKEN_IDS = array(integer(0), least=1)
COMPLETION = body(
    ["prompt"],
    prompt=either(STRING, TOKEN_IDS, array(either(STRING, TOKEN_IDS), least=1, most=completions.MAX_PROMPTS)),
    max_tokens=limit(0),
    n=integer(1, common.MAX_CHOICES),
    best_of=integer(1),
    stop=stops(MAX_STOPS),
    echo=BOOLEAN,
    logprobs=integer(0, completions.MAX_LOGPROBS),
    **CONSTRAINTS,
    stream_options=STREAM_OPTIONS,
    **COMMON,
)

INPUT_ITEM = body(type=STRING, role=words(response_input.ROLES), content=CONTENT)
COUNTED_INPUT = {
    "input": either(STRING, array(INPUT_ITEM)),
    "instructions": STRING,
    "previous_response_id": STRING,
    "tools": array(body(type=STRING, name=STRING, description=STRING, parameters=OBJECT, strict=BOOLEAN)),
    "tool_choice": OPENAI_TOOL_CHOICE,
    "parallel_tool_calls": BOOLEAN,
    "reasoning": body(effort=words(parts.EFFORTS)),
    "text": body(format=FORMAT),
    "chat_template_kwargs": TEMPLATE_KWARGS,
    "truncation": words(responses.TRUNCATIONS),
}
INPUT_OR_EARLIER = {"anyOf": [{"required": ["input"]}, {"required": ["previous_response_id"]}]}
RESPONSE = INPUT_OR_EARLIER | body(
    **COUNTED_INPUT,
    max_output_tokens=integer(1),
    include=either(STRING, array(STRING)),
    top_logprobs=integer(0, responses.MAX_TOP_LOGPROBS),
    metadata=OBJECT,
    store=BOOLEAN,
    **COMMON,
)
INPUT_TOKENS = INPUT_OR_EARLIER | body(**COUNTED_INPUT, model=STRING)
RESPONSE_QUERY = {"stream": BOOLEAN}
PAGE_QUERY = {"limit": integer(1, stored.MOST_ITEMS), "order": words(stored.ORDERS), "after": STRING}

BLOCK = body(type=STRING, text=STRING)
TEXT_BLOCKS = either(STRING, array(body(["text"], type=words(("text",)), text=STRING)))
ANTHROPIC_MESSAGE = body(["role", "content"], role=words(anthropic.ROLES), content=either(STRING, array(BLOCK)))
COUNTED = {
    "messages": array(ANTHROPIC_MESSAGE, least=1),
    "system": TEXT_BLOCKS,
    "tools": array(
        body(
            type=STRING,
            name=STRING,
            description=STRING,
            input_schema=OBJECT,
            defer_loading=BOOLEAN,
            input_examples=array(OBJECT),
        )
    ),
    "tool_choice": body(type=words(anthropic.TOOL_CHOICES), name=STRING, disable_parallel_tool_use=BOOLEAN),
    "thinking": body(type=words(anthropic.THINKING), budget_tokens=integer(0), display=STRING),
    "output_config": body(effort=words(anthropic.EFFORTS), format=body(type=words(("json_schema",)), schema=OBJECT)),
    "metadata": {},
    "stop_sequences": array({"type": "string", "minLength": 1}, most=MAX_STOPS),
    "max_tokens": integer(1),
}
MESSAGES = body(["messages"], **COUNTED, **COMMON)
COUNT_TOKENS = body(["messages"], **COUNTED, model=STRING)
