"""The worker on an engine that knows version 1 only."""

import asyncio

import pytest

from engine.errors import ContextOverflow, InvalidRequest
from engine.job import Job, Tokens
from engine.messages import Prefill, Sampling


@pytest.fixture
def worker(make_worker):
    return make_worker(version=1)


async def test_a_reply(worker, double, ask, card):
    told, ended = await ask(worker, [5, 6, 7], 8, sampling=Sampling(temperature=0.0, top_k=3, seed=9))
    assert told == [5, 6, 7, 5, 6, 7, 5, 6]
    assert (ended.reason, ended.prompt, ended.cached, ended.generated) == ("length", 3, 0, 8)
    assert (ended.timings.expert_hits, ended.timings.stall_ms) == (None, None)
    assert double.lines("") == ["HELLO 2", "GEN 8 t=0 k=3 5,6,7"]
    assert worker.snapshot().protocol == 1


async def test_the_prompt_is_told_before_the_first_token(worker, card):
    events = [event async for event in worker.stream(Job(card, [1, 2], 1))]
    assert Prefill("alpha", 0, 2, 0) in events


async def test_the_end_of_sequence(worker, double, ask):
    double.play(reply=[8, 9])
    told, ended = await ask(worker, [1], 8)
    assert (told, ended.reason) == ([8, 9], "stop")


async def test_a_client_that_leaves_is_drained(worker, double, ask, card):
    double.play(token_delay=0.002)
    events = worker.stream(Job(card, [1, 2], 100))
    async for event in events:
        if isinstance(event, Tokens):
            break
    await events.aclose()
    assert (await ask(worker, [7], 3))[0] == [7, 7, 7]
    assert double.lines("") == ["HELLO 2", "GEN 100 1,2", "GEN 3 7"]
    assert len(double.events("start")) == 1


async def test_one_that_never_gets_to_its_end_is_replaced(worker, double, ask, card):
    double.play(token_delay=3600)
    task = asyncio.create_task(ask(worker, [1], 5))
    await double.sees("GEN")
    task.cancel()
    double.play()
    assert (await ask(worker, [2], 2))[0] == [2, 2]
    assert len(double.events("start")) == 2


async def test_the_same_prompt_again(worker, double, ask):
    """A version-1 engine refuses a prompt that its cache holds whole."""
    await ask(worker, [1, 2, 3], 4)
    assert (await ask(worker, [1, 2, 3], 4))[0] == [1, 2, 3, 1]
    assert double.lines("RESET") == ["RESET"]


async def test_ids_beyond_the_window_are_cut_and_told(worker, double, ask):
    ids = [n % 500 for n in range(4100)]
    told, ended = await ask(worker, ids, 2)
    assert told == ids[4:6]
    assert (ended.prompt, ended.slid) == (4100, 4 + 2)  # as a version-2 engine counts


@pytest.mark.parametrize("reason", ["ctx_overflow", "suffix_too_long"])
async def test_a_prompt_that_cannot_fit(worker, double, ask, reason):
    double.play(refuse={reason: 9})
    with pytest.raises(ContextOverflow) as refused:
        await ask(worker, [1, 2, 3], 5)
    assert (refused.value.prompt_tokens, refused.value.max_tokens, refused.value.window) == (3, 5, 4096)
    double.play()
    assert (await ask(worker, [1], 1))[0] == [1]


async def test_what_it_cannot_honour_is_refused(worker, ask):
    with pytest.raises(InvalidRequest, match="logit_bias") as refused:
        await ask(worker, [1], 1, sampling=Sampling(logit_bias={5: 1.0}))
    assert refused.value.param == "logit_bias"
    assert (await ask(worker, [1], 1))[0] == [1]


async def test_further_end_of_sequence_ids_are_watched_here(worker, double, ask, card):
    double.play(reply=[8, 9, 300, 10])
    told, ended = await ask(worker, [1], 8, stop_ids=(300,))
    assert (told, ended.reason, ended.generated) == ([8, 9], "stop", 2)
    double.play()
    assert (await ask(worker, [4], 2))[0] == [4, 4]


async def test_a_flag_that_version_1_does_not_have_is_told(make_worker, ask):
    with pytest.raises(Exception, match="--ctx 100"):
        await ask(make_worker(version=1, ctx=100), [1], 1)


async def test_status_is_empty(worker, ask):
    await ask(worker, [1], 1)
    assert await worker.status() == {}
