"""The long look at a pair: every record and every tensor of the scout is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from . import layout, reader, trunk
from .errors import VaultError
from .files import read_exactly
from .records import parts
from .scout import ScoutHeader
from .structure import Structure, check_descriptors, read_descriptors

Progress = Callable[[int, int], None]  # bytes looked at, bytes in all
MOST_PROBLEMS = 100


def verify(smoe: Path, scout_path: Path, config_path: Path | None, progress: Progress) -> list[str]:
    """What is wrong, one line each; empty when nothing is."""
    try:
        structure, header, architecture, _ = reader.read_pair(smoe, scout_path, config_path)
        problems = trunk.problems(structure, architecture, header)
        total = structure.length + sum(info.size for info in header.tensors.values())
        for done, problem in _findings(structure, header):
            progress(min(done, total), total)
            problems += [problem] if problem else []
            if len(problems) >= MOST_PROBLEMS:
                return [*problems, "and maybe more"]
        progress(total, total)
    except VaultError as error:
        return [error.message]
    return problems


def _findings(structure: Structure, header: ScoutHeader) -> Iterator[tuple[int, str]]:
    """Bytes looked at so far, with a problem or an empty string."""
    done = 0
    with open(structure.path, "rb") as file:
        check_descriptors(structure, read_descriptors(file, structure))
        yield from ((0, problem) for problem in _table_problems(structure))
        yield 0, _gap_problem(file, structure)
        for entry in structure.table:
            done += int(entry["padded_size"])
            yield done, _record_problem(file, structure, entry)
    with open(header.path, "rb") as file:
        for name, info in header.tensors.items():
            done += info.size
            yield done, "" if np.isfinite(header.read(file, name)).all() else f"{name} holds values that are not finite"


def _table_problems(structure: Structure) -> Iterator[str]:
    table = structure.table
    slots = table["layer"].astype(np.int64) << 32 | table["expert"]
    if (np.diff(slots) < 0).any():
        yield "the expert table is not ordered by layer and expert"
    if (np.diff(table["offset"].astype(np.int64)) < 0).any():
        yield "the records do not lie in the order of the expert table"


def _gap_problem(file: BinaryIO, structure: Structure) -> str:
    """Between the descriptors, the arch block and the records there are zeros."""
    header = structure.header
    gap = bytearray(read_exactly(file, header.table_end, header.data_offset - header.table_end, structure.path))
    if header.version > 1:
        start = header.arch_offset - header.table_end
        gap[start : start + layout.ARCH.size] = bytes(layout.ARCH.size)
    return "the padding before the records is not zero" if any(gap) else ""


def _record_problem(file: BinaryIO, structure: Structure, entry: np.void) -> str:
    raw, padded = int(entry["raw_size"]), int(entry["padded_size"])
    record = read_exactly(file, int(entry["offset"]), padded, structure.path)
    where = f"layer {entry['layer']} expert {entry['expert']}"
    shapes = layout.expert_shapes(structure.header.d_model, structure.moe_ffn)
    for name, (_, scales) in zip(layout.TENSORS, parts(record[:raw], shapes, structure.header.bits), strict=True):
        if not np.isfinite(scales).all():
            return f"{where}: {name} has scales that are not finite"
    return f"{where}: the padding of its record is not zero" if any(record[raw:]) else ""
