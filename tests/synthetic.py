"""Tiny vaults with random weights, of any form that the arch block can express, for tests of everyone."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from fleet.vaultfile import scout, trunk
from fleet.vaultfile.layout import Architecture
from fleet.vaultfile.scout import TensorSpec
from fleet.vaultfile.writer import VaultPlan, scout_path_of, write_pair, write_vault

ARCHITECTURE = Architecture(
    renormalize_top_k=True,
    qk_norm=True,
    first_layer_dense=False,
    rope_theta=10_000.0,
    heads=4,
    kv_heads=2,
    head_dim=16,
    top_k=2,
    moe_ffn=64,
    dense_ffn=0,
    shared_ffn=0,
    layers=2,
    rms_epsilon=1e-6,
    model_type="qwen3_moe",
)


def write(
    smoe: Path,
    *,
    bits: int = 4,
    d_model: int = 64,
    vocab_size: int = 128,
    experts: int = 4,
    version: int = 2,
    tied: bool = False,
    shared_gate: bool = False,
    biases: bool = False,
    dtype: str = "BF16",
    metadata: Mapping[str, str] | None = None,
    extra: Sequence[TensorSpec] = (),
    hollow: bool = False,
    seed: int = 1,
    **architecture: object,
) -> tuple[Path, Path]:
    """Writes a pair; further keywords are fields of Architecture. Returns the vault's and the scout's path.

    extra: tensors that the scout holds besides. hollow: its tensors are a hole in the file, which reads as zeros.
    """
    a = dataclasses.replace(ARCHITECTURE, **architecture)
    random = np.random.default_rng(seed)
    layers = tuple(range(int(a.first_layer_dense), a.layers))
    plan = VaultPlan(a, bits, d_model, vocab_size, layers, experts, version)
    specs = [*_specs(plan, tied, shared_gate, biases, dtype), *extra]
    write_scout = _write_hollow if hollow else partial(_write_scout, random)
    write_pair(
        smoe,
        lambda file: write_vault(file, plan, _experts(random, plan)),
        lambda file: write_scout(file, specs, metadata or {}),
    )
    return smoe, scout_path_of(smoe)


def _write_scout(
    random: np.random.Generator, file: BinaryIO, specs: list[TensorSpec], metadata: Mapping[str, str]
) -> None:
    scout.write(file, specs, _tensors(random, specs), metadata)


def _write_hollow(file: BinaryIO, specs: list[TensorSpec], metadata: Mapping[str, str]) -> None:
    file.write(scout.header_bytes(specs, metadata))
    file.truncate(file.tell() + sum(spec.size for spec in specs))


def _experts(random: np.random.Generator, plan: VaultPlan) -> Iterator[tuple[np.ndarray, ...]]:
    for _ in range(plan.total_experts):
        yield tuple(_matrix(random, shape) for shape in plan.shapes)


def _matrix(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Activations keep their size through it."""
    return (random.standard_normal(shape) * shape[-1] ** -0.5).astype(np.float32)


def _specs(plan: VaultPlan, tied: bool, shared_gate: bool, biases: bool, dtype: str) -> list[TensorSpec]:
    sizes = (plan.architecture, plan.d_model, plan.vocab_size, dict.fromkeys(plan.moe_layers, plan.experts))
    wanted = {".bias": biases, trunk.SHARED_GATE: shared_gate, trunk.HEAD: not tied}
    shapes = dict(trunk.shapes(*sizes))
    for name, shape in trunk.optional_shapes(*sizes):
        if any(wanted[suffix] for suffix in wanted if name.endswith(suffix)):
            shapes[name] = shape
    return [TensorSpec(name, dtype, shape) for name, shape in shapes.items()]


def _tensors(random: np.random.Generator, specs: list[TensorSpec]) -> Iterator[np.ndarray]:
    for spec in specs:
        is_norm = spec.name.endswith("norm.weight")
        values = random.uniform(0.5, 1.5, spec.shape) if is_norm else _matrix(random, spec.shape)
        # A sharper router: its choices must not hang on the last bit of a sum.
        values = values.astype(np.float32) * (4 if spec.name.endswith(trunk.ROUTERS) else 1)
        yield scout.to_bfloat16(values) if spec.dtype == "BF16" else values.astype(scout.storage_dtype(spec.dtype))
