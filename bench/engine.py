"""Our engine, driven over the serve protocol as the server drives it; every run computes the same given ids."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from fleet.vaultfile.writer import scout_path_of

from .limits import Watch
from .machine import shown
from .results import Sample

SEED = 20_240
END_PATIENCE = 30  # seconds for a process whose input has ended
PHASES_PATIENCE = 2  # seconds that the line of the phases may come after the answer


class EngineFailed(Exception):
    """What it said last."""


@dataclass(frozen=True, slots=True)
class Subject:
    """An engine with flags. `prefix` runs it elsewhere: in a control group."""

    program: Path
    vault: Path
    flags: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()

    def with_flags(self, *flags: str) -> Subject:
        return replace(self, flags=(*self.flags, *flags))

    @property
    def command(self) -> list[str]:
        words = [self.program, "--vault", self.vault, "--scout", scout_path_of(self.vault), "--serve", "--instrument"]
        return [*self.prefix, *map(str, words), *self.flags]


@dataclass(slots=True)
class Answer:
    """One generation: when its first token came, and the figures of its last line."""

    first_token: float | None = None  # time.monotonic()
    figures: dict[str, float] = field(default_factory=dict)


class Engine:
    """A running engine. Whatever takes longer than `timeout` seconds in all ends it."""

    def __init__(self, subject: Subject, timeout: float) -> None:
        self.started = time.monotonic()
        self._process = subprocess.Popen(
            subject.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.watch = Watch(self._process.pid)
        self._words: list[str] = []
        self._told_phases = threading.Event()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self._watchdog = threading.Timer(timeout, self._process.kill)
        self._watchdog.daemon = True
        self._watchdog.start()

    def _listen(self) -> None:
        for line in self._process.stderr:
            self._words.append(line.strip())
            if "phases" in line:
                self._told_phases.set()

    def close(self) -> None:
        self._watchdog.cancel()
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(END_PATIENCE)
        finally:
            self._process.kill()
            self._listener.join()
            self._process.stdout.close()
            self._process.stderr.close()

    def send(self, *lines: str) -> None:
        try:
            self._process.stdin.write("".join(f"{line}\n" for line in lines))
            self._process.stdin.flush()
        except OSError:
            raise self._failure() from None

    def line(self) -> str:
        line = self._process.stdout.readline()
        if not line.endswith("\n"):
            raise self._failure()
        if line.startswith("<<ERR"):
            raise EngineFailed(line.strip())
        return line.strip()

    def _failure(self) -> EngineFailed:
        code = self._process.wait(END_PATIENCE)
        self._listener.join(END_PATIENCE)
        return EngineFailed(f"ended with {code}: {self._words[-1] if self._words else 'not a word'}")

    def hello(self) -> dict[str, str]:
        self.send("HELLO 2")
        return _words(self.line())

    def status(self) -> dict[str, str]:
        self.send("STATUS")
        return _words(self.line())

    def reset(self) -> None:
        self.send("RESET")
        self.line()

    def generate(self, ids: Sequence[int], reply: Sequence[int]) -> Answer:
        """The reply's tokens are given too: random weights, left to themselves, soon say the same few over and over."""
        masks = (f"MASK 1 only:{token}" for token in reply)
        prompt = ",".join(map(str, ids))
        self._told_phases.clear()
        self.send(f"GEN {len(reply)} id=1 ignore_eos=1 mask=1 t=0 {prompt}", *masks)
        answer = Answer()
        while not answer.figures:
            line = self.line()
            if line.endswith("<<DONE>>"):
                answer.figures = _numbers(line)
            elif answer.first_token is None and not line.startswith("<<"):
                answer.first_token = time.monotonic()
        return answer

    def phases(self) -> dict[str, float]:
        """Milliseconds since the boot, of the line that --instrument writes after an answer."""
        if not self._told_phases.wait(PHASES_PATIENCE):
            return {}
        told = [line for line in self._words if "phases" in line]
        return _numbers(told[-1])


@contextmanager
def running(subject: Subject, timeout: float) -> Iterator[Engine]:
    engine = Engine(subject, timeout)
    try:
        yield engine
    finally:
        engine.close()


