"""What can end a long write, in one sentence; and what a command's argument names."""

from __future__ import annotations

import errno
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError

from fleet.vaultfile.writer import scout_path_of


def _terminate(*_: Any) -> None:
    sys.exit(128 + signal.SIGTERM)


@contextmanager
def writing(what: Path) -> Iterator[None]:
    """Ctrl-C, SIGTERM and a full disk unwind the block, so that it removes what it has begun. CommandError."""
    is_main = threading.current_thread() is threading.main_thread()
    previous = signal.signal(signal.SIGTERM, _terminate) if is_main else None
    try:
        yield
    except KeyboardInterrupt:
        raise CommandError("Interrupted: nothing half-written is left.", returncode=130) from None
    except BlockingIOError:
        raise CommandError(f"Another process is writing {what}: wait for it.") from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise CommandError(f"The disk is full: make room in {what.parent}; nothing half-written is left.") from None
        raise CommandError(f"{what} could not be written: {error}.") from None
    finally:
        if is_main:
            signal.signal(signal.SIGTERM, previous)


def pair_of(path_or_id: str) -> tuple[Path, Path, Path]:
    """The vault, its scout and its config.json, of a path or of an id in the fleet directory. CommandError."""
    path = Path(path_or_id)
    if path.suffix != ".smoe":
        path = settings.SMOE.vault_dir / f"{path_or_id}.smoe"
    if not path.exists():
        raise CommandError(f"{path} is not there: name a .smoe file, or a vault of {settings.SMOE.vault_dir}.")
    return path, scout_path_of(path), settings.SMOE.checkpoints_dir / path.stem / "config.json"
