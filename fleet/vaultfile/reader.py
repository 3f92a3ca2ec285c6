"""Reads `.smoe` files that anyone may have made: every size, count and offset is checked before it is used.

`identify` reads the header, the table, the arch block and the scout's header only: it is cheap for any size of file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from . import config as model_config
from . import layout, scout, trunk
from .errors import VaultError
from .layout import Architecture, Header

LARGEST = {  # far beyond any model; small enough that no table exhausts memory
    "num_moe_layers": 4096,
    "max_experts_per_layer": 65_536,
    "total_experts": 1 << 20,
    "d_model": 1 << 20,
    "vocab_size": 1 << 24,
}


@dataclass(frozen=True, slots=True)
class Structure:
    """A `.smoe`'s header and table, checked against the file's length."""

    path: Path
    length: int
    header: Header
    table: np.ndarray  # layout.ENTRY [total_experts]
    architecture: Architecture | None  # None in version 1

    @property
    def moe_layers(self) -> tuple[int, ...]:
        return tuple(int(layer) for layer in np.unique(self.table["layer"]))


@dataclass(frozen=True, slots=True)
class Identity:
    """What a pair's own bytes say about it. Sizes in bytes."""

    vault_path: Path
    scout_path: Path
    quant: str  # Q2, Q4, Q8
    bits: int
    format_version: int
    model_type: str
    moe_layers: int
    hidden_layers: int
    experts_per_layer: int
    top_k: int
    d_model: int
    vocab_size: int
    heads: int
    kv_heads: int
    head_dim: int
    moe_ffn: int
    trained_context: int | None
    eos_ids: tuple[int, ...]
    vault_bytes: int
    scout_bytes: int
    record_bytes: int  # the largest expert, padded: what a slot of the ring must hold
    description: str
    lineage: str
    architecture: Architecture
    assumed: str  # version 1: where the architecture comes from, and what was guessed; else empty
    metadata: dict[str, Any] = field(default_factory=dict)  # the scout's, with `config` parsed


def identify(smoe: Path, scout_path: Path, config_path: Path | None = None) -> Identity:
    """What the pair holds. `config_path`: the config.json that tells a version-1 vault's architecture.

    Raises VaultError.
    """
    structure = read_structure(smoe)
    header = scout.read_header(scout_path)
    metadata = _metadata(header)
    architecture, assumed = _architecture(structure, header, metadata, config_path)
    _check_architecture(structure, architecture)
    if problems := trunk.problems(structure, architecture, header):
        raise VaultError("invalid", f"{scout_path}: {problems[0]}; is it the scout of {smoe.name}?")
    config = metadata.get("config", {})
    return Identity(
        vault_path=smoe,
        scout_path=scout_path,
        quant=f"Q{structure.header.bits}",
        bits=structure.header.bits,
        format_version=structure.header.version,
        model_type=architecture.model_type,
        moe_layers=structure.header.moe_layers,
        hidden_layers=architecture.layers,
        experts_per_layer=structure.header.experts_per_layer,
        top_k=architecture.top_k,
        d_model=structure.header.d_model,
        vocab_size=structure.header.vocab_size,
        heads=architecture.heads,
        kv_heads=architecture.kv_heads,
        head_dim=architecture.head_dim,
        moe_ffn=architecture.moe_ffn,
        trained_context=model_config.trained_context(config),
        eos_ids=_eos_ids(metadata, structure.header.vocab_size),
        vault_bytes=structure.length,
        scout_bytes=os.stat(scout_path).st_size,
        record_bytes=int(structure.table["padded_size"].max()),
        description=str(metadata.get("description", "")),
        lineage=str(metadata.get("source_name", "")),
        architecture=architecture,
        assumed=assumed,
        metadata=metadata,
    )


def read_structure(path: Path) -> Structure:
    """Header, table and arch block of a `.smoe`. Raises VaultError."""
    try:
        with open(path, "rb") as file:
            return _read_structure(file, path)
    except OSError as error:
        raise VaultError("unreadable", f"{path}: {error.strerror}; check that it exists, its owner and mode") from None


def _read_structure(file: BinaryIO, path: Path) -> Structure:
    length = os.fstat(file.fileno()).st_size
    header = _read_header(file, path)
    _check_header(header, length, path)
    file.seek(header.table_offset)
    table = np.frombuffer(_exactly(file, header.total_experts * layout.ENTRY.itemsize, path), layout.ENTRY)
    _check_table(table, header, length, path)
    architecture = _read_arch_block(file, header, path) if header.version > 1 else None
    return Structure(path, length, header, table, architecture)


def _read_header(file: BinaryIO, path: Path) -> Header:
    data = file.read(layout.HEADER.size)
    if not layout.MAGIC.startswith(data[: len(layout.MAGIC)]):
        raise VaultError("not_a_vault", f"{path}: does not begin as a vault does; remove it or give it another suffix")
    if len(data) < layout.HEADER.size:
        raise _incomplete(path, f"{len(data)} bytes are no whole header")
    return Header.unpack(data)