def _words(line: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in line.strip("<>").split() if "=" in word)


def _numbers(line: str) -> dict[str, float]:
    return {name: float(value) for name, value in re.findall(r"(\w+)=(-?\d+(?:\.\d+)?)(?=\s|$)", line)}


def ids(count: int, vocabulary: int) -> list[int]:
    """The same ones always; different lengths share no beginning."""
    return np.random.default_rng(SEED + count).integers(0, vocabulary, count).tolist()


def speed(subject: Subject, prompts: Sequence[int], tokens: int, timeout: float, depth: int = 0) -> Sample:
    """Tokens per second of each prompt's length (after one pass that is not counted) and of decoding `tokens`.

    Both behind a context of `depth` tokens, which is computed before and is not counted.
    """
    sample = Sample(shown(subject.command[len(subject.prefix) :]))
    try:
        with running(subject, timeout) as engine:
            vocabulary = int(engine.hello()["vocab"])
            sample.metrics["boot_s"] = time.monotonic() - engine.started
            for length in prompts:
                _prefill(engine, length, vocabulary, depth)
                sample.metrics |= _prefill(engine, length, vocabulary, depth)
            if tokens:
                sample.metrics |= _decode(engine, tokens, vocabulary, depth)
            sample.metrics |= _memory(engine)
    except EngineFailed as error:
        sample.failure = str(error)
    return sample


def _context(engine: Engine, depth: int, vocabulary: int) -> list[int]:
    """The engine's only conversation is these ids from now on; a longer one is cut back to them."""
    context = ids(depth, vocabulary)
    if depth:
        engine.generate(context, [0])
    else:
        engine.reset()
    return context


def _prefill(engine: Engine, length: int, vocabulary: int, depth: int) -> dict[str, float]:
    context = _context(engine, depth, vocabulary)
    figures = engine.generate(context + ids(length, vocabulary), [0]).figures
    return {
        f"prefill_{length}_tok_s": length * 1e3 / figures["prefill_ms"],
        f"prefill_{length}_read_bytes": figures["bytes"],
        f"prefill_{length}_stall_ms": figures["stall_ms"],
    }


def _decode(engine: Engine, tokens: int, vocabulary: int, depth: int) -> dict[str, float]:
    """From an empty window, or behind `depth` tokens, as llama-bench does.

    The first token costs no pass of its own: its logits are prefill's.
    """
    reply = ids(tokens + 1, vocabulary)
    prompt = _context(engine, depth, vocabulary) + reply[:1]
    engine.generate(prompt, reply[1:2])
    before = engine.phases()
    _context(engine, depth, vocabulary)
    figures = engine.generate(prompt, reply).figures
    after = engine.phases()
    requests = figures["hits"] + figures["misses"]
    metrics = {
        "decode_tok_s": tokens * 1e3 / figures["decode_ms"],
        "hit_rate": figures["hits"] / max(requests, 1),
        "decode_bytes_per_token": figures["bytes"] / (tokens + 1),
        "decode_stall_ms_per_token": figures["stall_ms"] / (tokens + 1),
    }
    spent = {name: (after[name] - before.get(name, 0)) / (tokens + 1) for name in after if name != "stall"}
    return metrics | {f"phase_{name}_ms_per_token": value for name, value in spent.items()}


def _memory(engine: Engine) -> dict[str, float]:
    status = engine.status()
    engine.watch.look()
    told = {f"{name}_bytes": float(status[name]) for name in ("rss", "trunk", "ring", "kv")}
    told |= {name: float(status[name]) for name in ("slot_bytes", "ring_slots")}
    return told | engine.watch.end()


def first_token(subject: Subject, timeout: float) -> Sample:
    """Seconds from the start of the process to the first token of a one-token prompt."""
    sample = Sample(shown(subject.command[len(subject.prefix) :]))
    try:
        with running(subject, timeout) as engine:
            engine.hello()
            sample.metrics["boot_s"] = time.monotonic() - engine.started
            answer = engine.generate([1], [2])
            sample.metrics["first_token_s"] = answer.first_token - engine.started
            sample.metrics |= _memory(engine)
    except EngineFailed as error:
        sample.failure = str(error)
    return sample
