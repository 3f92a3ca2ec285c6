"""Templating and tokenization: against transformers' own, and with templates that refuse."""

import asyncio
import dataclasses
import json
import re
import shutil
import threading

import pytest

from engine import prompt
from engine.errors import InvalidRequest, ModelUnavailable
from engine.messages import GenerationRequest, ToolChoice

STRICT = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m.role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "[{{ m.role }}]{{ m.content }}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)
TOOL = {"type": "function", "function": {"name": "weather", "description": "", "parameters": {"type": "object"}}}


def said(*pairs, **more):
    return GenerationRequest(model=None, messages=[{"role": role, "content": text} for role, text in pairs], **more)


@pytest.fixture
def directory(interop_dir, tmp_path):
    copy = tmp_path / "checkpoint"
    shutil.copytree(interop_dir / "tiny-qwen3moe-checkpoint", copy)
    return copy


@pytest.fixture
def chat_card(card, directory):
    return dataclasses.replace(card, tokenizer=str(directory))


async def text_of(card, request):
    codec = await prompt.codec_for(card)
    return codec._tokenizer.decode((await prompt.encode(codec, card, request)).ids)


def test_golden_prompts(interop_dir, card):
    codec = prompt._load(dataclasses.replace(card, tokenizer=str(interop_dir / "tiny-qwen3moe-checkpoint")))
    for case in json.loads((interop_dir / "tiny-qwen3moe-q4" / "golden.json").read_text())["cases"]:
        encoded = codec.encode(GenerationRequest(model=None, messages=case["messages"]))
        assert encoded.ids == case["prompt_ids"]
        assert encoded.end.endswith("assistant\n")


async def test_a_tokenizer_is_loaded_once_until_its_files_change(chat_card, directory):
    first = await prompt.codec_for(chat_card)
    assert await prompt.codec_for(chat_card) is first
    (directory / "chat_template.jinja").write_text("{{ messages[0].content }}!")
    assert await text_of(chat_card, said(("user", "hello"))) == "hello!"


MUCH = "x" * prompt.LONG


@pytest.mark.parametrize(
    ("request_of", "long"),
    [
        (lambda: said(("user", "Hi")), False),
        (lambda: said(("system", MUCH), ("user", "Hi")), True),
        (lambda: said(("user", "Hi"), tools=[{"function": {"description": MUCH}}]), True),
        (lambda: said(("user", "Hi"), tools=[{"enum": [[]] * prompt.LONG}]), True),
        (lambda: GenerationRequest(model=None, text_prompt=MUCH + "x"), True),
        (lambda: GenerationRequest(model=None, prompt_ids=[1] * prompt.LONG), False),
    ],
)
def test_which_prompts_are_long(request_of, long):
    assert prompt.is_long(request_of()) == long


async def test_long_prompts_do_not_hold_up_others(chat_card, monkeypatch):
    codec, release = await prompt.codec_for(chat_card), threading.Event()
    encode = codec.encode

    def slowly(request):
        if prompt.is_long(request):
            assert release.wait(30)
            return prompt.Prompt([1], "")
        return encode(request)

    monkeypatch.setattr(codec, "encode", slowly)
    long = [asyncio.create_task(prompt.encode(codec, chat_card, said(("user", MUCH)))) for _ in range(3)]
    await asyncio.sleep(0)
    await asyncio.wait_for(prompt.encode(codec, chat_card, said(("user", "Hi"))), 20)
    assert not any(task.done() for task in long)
    release.set()
    assert [each.ids for each in await asyncio.gather(*long)] == [[1]] * 3


@pytest.fixture
def strict_card(chat_card, directory):
    (directory / "chat_template.jinja").write_text(STRICT)
    config = json.loads((directory / "tokenizer_config.json").read_text())
    (directory / "tokenizer_config.json").write_text(json.dumps(config | {"bos_token": "<|im_start|>"}))
    return chat_card


async def test_messages_that_a_strict_template_refuses_are_merged(strict_card):
    request = said(("system", "Be kind."), ("user", "one"), ("user", "two"), ("assistant", "three"), ("user", "four"))
    assert await text_of(strict_card, request) == (
        "<|im_start|>[user]Be kind.\n\none\n\ntwo[assistant]three[user]four[assistant]"
    )


