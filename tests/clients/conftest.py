"""Two servers for real clients: a scripted engine behind the interop vault's tokenizer, and the demo vault."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import installed
import pytest
from transformers import AutoTokenizer

ROOT = Path(__file__).parents[2]
INTEROP = ROOT / "tests" / "interop"
DEMO = "smollm2-135m-instruct"
SECRET = "PELICAN"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.clients)


@contextlib.contextmanager
def serving(data: Path, *flags: str, **environment: str) -> Iterator[str]:
    """The URL of a `manage.py serve` of its own."""
    environ = {**os.environ, "SMOE_DATA_DIR": str(data), **environment}
    manage = [sys.executable, "manage.py"]
    subprocess.run([*manage, "migrate", "-v", "0"], cwd=ROOT, env=environ, check=True)
    with (data / "server.log").open("w") as log:
        server = subprocess.Popen(
            [*manage, "serve", "--port", "0", *flags],
            cwd=ROOT,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            if not any(line.startswith("Ctrl-C") for line in server.stdout):
                raise AssertionError((data / "server.log").read_text())
            yield json.loads((data / "server.json").read_text())["url"]
        finally:
            server.send_signal(signal.SIGINT)
            server.communicate(timeout=30)


@dataclass
class Scripted:
    """A server whose engine says what a test wants."""

    url: str
    script: Path

    def __post_init__(self) -> None:
        self._tokenizer = AutoTokenizer.from_pretrained(INTEROP / "tiny-qwen3moe-checkpoint", local_files_only=True)

    def ids(self, text: str) -> list[int]:
        return self._tokenizer(text, add_special_tokens=False)["input_ids"]

    def says(self, text: str, after: dict[str, str] | None = None) -> None:
        """`text`, or where the prompt holds a key of `after`, a word, its value."""
        words = [(space + word, reply) for word, reply in (after or {}).items() for space in ("", " ")]
        replies = [[self.ids(word), self.ids(reply)] for word, reply in words]
        new = self.script.with_suffix(".new")
        new.write_text(json.dumps({"reply": self.ids(text), "replies": replies, "log": str(self.log)}))
        new.replace(self.script)
        self.log.write_text("")

    def calls(self, tool: str, **arguments: object) -> None:
        """A call of `tool`; once its result with the secret has come, an answer that proves that it has."""
        call = json.dumps({"name": tool, "arguments": arguments})
        self.says(f"<tool_call>\n{call}\n</tool_call>", after={SECRET: f"The word is {SECRET}."})

    @property
    def log(self) -> Path:
        return self.script.with_name("engine.log")

    @property
    def generations(self) -> int:
        return sum(json.loads(line)["event"] == "gen" for line in self.log.read_text().splitlines())


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


@dataclass
class Home:
    """A client's own world: HOME, configuration and working directory, and how it is run in it."""

    folder: Path

    def __post_init__(self) -> None:
        self.work.mkdir(parents=True)
        (self.work / "secret.txt").write_text(f"{SECRET}\n")

    @property
    def work(self) -> Path:
        return self.folder / "work"

    @property
    def secret(self) -> str:
        return str(self.work / "secret.txt")

    def write(self, name: str, text: str) -> Path:
        """A file of the client's configuration, under HOME."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def run(self, client: str, *arguments: str, timeout: float = 180, **environment: str) -> str:
        """What the client wrote to stdout; it must succeed."""
        try:
            command = installed.command(client)
        except installed.NotInstalled as error:
            pytest.fail(f"{client} could not be installed, so it was not tried: {error}", pytrace=False)
        done = subprocess.run(
            [*command, *arguments],
            cwd=self.work,
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder), "NO_COLOR": "1", "TERM": "dumb", **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")
