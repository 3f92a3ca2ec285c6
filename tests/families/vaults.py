"""The tiny checkpoints as vaults, converted once a session, and what the models' own classes say of them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from fleet.shatter.checkpoint import Checkpoint
from fleet.shatter.convert import convert
from fleet.shatter.plan import plan

from . import checkpoints

NAMES = tuple(checkpoints.CONFIGS)


def make(folder: Path, name: str, bits: int) -> Path:
    """The vault of the checkpoint that checkpoints.write() makes; it lies in `folder` beside its scout."""
    checkpoint = Checkpoint(checkpoints.write(folder / "checkpoint", name))
    smoe = folder / f"{name}.smoe"
    convert(checkpoint, plan(checkpoint, bits), smoe, lambda *_: None)
    return smoe


@cache
def golden(name: str, bits: int) -> list[dict]:
    return json.loads(Path(__file__).with_name(f"{name}.json").read_text())[f"q{bits}"]