async def test_what_no_merge_can_mend_is_told_in_the_templates_words(strict_card):
    with pytest.raises(InvalidRequest, match="roles must alternate") as refused:
        await text_of(strict_card, said(("assistant", "one"), ("user", "two")))
    assert refused.value.param == "messages"


# As the templates of Mistral's tool-calling models rule: who may follow whom, and what an id looks like.
MISTRAL = (
    "{{ tools }}{% set ns = namespace(turn=0) %}{% for m in messages %}"
    "{% if m.role != 'tool' and m.tool_calls is not defined %}"
    "{% if (m.role == 'user') != (ns.turn % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "{% set ns.turn = ns.turn + 1 %}{% endif %}"
    "{% for call in m.tool_calls or [{'id': m.tool_call_id}] if m.role == 'tool' or m.tool_calls %}"
    "{% if call.id | length != 9 %}{{ raise_exception('Tool call IDs should have length 9') }}{% endif %}"
    "[{{ call.id }}]{% endfor %}"
    "[{{ m.role }}]{{ m.content }}{% endfor %}"
)
# As those of DeepSeek V3 and V3.1 write a call.
DEEPSEEK = (
    "{{ tools }}{% for m in messages %}[{{ m.role }}]{{ m.content }}"
    "{% for call in m.tool_calls or [] %}{{ '<' + call.function.name + '>' + call.function.arguments }}{% endfor %}"
    "{% endfor %}"
)


def called(id, arguments):
    """A conversation with a call and its result."""
    call = {"id": id, "type": "function", "function": {"name": "weather", "arguments": arguments}}
    return [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": id, "content": "Rain."},
    ]


async def test_ids_of_other_models_reach_a_template_that_wants_nine_characters(chat_card, directory):
    (directory / "chat_template.jinja").write_text(MISTRAL)
    own = GenerationRequest(model=None, messages=called("abcDEF123", {}))
    assert await text_of(chat_card, own) == "None[user]Go.[abcDEF123][assistant][abcDEF123][tool]Rain."
    other = called("toolu_01A09q90qw90lq917835lq9", {})
    text = await text_of(chat_card, GenerationRequest(model=None, messages=other))
    first, second = re.findall(r"\[([a-zA-Z0-9]{9})\]\[", text)
    assert first == second
    longer = GenerationRequest(model=None, messages=[*other, {"role": "assistant", "content": "It rains."}])
    assert (await text_of(chat_card, longer)).startswith(text)


async def test_what_a_user_says_beside_a_result_where_roles_must_alternate(chat_card, directory):
    (directory / "chat_template.jinja").write_text(MISTRAL)
    messages = [*called("toolu_1", {}), {"role": "user", "content": "Stop."}]
    text = await text_of(chat_card, GenerationRequest(model=None, messages=messages))
    assert text.endswith("[tool]Rain.[assistant][user]Stop.")


async def test_arguments_for_a_template_that_wants_them_as_text(chat_card, directory):
    (directory / "chat_template.jinja").write_text(DEEPSEEK)
    text = await text_of(chat_card, GenerationRequest(model=None, messages=called("c", {"city": "Zürich"})))
    assert text == 'None[user]Go.[assistant]<weather>{"city": "Zürich"}[tool]Rain.'


# As gpt-oss's: one call a message, text or reasoning beside it, the result named after the call before.
HARMONY = (
    "{{ tools }}[{{ reasoning_effort or 'medium' }}]{% set ns = namespace(name='') %}{% for m in messages %}"
    "{% if m.tool_calls %}{% if m.content and m.thinking %}{{ raise_exception('both') }}{% endif %}"
    "<|channel|>{{ m.content or m.thinking }}{% set ns.name = m.tool_calls[0].function.name %}<{{ ns.name }}>"
    "{% elif m.role == 'tool' %}[{{ ns.name }}]{{ m.content }}{% else %}[{{ m.role }}]{{ m.content }}{% endif %}"
    "{% endfor %}"
)
# As Llama 3.1's: a single call, or none.
LLAMA = (
    "{{ tools }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% if m.tool_calls %}"
    "{% if m.tool_calls | length != 1 %}{{ raise_exception('single tool calls only') }}{% endif %}"
    "<{{ m.tool_calls[0].function.name }}>{% endif %}{% endfor %}"
)


