"""Workers on engine doubles: scripts that are written while they run, and logs of what the double saw."""

import asyncio
import dataclasses
import json
from pathlib import Path

import pytest

from engine.job import Ended, Job, Tokens
from engine.session import Limits
from engine.worker import Worker
from fleet.catalog import ModelCard
from smoe_site.options import Options

DOUBLES = Path(__file__).parents[1] / "doubles"
QUICK = Limits(boot=5, answer=5, drain=1, stop=0.5, status=1, lock=1)


class Double:
    """The script that the doubles read, and the log that they write."""

    def __init__(self, directory: Path) -> None:
        self.script, self.log = directory / "script.json", directory / "log.jsonl"
        self.play()

    def play(self, **told) -> None:
        """From the next request on. Replaced whole, so that a double never reads half of it."""
        new = self.script.with_suffix(".new")
        new.write_text(json.dumps(told | {"log": str(self.log)}))
        new.replace(self.script)

    def events(self, kind: str) -> list[dict]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [event for line in lines if (event := json.loads(line))["event"] == kind]

    def lines(self, word: str) -> list[str]:
        """What the engine was told, of lines that begin with `word`."""
        return [event["line"] for event in self.events("line") if event["line"].startswith(word)]

    async def sees(self, word: str) -> None:
        """Until the engine has been told such a line."""
        async with asyncio.timeout(10):
            while True:
                if self.lines(word):
                    return
                await asyncio.sleep(0.005)


@pytest.fixture
def double(tmp_path, monkeypatch):
    double = Double(tmp_path)
    monkeypatch.setenv("SMOE_DOUBLE_SCRIPT", str(double.script))
    yield double
    assert double.events("second engine") == []


@pytest.fixture
def card(tmp_path) -> ModelCard:
    return ModelCard(
        id="alpha",
        vault_path=tmp_path / "alpha.smoe",
        scout_path=tmp_path / "alpha.scout.safetensors",
        tokenizer="",
        tokenizer_is_fallback=False,
        quant="Q4",
        bits=4,
        format_version=2,
        model_type="qwen3_moe",
        moe_layers=3,
        hidden_layers=3,
        experts_per_layer=8,
        top_k=2,
        d_model=128,
        vocab_size=512,
        trained_context=4096,
        eos_ids=(511,),
        vault_bytes=1,
        scout_bytes=1,
    )


@pytest.fixture
def other_card(card, tmp_path) -> ModelCard:
    return dataclasses.replace(
        card, id="beta", vault_path=tmp_path / "beta.smoe", scout_path=tmp_path / "beta.scout.safetensors"
    )


@pytest.fixture
async def make_worker(double, tmp_path):
    workers = []

    def make(version: int = 2, limits: Limits = QUICK, **options) -> Worker:
        engine = DOUBLES / f"engine_v{version}.py"
        worker = Worker(Options(engine=engine, data_dir=tmp_path / "data", **options), limits)
        workers.append(worker)
        return worker

    yield make
    for worker in workers:
        await worker.close()


@pytest.fixture
def ask(card):
    """(worker, ids, max_tokens, **job) -> (ids of the reply, Ended)."""

    async def ask(worker, ids, max_tokens=8, **job):
        told, ended = [], None
        async for event in worker.stream(Job(**{"card": card, "ids": ids, "max_tokens": max_tokens} | job)):
            if isinstance(event, Tokens):
                told += [token.id for token in event.tokens]
            elif isinstance(event, Ended):
                ended = event
        return told, ended

    return ask
