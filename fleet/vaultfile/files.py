"""Opening files that anyone may have put there."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from smoe_site.words import counted

from .errors import VaultError


@contextmanager
def open_regular(path: Path, missing: str) -> Iterator[BinaryIO]:
    """`path` for reading; `missing` says what to do when it is not there. Raises VaultError.

    Never waits for the writer of a pipe, as opening it would.
    """
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise VaultError("not_a_vault", f"{path}: not a regular file; remove it")
            yield file
    except FileNotFoundError:
        raise VaultError("incomplete", f"{path}: missing; {missing}") from None
    except OSError as error:
        raise VaultError("unreadable", f"{path}: {error.strerror}; check its owner and mode") from None


def read_exactly(file: BinaryIO, offset: int, count: int, path: Path) -> bytes:
    file.seek(offset)
    data = file.read(count)
    if len(data) < count:
        raise VaultError(
            "incomplete", f"{path}: ends {counted(count - len(data), 'byte')} early; wait or copy it again"
        )
    return data