def called_at_once(*names, **more):
    """A turn of several calls, their results, last call first, and a result of no call."""
    calls = [{"id": name, "type": "function", "function": {"name": name, "arguments": {}}} for name in names]
    results = [{"role": "tool", "tool_call_id": name, "content": f"of {name}"} for name in (*names[::-1], "x")]
    return [{"role": "assistant", "content": "", "tool_calls": calls, **more}, *results]


async def test_several_calls_at_once_for_a_template_that_wants_single_ones(chat_card, directory):
    (directory / "chat_template.jinja").write_text(LLAMA)
    messages = [{"role": "user", "content": "Go."}, *called_at_once("f", "g"), *called_at_once("h")]
    text = await text_of(chat_card, GenerationRequest(model=None, messages=messages))
    assert text == (
        "None[user]Go.[assistant]<f>[tool]of f[assistant]<g>[tool]of g[tool]of x[assistant]<h>[tool]of h[tool]of x"
    )


async def test_gpt_oss_sees_every_call_with_its_result_and_text_beside_reasoning(chat_card, directory):
    """Its own template drops all calls but the first without a word."""
    (directory / "chat_template.jinja").write_text(HARMONY)
    messages = called_at_once("f", "g", content="Looking.", reasoning_content="I must look.")
    request = GenerationRequest(model=None, messages=messages)
    assert await text_of(chat_card, request) == (
        "None[medium]<|channel|>I must look.\n\nLooking.<f>[f]of f<|channel|><g>[g]of g[g]of x"
    )


async def test_a_tool_without_description_for_a_template_that_wants_one(chat_card, directory):
    """gpt-oss's and others put it behind a string."""
    (directory / "chat_template.jinja").write_text("{{ '// ' + tools[0].function.description }}{{ tools | length }}")
    bare = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    assert await text_of(chat_card, said(("user", "Hi"), tools=[bare, TOOL])) == "// 2"


@pytest.mark.parametrize(("reasoning", "effort"), [(None, "medium"), (False, "low"), (True, "medium")])
async def test_gpt_oss_which_always_reasons_does_so_least_where_none_is_wanted(chat_card, directory, reasoning, effort):
    (directory / "chat_template.jinja").write_text(HARMONY)
    assert await text_of(chat_card, said(("user", "Hi"), reasoning=reasoning)) == f"None[{effort}][user]Hi"


async def test_a_history_of_calls_is_for_the_template_that_knows_them(chat_card, directory):
    """Mixtral 8x22B has two templates; titles and summaries of a conversation are asked for without its tools."""
    (directory / "chat_template.jinja").unlink()
    path = directory / "tokenizer_config.json"
    default = "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}{% endfor %}"
    named = [{"name": "default", "template": default + "plain"}, {"name": "tool_use", "template": MISTRAL}]
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": named}))
    assert await text_of(chat_card, said(("user", "Go."))) == "plain"
    assert (await text_of(chat_card, said(("user", "Go."), tools=[TOOL]))).endswith("[user]Go.")
    text = await text_of(chat_card, GenerationRequest(model=None, messages=called("abcDEF123", {})))
    assert text.endswith("[assistant][abcDEF123][tool]Rain.")


@pytest.mark.parametrize(("template", "family"), [("{{ messages }}", "hermes"), ("{{ tools }}", "mistral")])
async def test_calls_are_read_in_the_format_that_the_model_was_told(chat_card, directory, template, family):
    """Whatever format its vocabulary has a token for: the words of engine/tool_prompt.py are what it follows."""
    (directory / "chat_template.jinja").write_text(template)
    path = directory / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    token = {**tokenizer["added_tokens"][-1], "content": "[TOOL_CALLS]", "id": 512, "special": True}
    path.write_text(json.dumps(tokenizer | {"added_tokens": [*tokenizer["added_tokens"], token]}))
    assert (await prompt.codec_for(chat_card)).profile.family == family


