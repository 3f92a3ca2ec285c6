"""The console on `manage.py serve` itself: with an engine double that is slow or dies, and with the demo vault."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from .console import Console

ROOT = Path(__file__).parents[2]


def manage(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "manage.py", *arguments], cwd=ROOT, env=environment, check=True)


class Server:
    """One server process. `play` says what the double does from the next request on."""

    def __init__(self, folder: Path, engine: Path):
        self.script, self.log = folder / "script.json", folder / "log.jsonl"
        self.play()
        self.environment = os.environ | {
            "SMOE_DATA_DIR": str(folder / "data"),
            "SMOE_VAULT_DIR": str(folder / "vault"),
            "SMOE_CHECKPOINTS_DIR": str(folder / "checkpoints"),
            "SMOE_ENGINE": str(engine),
            "SMOE_DOUBLE_SCRIPT": str(self.script),
        }

    def play(self, **told: object) -> None:
        new = self.script.with_suffix(".new")
        new.write_text(json.dumps(told | {"log": str(self.log)}))
        new.replace(self.script)

    def heard(self, word: str) -> bool:
        return any(json.loads(line).get("line", "").startswith(word) for line in self.log.read_text().splitlines())

    def start(self) -> str:
        manage(self.environment, "migrate", "-v", "0")
        command = [sys.executable, "manage.py", "serve", "--port", "0"]
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        for line in self.process.stdout:
            if line.startswith("S-MoE is serving on "):
                return line.split()[-1]
        raise AssertionError("the server did not start")

    def stop(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=30)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, interop_dir: Path) -> Iterator[Server]:
    """Two vaults, `first` and `second`, on the double."""
    folder = tmp_path_factory.mktemp("console")
    for name, source in (("first", "tiny-qwen3moe-q4"), ("second", "tiny-qwen3moe-q2")):
        (folder / "vault").mkdir(exist_ok=True)
        for ending in (".smoe", ".scout.safetensors"):
            shutil.copy(interop_dir / source / f"tiny-qwen3moe{ending}", folder / "vault" / f"{name}{ending}")
        shutil.copytree(interop_dir / "tiny-qwen3moe-checkpoint", folder / "checkpoints" / name)
    server = Server(folder, ROOT / "tests" / "doubles" / "engine_v2.py")
    server.url = server.start()
    yield server
    server.stop()


@pytest.fixture
def real(page: Page, server: Server) -> Console:
    server.play(token_delay=0.02)
    console = Console(page).open(server.url)
    expect(page.locator("#engine-text")).to_have_text("Engine up", timeout=30_000)
    return console


def test_a_prefill_of_twenty_seconds_is_watched_and_stopped(real, server):
    server.play(prefill_chunks=20, prefill_delay=1.0)
    real.send("a question")
    expect(real.monitor).to_contain_text("Prefilling")
    expect(real.monitor).to_contain_text("cold")
    real.button("Stop (Esc)").click()
    real.settled()
    expect(real.reply).to_contain_text("Stopped.")
    for _ in range(50):
        if server.heard("CANCEL"):
            return
        real.page.wait_for_timeout(100)
    raise AssertionError("the engine was not told to stop")


def test_an_engine_killed_in_mid_reply_is_said_and_the_retry_works(real, server):
    server.play(crash="decode:20", token_delay=0.02)
    real.ask("a question")
    expect(real.reply.locator(".card.error")).to_contain_text("engine")
    server.play(token_delay=0.002)
    real.button("Retry").click()
    real.settled()
    expect(real.reply.locator(".finish")).to_have_text("length")


def test_a_reply_ends_by_length_with_exact_counts_and_goes_on(real):
    real.button("Settings of this conversation").click()
    real.page.get_by_label("Longest reply").fill("12")
    real.button("Save").click()
    real.ask("a question")
    expect(real.reply.locator(".finish")).to_have_text("length")
    expect(real.monitor).to_contain_text("12 tokens")
    real.button("Continue").click()
    real.settled()
    expect(real.reply.locator(".monitor")).to_have_count(2)
    expect(real.monitor).to_contain_text("12 tokens")


def test_another_vault_boots_with_the_next_message(real, server):
    server.play(boot_delay=1.5)
    real.page.locator("#model").click()
    real.page.get_by_role("menuitemradio", checked=False).first.click()
    chosen = real.page.locator("#model-name").inner_text()
    real.send("a question")
    expect(real.monitor).to_contain_text(f"Booting {chosen}")
    real.settled()
    expect(real.page.locator(".note")).to_contain_text(f"Switched to {chosen}")
    real.page.locator("#model").click()
    expect(real.page.get_by_role("menuitemradio", checked=True)).to_contain_text("active")


@pytest.mark.demo
def test_the_demo_vault_answers(page: Page, tmp_path: Path, demo_dir: Path):
    for name in ("vault", "checkpoints"):
        (tmp_path / name).symlink_to(demo_dir / name)
    server = Server(tmp_path, ROOT / "build" / "smoe-engine")
    try:
        console = Console(page).open(server.start())
        expect(page.locator("#engine-text")).to_have_text("Engine up", timeout=60_000)
        expect(page.locator("#about")).to_contain_text("small dense model re-expressed")
        console.button("Settings of this conversation").click()
        page.get_by_label("Temperature").fill("0")
        console.button("Save").click()
        console.ask("What is the capital of France?")
        expect(console.text).to_contain_text("Paris")
        expect(console.reply.locator(".finish")).to_have_text("finished")
        page.reload()
        expect(console.text).to_contain_text("Paris")
    finally:
        server.stop()
