"""Tiny valid pairs and the ways in which they go wrong: 48 KiB a vault, made once and copied."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np

from fleet.vaultfile import layout, scout, trunk
from fleet.vaultfile.writer import VaultPlan, write_vault

VOCABULARY = 96
WIDTH = 64
ARCHITECTURE = layout.Architecture(
    renormalize_top_k=True,
    qk_norm=True,
    first_layer_dense=False,
    rope_theta=10000.0,
    heads=2,
    kv_heads=1,
    head_dim=32,
    top_k=1,
    moe_ffn=64,
    dense_ffn=0,
    shared_ffn=0,
    layers=1,
    rms_epsilon=1e-6,
    model_type="qwen3_moe",
)

CONFIG = {  # the same, as a checkpoint says it
    "model_type": "qwen3_moe",
    "hidden_size": WIDTH,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "num_experts_per_tok": 1,
    "moe_intermediate_size": 64,
    "norm_topk_prob": True,
    "rope_theta": 10000.0,
}


@cache
def vault_bytes(version: int = 2, bits: int = 4) -> bytes:
    plan = VaultPlan(ARCHITECTURE, bits, WIDTH, VOCABULARY, (0,), 2, version)
    expert = tuple(np.full(shape, 0.5, np.float32) for shape in plan.shapes)
    file = io.BytesIO()
    write_vault(file, plan, [expert, expert])
    return file.getvalue()


@cache
def scout_bytes(metadata: tuple[tuple[str, str], ...] = ()) -> bytes:
    shapes = trunk.shapes(ARCHITECTURE, WIDTH, VOCABULARY, {0: 2})
    specs = [scout.TensorSpec(name, "BF16", shape) for name, shape in shapes]
    file = io.BytesIO()
    scout.write(file, specs, [np.zeros(spec.shape, np.uint16) for spec in specs], dict(metadata))
    return file.getvalue()


def scout_of(vault: Path) -> Path:
    return vault.with_name(vault.name.removesuffix(".smoe") + ".scout.safetensors")


def make(directory: Path, name: str, version: int = 2, bits: int = 4, **metadata: str) -> Path:
    """A servable pair; returns the vault's path."""
    vault = directory / f"{name}.smoe"
    vault.write_bytes(vault_bytes(version, bits))
    scout_of(vault).write_bytes(scout_bytes(tuple(metadata.items())))
    return vault


def make_truncated(directory: Path, name: str) -> Path:
    vault = make(directory, name)
    os.truncate(vault, 40_000)
    return vault


def make_foreign(directory: Path, name: str) -> Path:
    vault = make(directory, name)
    vault.write_bytes(b"GGUF" + bytes(60_000))
    return vault


def make_unreadable(directory: Path, name: str) -> Path:
    vault = make(directory, name)
    vault.chmod(0)
    return vault


def make_link_loop(directory: Path, name: str) -> Path:
    vault = directory / f"{name}.smoe"
    vault.symlink_to(vault.name)
    return vault


def age(*paths: Path, seconds: float = 60) -> None:
    """Lets the files look as if they were written a while ago."""
    for path in paths:
        status = path.stat()
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns - int(seconds * 1e9)))


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Root reads everything; a server's user does not."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
