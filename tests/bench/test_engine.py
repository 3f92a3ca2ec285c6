"""Driving the real engine on a small vault, and the instant one that measures the server."""

import os
import subprocess
import sys

import pytest
from django.conf import settings

from bench import engine, instant_engine
from bench.engine import Subject, running

TIMEOUT = 60


@pytest.fixture
def subject(interop_dir):
    return Subject(settings.SMOE.engine, interop_dir / "tiny-qwen3moe-q4" / "tiny-qwen3moe.smoe", ("--ring", "9"))


def test_the_given_reply_is_what_is_decoded(subject):
    with running(subject, TIMEOUT) as started:
        assert started.hello()["vocab"] == "512"
        answer = started.generate([5, 6, 7], [9, 511, 9, 9])
    assert (answer.figures["prompt"], answer.figures["generated"]) == (3, 4)
    assert answer.first_token > started.started


def test_speed(subject):
    sample = engine.speed(subject, [16, 32], 8, TIMEOUT)
    assert sample.failure == ""
    assert sample.metrics["ring_slots"] == 9
    assert 0 < sample.metrics["hit_rate"] < 1
    assert sample.metrics["decode_bytes_per_token"] > 0
    for name in ("prefill_16_tok_s", "prefill_32_tok_s", "decode_tok_s", "trunk_bytes", "phase_experts_ms_per_token"):
        assert name in sample.metrics
    assert str(settings.BASE_DIR) not in sample.command


def test_speed_behind_a_context_computes_the_news_alone(subject, monkeypatch):
    asked = []
    generate = engine.Engine.generate
    monkeypatch.setattr(
        engine.Engine, "generate", lambda self, *words: asked.append(generate(self, *words)) or asked[-1]
    )
    sample = engine.speed(subject, [16], 8, TIMEOUT, depth=100)
    assert sample.metrics["prefill_16_tok_s"] > 0
    figures = [(answer.figures["prompt"], answer.figures["cached"]) for answer in asked]
    assert figures[0] == (100, 0)
    assert [(prompt, cached) for prompt, cached in figures[1:] if prompt > 100] == [(116, 100)] * 2 + [(101, 100)] * 2


def test_the_first_token(subject):
    sample = engine.first_token(subject, TIMEOUT)
    assert 0 < sample.metrics["boot_s"] < sample.metrics["first_token_s"]


def test_an_engine_that_refuses_says_why(subject, tmp_path):
    sample = engine.speed(Subject(subject.program, tmp_path / "none.smoe"), [16], 8, TIMEOUT)
    assert "none.smoe" in sample.failure


def test_an_engine_that_hangs_is_ended(tmp_path):
    program = tmp_path / "hangs"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    assert engine.speed(Subject(program, tmp_path / "a.smoe"), [16], 8, 0.3).failure.startswith("ended with -9")


def test_the_same_ids_always():
    assert engine.ids(4, 100) == engine.ids(4, 100)
    assert engine.ids(5, 100)[:4] != engine.ids(4, 100)
    assert max(engine.ids(1000, 50)) == 49


def test_the_instant_engine_says_when_it_wrote(tmp_path):
    times = tmp_path / "times"
    done = subprocess.run(
        [sys.executable, instant_engine.__file__],
        input="HELLO 2\nGEN 3 id=1 5,6\n",
        env=os.environ | {"SMOE_BENCH_TIMES": str(times)},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert lines[0].startswith("<<HELLO version=2 ")
    assert lines[1:6] == [
        "<<PREFILL done=0 total=2 cached=0>>",
        "<<PREFILL done=2 total=2 cached=0>>",
        "300",
        "301",
        "302",
    ]
    assert lines[6].startswith("prompt=2 cached=0 generated=3 ")
    assert lines[6].endswith(" fin=length <<DONE>>")
    first, others = map(int, times.read_text().split())
    assert others - first >= instant_engine.PAUSE * 1e9
