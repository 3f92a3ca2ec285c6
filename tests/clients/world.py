"""What a client test has: a home for the client, and a server whose engine says what the test wants."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import installed
import pytest
from transformers import AutoTokenizer

INTEROP = Path(__file__).parents[1] / "interop"
SECRET = "PELICAN"


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
        process = subprocess.Popen(
            [*command, *arguments],
            cwd=self.work,
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder), "NO_COLOR": "1", "TERM": "dumb", **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            told, errors = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            # A launcher's child would go on asking, and hold the engine while the next client waits.
            os.killpg(process.pid, signal.SIGKILL)
            pytest.fail(
                f"{client} was not done after {timeout:.0f} s: {process.communicate()[1][-3000:]}", pytrace=False
            )
        assert process.returncode == 0, f"{told[-3000:]}\n{errors[-3000:]}"
        return told
