"""The real ASGI application on a real daphne, in a thread; what the engine would say is scripted."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from engine_script import Script, snapshot

from engine import generation, worker
from engine.daphne_request import RequestServer
from fleet import catalog
from fleet.catalog import ModelCard


@pytest.fixture(scope="session")
def base_url() -> str:
    from smoe_site.asgi import application

    ready = threading.Event()
    server = RequestServer(
        application,
        endpoints=["tcp:port=0:interface=127.0.0.1"],
        signal_handlers=False,
        ready_callable=ready.set,
    )
    threading.Thread(target=server.run, daemon=True).start()
    assert ready.wait(20)
    while not server.listening_addresses:
        time.sleep(0.01)
    return "http://{}:{}".format(*server.listening_addresses[0])


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """What every generation of this test does; `script.requests` are those that came."""
    script = Script()
    monkeypatch.setattr(generation, "stream", script.stream)
    monkeypatch.setattr(generation, "count_tokens", script.count_tokens)
    return script


@pytest.fixture
def http(base_url: str, script: Script) -> httpx.Client:
    with httpx.Client(base_url=base_url, timeout=20) as client:
        yield client


@dataclass
class FakeWorker:
    shot: worker.EngineSnapshot = field(default_factory=snapshot)
    status_answer: Callable[[], Any] = dict

    def snapshot(self) -> worker.EngineSnapshot:
        return self.shot

    async def status(self) -> dict[str, Any]:
        answer = self.status_answer()
        return await answer if asyncio.iscoroutine(answer) else answer


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeWorker:
    fake = FakeWorker()
    monkeypatch.setattr(worker, "get_worker", lambda: fake)
    return fake


CARD = ModelCard(
    id="alpha",
    vault_path=Path("alpha.smoe"),
    scout_path=Path("alpha.scout.safetensors"),
    tokenizer="alpha",
    tokenizer_is_fallback=False,
    quant="Q4",
    bits=4,
    format_version=2,
    model_type="qwen3_moe",
    moe_layers=48,
    hidden_layers=48,
    experts_per_layer=128,
    top_k=8,
    d_model=2048,
    vocab_size=151936,
    trained_context=32768,
    eos_ids=(2,),
    vault_bytes=10,
    scout_bytes=5,
    description="a model",
    lineage="org/alpha",
)


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> list[ModelCard]:
    """Two servable vaults, and one that cannot be served."""
    cards = [CARD, replace(CARD, id="beta", quant="Q2", bits=2), replace(CARD, id="org/gamma")]

    async def servable() -> list[ModelCard]:
        return cards

    async def find(name: str) -> ModelCard | None:
        return next((card for card in cards if card.id == name), None)

    async def unavailable(name: str) -> str | None:
        return "The vault broken cannot be served (invalid): it is truncated." if name == "broken" else None

    monkeypatch.setattr(catalog, "aservable", servable)
    monkeypatch.setattr(catalog, "afind", find)
    monkeypatch.setattr(catalog, "aunavailable", unavailable)
    return cards
