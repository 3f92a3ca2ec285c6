"""Writes a vault pair, one expert in memory at a time, under temporary names until both files are whole."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from . import layout
from .layout import Architecture, Header
from .records import Expert, encode_expert

SCOUT_SUFFIX = ".scout.safetensors"


@dataclass(frozen=True, slots=True)
class VaultPlan:
    """Everything about a `.smoe` but the weights; sizes and offsets follow. All experts have one shape."""

    architecture: Architecture
    bits: int
    d_model: int
    vocab_size: int
    moe_layers: tuple[int, ...]  # absolute layer numbers, ascending
    experts: int
    version: int = 2

    @property
    def total_experts(self) -> int:
        return len(self.moe_layers) * self.experts

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        return layout.expert_shapes(self.d_model, self.architecture.moe_ffn)

    @property
    def raw_size(self) -> int:
        sizes = (rows * cols for rows, cols in self.shapes)
        return sum(layout.packed_bytes(n, self.bits) + 2 * layout.group_count(n) for n in sizes)

    @property
    def padded_size(self) -> int:
        return layout.align(self.raw_size, layout.PAGE)

    @property
    def table_end(self) -> int:
        return layout.HEADER.size + self.total_experts * layout.TABLE_BYTES_PER_EXPERT

    @property
    def arch_offset(self) -> int:
        return layout.align(self.table_end, 64)

    @property
    def data_offset(self) -> int:
        # Room for the arch block in version 1 too, so that it can be upgraded in place.
        return layout.align(self.arch_offset + layout.ARCH.size, layout.PAGE)

    @property
    def file_size(self) -> int:
        return self.data_offset + self.total_experts * self.padded_size

    def header(self) -> Header:
        return Header(
            version=self.version,
            moe_layers=len(self.moe_layers),
            experts_per_layer=self.experts,
            total_experts=self.total_experts,
            table_offset=layout.HEADER.size,
            data_offset=self.data_offset,
            group_size=layout.GROUP,
            bits=self.bits,
            d_model=self.d_model,
            vocab_size=self.vocab_size,
            ffn_dim=self.architecture.moe_ffn,
            arch_offset=self.arch_offset if self.version > 1 else 0,
        )

    def table(self) -> np.ndarray:
        table = np.zeros(self.total_experts, layout.ENTRY)
        table["layer"] = np.repeat(np.array(self.moe_layers, np.uint32), self.experts)
        table["expert"] = np.tile(np.arange(self.experts, dtype=np.uint32), len(self.moe_layers))
        table["offset"] = self.data_offset + np.arange(self.total_experts, dtype=np.uint64) * self.padded_size
        table["raw_size"] = self.raw_size
        table["padded_size"] = self.padded_size
        table["group_size"] = layout.GROUP
        table["groups"] = sum(layout.group_count(rows * cols) for rows, cols in self.shapes)
        return table

    def descriptors(self) -> np.ndarray:
        """One expert's three; all experts share them."""
        descriptors = np.zeros(len(layout.TENSORS), layout.DESCRIPTOR)
        offset = 0
        for index, (rows, cols) in enumerate(self.shapes):
            packed, scales = layout.packed_bytes(rows * cols, self.bits), 2 * layout.group_count(rows * cols)
            descriptors[index] = (index, 2, b"", rows, cols, offset, packed, offset + packed, scales)
            offset += packed + scales
        return descriptors

    def prologue(self) -> bytes:
        """The file's bytes before the first record."""
        tables = (
            self.header().pack() + self.table().tobytes() + np.tile(self.descriptors(), self.total_experts).tobytes()
        )
        if self.version > 1:
            tables = tables.ljust(self.arch_offset, b"\0") + self.architecture.pack()
        return tables.ljust(self.data_offset, b"\0")


def write_vault(
    file: BinaryIO,
    plan: VaultPlan,
    experts: Iterable[Expert],
    written: Callable[[int, Expert, bytes], None] = lambda index, expert, record: None,
) -> None:
    """Writes `experts` in the table's order: layer, then expert. Tells each record to `written`.

    Raises ValueError for a wrong shape or number, or weights that cannot be quantized.
    """
    file.write(plan.prologue())
    index = -1
    for index, expert in enumerate(experts):
        if tuple(tensor.shape for tensor in expert) != plan.shapes:
            raise ValueError(f"expert {index} has shapes {[t.shape for t in expert]}, not {plan.shapes}")
        try:
            record = encode_expert(expert, plan.bits)
        except ValueError as error:
            layer, number = plan.moe_layers[index // plan.experts], index % plan.experts
            raise ValueError(f"layer {layer} expert {number}: {error}") from None
        file.write(record.ljust(plan.padded_size, b"\0"))
        written(index, expert, record)
    if index + 1 != plan.total_experts:
        raise ValueError(f"{index + 1} experts were given, {plan.total_experts} were planned")


def scout_path_of(smoe: Path) -> Path:
    return smoe.with_name(smoe.name.removesuffix(".smoe") + SCOUT_SUFFIX)


def partial_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.partial")


def sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _locked(path: Path) -> Iterator[BinaryIO]:
    """The file at `path`, emptied. Raises BlockingIOError when another process is writing it."""
    while True:
        with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644), "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_at(file, path):  # its last owner removed or renamed it before this lock
                continue
            file.truncate()
            yield file
            return


def _is_at(file: BinaryIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.lstat(path))
    except FileNotFoundError:
        return False


def remove_abandoned(directory: Path) -> None:
    """Partial files of writers that were killed: nobody holds their lock."""
    for ending in (".smoe", SCOUT_SUFFIX):
        for path in directory.glob(f".*{ending}.partial"):
            with suppress(OSError), _locked(path):
                path.unlink()


@contextmanager
def _partial(path: Path) -> Iterator[BinaryIO]:
    """A new file beside `path`; gone at the end of the block unless it was renamed in it."""
    with _locked(partial_path(path)) as file:
        try:
            yield file
        finally:
            with suppress(OSError):
                partial_path(path).unlink(missing_ok=True)


def write_pair(
    smoe: Path,
    write_smoe: Callable[[BinaryIO], None],
    write_scout: Callable[[BinaryIO], None],
    check: Callable[[Path, Path], None] = lambda smoe, scout: None,
) -> None:
    """Both files, or neither: the vault takes its name last, for a `.smoe` is what makes a pair be listed.

    `check` sees the finished files under their temporary names; what it raises discards them.
    Raises OSError; BlockingIOError when another process is writing this pair.
    """
    scout = scout_path_of(smoe)
    remove_abandoned(smoe.parent)
    with _partial(scout) as scout_file, _partial(smoe) as smoe_file:
        write_scout(scout_file)
        write_smoe(smoe_file)
        for file in (scout_file, smoe_file):
            file.flush()
            os.fsync(file.fileno())
        check(partial_path(smoe), partial_path(scout))
        smoe.unlink(missing_ok=True)  # an old vault must never be seen beside the new scout
        partial_path(scout).replace(scout)
        partial_path(smoe).replace(smoe)
    sync_directory(smoe.parent)
