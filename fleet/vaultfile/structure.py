"""A `.smoe`'s header, table, descriptors and arch block, each checked against the file before it is used."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np

from . import layout
from .errors import VaultError
from .files import open_regular, read_exactly
from .layout import Architecture, Header

# Far beyond any model, and small enough that no forged table exhausts memory.
MOST_LAYERS = 1 << 14
MOST_EXPERTS = 1 << 20  # in all
WIDEST = 1 << 24


@dataclass(frozen=True, slots=True)
class Structure:
    """What the beginning of a `.smoe` says, consistent in itself and with the file's length."""

    path: Path
    length: int
    header: Header
    table: np.ndarray  # layout.ENTRY [total_experts]
    experts: dict[int, int]  # absolute layer -> its number of experts, ascending layers
    moe_ffn: int  # rows of the experts' gates
    architecture: Architecture | None  # None in version 1


def read_structure(path: Path) -> Structure:
    """Raises VaultError. Reads a few bytes an expert."""
    with open_regular(path, "put the vault there") as file:
        length = os.fstat(file.fileno()).st_size
        header = _read_header(file, path)
        _check_header(header, length, path)
        size = header.total_experts * layout.ENTRY.itemsize
        table = np.frombuffer(read_exactly(file, header.table_offset, size, path), layout.ENTRY)
        _check_table(table, header, path)
        _check_length(table, length, path)
        structure = Structure(path, length, header, table, _experts(table, header, path), 0, None)
        first = read_descriptors(file, structure, 1)
        structure = replace(structure, moe_ffn=int(first["rows"][0, 0]))
        check_descriptors(structure, first)
        architecture = _read_arch_block(file, structure) if header.version > 1 else None
    return replace(structure, architecture=architecture)


def invalid(path: Path, what: str) -> VaultError:
    return VaultError("invalid", f"{path}: {what}; the file is damaged or of an unknown form, replace it")


def _read_header(file: BinaryIO, path: Path) -> Header:
    data = file.read(layout.HEADER.size)
    if not layout.MAGIC.startswith(data[: len(layout.MAGIC)]):
        raise VaultError("not_a_vault", f"{path}: does not begin as a vault does; remove or rename it")
    if len(data) < layout.HEADER.size:
        raise VaultError("incomplete", f"{path}: {len(data)} bytes are no whole header; wait or copy it again")
    return Header.unpack(data)


def _check_header(header: Header, length: int, path: Path) -> None:
    if header.version not in layout.VERSIONS:
        raise VaultError("invalid", f"{path}: version {header.version} is unknown, 1 and 2 can be read; update S-MoE")
    if header.bits not in layout.BITS:
        raise invalid(path, f"bits is {header.bits}, supported are 2, 4 and 8")
    if header.group_size != layout.GROUP:
        raise invalid(path, f"group_size is {header.group_size}, supported is {layout.GROUP}")
    ranges = {
        "num_moe_layers": (header.moe_layers, 1, MOST_LAYERS),
        "max_experts_per_layer": (header.experts_per_layer, 1, MOST_EXPERTS),
        "total_experts": (header.total_experts, 1, MOST_EXPERTS),
        "d_model": (header.d_model, 1, WIDEST),
        "vocab_size": (header.vocab_size, 0, WIDEST),  # 0: the scout's embedding tells
    }
    for name, (value, least, most) in ranges.items():
        if not least <= value <= most:
            raise invalid(path, f"{name} is {value}, not within {least} to {most}")
    _check_areas(header, length, path)


def _check_areas(header: Header, length: int, path: Path) -> None:
    if header.table_offset < layout.HEADER.size:
        raise invalid(path, f"table_offset is {header.table_offset}, inside the header")
    if header.data_offset % layout.PAGE or header.data_offset < header.table_end:
        raise invalid(path, f"data_offset is {header.data_offset}, not a multiple of 16,384 after the table")
    arch_end = header.arch_offset + layout.ARCH.size
    if header.version > 1 and (
        header.arch_offset % 64 or header.arch_offset < header.table_end or arch_end > header.data_offset
    ):
        raise invalid(path, f"arch_offset is {header.arch_offset}, not between the table and the records")
    if header.data_offset > length:
        raise VaultError(
            "incomplete",
            f"{path}: its tables need {header.data_offset:,} bytes, {length:,} are there; wait or copy it again",
        )


def _check_table(table: np.ndarray, header: Header, path: Path) -> None:
    offset, raw, padded = table["offset"], table["raw_size"], table["padded_size"]
    checks = {
        "layer": table["layer"] >= MOST_LAYERS,
        "expert": table["expert"] >= header.experts_per_layer,
        "group_size": table["group_size"] != layout.GROUP,
        "padded_size": (padded % layout.PAGE != 0) | (padded == 0) | (padded > 1 << 40),
        "raw_size": (raw > padded) | (raw == 0),
        "offset": (offset % layout.PAGE != 0) | (offset < header.data_offset) | (offset > 1 << 62),
    }
    for name, wrong in checks.items():
        if wrong.any():
            index = int(wrong.argmax())
            raise invalid(path, f"expert table entry {index}: {name} is {int(table[name][index])}")
    order = np.argsort(offset, kind="stable")
    overlap = offset[order][1:] < (offset + padded)[order][:-1]
    if overlap.any():
        raise invalid(path, f"expert table entry {int(order[1:][overlap][0])}: its record overlaps another")


