"""A reply that the client has begun, and what the request demands of it: prefill and rest are one text."""

import dataclasses
import json
import random
import shutil

import jsonschema
import pytest
from test_constraints import EOS, allowed_ids, taken, walk
from tokenizers import Tokenizer

from engine import masking, prompt
from engine.constraints import grammar_for
from engine.constraints.marks import Marks
from engine.errors import InvalidRequest
from engine.messages import Constraint, GenerationRequest, ToolChoice

NAMED = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 6}, "age": {"type": "integer", "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
SCHEMA = Constraint("json_schema", NAMED, "response_format.json_schema.schema")
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture
def chat_card(card, interop_dir):
    return dataclasses.replace(card, tokenizer=str(interop_dir / "tiny-qwen3moe-checkpoint"))


@pytest.fixture
def thinking_card(chat_card, tmp_path):
    copy = tmp_path / "thinking"
    shutil.copytree(chat_card.tokenizer, copy)
    with (copy / "chat_template.jinja").open("a") as template:
        template.write("{# it knows </think> #}")
    return dataclasses.replace(chat_card, tokenizer=str(copy))


@pytest.fixture
def tokenizer(chat_card):
    return Tokenizer.from_file(chat_card.tokenizer + "/tokenizer.json")


async def masks_of(card, begun, **request):
    messages = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": begun}]
    request = GenerationRequest(model=None, messages=messages, continue_final_message=True, **request)
    codec = await prompt.codec_for(card)
    return await masking.masks_for(request, card, codec, await prompt.encode(codec, card, request))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("regex", "x" * ((1 << 20) + 1)),
        ("lark", 'start: "' + "x" * (1 << 20) + '"'),
        ("json_schema", {"enum": ["x" * (1 << 20)]}),
        ("json_schema", {"enum": list(range(1 << 18))}),
    ],
)
async def test_what_is_too_long_to_be_enforced_is_not_read(chat_card, monkeypatch, kind, value):
    """30 MiB of a regex took 3.4 GB before the library refused it."""
    monkeypatch.setattr(masking, "grammar_for", lambda *arguments: pytest.fail("it was read"))
    with pytest.raises(InvalidRequest, match="more than 1,048,576 characters") as raised:
        await masks_of(chat_card, "", constraint=Constraint(kind, value, "response_format.regex"))
    assert raised.value.param == "response_format.regex"


@pytest.mark.parametrize(
    "begun",
    [
        "{",
        '{"name": "Bo',
        '{"name":"Bo", "age": 1',
        '{\n  "name" : "Bo",\n  "a',
        '{"name": "日',
    ],
)
async def test_a_prefill_and_the_rest_are_one_text(chat_card, tokenizer, begun):
    masks = await masks_of(chat_card, begun, constraint=SCHEMA)
    rest = walk(masks, tokenizer, random.Random(1), limit=4000, prefer=set(tokenizer.encode('"}').ids))
    jsonschema.validate(json.loads(begun + rest), NAMED)


@pytest.mark.parametrize("begun", ["Here it is: {", '{"nome', '{"name": "Bo", "age": 1}!', '{"name": 5'])
@pytest.mark.parametrize("constraint", [SCHEMA, Constraint("regex", "yes|no")])
async def test_a_prefill_that_begins_no_such_text_is_refused(chat_card, begun, constraint):
    with pytest.raises(InvalidRequest, match="last assistant message") as refused:
        await masks_of(chat_card, begun, constraint=constraint)
    assert refused.value.param == "messages"


async def test_a_prefill_of_a_regex_or_grammar(chat_card, tokenizer):
    for constraint in (Constraint("regex", "yes|no"), Constraint("lark", 'start: "yes" | "no"')):
        masks = await masks_of(chat_card, "ye", constraint=constraint)
        assert {tokenizer.decode([id]) for id in allowed_ids(masks(), 512)} == {"s"}


async def test_a_prefill_that_is_whole_ends_the_reply(chat_card):
    masks = await masks_of(chat_card, '{"name": "Bo", "age": 1}', constraint=SCHEMA)
    assert masks() in ("none", f"only:{EOS}")


async def test_a_prefill_inside_of_thinking_and_behind_it(thinking_card, tokenizer):
    masks = await masks_of(thinking_card, "<think>\nBob is", constraint=SCHEMA)
    assert masks() == "all"
    answer = masks(tokenizer.encode("1.</think>").ids)
    assert {tokenizer.decode([id])[:1] for id in allowed_ids(answer, 512)} == {"{"}
    masks = await masks_of(thinking_card, '<think>\nBob.\n</think>\n\n{"name": "Bo', constraint=SCHEMA)
    assert taken(masks, tokenizer, 'b", "age": 3}')[0]


async def test_text_may_stand_before_a_call_that_is_required(chat_card, tokenizer):
    call = '<tool_call>\n{"name": "weather", "arguments": {}}\n</tool_call>'
    for begun, rest in (("I look.", call), (call[:20], call[20:])):
        masks = await masks_of(chat_card, begun, tools=[TOOL], tool_choice=ToolChoice("required"))
        assert taken(masks, tokenizer, rest)[0]
        masks = await masks_of(chat_card, begun, tools=[TOOL], tool_choice=ToolChoice("required"))
        assert not taken(masks, tokenizer, "And")[0]


def test_the_answer_of_gpt_oss_goes_on_in_its_channel():
    marks = Marks({"<|channel|>": 1, "<|message|>": 2, "<|end|>": 3, "<|start|>": 4})
    request = GenerationRequest(model=None, constraint=Constraint("regex", "yes"))
    assert "<[1]>" in grammar_for(request, "harmony", marks)
    request = dataclasses.replace(request, continue_final_message=True)
    assert "<[1]>" not in grammar_for(request, "harmony", marks)
