"""Two servers for real clients: a scripted engine behind the interop vault's tokenizer, and the demo vault."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import ROOT, serving
from world import INTEROP, Home, Scripted

DEMO = "smollm2-135m-instruct"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.clients)
            item.add_marker(pytest.mark.timeout(1500))  # an agent's first prompt on a small machine


@pytest.fixture(scope="session")
def _scripted_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripted]:
    folder = tmp_path_factory.mktemp("scripted")
    (folder / "data").mkdir()
    shutil.copytree(INTEROP / "tiny-qwen3moe-q4", folder / "vault")
    shutil.copytree(INTEROP / "tiny-qwen3moe-checkpoint", folder / "checkpoints" / "tiny-qwen3moe")
    script = folder / "script.json"
    script.write_text("{}")
    environment = {
        "SMOE_VAULT_DIR": str(folder / "vault"),
        "SMOE_CHECKPOINTS_DIR": str(folder / "checkpoints"),
        "SMOE_ENGINE": str(ROOT / "tests" / "doubles" / "engine_v2.py"),
        "SMOE_DOUBLE_SCRIPT": str(script),
    }
    with serving(folder / "data", **environment) as url:
        yield Scripted(url, script)


@pytest.fixture
def scripted(_scripted_server: Scripted) -> Scripted:
    _scripted_server.says("Nothing to say.")
    return _scripted_server


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the native engine on the demo vault, with a window that holds an agent's first prompt."""
    vault = ROOT / "vault" / f"{DEMO}.smoe"
    assert vault.exists(), f"{vault} is not there: run `make demo` first."
    data = tmp_path_factory.mktemp("demo")
    with serving(data, "--vault", str(vault), "--ctx", "32768", "--max-tokens", "48", "--temperature", "0") as url:
        yield url


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")