def _check_length(table: np.ndarray, length: int, path: Path) -> None:
    end = int((table["offset"] + table["padded_size"]).max())
    if end > length:
        raise VaultError("incomplete", f"{path}: {length:,} of {end:,} bytes are there; wait or copy it again")


def _experts(table: np.ndarray, header: Header, path: Path) -> dict[int, int]:
    """Experts of each layer, numbered from 0 without a gap."""
    slots = table["layer"].astype(np.int64) * MOST_EXPERTS + table["expert"]
    if len(np.unique(slots)) != len(table):
        raise invalid(path, "the expert table names an expert twice")
    layers, counts = np.unique(table["layer"], return_counts=True)
    last = np.unique(slots)[np.cumsum(counts) - 1] % MOST_EXPERTS
    gaps = last != counts - 1
    if gaps.any():
        raise invalid(path, f"the expert table lacks experts of layer {layers[gaps][0]}")
    if len(layers) != header.moe_layers:
        raise invalid(path, f"num_moe_layers is {header.moe_layers}, the table has {len(layers)}")
    if counts.max() != header.experts_per_layer:
        raise invalid(path, f"max_experts_per_layer is {header.experts_per_layer}, the table has {counts.max()}")
    return dict(zip(layers.tolist(), counts.tolist(), strict=True))


def _read_arch_block(file: BinaryIO, structure: Structure) -> Architecture:
    path = structure.path
    try:
        block = Architecture.unpack(read_exactly(file, structure.header.arch_offset, layout.ARCH.size, path))
    except ValueError as error:
        raise invalid(path, f"arch block: {error}") from None
    if block.moe_ffn not in (0, structure.moe_ffn):
        raise invalid(path, f"moe_ffn_dim is {block.moe_ffn}, the experts' tensors have {structure.moe_ffn}")
    return replace(block, moe_ffn=structure.moe_ffn)


def read_descriptors(file: BinaryIO, structure: Structure, count: int | None = None) -> np.ndarray:
    """layout.DESCRIPTOR [experts, 3] of the table's first `count` entries; of all by default."""
    header = structure.header
    count = header.total_experts if count is None else count
    offset = header.table_offset + header.total_experts * layout.ENTRY.itemsize
    size = count * len(layout.TENSORS) * layout.DESCRIPTOR.itemsize
    data = read_exactly(file, offset, size, structure.path)
    return np.frombuffer(data, layout.DESCRIPTOR).reshape(count, len(layout.TENSORS))


def check_descriptors(structure: Structure, descriptors: np.ndarray) -> None:
    """Raises VaultError unless every expert has one set of shapes, in the record layout of the format."""
    if not 1 <= structure.moe_ffn <= WIDEST:
        raise invalid(structure.path, f"the first expert's gate has {structure.moe_ffn} rows")
    bits, end = structure.header.bits, np.zeros(len(descriptors), np.uint64)
    shapes = layout.expert_shapes(structure.header.d_model, structure.moe_ffn)
    for index, (rows, cols) in enumerate(shapes):
        column, groups = descriptors[:, index], layout.group_count(rows * cols)
        # Codes stop with the last weight, or fill the last group: both are in use.
        least, most = layout.packed_bytes(rows * cols, bits), groups * layout.GROUP * bits // 8
        packed = column["packed_size"]
        wrong = {
            "tensor": column["tensor"] != index,
            "ndim": column["ndim"] != 2,
            "rows": column["rows"] != rows,
            "cols": column["cols"] != cols,
            "packed_size": (packed < least) | (packed > most),
            "scales_size": column["scales_size"] != 2 * groups,
            "packed_offset": column["packed_offset"] != end,
            "scales_offset": column["scales_offset"] != end + packed,
        }
        _refuse_first(structure, column, wrong, layout.TENSORS[index])
        end = end + packed + column["scales_size"]
    entries = structure.table[: len(descriptors)]
    groups = sum(layout.group_count(rows * cols) for rows, cols in shapes)
    wrong = {"raw_size": entries["raw_size"] != end, "groups": entries["groups"] != groups}
    _refuse_first(structure, entries, wrong, "record")


def _refuse_first(structure: Structure, records: np.ndarray, wrong: dict[str, np.ndarray], part: str) -> None:
    for name, places in wrong.items():
        if places.any():
            index = int(places.argmax())
            entry = structure.table[index]
            where = f"layer {entry['layer']} expert {entry['expert']} {part}"
            raise invalid(structure.path, f"{where}: {name} is {int(records[name][index])}")
