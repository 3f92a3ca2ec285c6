"""generation.stream on the version-2 double: text, counts, reasons, names. Token ids are the interop tokenizer's."""

import asyncio
import contextlib
import dataclasses
import itertools
import json

import pytest
from transformers import AutoTokenizer

from engine import generation, records, worker
from engine.errors import EngineFailed, InvalidRequest, LimitReached, ModelUnavailable
from engine.messages import (
    Constraint,
    Echo,
    Finished,
    GenerationRequest,
    Prefill,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    ToolChoice,
)

SAY_HI = [{"role": "user", "content": "Hi"}]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Köln"}}\n</tool_call>'
TOOL = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}


@pytest.fixture(scope="session")
def tokenizer(interop_dir):
    return AutoTokenizer.from_pretrained(interop_dir / "tiny-qwen3moe-checkpoint", local_files_only=True)


@pytest.fixture
def fleet(card, other_card, interop_dir, make_worker, monkeypatch):
    """Two vaults, alpha (first) and beta; a third that is known and broken."""
    tokenizer = str(interop_dir / "tiny-qwen3moe-checkpoint")
    cards = {each.id: dataclasses.replace(each, tokenizer=tokenizer) for each in (card, other_card)}

    async def find(name):
        return cards.get(name)

    async def servable():
        return list(cards.values())

    async def unavailable(name):
        return "The vault broken cannot be served." if name == "broken" else None

    for name, double in {"afind": find, "aservable": servable, "aunavailable": unavailable}.items():
        monkeypatch.setattr(generation.catalog, name, double)
    monkeypatch.setattr(worker, "_worker", make_worker())
    return cards


@pytest.fixture
def says(double, tokenizer):
    """The double replies with this text, then the end of sequence."""

    def says(text, **told):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        double.play(reply=ids, **told)
        return ids

    return says


async def run(messages=SAY_HI, **request):
    return [
        event async for event in generation.stream(GenerationRequest(**{"model": None, "messages": messages} | request))
    ]


def text_of(events):
    return "".join(event.text for event in events if isinstance(event, TextDelta))


async def test_a_reply(fleet, says, tokenizer):
    ids = says("Grüße 👩‍👩‍👧‍👦 漢字!")
    events = await run()
    prompt = tokenizer.apply_chat_template(SAY_HI, add_generation_prompt=True, return_dict=False)
    assert text_of(events) == "Grüße 👩‍👩‍👧‍👦 漢字!"
    assert not any("\ufffd" in event.text for event in events if isinstance(event, TextDelta))
    finished = events[-1]
    assert (finished.reason, finished.model, finished.context, finished.slid) == ("stop", "alpha", 4096, 0)
    assert (finished.usage.prompt, finished.usage.generated) == (len(prompt), len(ids))
    assert next(event for event in events if isinstance(event, Prefill)).total == len(prompt)
    assert await generation.count_tokens(GenerationRequest(model=None, messages=SAY_HI)) == len(prompt)


async def test_budgets(fleet, says, double):
    says("a b c d e f g h")
    finished = (await run(max_tokens=1))[-1]
    assert (finished.reason, finished.usage.generated) == ("length", 1)
    await run(max_tokens=128_000)
    await run()
    assert [line.split()[1] for line in double.lines("GEN")] == ["1", "4096", "256"]
    with pytest.raises(InvalidRequest) as refused:
        await run(max_tokens=0)
    assert refused.value.param == "max_tokens"


async def test_a_call_whose_head_the_budget_cuts_is_no_text(fleet, says, tokenizer):
    said = "Let me look.\n"
    says(said + CALL)
    upto = len(tokenizer(said + CALL.partition("weather")[0], add_special_tokens=False)["input_ids"])
    events = await run(tools=[TOOL], max_tokens=upto)

    assert (text_of(events), events[-1].reason, events[-1].usage.generated) == ("Let me look.", "length", upto)


@pytest.mark.parametrize("stop", [("x",) * 65, ("x" * 4097,)])
async def test_too_many_or_too_long_stop_strings(fleet, says, stop):
    with pytest.raises(InvalidRequest) as refused:
        await run(stop=stop)
    assert refused.value.param == "stop"


async def test_names(fleet, says, double):
    says("ok")
    for asked, ran in [(None, "alpha"), ("beta", "beta"), ("gpt-4", "beta"), ("s-moe", "beta"), ("../alpha", "beta")]:
        assert (await run(model=asked))[-1].model == ran
    with pytest.raises(ModelUnavailable, match="broken cannot be served"):
        await run(model="broken")
    fleet.clear()
    assert (await run(model="alpha"))[-1].model == "beta"  # its files are gone and it runs on
    await worker.get_worker().unload()
    with pytest.raises(ModelUnavailable, match="no vault"):
        await run()