def _exactly(file: BinaryIO, count: int, path: Path) -> bytes:
    data = file.read(count)
    if len(data) < count:
        raise _incomplete(path, f"it ends {count - len(data):,} bytes early")
    return data


def _incomplete(path: Path, what: str) -> VaultError:
    return VaultError("incomplete", f"{path}: {what}; wait until it is written, or copy it again")


def _invalid(path: Path, what: str) -> VaultError:
    return VaultError("invalid", f"{path}: {what}; the file is damaged or of an unknown form, replace it")


def _check_header(header: Header, length: int, path: Path) -> None:
    if header.version not in layout.VERSIONS:
        raise VaultError("invalid", f"{path}: format version {header.version}; this S-MoE reads 1 and 2, update it")
    if header.bits not in layout.BITS:
        raise VaultError("invalid", f"{path}: bits is {header.bits}; supported are 2, 4 and 8")
    if header.group_size != layout.GROUP:
        raise VaultError("invalid", f"{path}: group_size is {header.group_size}; supported is {layout.GROUP}")
    counts = {
        "num_moe_layers": header.moe_layers,
        "max_experts_per_layer": header.experts_per_layer,
        "total_experts": header.total_experts,
        "d_model": header.d_model,
        "vocab_size": header.vocab_size,
    }
    for name, value in counts.items():
        if not 1 <= value <= LARGEST[name]:
            raise _invalid(path, f"{name} is {value}, outside 1 to {LARGEST[name]}")
    if header.total_experts != header.moe_layers * header.experts_per_layer:
        product = f"{header.moe_layers} layers x {header.experts_per_layer} experts"
        raise _invalid(path, f"total_experts is {header.total_experts}, not {product}")
    _check_areas(header, length, path)


def _check_areas(header: Header, length: int, path: Path) -> None:
    table_end = header.table_offset + header.total_experts * layout.TABLE_BYTES_PER_EXPERT
    if header.table_offset < layout.HEADER.size:
        raise _invalid(path, f"table_offset is {header.table_offset}, inside the header")
    if header.data_offset % layout.PAGE or header.data_offset < table_end:
        raise _invalid(path, f"data_offset is {header.data_offset}, not a multiple of 16,384 after the table")
    if header.version > 1:
        arch_end = header.arch_offset + layout.ARCH.size
        if header.arch_offset % 64 or header.arch_offset < table_end or arch_end > header.data_offset:
            raise _invalid(path, f"arch_offset is {header.arch_offset}, not between the table and the records")
    if header.data_offset > length:
        raise _incomplete(path, f"its tables need {header.data_offset:,} bytes, {length:,} are there")


def _check_table(table: np.ndarray, header: Header, length: int, path: Path) -> None:
    offset, raw, padded = table["offset"], table["raw_size"], table["padded_size"]
    checks = [
        ("expert_id", table["expert"] >= header.experts_per_layer),
        ("layer_id", table["layer"] >= LARGEST["num_moe_layers"]),
        ("group_size", table["group_size"] != layout.GROUP),
        ("padded_size", (padded % layout.PAGE != 0) | (padded == 0) | (padded > 1 << 40)),
        ("raw_size", (raw > padded) | (raw == 0)),
        ("byte_offset", (offset % layout.PAGE != 0) | (offset < header.data_offset) | (offset > 1 << 56)),
    ]
    for name, wrong in checks:
        if wrong.any():
            index = int(wrong.argmax())
            raise _invalid(path, f"expert table entry {index}: {name} is {int(table[_FIELD[name]][index])}")
    slots = table["layer"].astype(np.int64) * header.experts_per_layer + table["expert"]
    if len(np.unique(slots)) != len(table) or len(np.unique(table["layer"])) != header.moe_layers:
        raise _invalid(path, "the expert table names an expert twice, or another number of layers than the header")
    end = int((offset + padded).max())
    if end > length:
        raise _incomplete(path, f"{length:,} of {end:,} bytes are there")


_FIELD = {
    "expert_id": "expert",
    "layer_id": "layer",
    "group_size": "group_size",
    "padded_size": "padded_size",
    "raw_size": "raw_size",
    "byte_offset": "offset",
}


def _read_arch_block(file: BinaryIO, header: Header, path: Path) -> Architecture:
    file.seek(header.arch_offset)
    try:
        return Architecture.unpack(_exactly(file, layout.ARCH.size, path))
    except ValueError as error:
        raise _invalid(path, f"arch block: {error}") from None


def read_descriptors(file: BinaryIO, structure: Structure, count: int | None = None) -> np.ndarray:
    """layout.DESCRIPTOR [experts, 3] of the first `count` experts (default: all), in the table's order."""
    count = structure.header.total_experts if count is None else count
    file.seek(structure.header.table_offset + structure.header.total_experts * layout.ENTRY.itemsize)
    size = count * len(layout.TENSORS) * layout.DESCRIPTOR.itemsize
    data = _exactly(file, size, structure.path)
    return np.frombuffer(data, layout.DESCRIPTOR).reshape(count, len(layout.TENSORS))


