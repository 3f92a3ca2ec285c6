"""What the engine takes of the machine's memory: what it plans, tells and refuses."""

import subprocess
import time

import native_engine
import numpy as np
import pytest

from fleet.vaultfile.scout import TensorSpec
from tests import synthetic

pytestmark = pytest.mark.native
MIB = 1 << 20


@pytest.fixture(scope="module")
def vault(tmp_path_factory):
    path = tmp_path_factory.mktemp("memory") / "v.smoe"
    return synthetic.write(path, d_model=256, moe_ffn=128, vocab_size=1024, layers=2, experts=16, top_k=4)[0]


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """An embedding and a head of 128 MiB each, and as much again that no layer uses. Takes no room on the disk."""
    path = tmp_path_factory.mktemp("wide") / "v.smoe"
    extra = [
        TensorSpec(name, "BF16", (64 * MIB,)) for name in ("vision.proj.weight", "model.layers.2.mlp.up_proj.weight")
    ]
    return synthetic.write(path, d_model=1024, vocab_size=65536, hollow=True, extra=extra)[0]


def after_a_prompt(program, vault, *flags):
    with native_engine.Engine(program, vault, *flags) as engine:
        ids = np.random.default_rng(1).integers(0, 1024, 4096)
        engine.generate(2, ids, t=0)
        return engine.status()


def told(status):
    return sum(status[name] for name in ("trunk", "ring", "kv", "buffers"))


# Quantized activations are counted for every input, also for those that meet the float weights of a trunk as stored.
@pytest.mark.parametrize(("flags", "apart"), [(["--exact"], 0.05), ([], 0.1), (["--trunk", "q8"], 0.05)])
def test_the_figures_add_up_to_the_resident_set(program, vault, flags, apart):
    large = after_a_prompt(program, vault, "--ctx", 4096, "--chunk", 4096, *flags)
    small = after_a_prompt(program, vault, "--ctx", 4096, "--chunk", 32, *flags)
    assert large["rss"] - small["rss"] > 32 * MIB
    assert told(large) - told(small) == pytest.approx(large["rss"] - small["rss"], rel=apart)
    assert told(large) == pytest.approx(large["rss"], rel=0.05)


# Of the head's 64 Mi weights; the embedding stays in the file. q8: a byte a weight, and two for the scale of 64.
@pytest.mark.parametrize(("form", "head"), [("stored", 128), ("q8", 66), ("q4", 34)])
def test_only_what_the_trunk_becomes_is_ever_in_memory(program, wide, form, head):
    with native_engine.Engine(program, wide, "--trunk", form, "--ctx", 512) as engine:
        engine.generate(2, [1, 2, 3], t=0)
        now = engine.status()
        peak = native_engine.peak_memory(engine.process.pid)
    assert now["trunk"] == pytest.approx(head * MIB, rel=0.01)
    assert told(now) == pytest.approx(now["rss"], rel=0.05)
    assert peak is None or peak < now["rss"] + 24 * MIB  # a block of 2 MiB a thread while it boots, and some slack


def test_a_budget_is_kept(program, vault):
    roomy = after_a_prompt(program, vault)
    budget = roomy["rss"] + 10 * MIB
    tight = after_a_prompt(program, vault, "--memory", budget)
    assert tight["rss"] <= budget
    least = after_a_prompt(program, vault, "--memory", "28M")  # with a shorter chunk
    assert least["rss"] <= 28 * MIB
    assert least["buffers"] < roomy["buffers"] - 2 * MIB


def test_the_ring_has_what_conversations_do_not_hold_yet(program, tmp_path):
    sizes = {"d_model": 512, "moe_ffn": 512, "heads": 8, "kv_heads": 8, "head_dim": 64, "layers": 4, "experts": 32}
    vault = synthetic.write(tmp_path / "v.smoe", vocab_size=1024, **sizes)[0]
    ids = np.random.default_rng(1).integers(0, 1024, 4096)
    flags = ("--ctx", 4096, "--conversations", 1, "--chunk", 64)
    with native_engine.Engine(program, vault, *flags) as engine:
        answers = [engine.generate(8, ids[:count], t=0).ids for count in (64, 4096)]
        budget = engine.status()["rss"] - 30 * MIB  # the keys and values take 33, the experts 54
    with native_engine.Engine(program, vault, "--memory", budget, *flags) as engine:
        found, told = [], []
        for count in (64, 4096, 64):
            found.append(engine.generate(8, ids[:count], t=0).ids)
            told.append(engine.status())
            if count == 4096:
                engine.send("RESET")
                assert engine.line() == "<<DONE>>"
                deadline = time.monotonic() + 30
                while engine.status()["ring_slots"] < told[0]["ring_slots"]:  # it looks twice a second
                    assert time.monotonic() < deadline
                    time.sleep(0.1)
        peak = native_engine.peak_memory(engine.process.pid)
    short, long, _ = told
    assert found == [*answers, answers[0]]
    assert long["kv"] - short["kv"] > 30 * MIB
    lent = (short["ring_slots"] - long["ring_slots"]) * long["slot_bytes"]
    assert lent == pytest.approx(long["kv"] - short["kv"], rel=0.1)
    assert peak is None or peak <= budget


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    """160 MiB of experts: of a sixteenth of them a chunk of 1,024 ids has its buffers."""
    sizes = {"d_model": 256, "moe_ffn": 512, "heads": 4, "kv_heads": 2, "head_dim": 32, "layers": 8, "experts": 96}
    path = tmp_path_factory.mktemp("deep") / "v.smoe"
    return synthetic.write(path, vocab_size=1024, **sizes)[0]