async def test_a_key_that_may_not_use_the_active_vault_has_a_default_of_its_own(fleet, says):
    says("ok")
    await run(model="beta")
    for asked in (None, "s-moe", "gpt-4"):
        assert (await run(model=asked, vaults=frozenset({"alpha"})))[-1].model == "alpha"
    with pytest.raises(ModelUnavailable, match="may not use beta"):
        await run(model="beta", vaults=frozenset({"alpha"}))
    with pytest.raises(ModelUnavailable, match="may not use"):
        await run(vaults=frozenset({"gone"}))


async def test_a_vault_that_left_the_fleet_is_not_the_active_one(fleet, says):
    says("ok")
    await run(model="beta")
    gone = fleet.pop("beta")
    assert (await run())[-1].model == "alpha"
    fleet["beta"] = gone
    assert (await run())[-1].model == "alpha"


async def test_a_vault_that_is_being_written_stays_the_active_one(fleet, says):
    says("ok")
    fleet["beta"].vault_path.touch()
    fleet["beta"].scout_path.touch()
    await run(model="beta")
    del fleet["beta"]
    assert (await run())[-1].model == "beta"


async def test_a_stop_string_over_token_borders(fleet, says, double, tokenizer):
    ids = says("one two STOP three", token_delay=0.01)
    events = await run(stop=("STOP", "nowhere"))
    finished = events[-1]
    assert text_of(events) == "one two "
    assert (finished.reason, finished.stop_sequence) == ("stop_sequence", "STOP")
    first = next(n for n in range(len(ids) + 1) if "STOP" in tokenizer.decode(ids[:n]))
    assert finished.usage.generated == first
    says("next")
    assert text_of(await run()) == "next"
    assert len(double.lines("CANCEL")) == 1


async def test_what_looked_like_a_stop_string_is_shown_at_the_end(fleet, says):
    says("almost ST")
    assert text_of(await run(stop=("STOP",))) == "almost ST"
    with pytest.raises(InvalidRequest, match="64"):
        await run(stop=tuple(f"stop{n}" for n in range(65)))


async def test_special_tokens_never_show(fleet, says):
    says("a<|im_start|>b<|endoftext|>c")
    assert text_of(await run()) == "abc"


async def test_log_probabilities_belong_to_their_text(fleet, says, tokenizer):
    ids = says("Hé 🦊")
    events = await run(logprobs=1)
    entries = [entry for event in events if isinstance(event, TextDelta) for entry in event.logprobs]
    assert [entry.id for entry in entries] == ids
    assert b"".join(entry.raw for entry in entries) == "Hé 🦊".encode()
    assert all(entry.logprob == -0.5 and entry.top[0][0] == entry.id for entry in entries)
    assert sum(event.tokens for event in events if isinstance(event, TextDelta)) == len(ids)


@pytest.mark.parametrize("form", ["text", "ids"])
async def test_an_echo_is_the_prompt_before_the_reply(fleet, says, tokenizer, form):
    says("there")
    ids = tokenizer("Hé 🦊")["input_ids"]
    prompt = {"text_prompt": "Hé 🦊"} if form == "text" else {"prompt_ids": ids}
    events = await run(messages=[], echo=True, logprobs=1, **prompt)
    (echo,) = (event for event in events if isinstance(event, Echo))
    assert echo.text == "Hé 🦊"
    assert [entry.id for entry in echo.logprobs] == ids
    assert [entry.logprob for entry in echo.logprobs] == [None] + [-0.5] * (len(ids) - 1)
    assert b"".join(entry.raw for entry in echo.logprobs) == "Hé 🦊".encode()
    kinds = [type(event) for event in events]
    assert kinds.index(Echo) < kinds.index(TextDelta)
    assert text_of(events) == "there"


async def test_an_echo_of_no_reply_and_without_log_probabilities(fleet, says):
    says("never")
    events = await run(messages=[], text_prompt="Once", echo=True, max_tokens=0)
    assert Echo("Once") in events
    assert (text_of(events), events[-1].reason, events[-1].usage.generated) == ("", "length", 0)
    with pytest.raises(InvalidRequest, match="max_tokens"):
        await run(max_tokens=0)


