"""What the disk gives: direct reads, so that neither the page cache nor read-ahead has a part in it."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BLOCK = 8 << 20  # bytes of a sequential read
DIRECT = getattr(os, "O_DIRECT", 0)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    try:
        descriptor = os.open(path, os.O_RDONLY | DIRECT)
    except OSError:  # a file system that knows no direct reads
        descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def sequential_seconds(path: Path) -> float:
    """To read the whole file once."""
    with _opened(path) as descriptor, mmap.mmap(-1, BLOCK) as buffer:
        if hasattr(mmap, "MADV_HUGEPAGE"):  # the fewer pieces a buffer has, the larger are the requests to the disk
            buffer.madvise(mmap.MADV_HUGEPAGE)
        began = time.perf_counter()
        offset = 0
        while count := os.preadv(descriptor, [buffer], offset):
            offset += count
        return time.perf_counter() - began
