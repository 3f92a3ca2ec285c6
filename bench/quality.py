"""What each form of computing costs in quality: KL divergence and agreement of the best token, position by position.

On the demo model there are two references, both float32: the source, which is the GGUF that the vault was made from,
and the vault itself. What the vault's own quantization costs is the distance between the two. The interop vaults are
their own reference.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from django.conf import settings
from tokenizers import Tokenizer

from fleet.vaultfile.writer import scout_path_of
from tests.quality import dense, native
from tests.quality.divergence import divergence
from tests.reference import ReferenceModel

from . import demo
from .plan import Plan
from .results import Measure, Sample

ROOT = settings.BASE_DIR
TEXTS = ROOT / "tests" / "quality" / "texts"
INTEROP = ROOT / "tests" / "interop"
SEQUENCES, LENGTH = 8, 256  # random ids for vaults that have no text to predict
SEED = 7
CHOICES = ("--activations", "--trunk", "--kv")
SWITCHES = ("--exact",)
FORM = re.compile(r"\b(?:stored|bf16|f16|f32|q\d|16|8)\b")


@dataclass
class Subject:
    """A vault, what it is asked, and what the answers should be: one array [ids, vocabulary] a text."""

    name: str
    smoe: Path
    texts: list[list[int]]
    gguf: Path | None = None

    @cached_property
    def vault_logits(self) -> list[np.ndarray]:
        model = ReferenceModel(self.smoe, scout_path_of(self.smoe))
        return [model.logits(ids) for ids in self.texts]

    @cached_property
    def source_logits(self) -> list[np.ndarray] | None:
        return dense.logits(self.gguf, self.texts) if self.gguf else None


def run(plan: Plan) -> None:
    flags = [*variants(_help(plan.program)), *(plan.options.variant or [])]
    for subject in _subjects(plan.options.data):
        for name, measure in _measures(subject, flags).items():
            plan.once("quality", subject.name, name, measure)


def _measures(subject: Subject, flags: list[str]) -> Mapping[str, Measure]:
    ours = {f"smoe {given}".strip(): partial(_sample, subject, given) for given in flags}
    return {"float32 on the vault": partial(_quantization, subject)} | ours if subject.gguf else ours


def _help(program: Path) -> str:
    return subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout


def variants(help_text: str) -> list[str]:
    """The flags that change what is computed, as the engine's help offers them; the defaults first."""
    lines = {words[0]: line for line in help_text.splitlines() if (words := line.split())}
    found = ["", *(flag for flag in SWITCHES if flag in lines)]
    for flag in CHOICES:
        forms = dict.fromkeys(FORM.findall(lines.get(flag, "")))
        found += [f"{flag} {form}" for form in forms]
    return found


def _subjects(data: Path) -> Iterator[Subject]:
    made = demo.obtain(data)
    tokenizer = Tokenizer.from_file(str(made.checkpoint / "tokenizer.json"))
    texts = [tokenizer.encode(path.read_text(encoding="utf-8")).ids for path in sorted(TEXTS.glob("*.txt"))]
    yield Subject("demo", made.smoe, texts, made.gguf)
    for bits in (2, 4):
        yield _interop(data, bits)


def _interop(data: Path, bits: int) -> Subject:
    smoe = data / f"tiny-q{bits}.smoe"
    for path, suffix in ((smoe, ".smoe"), (scout_path_of(smoe), ".scout.safetensors")):
        shutil.copy(INTEROP / f"tiny-qwen3moe-q{bits}" / f"tiny-qwen3moe{suffix}", path)
    ids = np.random.default_rng(SEED).integers(0, 512, (SEQUENCES, LENGTH))
    return Subject(f"interop {bits} bits", smoe, ids.tolist())


def _quantization(subject: Subject) -> Sample:
    """What the vault's own quantization costs."""
    return Sample(
        "tests.reference", _positions(subject) | _distances(subject.vault_logits, source=subject.source_logits)
    )


def _sample(subject: Subject, flags: str) -> Sample:
    found = [native.logits(subject.smoe, ids, *flags.split()) for ids in subject.texts]
    distances = _distances(found, vault=subject.vault_logits, source=subject.source_logits)
    return Sample(f"smoe-engine --logits {flags}".strip(), _positions(subject) | distances)


def _positions(subject: Subject) -> dict[str, float]:
    return {"positions": float(sum(map(len, subject.texts)))}


def _distances(found: list[np.ndarray], **references: list[np.ndarray] | None) -> dict[str, float]:
    metrics: dict[str, float] = {}
    for name, expected in references.items():
        if expected is not None:
            metrics |= _distance(name, expected, found)
    return metrics


def _distance(reference: str, expected: list[np.ndarray], found: list[np.ndarray]) -> dict[str, float]:
    measured = [divergence(*pair) for pair in zip(expected, found, strict=True)]
    kl, agrees = (np.concatenate(parts) for parts in zip(*measured, strict=True))
    return {
        f"kl_to_{reference}": float(kl.mean()),
        f"kl_to_{reference}_99th_percentile": float(np.percentile(kl, 99)),
        f"top1_of_{reference}": float(agrees.mean()),
    }
