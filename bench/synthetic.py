"""Random weights as a vault, written as fast as the disk takes them: no float is quantized on the way."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from statistics import NormalDist
from typing import BinaryIO

import numpy as np

from fleet.vaultfile import scout, trunk
from fleet.vaultfile.quantize import CENTRE, SPAN
from fleet.vaultfile.scout import TensorSpec
from fleet.vaultfile.writer import VaultPlan, scout_path_of, write_pair

from . import geometry
from .files import drop_from_cache, flush, need_room

SEED = 1234
SYNC_EVERY = 128  # records: a layer


def obtain(folder: Path, layers: int) -> Path:
    """The vault of so many layers, written into `folder` unless it is there. Raises BenchError."""
    smoe = folder / f"random-30b-{layers}.smoe"
    if not smoe.exists():
        write(smoe, geometry.plan(layers))
    return smoe


def write(smoe: Path, plan: VaultPlan) -> None:
    specs = trunk_specs(plan)
    need_room(smoe.parent, plan.file_size + sum(spec.size for spec in specs))
    print(f"writing {smoe.name} ({plan.file_size / 1e9:.1f} GB) and its scout ...", flush=True)
    random = np.random.Generator(np.random.SFC64(SEED))
    write_pair(
        smoe,
        lambda file: _write_records(file, plan, random),
        lambda file: scout.write(file, specs, _trunk(specs, random), {"description": "random weights, to measure"}),
    )
    drop_from_cache(smoe, scout_path_of(smoe))


def trunk_specs(plan: VaultPlan) -> list[TensorSpec]:
    """All bfloat16, the head untied."""
    sizes = (plan.architecture, plan.d_model, plan.vocab_size, dict.fromkeys(plan.moe_layers, plan.experts))
    shapes = [*trunk.shapes(*sizes), (trunk.HEAD, (plan.vocab_size, plan.d_model))]
    return [TensorSpec(name, "BF16", shape) for name, shape in shapes]


def random_bytes(random: np.random.Generator, count: int) -> np.ndarray:
    words = random.integers(0, 1 << 64, size=-(-count // 8), dtype=np.uint64)
    return words.view(np.uint8)[:count]


def _write_records(file: BinaryIO, plan: VaultPlan, random: np.random.Generator) -> None:
    file.write(plan.prologue())
    for index in range(plan.total_experts):
        file.write(_record(plan, random).data)
        if index % SYNC_EVERY == SYNC_EVERY - 1:
            flush(file)
            print(f"  {(index + 1) / plan.total_experts:.0%}", end="\r", flush=True)


def _record(plan: VaultPlan, random: np.random.Generator) -> np.ndarray:
    """uint8 [padded_size]: uniform codes, and scales that give each matrix the deviation of its width."""
    record = random_bytes(random, plan.padded_size)
    for (_, columns), descriptor in zip(plan.shapes, plan.descriptors(), strict=True):
        start, size = int(descriptor["scales_offset"]), int(descriptor["scales_size"])
        scale = np.float16(geometry.deviation("", columns) / _code_deviation(plan.bits))
        record[start : start + size].view("<f2")[:] = scale
    record[plan.raw_size :] = 0
    return record


def _code_deviation(bits: int) -> float:
    """Of uniform codes, beside a scale of 1."""
    levels = (np.arange(1 << bits) - CENTRE[bits]) / SPAN[bits]
    return math.sqrt(float((levels**2).mean()))


def _trunk(specs: list[TensorSpec], random: np.random.Generator) -> Iterator[np.ndarray]:
    """uint16 of each. Normal in 256 steps, by look-up: ten times as fast as drawing normal numbers."""
    normal = np.array([NormalDist().inv_cdf((step + 0.5) / 256) for step in range(256)], np.float32)
    for spec in specs:
        if spec.name.endswith("norm.weight"):
            yield scout.to_bfloat16(np.ones(spec.shape, np.float32))
        else:
            levels = scout.to_bfloat16(normal * np.float32(geometry.deviation(spec.name, spec.shape[-1])))
            yield levels[random_bytes(random, math.prod(spec.shape))].reshape(spec.shape)
