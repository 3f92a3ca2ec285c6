"""What the disk gives: direct reads, so that neither the page cache nor read-ahead has a part in it."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np

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
        began = time.perf_counter()
        offset = 0
        while count := os.preadv(descriptor, [buffer], offset):
            offset += count
        return time.perf_counter() - began


def random_rate(path: Path, record: int, depth: int, seconds: float, seed: int = 1) -> float:
    """Bytes a second of reads of `record` bytes at random multiples of it, `depth` at a time."""
    places = os.stat(path).st_size // record
    with _opened(path) as descriptor, ThreadPoolExecutor(depth) as pool:
        began = time.perf_counter()
        until = began + seconds
        parts = [pool.submit(_read_until, descriptor, record, places, until, seed + n) for n in range(depth)]
        return sum(part.result() for part in parts) / (time.perf_counter() - began)


def _read_until(descriptor: int, record: int, places: int, until: float, seed: int) -> int:
    random = np.random.default_rng(seed)
    total = 0
    with mmap.mmap(-1, record) as buffer:  # aligned to a page, as direct reads want it
        while time.perf_counter() < until:
            total += os.preadv(descriptor, [buffer], int(random.integers(places)) * record)
    return total