async def test_a_tool_call(fleet, says):
    says(f"Let me look.\n{CALL}")
    events = await run(tools=[TOOL])
    assert text_of(events).strip() == "Let me look."
    (start,) = (event for event in events if isinstance(event, ToolCallStart))
    assert (start.index, start.name) == (0, "weather")
    arguments = "".join(event.arguments for event in events if isinstance(event, ToolCallDelta))
    assert arguments == '{"city": "Köln"}'
    assert events[-1].reason == "tool_calls"
    assert text_of(await run()) == f"Let me look.\n{CALL}"  # no tools asked: it is text


async def test_a_strict_tool_is_held_although_it_need_not_be_called(fleet, says, double):
    says("Hi")
    strict = {**TOOL, "function": {**TOOL["function"], "strict": True}}
    for tools, choice, masked in (([TOOL], "auto", False), ([strict], "auto", True), ([strict], "none", False)):
        assert text_of(await run(tools=tools, tool_choice=ToolChoice(choice))) == "Hi"
        assert ("mask=1" in double.lines("GEN")[-1]) == masked


async def test_one_call_where_only_one_is_wanted(fleet, says, double):
    ids = says(f"Both.\n{CALL}\n{CALL}\nDone.")
    calls = [event for event in await run(tools=[TOOL]) if isinstance(event, ToolCallStart)]
    assert len(calls) == 2
    events = await run(tools=[TOOL], tool_choice=ToolChoice(parallel=False))
    assert len([event for event in events if isinstance(event, ToolCallStart)]) == 1
    assert json.loads("".join(e.arguments for e in events if isinstance(e, ToolCallDelta))) == {"city": "Köln"}
    assert (events[-1].reason, text_of(events)) == ("tool_calls", "Both.")
    assert events[-1].usage.generated < len(ids)


async def test_reasoning_is_told_apart_and_counted(fleet, says, interop_dir, tmp_path):
    thinker = tmp_path / "thinker"
    thinker.mkdir()
    for file in (interop_dir / "tiny-qwen3moe-checkpoint").iterdir():
        (thinker / file.name).write_bytes(file.read_bytes())
    template = (thinker / "chat_template.jinja").read_text()
    (thinker / "chat_template.jinja").write_text(template + "{% if false %}<think></think>{% endif %}")
    fleet["alpha"] = dataclasses.replace(fleet["alpha"], tokenizer=str(thinker))
    ids = says("<think>\nhmm hm\n</think>\n\nYes.")
    events = await run()
    assert "".join(event.text for event in events if isinstance(event, ReasoningDelta)).strip() == "hmm hm"
    assert text_of(events) == "Yes."
    usage = events[-1].usage
    assert 0 < usage.reasoning < usage.generated == len(ids)


async def test_a_dead_engine_ends_the_stream_with_an_error(fleet, says):
    says("a b c d", crash="decode:0")
    with pytest.raises(EngineFailed, match="SIGKILL"):
        await run()
    says("again")
    assert text_of(await run()) == "again"


async def test_records(fleet, says, monkeypatch):
    told = []
    monkeypatch.setattr(records, "on_finished", [lambda record: 1 / 0, told.append])
    ids = says("a b c", token_delay=0.01)
    await run(request_id="r1", client="key")
    async with contextlib.aclosing(generation.stream(GenerationRequest(model="x", messages=SAY_HI))) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                break
    with pytest.raises(ModelUnavailable):
        await run(model="broken")
    full, left, refused = told
    assert (full.request_id, full.client, full.model, full.reason) == ("r1", "key", "alpha", "stop")
    assert (full.usage.generated, full.timings.prefill_ms) == (len(ids), 12.5)
    assert (left.requested, left.reason, left.usage.prompt) == ("x", "cancel", full.usage.prompt)
    assert (refused.error, refused.reason) == ("The vault broken cannot be served.", None)
    assert list(records.recent)[-3:] == told


async def test_records_of_what_does_not_end_tell_the_time_that_it_took(fleet, says, monkeypatch):
    told = []
    monkeypatch.setattr(records, "on_finished", [told.append])
    says(" ".join("abcdefghij"), token_delay=0.1)
    async with contextlib.aclosing(generation.stream(GenerationRequest(model="alpha", messages=SAY_HI))) as events:
        text = (event async for event in events if isinstance(event, TextDelta))
        await anext(text)
        waiting = asyncio.create_task(run(client="another"))
        await anext(text)
        await asyncio.sleep(0.1)
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
    says("a b c d", crash="decode:2", token_delay=0.05)
    with pytest.raises(EngineFailed):
        await run()
    gave_up, left, failed = (record.timings for record in told)
    assert gave_up.queue_ms > 90
    assert (gave_up.boot_ms, gave_up.prefill_ms, gave_up.decode_ms) == (0, 0, 0)
    assert left.queue_ms < 90 < left.decode_ms
    assert left.prefill_ms > 0
    assert failed.decode_ms > 0
    assert not any(record.is_whole for record in told)