def budget_of(program, vault):
    """Nearly all that its experts and a window of 4,096 positions want."""
    with native_engine.Engine(program, vault, "--ctx", 4096, "--conversations", 1, "--chunk", 512) as engine:
        engine.generate(8, np.random.default_rng(1).integers(0, 1024, 2048), t=0)
        return engine.status()["rss"] + 2 * MIB


def test_a_long_prompt_is_computed_at_once_in_memory_that_the_ring_had(program, deep):
    ids = np.random.default_rng(1).integers(0, 1024, 2048)
    with native_engine.Engine(program, deep, "--ctx", 4096, "--conversations", 1, "--chunk", 512) as engine:
        expected = engine.generate(8, ids, t=0)
    budget = budget_of(program, deep)
    with native_engine.Engine(program, deep, "--ctx", 4096, "--conversations", 1, "--memory", budget) as engine:
        engine.generate(8, ids[:300], t=0)
        before = engine.status()
        engine.send("RESET")
        assert engine.line() == "<<DONE>>"
        long = engine.generate(8, ids, t=0)
        engine.send("RESET")
        assert engine.line() == "<<DONE>>"
        engine.generate(1, ids, t=0)
        full = engine.status()
        engine.generate(8, ids, t=0)
        after = engine.status()
        peak = native_engine.peak_memory(engine.process.pid)
    assert long.ids == expected.ids
    assert [done for done, _, _ in long.progress] == [0, 512, 1024, 1536, 2048]
    requests = [int(answer.figures["hits"]) + int(answer.figures["misses"]) for answer in (long, expected)]
    decoding = 7 * 8 * 2  # passes, layers, experts of a token
    # A chunk of 1,024 needs nearly the same experts as one of 512.
    assert requests[0] - decoding < 0.6 * (requests[1] - decoding)
    assert full["buffers"] > before["buffers"] + 4 * MIB
    assert full["ring_slots"] < before["ring_slots"] - 4 * MIB // full["slot_bytes"]
    assert after["buffers"] == before["buffers"]  # decoding wants none of a chunk
    assert after["rss"] < full["rss"] - 2 * MIB
    assert peak is None or peak <= budget


def test_a_long_prompt_that_is_given_up_gets_further_at_the_next_try(program, deep):
    ids = np.random.default_rng(1).integers(0, 1024, 3000)
    flags = ("--ctx", 4096, "--conversations", 1, "--memory", budget_of(program, deep))
    with native_engine.Engine(program, deep, *flags) as engine:
        cached = []
        for tag in (1, 2, 3):
            engine.send(native_engine.gen_line(1, ids, id=tag))
            answer = native_engine.Answer()
            while len(answer.progress) < 2:
                native_engine.read_event(engine.line(), answer)
            engine.send(f"CANCEL {tag}")
            cached.append(answer.progress[0][0])
            while not answer.figures:
                native_engine.read_event(engine.line(), answer)
        assert cached[0] == cached[1] == 0  # the first was in the middle of a long chunk
        assert cached[2] >= 512


def test_too_little_is_refused_with_what_it_takes(program, vault):
    command = [program, "--vault", vault, "--tokens-in", "1", "--memory", "1M"]
    ended = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert "memory: needs at least" in ended.stderr.splitlines()[-1]


@pytest.mark.parametrize("amount", ["6X", "G", "-1G", "1.5.1G", "0", "99999999T"])
def test_what_is_no_amount(program, vault, amount):
    command = [program, "--vault", vault, "--tokens-in", "1", "--memory", amount]
    ended = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert "--memory" in ended.stderr


@pytest.mark.parametrize("amount", ["2147483648", "2G", "2.5GiB", "2048m"])
def test_amounts(program, vault, amount):
    command = [program, "--vault", vault, "--tokens-in", "1", "--tokens", "1", "--memory", amount]
    subprocess.run(list(map(str, command)), check=True, capture_output=True, timeout=60)


def test_an_open_window_is_the_longest_that_fits(program, start, golden):
    tiny = golden("q4").vault
    assert " ctx=4096 " in start(tiny).hello
    assert " ctx=4096 " in start(tiny, "--kv-cache-mb", 1).hello
    assert " ctx=100 " in start(tiny, "--ctx", 100).hello