async def test_one_beginning_of_sequence(strict_card):
    codec = await prompt.codec_for(strict_card)
    (bos,) = codec._tokenizer("<|im_start|>", add_special_tokens=False)["input_ids"]
    assert codec.encode(said(("user", "hi"))).ids.count(bos) == 1
    text = GenerationRequest(model=None, text_prompt="<|im_start|><|im_start|>hi")
    assert codec.encode(text).ids.count(bos) == 1


async def test_a_final_message_is_continued(chat_card):
    request = said(("user", "Count."), ("assistant", "one, two"), continue_final_message=True)
    assert (await text_of(chat_card, request)).endswith("<|im_start|>assistant\none, two")


async def test_tools_for_a_template_that_knows_none(chat_card):
    text = await text_of(chat_card, said(("user", "hi"), tools=[TOOL]))
    assert '"name": "weather"' in text
    without = await text_of(chat_card, said(("user", "hi"), tools=[TOOL], tool_choice=ToolChoice("none")))
    assert without == await text_of(chat_card, said(("user", "hi")))


async def test_a_template_gets_tools_and_switches(chat_card, directory):
    template = "{{ tools | length }} {{ enable_thinking }} {{ extra }} {{ messages[0].content }}"
    (directory / "chat_template.jinja").write_text(template)
    request = said(("user", "hi"), tools=[TOOL], reasoning=False, template_kwargs={"extra": "more"})
    assert await text_of(chat_card, request) == "1 False more hi"


async def test_without_a_template_a_conversation_is_plain_text(chat_card, directory):
    (directory / "chat_template.jinja").unlink()
    text = await text_of(chat_card, said(("user", "hi"), ("assistant", "ho"), ("user", "he")))
    assert text == "User: hi\n\nAssistant: ho\n\nUser: he\n\nAssistant:"


async def test_prompts_that_cannot_run(chat_card):
    codec = await prompt.codec_for(chat_card)
    with pytest.raises(InvalidRequest, match="empty"):
        await prompt.encode(codec, chat_card, GenerationRequest(model=None, text_prompt=""))
    with pytest.raises(InvalidRequest, match="empty"):
        await prompt.encode(codec, chat_card, GenerationRequest(model=None, prompt_ids=[]))
    for ids in ([5, 512], [-1]):
        with pytest.raises(InvalidRequest, match=str(ids[-1])):
            await prompt.encode(codec, chat_card, GenerationRequest(model=None, prompt_ids=ids))


async def test_a_tokenizer_that_does_not_fit_is_said_loudly(chat_card, caplog):
    await prompt.codec_for(dataclasses.replace(chat_card, id="small", vocab_size=300))
    assert "DOES NOT FIT small" in caplog.text


async def test_ids_of_a_tokenizer_that_does_not_fit(chat_card):
    misfit = dataclasses.replace(chat_card, vocab_size=60, tokenizer_note="It belongs to another model.")
    codec = await prompt.codec_for(misfit)
    with pytest.raises(InvalidRequest, match=r"outside the vocabulary of alpha .* It belongs to another model\."):
        await prompt.encode(codec, misfit, GenerationRequest(model=None, text_prompt="Hello"))


async def test_a_tokenizer_that_was_removed(chat_card, directory, tmp_path):
    (directory / "tokenizer.json").unlink()
    for folder in (directory, tmp_path / "nowhere"):
        with pytest.raises(ModelUnavailable, match=r"there is no tokenizer\.json in it"):
            await prompt.codec_for(dataclasses.replace(chat_card, tokenizer=str(folder)))


async def test_a_missing_tokenizer_names_the_place(card, tmp_path, settings, caplog):
    """The client gets no folder of this machine, the operator does."""
    settings.SMOE = dataclasses.replace(settings.SMOE, checkpoints_dir=tmp_path / "checkpoints")
    with pytest.raises(ModelUnavailable, match=r"checkpoints/alpha/.*--tokenizer") as refused:
        await prompt.codec_for(card)
    assert str(tmp_path) not in refused.value.message
    assert str(tmp_path / "checkpoints" / "alpha") in caplog.text


async def test_a_broken_tokenizer_is_an_error_that_names_it(chat_card, directory):
    (directory / "tokenizer.json").write_text("{")
    with pytest.raises(ModelUnavailable, match="cannot be loaded"):
        await prompt.codec_for(chat_card)
