"""Version 1 -> 2 in place: an arch block in the padding before the records, then two fields of the header."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from . import layout, reader
from .errors import VaultError
from .structure import Structure

_VERSION_AT = 8
_ARCH_OFFSET_AT = 60


def upgrade(smoe: Path, scout_path: Path, config_path: Path | None) -> str:
    """Writes the architecture of the config into the vault; returns where it came from. Raises VaultError.

    Each step is on disk before the next begins. Until the last one the file is a valid version 1, whose readers
    ignore both the block and arch_offset.
    """
    structure, _, architecture, assumed = reader.read_pair(smoe, scout_path, config_path)
    if structure.header.version != 1:
        raise VaultError("invalid", f"{smoe}: is of version {structure.header.version} already; nothing to do")
    offset = _room(structure)
    descriptor = os.open(smoe, os.O_WRONLY)
    try:
        steps = [
            (offset, architecture.pack()),
            (_ARCH_OFFSET_AT, struct.pack("<I", offset)),
            (_VERSION_AT, struct.pack("<I", 2)),
        ]
        for at, data in steps:
            os.pwrite(descriptor, data, at)
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return assumed


def _room(structure: Structure) -> int:
    """Where the block goes. Raises VaultError when there is no room, or something unknown lies there."""
    header = structure.header
    offset = layout.align(header.table_end, 64)
    if offset + layout.ARCH.size > header.data_offset:
        raise VaultError("invalid", f"{structure.path}: no room for the arch block; shatter its checkpoint again")
    with open(structure.path, "rb") as file:
        file.seek(offset)
        found = file.read(layout.ARCH.size)
    if any(found) and not found.startswith(layout.ARCH_MAGIC):  # a block: an upgrade was interrupted here
        raise VaultError("invalid", f"{structure.path}: bytes of an unknown kind lie at {offset}; shatter it again")
    return offset
