"""Large files: room for them, and keeping them out of the page cache."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import BinaryIO

SPARE = 1 << 30  # bytes left free on the disk


class BenchError(Exception):
    """One sentence for the person who started it."""


def need_room(folder: Path, wanted: int) -> None:
    """Makes `folder`. Raises BenchError where its disk has no room for `wanted` bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < wanted + SPARE:
        raise BenchError(
            f"{folder} has {free / 1e9:.0f} GB free, {(wanted + SPARE) / 1e9:.0f} GB are needed: free some, "
            "name another disk with --data, or measure fewer layers with --layers."
        )


def flush(file: BinaryIO) -> None:
    """What was written so far goes to the disk and leaves the page cache."""
    file.flush()
    os.fsync(file.fileno())
    forget(file.fileno())


def forget(descriptor: int) -> None:
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def drop_from_cache(*paths: Path) -> None:
    """The next reads of these files come from the disk. Pages that a process has mapped stay."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            forget(descriptor)
        finally:
            os.close(descriptor)
