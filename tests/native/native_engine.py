"""Drives one engine process over its pipe, as a client of either version would; knows nothing of the server's code."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

TIMEOUT = 60  # seconds; only ever reached by a bug


@dataclass
class Answer:
    ids: list[int] = field(default_factory=list)
    logprobs: list[tuple[float, dict[int, float]]] = field(default_factory=list)
    prompt: list[tuple[int, float | None, dict[int, float]]] = field(default_factory=list)  # with plp
    progress: list[tuple[int, int, int]] = field(default_factory=list)
    figures: dict[str, str] = field(default_factory=dict)
    error: str = ""

    @property
    def finish(self) -> str:
        return self.figures["fin"]


class Engine:
    """`hello=False` leaves the engine in version 1."""

    def __init__(self, program: Path, vault: Path, *flags: object, hello: bool = True) -> None:
        command = [program, "--vault", vault, "--serve", *flags]
        self.process = subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.hello = ""
        if hello:
            self.send("HELLO 2")
            self.hello = self.line()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(TIMEOUT)
        finally:
            self.process.kill()
            self.process.stdout.close()

    def send(self, *lines: str) -> None:
        self.send_bytes("".join(f"{line}\n" for line in lines).encode())

    def send_bytes(self, data: bytes) -> None:
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def line(self) -> str:
        line = self.process.stdout.readline()
        assert line.endswith(b"\n"), f"the engine ended: {line!r}, {self.process.poll()}"
        return line.decode().removesuffix("\n")

    def status(self) -> dict[str, int]:
        """The figures, while nothing else is being answered."""
        self.send("STATUS")
        return {k: int(v) for k, v in (word.split("=") for word in self.line()[2:-2].split()[3:])}

    def generate(self, count: int, ids: Sequence[int], **keys: Any) -> Answer:
        self.send(gen_line(count, ids, **keys))
        return self.answer()

    def answer(self) -> Answer:
        answer = Answer()
        while not answer.figures and not answer.error:
            read_event(self.line(), answer)
        return answer


def gen_line(count: int, ids: Sequence[int], **keys: Any) -> str:
    return " ".join(["GEN", str(count), *(f"{k}={v}" for k, v in keys.items()), ",".join(map(str, ids))])


def read_event(line: str, answer: Answer) -> None:
    """One line of version 2; anything that it does not allow fails."""
    if match := re.fullmatch(r"<<PREFILL done=(\d+) total=(\d+) cached=(\d+)>>", line):
        answer.progress.append(tuple(map(int, match.groups())))
    elif match := re.fullmatch(r"(<<PROMPT )?(\d+)(?: lp=(\S+?))?(?: top=(\S+?))?(?(1)>>)", line):
        id, logprob = int(match[2]), float(match[3]) if match[3] else None
        pairs = (pair.split(":") for pair in (match[4] or "").split(";") if pair)
        top = {int(id): float(lp) for id, lp in pairs}
        if match[1]:
            assert not answer.ids  # the reply comes after it
            answer.prompt.append((id, logprob, top))
        else:
            answer.ids.append(id)
            answer.logprobs += [] if logprob is None else [(logprob, top)]
    elif match := re.fullmatch(r"<<ERR (.*)>>", line):
        answer.error = match[1]
    else:
        assert line.endswith(" <<DONE>>"), line
        answer.figures = dict(word.split("=") for word in line.removesuffix(" <<DONE>>").split(" "))


def peak_memory(pid: int) -> int | None:
    """The most that was ever resident; bytes. None where the system does not tell."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    return int(re.search(r"VmHWM:\s+(\d+) kB", lines)[1]) << 10


def logits(program: Path, vault: Path, ids: Sequence[int], path: Path, *flags: object) -> np.ndarray:
    """[len(ids), vocab], from `--logits`."""
    command = [
        program,
        "--vault",
        vault,
        "--tokens-in",
        ",".join(map(str, ids)),
        "--tokens",
        0,
        "--logits",
        path,
        *flags,
    ]
    subprocess.run([str(word) for word in command], check=True, capture_output=True, timeout=TIMEOUT)
    return np.fromfile(path, "<f4").reshape(len(ids), -1)