@pytest.mark.parametrize("keeps", [False, True])
async def test_text_is_kept_only_where_the_operator_asks(fleet, says, monkeypatch, settings, keeps):
    settings.SMOE = dataclasses.replace(settings.SMOE, log_text=keeps)
    told = []
    monkeypatch.setattr(records, "on_finished", [told.append])
    says("an answer")
    await run([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}])
    kept = ("system: Be brief.\n\nuser: hi", "an answer") if keeps else ("", "")
    assert (told[0].prompt, told[0].reply) == kept


async def test_a_fast_engine_does_not_starve_others(fleet, says, double):
    """The event loop runs other tasks while a reply that is there at once is told."""
    double.play(batch=10_000)
    turns = 0

    async def other():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    await run(max_tokens=1)
    task = asyncio.create_task(other())
    deltas, before = 0, turns
    async for event in generation.stream(GenerationRequest(model=None, messages=SAY_HI, max_tokens=3200)):
        if isinstance(event, TextDelta):
            deltas += 1
            if deltas == 1:
                before = turns
        if isinstance(event, Finished):
            assert turns - before >= deltas // generation.BREATH - 1
    task.cancel()


async def test_a_schema_that_cannot_be_enforced_is_refused_with_its_place(fleet):
    form = Constraint("json_schema", {"not": {}}, "text.format.schema")
    with pytest.raises(InvalidRequest, match=r'not supported: \["not"\]') as refused:
        await run(constraint=form)
    assert refused.value.param == "text.format.schema"


async def test_who_is_turned_away_got_no_generation(fleet, says, monkeypatch):
    def refuse(record):
        raise LimitReached("Too many.", 5)

    says("Hello")
    await run()
    monkeypatch.setattr(records, "on_started", [refuse])
    with pytest.raises(LimitReached):
        await run()
    assert [record.turned_away for record in records.recent][-2:] == [False, True]


async def test_a_step_of_the_clock_moves_no_duration(fleet, says, monkeypatch):
    says("Hello")
    clock = itertools.count(1_800_000_000, -3600)
    monkeypatch.setattr("time.time", lambda: float(next(clock)))
    await run()
    record = records.recent[-1]
    assert 0 <= record.first_token - record.started < 60
    assert 0 <= worker.get_worker().snapshot().seconds < 60


MEBI = 1 << 20


@pytest.mark.parametrize(
    ("ctx", "trained", "characters", "refused"),
    [
        (4096, None, MEBI + 1, True),
        (4096, None, MEBI // 2, False),
        (131_072, None, 2 * MEBI - 1000, False),  # 16 characters a position
        (131_072, None, 2 * MEBI + 1, True),
        (0, 131_072, 2 * MEBI - 1000, False),  # its boot may tell so large a window
        (0, 131_072, 2 * MEBI + 1, True),
        (0, 1 << 40, 16 * MEBI + 1, True),  # no window is larger than 2^20 positions
    ],
)
async def test_a_text_that_no_window_could_hold_is_not_tokenized(
    fleet, monkeypatch, settings, ctx, trained, characters, refused
):
    """30 MiB of `x x x ...` took 7.5 GB of memory and minutes, to slide out of a window of 4,096 positions."""
    tokenized = []

    async def encode(codec, card, request):
        tokenized.append(len(request.messages[0]["content"]))
        return generation.Prompt([1], "")

    monkeypatch.setattr(generation.prompt, "encode", encode)
    monkeypatch.setattr(
        generation.get_worker(), "options", dataclasses.replace(generation.get_worker().options, ctx=ctx)
    )
    for name, card in fleet.items():
        fleet[name] = dataclasses.replace(card, trained_context=trained)
    request = GenerationRequest(model="alpha", messages=[{"role": "user", "content": "x" * characters}], max_tokens=1)
    counted = generation.count_tokens(request)
    if refused:
        with pytest.raises(InvalidRequest, match=r"^prompt is too long: more than [\d,]+ characters") as raised:
            await counted
        assert raised.value.code == "context_length_exceeded"
        with pytest.raises(InvalidRequest, match="too long"):
            await anext(generation.stream(request))
        assert not tokenized
    else:
        await counted
        assert tokenized == [characters]


async def test_too_many_ids_are_refused_too(fleet):
    with pytest.raises(InvalidRequest, match="too long"):
        await generation.count_tokens(GenerationRequest(model="alpha", prompt_ids=[1] * (MEBI + 1)))
