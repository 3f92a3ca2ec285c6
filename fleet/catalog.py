"""name -> ModelCard: the one door through which api/ and engine/ look at the fleet.

The blocking functions look at the disk at most once a second; from the event loop call their `a...` twins.
Which vault is active is the worker's to say.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from channels.db import database_sync_to_async
from django.conf import settings
from django.db import connection
from django.db.models import F

from . import discovery, memory
from .models import Vault
from .sightings import vault_name
from .vault_rows import clean

log = logging.getLogger(__name__)
LOOK_EVERY = 1.0  # seconds
LOCK_WAIT = 500  # milliseconds


@dataclass(frozen=True, slots=True)
class ModelCard:
    """A servable vault, as read from its own bytes. Sizes in bytes."""

    id: str
    vault_path: Path
    scout_path: Path
    tokenizer: str  # a directory, or the --tokenizer fallback's name; empty: none, it cannot chat
    tokenizer_is_fallback: bool
    quant: str  # Q2, Q4, Q8
    bits: int
    format_version: int
    model_type: str
    moe_layers: int
    hidden_layers: int
    experts_per_layer: int
    top_k: int
    d_model: int
    vocab_size: int
    trained_context: int | None  # max_position_embeddings where the scout's metadata tells it
    eos_ids: tuple[int, ...]  # the union of every source
    vault_bytes: int
    scout_bytes: int
    description: str = ""
    lineage: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    fingerprint: str = ""  # of both files' contents
    memory_bytes: int | None = None  # with every expert, the trunk and the window
    tokenizer_note: str = ""  # why the tokenizer is missing or does not fit, for whoever asks; empty: all is well


_lock = threading.Lock()
_looked_at = float("-inf")  # time.monotonic() of the last look's end


def find(name: str) -> ModelCard | None:
    """The servable vault of this name, if its files are there at this moment."""
    return _present(_row(name))


def servable() -> list[ModelCard]:
    """Every servable vault: `--vault`'s first, then those that can answer here, by last use, then by name.

    The first is the one to boot.
    """
    _look()
    first = vault_name(settings.SMOE.vault) if settings.SMOE.vault else None
    rows = Vault.objects.filter(state=Vault.State.SERVABLE).order_by(F("last_used").desc(nulls_last=True), "name")
    limit = memory.limit()
    rows = sorted(rows, key=lambda row: (row.name != first, not _can_answer(row, limit)))
    return [card for card in map(_present, rows) if card is not None]


def _can_answer(row: Vault, limit: int) -> bool:
    """As far as one sees before it is loaded: it has a tokenizer, of its own kind, and its least fits the memory."""
    fits = bool(row.tokenizer) and row.tokenizer_fit != Vault.TokenizerFit.MISFIT
    needed = _need(row)
    return fits and (needed is None or needed.least <= limit)


def _need(row: Vault) -> memory.Need | None:
    return memory.need(row, settings.SMOE.window, settings.SMOE.trunk_form)


def unavailable(name: str) -> str | None:
    """Why a known vault cannot be served, in a sentence for the client; None for an unknown or a servable one."""
    row = _row(name)
    if row is None or _present(row) is not None:
        return None
    if row.state == Vault.State.SERVABLE:
        row.state, row.reason = Vault.State.MISSING, "Its files were there and are gone."
    return f"The vault {name} cannot be served ({row.get_state_display()}): {row.reason}"


def _row(name: str) -> Vault | None:
    """Names come from clients: NUL and half surrogate pairs are none that a database could be asked for."""
    _look()
    return Vault.objects.filter(name=name).first() if clean(name) == name else None


def rescan() -> discovery.Scan:
    """A look at the disk now, whatever the last one's age."""
    with _lock:
        return _scan()


def forget_look() -> None:
    """The next question looks at the disk, whatever the last look's age."""
    global _looked_at
    _looked_at = float("-inf")


def _look() -> None:
    """Answering only needs to read: what cannot be written down (the disk is full, or another process has SQLite's
    write lock for long) is left to a later look."""
    if _is_due():
        with _lock:
            if _is_due():
                try:
                    with _without_waiting():
                        _scan()
                except discovery.NotWritten as error:
                    log.error("what is in the fleet directory could not be written down: %s", error)


@contextmanager
def _without_waiting() -> Iterator[None]:
    """Writes to SQLite fail after LOCK_WAIT in place of the settings' patience."""
    if connection.vendor != "sqlite":
        yield
        return
    with connection.cursor() as cursor:
        (patience,) = cursor.execute("PRAGMA busy_timeout").fetchone()
        cursor.execute(f"PRAGMA busy_timeout = {LOCK_WAIT}")
        try:
            yield
        finally:
            cursor.execute(f"PRAGMA busy_timeout = {patience}")


def _is_due() -> bool:
    return time.monotonic() - _looked_at >= LOOK_EVERY


def _scan() -> discovery.Scan:
    global _looked_at
    try:
        return discovery.scan()
    finally:
        _looked_at = time.monotonic()


def _present(row: Vault | None) -> ModelCard | None:
    """The row's card, unless a file has gone since the last look."""
    if row is None or row.state != Vault.State.SERVABLE:
        return None
    card = card_of(row)
    return card if is_there(card) else None


def is_there(card: ModelCard) -> bool:
    """Its files are there at this moment, whatever they hold."""
    return os.path.isfile(card.vault_path) and os.path.isfile(card.scout_path)


def card_of(row: Vault) -> ModelCard:
    needed = _need(row)
    return ModelCard(
        id=row.name,
        vault_path=Path(row.vault_path),
        scout_path=Path(row.scout_path),
        tokenizer=row.tokenizer,
        tokenizer_is_fallback=row.tokenizer_source == Vault.TokenizerSource.FALLBACK,
        eos_ids=tuple(row.eos_ids),
        memory_bytes=needed.whole if needed else None,
        **{name: getattr(row, name) for name in _SAME_NAME},
    )


_SAME_NAME = (
    *("quant", "bits", "format_version", "model_type", "moe_layers", "hidden_layers", "experts_per_layer"),
    *("top_k", "d_model", "vocab_size", "trained_context", "vault_bytes", "scout_bytes"),
    *("description", "lineage", "metadata", "fingerprint", "tokenizer_note"),
)

afind = database_sync_to_async(find, thread_sensitive=False)
aservable = database_sync_to_async(servable, thread_sensitive=False)
aunavailable = database_sync_to_async(unavailable, thread_sensitive=False)
arescan = database_sync_to_async(rescan, thread_sensitive=False)
