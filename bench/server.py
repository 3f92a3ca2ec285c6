"""What the server costs: with an engine that computes nothing, and beside the real engine on the demo vault."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from django.conf import settings

from . import http_client
from .files import BenchError
from .plan import Plan
from .results import Sample

ROOT = settings.BASE_DIR
INSTANT = Path(__file__).parent / "instant_engine.py"
INTEROP = ROOT / "tests" / "interop"
LENGTHS = (400, 4000)  # tokens of a reply
DEMO = "smollm2-135m-instruct"
DEMO_TOKENS = 256
BOOT = 120  # seconds
REQUEST = 300
WARMUPS = 2


def run(plan: Plan) -> None:
    for length in LENGTHS:
        plan.alternate("server", f"instant engine, {length} tokens", {"http": partial(_instant, plan, length)})
    if (ROOT / "vault" / f"{DEMO}.smoe").exists():
        plan.alternate("server", "demo vault", {"http": partial(_demo, plan)})
    else:
        print("server: no demo vault, its HTTP rate is left out (make demo writes it)")


def _instant(plan: Plan, length: int) -> Sample:
    with tempfile.TemporaryDirectory(prefix="smoe-bench-") as name:
        folder = Path(name)
        environment = _tiny_fleet(folder) | {"SMOE_ENGINE": str(INSTANT), "SMOE_BENCH_TIMES": str(folder / "times")}
        with serving(folder, plan.options.port, environment) as port:
            for _ in range(WARMUPS):
                http_client.chat(port, length, REQUEST)
            stream = http_client.chat(port, length, REQUEST)
        first, others = map(int, (folder / "times").read_text().splitlines()[-1].split())
    return Sample(
        f"POST /v1/chat/completions, {length} tokens streamed",
        {
            "first_token_ms": (stream.first - first) / 1e6,
            "request_to_first_token_ms": (stream.first - stream.sent) / 1e6,
            "us_per_token": (stream.last - others) / 1e3 / (length - 1),
        },
    )


def _demo(plan: Plan) -> Sample:
    with tempfile.TemporaryDirectory(prefix="smoe-bench-") as name:
        folder = Path(name)
        environment = {"SMOE_VAULT_DIR": str(ROOT / "vault"), "SMOE_CHECKPOINTS_DIR": str(ROOT / "checkpoints")}
        threads = f"--threads,{plan.options.threads}"
        with serving(folder, plan.options.port, environment | {"SMOE_ENGINE_ARGS": threads}) as port:
            http_client.chat(port, DEMO_TOKENS, REQUEST)
            stream = http_client.chat(port, DEMO_TOKENS, REQUEST)
    timings = stream.report()["timings"]
    steps = timings["predicted_n"] - 1
    engine = steps * 1e3 / timings["predicted_ms"]
    http = steps * 1e9 / (stream.last - stream.first)
    figures = {"http_tok_s": http, "engine_tok_s": engine, "http_of_engine": http / engine}
    return Sample(f"POST /v1/chat/completions, {DEMO}, {DEMO_TOKENS} tokens streamed", figures)


def _tiny_fleet(folder: Path) -> dict[str, str]:
    vaults, checkpoints = folder / "vault", folder / "checkpoints"
    vaults.mkdir()
    for suffix in (".smoe", ".scout.safetensors"):
        shutil.copy(INTEROP / "tiny-qwen3moe-q4" / f"tiny-qwen3moe{suffix}", vaults)
    shutil.copytree(INTEROP / "tiny-qwen3moe-checkpoint", checkpoints / "tiny-qwen3moe")
    return {"SMOE_VAULT_DIR": str(vaults), "SMOE_CHECKPOINTS_DIR": str(checkpoints)}


@contextmanager
def serving(folder: Path, port: int, settings_of: dict[str, str]) -> Iterator[int]:
    """`manage.py serve` with a database of its own, once it says that it serves. Raises BenchError."""
    told = {
        name: value for name, value in os.environ.items() if name != "DATABASE_URL" and not name.startswith("SMOE_")
    }
    environment = told | {"SMOE_DATA_DIR": str(folder / "data"), "SMOE_PORT": str(port)} | settings_of
    manage = [sys.executable, "manage.py"]
    subprocess.run([*manage, "migrate", "-v", "0"], cwd=ROOT, env=environment, check=True)
    log = folder / "log"
    with open(log, "wb") as out:
        process = subprocess.Popen([*manage, "serve"], cwd=ROOT, env=environment, stdout=out, stderr=subprocess.STDOUT)
    try:
        _wait(process, log)
        yield port
    finally:
        process.terminate()
        process.wait(30)


def _wait(process: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + BOOT
    while b"is serving on" not in log.read_bytes():
        if process.poll() is not None or time.monotonic() > deadline:
            last = log.read_text(errors="replace").strip().splitlines()[-1:]
            raise BenchError(f"The server did not start: {' '.join(last)}")
        time.sleep(0.05)
