"""Every greedy id of the golden results, through the pipe."""

import native_engine
import numpy as np
import pytest

pytestmark = pytest.mark.native


@pytest.mark.parametrize("bits", ["q4", "q2"])
@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("--exact",),
        ("--kernels", "scalar", "--ring", 2),
        ("--ring", 1, "--workers", 1, "--threads", 1, "--chunk", 7),
        ("--ring", 5, "--workers", 16, "--threads", 3, "--chunk", 1, "--conversations", 1),
    ],
    ids=["default", "exact", "scalar", "ring of one", "tokens one by one"],
)
def test_every_greedy_id(start, golden, bits, flags):
    engine = start(golden(bits).vault, *flags)
    for case in golden(bits).cases:
        answer = engine.generate(len(case["greedy_ids"]), case["prompt_ids"], t=0, ignore_eos=1)
        assert answer.ids == case["greedy_ids"]


@pytest.mark.parametrize("bits", ["q4", "q2"])
def test_a_conversation_that_goes_on_and_one_that_diverges(start, golden, bits):
    engine = start(golden(bits).vault)
    for case in golden(bits).cases:
        prompt, greedy = case["prompt_ids"], case["greedy_ids"]
        half = len(greedy) // 2
        engine.generate(half, prompt, t=0, ignore_eos=1)
        assert engine.generate(len(greedy) - half, prompt + greedy[:half], t=0, ignore_eos=1).ids == greedy[half:]
        engine.generate(2, [*prompt, (greedy[0] + 1) % 512, 7], t=0)
        again = engine.generate(len(greedy), prompt, t=0, ignore_eos=1)
        assert again.ids == greedy
        assert int(again.figures["cached"]) == len(prompt) - 1


def test_the_end_of_sequence_ends_and_is_not_written(start, golden):
    case = golden("q4").cases[0]
    end = case["greedy_ids"][5]
    first = case["greedy_ids"].index(end)
    engine = start(golden("q4").vault, "--eos-ids", f"{end},511,151645")
    answer = engine.generate(64, case["prompt_ids"], t=0)
    assert (answer.ids, answer.finish) == (case["greedy_ids"][:first], "stop")
    answer = engine.generate(10, case["prompt_ids"], t=0, ignore_eos=1)
    assert (answer.ids, answer.finish) == (case["greedy_ids"][:10], "length")
    answer = engine.generate(10, case["prompt_ids"], t=0, ignore_eos=1, stop=case["greedy_ids"][0])
    assert (answer.ids, answer.finish) == ([], "stop")


def test_half_precision_keys_and_values_change_little(program, golden, tmp_path):
    vault, ids = golden("q4").vault, golden("q4").cases[4]["prompt_ids"]
    exact, half = (native_engine.logits(program, vault, ids, tmp_path / kv, "--kv", kv) for kv in ("f32", "f16"))
    change = abs(exact - half).max(axis=1) / abs(exact).max()  # by position
    assert 0 < np.median(change) < 1e-3
    assert np.mean(change < 0.01) > 0.9  # a router's near-tie may fall the other way
