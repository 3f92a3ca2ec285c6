"""Both interop vaults through generation.stream and the native engine: every golden greedy id."""

import dataclasses
import json

import pytest
from django.conf import settings

from engine import generation, worker
from engine.messages import Echo, Finished, GenerationRequest, Sampling, TextDelta
from engine.prompt import _load
from engine.worker import Worker
from smoe_site.options import Options

GREEDY = Sampling(temperature=0.0, repetition_penalty=1.0)


@pytest.fixture(params=["q4", "q2"])
def vault(request, interop_dir, card, tmp_path, monkeypatch):
    directory = interop_dir / f"tiny-qwen3moe-{request.param}"
    served = dataclasses.replace(
        card,
        vault_path=directory / "tiny-qwen3moe.smoe",
        scout_path=directory / "tiny-qwen3moe.scout.safetensors",
        tokenizer=str(interop_dir / "tiny-qwen3moe-checkpoint"),
    )

    async def servable():
        return [served]

    async def find(name):
        return served

    monkeypatch.setattr(generation.catalog, "aservable", servable)
    monkeypatch.setattr(generation.catalog, "afind", find)
    return served, json.loads((directory / "golden.json").read_text())["cases"]


@pytest.fixture
async def native(tmp_path, monkeypatch):
    native = Worker(Options(engine=settings.SMOE.engine, data_dir=tmp_path / "data"))
    monkeypatch.setattr(worker, "_worker", native)
    yield native
    await native.close()


async def reply_to(case, **more):
    request = GenerationRequest(
        model=None, messages=case["messages"], max_tokens=len(case["greedy_ids"]), sampling=GREEDY, logprobs=0, **more
    )
    return [event async for event in generation.stream(request)]


def expected_ids(case):
    """The golden results hold the end of sequence (511) too; it is no part of a reply."""
    return [id for id in case["greedy_ids"] if id != 511]


def ids_of(events):
    return [entry.id for event in events if isinstance(event, TextDelta) for entry in event.logprobs]


async def test_a_reply_that_is_echoed_has_the_log_probabilities_it_was_written_with(vault, native):
    _, cases = vault
    events = await reply_to(cases[0])
    written = [entry for event in events if isinstance(event, TextDelta) for entry in event.logprobs]
    ids = cases[0]["prompt_ids"] + [entry.id for entry in written]
    request = GenerationRequest(model=None, prompt_ids=ids, max_tokens=0, sampling=GREEDY, logprobs=1, echo=True)
    (echo,) = [event async for event in generation.stream(request) if isinstance(event, Echo)]
    assert [entry.id for entry in echo.logprobs] == ids
    assert [entry.logprob for entry in echo.logprobs[-len(written) :]] == pytest.approx(
        [entry.logprob for entry in written], abs=1e-4
    )
    assert all(entry.top[0][0] == entry.id for entry in echo.logprobs[-len(written) :])  # it was greedy


async def test_golden_ids_and_text(vault, native):
    card, cases = vault
    decode = _load(card)._tokenizer.decode
    for case in [*cases, *reversed(cases)]:  # cold, after a divergence, and again warm
        events = await reply_to(case)
        expected = expected_ids(case)
        assert ids_of(events) == expected
        text = "".join(event.text for event in events if isinstance(event, TextDelta))
        assert text == decode(expected, skip_special_tokens=True)
        finished = events[-1]
        assert isinstance(finished, Finished)
        assert finished.reason == case["finish"]
        assert (finished.usage.prompt, finished.usage.generated) == (len(case["prompt_ids"]), len(expected))


async def test_the_same_prompt_again_is_cached_but_for_its_last_id(vault, native):
    _, cases = vault
    await reply_to(cases[0])
    again = (await reply_to(cases[0]))[-1]
    assert again.usage.cached == len(cases[0]["prompt_ids"]) - 1


async def test_a_client_that_leaves_disturbs_nobody(vault, native):
    _, cases = vault
    long = GenerationRequest(model=None, messages=cases[1]["messages"], max_tokens=4000)
    async for event in generation.stream(long):
        if isinstance(event, TextDelta):
            break
    assert ids_of(await reply_to(cases[0])) == expected_ids(cases[0])
    assert native.snapshot().boots == 1
    assert (await native.status())["state"] == "idle"