def check_descriptors(structure: Structure, descriptors: np.ndarray, moe_ffn: int) -> None:
    """Raises VaultError unless every expert has the shapes and the record layout that the format prescribes."""
    bits, start = structure.header.bits, 0
    raw = structure.table["raw_size"][: len(descriptors)]
    for index, (rows, cols) in enumerate(layout.expert_shapes(structure.header.d_model, moe_ffn)):
        packed, scales = layout.packed_bytes(rows * cols, bits), 2 * layout.group_count(rows * cols)
        expected = {
            "tensor": index,
            "ndim": 2,
            "rows": rows,
            "cols": cols,
            "packed_offset": start,
            "packed_size": packed,
            "scales_offset": start + packed,
            "scales_size": scales,
        }
        start += packed + scales
        for name, value in expected.items():
            _check_column(structure, descriptors[name][:, index], value, f"{layout.TENSORS[index]} {name}")
    _check_column(structure, raw, start, "raw_size")


def _check_column(structure: Structure, found: np.ndarray, expected: int, name: str) -> None:
    wrong = found != expected
    if wrong.any():
        entry = structure.table[int(wrong.argmax())]
        where = f"layer {entry['layer']} expert {entry['expert']}"
        raise _invalid(structure.path, f"{where}: {name} is {int(found[wrong][0])}, expected {expected}")


def _first_expert_width(structure: Structure) -> int:
    """Rows of the first gate matrix. The header's ffn_dim is no source: files in the wild hold another width."""
    with open(structure.path, "rb") as file:
        return int(read_descriptors(file, structure, 1)["rows"][0, 0])


def _check_architecture(structure: Structure, architecture: Architecture) -> None:
    def need(condition: bool, what: str) -> None:
        if not condition:
            raise _invalid(structure.path, f"arch block: {what}")

    a = architecture
    need(1 <= a.layers <= LARGEST["num_moe_layers"], f"num_hidden_layers is {a.layers}")
    need(max(structure.moe_layers) < a.layers, f"num_hidden_layers is {a.layers}, but an expert's layer lies beyond")
    need(1 <= a.kv_heads <= a.heads <= 4096, f"num_heads is {a.heads}, num_kv_heads {a.kv_heads}")
    need(a.heads % a.kv_heads == 0, f"num_heads {a.heads} is no multiple of num_kv_heads {a.kv_heads}")
    need(2 <= a.head_dim <= 4096 and a.head_dim % 2 == 0, f"head_dim is {a.head_dim}")
    need(1 <= a.top_k <= structure.header.experts_per_layer, f"moe_top_k is {a.top_k}")
    need(1 <= a.moe_ffn <= 1 << 20, f"moe_ffn_dim is {a.moe_ffn}")
    need(max(a.dense_ffn, a.shared_ffn) <= 1 << 20, f"dense_ffn_dim {a.dense_ffn}, shared {a.shared_ffn}")
    need(a.activation == layout.ACTIVATION_SILU, f"activation is {a.activation}; supported is 0 (SiLU)")
    need(0 < a.rope_theta < 1e12, f"rope_theta is {a.rope_theta}")
    need(0 <= a.rms_epsilon < 1, f"rms_norm_eps is {a.rms_epsilon}")
    with open(structure.path, "rb") as file:
        check_descriptors(structure, read_descriptors(file, structure, 1), a.moe_ffn)


def _architecture(
    structure: Structure, header: scout.ScoutHeader, metadata: Mapping[str, Any], config_path: Path | None
) -> tuple[Architecture, str]:
    if structure.architecture is not None:
        return structure.architecture, ""
    config, source = metadata.get("config"), "the scout's metadata"
    if not config and config_path is not None and config_path.is_file():
        config, source = model_config.load(config_path), str(config_path)
    if config:
        try:
            return model_config.architecture(config), f"version 1: architecture from {source}"
        except model_config.ConfigError as error:
            raise VaultError("invalid", f"{source}: {error}") from None
    return trunk.guess_architecture(structure, header, _first_expert_width(structure))


def _metadata(header: scout.ScoutHeader) -> dict[str, Any]:
    metadata: dict[str, Any] = dict(header.metadata)
    if text := metadata.get("config"):
        metadata["config"] = _json(text, dict, header.path, "config")
    return metadata


def _json(text: str, kind: type, path: Path, key: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, kind):
        raise VaultError("invalid", f"{path}: __metadata__.{key} is not a JSON {kind.__name__}; replace the file")
    return value


def _eos_ids(metadata: Mapping[str, Any], vocab_size: int) -> tuple[int, ...]:
    """The union of what the converter recorded and what the config says."""
    text = metadata.get("eos_token_ids", "[]")
    try:
        recorded = json.loads(text)
    except (ValueError, RecursionError):
        recorded = []
    ids = model_config.token_ids(recorded) | model_config.token_ids(metadata.get("config", {}).get("eos_token_id"))
    return tuple(sorted(i for i in ids if i < vocab_size))
