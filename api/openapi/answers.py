"""What is answered, as JSON Schema: the fields that are always there. Answers may hold more (docs/api.md)."""

from __future__ import annotations

from ..errors import Protocol
from .requests import BOOLEAN, OBJECT, STRING, Schema, array, either, integer, optional, words

COUNT = integer(0)


def answer(**properties: Schema) -> Schema:
    """An object that always has all of these."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def constant(word: str) -> Schema:
    return {"const": word}


SMOE = answer(finish=STRING, context=answer(window=COUNT, used=COUNT, slid=COUNT), queue_ms={"type": "number"})
OPENAI_USAGE = answer(
    prompt_tokens=COUNT,
    completion_tokens=COUNT,
    total_tokens=COUNT,
    prompt_tokens_details=answer(cached_tokens=COUNT),
    completion_tokens_details=answer(reasoning_tokens=COUNT),
)
FINISH = words(("stop", "length", "tool_calls"))
CHAT_CHOICE = answer(
    index=COUNT,
    message=answer(role=constant("assistant"), content=optional(STRING)),
    finish_reason=FINISH,
    logprobs=optional(OBJECT),
)
CHAT = answer(
    id=STRING,
    object=constant("chat.completion"),
    created=COUNT,
    model=STRING,
    choices=array(CHAT_CHOICE, least=1),
    usage=OPENAI_USAGE,
    timings=OBJECT,
    smoe=SMOE,
)
COMPLETION = answer(
    id=STRING,
    object=constant("text_completion"),
    created=COUNT,
    model=STRING,
    choices=array(answer(index=COUNT, text=STRING, finish_reason=FINISH, logprobs=optional(OBJECT)), least=1),
    usage=OPENAI_USAGE,
    smoe=SMOE,
)
RESPONSE = answer(
    id=STRING,
    object=constant("response"),
    created_at=COUNT,
    status=words(("completed", "incomplete")),
    model=STRING,
    output=array(answer(type=STRING)),
    usage=answer(input_tokens=COUNT, output_tokens=COUNT, total_tokens=COUNT),
    smoe=SMOE,
)
DELETED_RESPONSE = answer(id=STRING, object=constant("response"), deleted=constant(True))
INPUT_ITEMS = answer(
    object=constant("list"),
    data=array(answer(id=STRING, type=STRING)),
    first_id=optional(STRING),
    last_id=optional(STRING),
    has_more=BOOLEAN,
)
INPUT_TOKENS = answer(object=constant("response.input_tokens"), input_tokens=COUNT)
MESSAGE = answer(
    id=STRING,
    type=constant("message"),
    role=constant("assistant"),
    model=STRING,
    content=array(answer(type=words(("text", "thinking", "tool_use"))), least=1),
    stop_reason=words(("end_turn", "max_tokens", "stop_sequence", "tool_use")),
    stop_sequence=optional(STRING),
    usage=answer(input_tokens=COUNT, output_tokens=COUNT, cache_read_input_tokens=COUNT),
    smoe=SMOE,
)
COUNT_TOKENS = answer(input_tokens=COUNT)

OPENAI_MODEL = answer(id=STRING, object=constant("model"), created=COUNT, owned_by=STRING)
ANTHROPIC_MODEL = answer(id=STRING, type=constant("model"), display_name=STRING, created_at=STRING)
MODEL = either(OPENAI_MODEL, ANTHROPIC_MODEL)
MODELS = either(
    answer(object=constant("list"), data=array(OPENAI_MODEL)),
    answer(
        data=array(ANTHROPIC_MODEL),
        has_more=constant(False),
        first_id=optional(STRING),
        last_id=optional(STRING),
    ),
)
HEALTH = answer(
    status=constant("ok"),
    engine=words(("up", "booting", "down")),
    model=optional(STRING),
    context=COUNT,
    waiting=COUNT,
    running=BOOLEAN,
)
SYSMEM = answer(installed=COUNT, limit=COUNT, used=COUNT, free=COUNT, swap_used=COUNT, pressure=OBJECT, engine=OBJECT)
HELLO = answer(message=STRING)
OPENAPI = answer(openapi=STRING, info=OBJECT, paths=OBJECT)

ERRORS: dict[Protocol, Schema] = {
    "openai": answer(error=answer(message=STRING, type=STRING, param=optional(STRING), code=optional(STRING))),
    "anthropic": answer(type=constant("error"), error=answer(type=STRING, message=STRING), request_id=STRING),
}
