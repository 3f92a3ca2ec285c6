"""What a run measures with: its options, and the files that are made once and kept."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from django.conf import settings

from . import peer, random_gguf, synthetic
from .engine import Subject
from .peer import Peer
from .results import Key, Measure, Results


@dataclass(frozen=True)
class Plan:
    options: argparse.Namespace
    results: Results
    started: float

    @cached_property
    def vault(self) -> Path:
        return self.options.vault or synthetic.obtain(self.options.data, self.options.layers)

    @cached_property
    def peer(self) -> Peer:
        return self.peer_of(self.options.gguf or random_gguf.obtain(self.options.data, self.options.layers))

    def peer_of(self, model: Path) -> Peer:
        program = peer.obtain(self.options.data / "llama.cpp", self.options.llama_bench)
        return Peer(program, model, self.options.threads)

    @property
    def program(self) -> Path:
        return settings.SMOE.engine

    def subjects(self, vault: Path, prefix: Sequence[str] = ()) -> dict[str, Subject]:
        """Our engine under each set of flags that --smoe gave, by the name that the results have."""
        common = ("--threads", str(self.options.threads))
        return {
            f"smoe {given}".strip(): Subject(self.program, vault, (*common, *given.split()), tuple(prefix))
            for given in self.options.smoe
        }

    def out_of_time(self) -> bool:
        return time.monotonic() - self.started > self.options.minutes * 60

    def alternate(self, suite: str, case: str, subjects: Mapping[str, Measure]) -> None:
        """Every subject once, then every one again: a slow minute of the machine falls on all of them."""
        for repeat in range(self.options.repeats):
            for subject, measure in subjects.items():
                self._once(Key(suite, case, subject, repeat), measure)

    def once(self, suite: str, case: str, subject: str, measure: Measure) -> None:
        """For what repeats exactly."""
        self._once(Key(suite, case, subject, 0), measure)

    def _once(self, key: Key, measure: Measure) -> None:
        if self.results.has(key) or self.out_of_time():
            return
        load = os.getloadavg()[0]
        began = time.monotonic()
        sample = measure()
        self.results.add(key, sample, load)
        told = sample.failure or ", ".join(f"{name} {value:.4g}" for name, value in headline(sample.metrics).items())
        print(
            f"{key.suite} {key.case}, {key.subject} #{key.repeat + 1}: {told} ({time.monotonic() - began:.0f} s)",
            flush=True,
        )


def headline(metrics: Mapping[str, float]) -> dict[str, float]:
    """What is worth a line of progress."""
    told = {name: value for name, value in metrics.items() if name.endswith(("_tok_s", "first_token_s", "gb_s"))}
    return told or dict(metrics)
