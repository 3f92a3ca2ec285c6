"""`smoe-engine bench`: its figures hang together."""

import json
import subprocess

import pytest

pytestmark = pytest.mark.native


def run(program, *words):
    return subprocess.run(list(map(str, [program, "bench", *words])), capture_output=True, text=True, timeout=60)


def test_json(program, golden):
    vault = golden("q4").vault
    told = json.loads(run(program, "--vault", vault, "--prompt", 40, "--tokens", 9, "--ring", 5, "--json").stdout)
    assert told["ring_slots"] == 5
    for name, tokens in (("prefill", 40), ("decode", 9)):
        part = told[name]
        assert part["tokens"] == tokens
        assert part["tokens_per_second"] == pytest.approx(tokens * 1000 / part["milliseconds"], rel=0.05, abs=1)
        assert sum(part["phases_ms"].values()) == pytest.approx(part["milliseconds"], abs=0.5)
        assert part["hit_rate"] == pytest.approx(part["hits"] / (part["hits"] + part["misses"]), abs=1e-4)
    # 3 layers of 8 experts, 2 a token: that of the prompt that is computed again, and 8 of the reply's
    assert told["decode"]["hits"] + told["decode"]["misses"] == 9 * 3 * 2
    assert told["prefill"]["misses"] + told["prefill"]["hits"] <= 24
    assert told["prefill"]["bytes_read"] > 0


def test_text(program, golden):
    lines = run(program, "--vault", golden("q4").vault, "--prompt", 3, "--tokens", 2).stdout.splitlines()
    assert [line.split(":")[0] for line in lines if not line.startswith(" ")] == ["prefill", "decode"]


def test_what_it_refuses(program, golden):
    vault = golden("q4").vault
    assert "exactly one" in run(program, "--vault", vault, "--serve").stderr
    assert "--tokens" in run(program, "--vault", vault, "--tokens", 0).stderr
