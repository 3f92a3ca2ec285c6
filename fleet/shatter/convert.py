"""Carries a plan out: streams the experts and the trunk into a pair, one tensor in memory at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import numpy as np

from fleet.vaultfile import scout
from fleet.vaultfile.records import Expert, decode_expert, encode_expert
from fleet.vaultfile.structure import read_structure
from fleet.vaultfile.writer import write_pair, write_vault

from . import ShatterError
from .checkpoint import Checkpoint
from .plan import Conversion

Progress = Callable[[int, int], None]  # experts done, experts in all


class ErrorMeter:
    """Relative RMS error of each layer's experts: ||restored - original|| / ||original||."""

    def __init__(self, conversion: Conversion) -> None:
        self._plan = conversion.vault
        self._error: dict[int, float] = defaultdict(float)
        self._energy: dict[int, float] = defaultdict(float)

    def add(self, index: int, expert: Expert, record: bytes) -> None:
        layer = self._plan.moe_layers[index // self._plan.experts]
        for original, restored in zip(expert, decode_expert(record, self._plan.shapes, self._plan.bits), strict=True):
            self._error[layer] += float(np.square(restored - original, dtype=np.float64).sum())
            self._energy[layer] += float(np.square(original, dtype=np.float64).sum())

    def by_layer(self) -> dict[int, float]:
        return {layer: (self._error[layer] / (self._energy[layer] or 1)) ** 0.5 for layer in self._energy}


def experts(checkpoint: Checkpoint, conversion: Conversion) -> Iterator[Expert]:
    """In the table's order."""
    for layer, expert in product(conversion.vault.moe_layers, range(conversion.vault.experts)):
        yield conversion.keys.read(checkpoint, layer, expert)


def convert(
    checkpoint: Checkpoint,
    conversion: Conversion,
    smoe: Path,
    progress: Progress,
    *,
    meter: ErrorMeter | None = None,
    validating: Progress | None = None,
) -> None:
    """Writes the pair; with `validating`, compares it with the checkpoint before it takes its names.

    Raises ShatterError, OSError.
    """
    total = conversion.vault.total_experts

    def written(index: int, expert: Expert, record: bytes) -> None:
        if meter:
            meter.add(index, expert, record)
        progress(index + 1, total)

    def check(smoe_file: Path, scout_file: Path) -> None:
        if validating:
            validate(checkpoint, conversion, smoe_file, scout_file, validating)

    trunk = (checkpoint.read_raw(spec.name) for spec in conversion.trunk)
    try:
        write_pair(
            smoe,
            lambda file: write_vault(file, conversion.vault, experts(checkpoint, conversion), written),
            lambda file: scout.write(file, conversion.trunk, trunk, conversion.metadata),
            check,
        )
    except ValueError as error:
        raise ShatterError(f"{checkpoint.folder}: {error}") from None


def validate(checkpoint: Checkpoint, conversion: Conversion, smoe: Path, scout_path: Path, progress: Progress) -> None:
    """Reads both files back and compares every byte with what the checkpoint gives. Raises ShatterError."""
    table = read_structure(smoe).table
    with open(smoe, "rb") as file:
        for index, expert in enumerate(experts(checkpoint, conversion)):
            file.seek(int(table["offset"][index]))
            if file.read(int(table["raw_size"][index])) != encode_expert(expert, conversion.vault.bits):
                raise ShatterError(f"{smoe}: expert record {index} reads back otherwise than written; check the disk")
            progress(index + 1, len(table))
    header = scout.read_header(scout_path)
    with open(scout_path, "rb") as file:
        for spec in conversion.trunk:
            if header.read_raw(file, spec.name).tobytes() != checkpoint.read_raw(spec.name).tobytes():
                raise ShatterError(f"{scout_path}: {spec.name} reads back otherwise than written; check the disk")
