"""A content fingerprint that costs the same for 100 MB and 100 GB."""

from __future__ import annotations

import hashlib
from pathlib import Path

BLOCK = 64 << 10  # bytes
BLOCKS = 16  # a file, spread evenly from its first byte to its last


def fingerprint(*paths: Path) -> str:
    """SHA-256, in hex, over each file's size and BLOCKS blocks. Raises OSError.

    It tells two builds of a vault apart and recognises a copy; it is no proof that every byte is right
    (`verify_vault` reads them all).
    """
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            digest.update(size.to_bytes(8, "little"))
            for offset in offsets(size):
                file.seek(offset)
                digest.update(file.read(BLOCK))
    return digest.hexdigest()


def offsets(size: int) -> list[int]:
    """Where the blocks begin: ascending, without repetition; the last one ends with the file."""
    last = max(size - BLOCK, 0)
    return sorted({last * i // (BLOCKS - 1) for i in range(BLOCKS)})
