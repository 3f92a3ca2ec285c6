"""Reading whole vaults in the background, with progress for whoever looks at the page. One at a time."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from pathlib import Path

from django.conf import settings
from django.db import close_old_connections

from smoe_site.words import counted

from .events import record
from .models import Event, Vault
from .vaultfile.verify import verify


@dataclass(slots=True)
class Verification:
    """Bytes; `problems` is final once `finished`."""

    vault: str
    done: int = 0
    total: int = 0
    finished: bool = False
    problems: list[str] = field(default_factory=list)


log = logging.getLogger(__name__)
_lock = threading.Lock()
_latest: dict[str, Verification] = {}
_running: Verification | None = None


def start(vault: Vault) -> str:
    """Begins unless one is running; returns what to tell the operator."""
    global _running
    with _lock:
        if _running is not None:
            return f"{_running.vault} is being verified; begin this one when that has ended."
        _running = _latest[vault.name] = Verification(vault.name)
    threading.Thread(target=_run, args=(_running, vault), name="verify", daemon=True).start()
    return f"Verifying {vault.name}: its page shows how far it is."


def latest(name: str) -> Verification | None:
    return _latest.get(name)


def _run(job: Verification, vault: Vault) -> None:
    global _running
    config = settings.SMOE.checkpoints_dir / vault.name / "config.json"

    def progress(done: int, total: int) -> None:
        job.done, job.total = done, total

    try:
        job.problems = verify(Path(vault.vault_path), Path(vault.scout_path), config, progress)
    except OSError as error:
        job.problems = [f"It could not be read to its end: {error.strerror}."]
    except Exception as error:  # memory may be short for a large tensor: nothing is sound that was not read
        log.exception("verifying %s failed", vault.name)
        job.problems = [f"It could not be verified ({type(error).__name__}): the log tells why."]
    finally:
        job.finished = True
        _running = None
    found = f"{counted(len(job.problems), 'problem')}, first: {job.problems[0]}" if job.problems else "sound"
    record(Event.Kind.VERIFY, f"{vault.name} was verified: {found}", vault.name, problems=job.problems)
    close_old_connections()
