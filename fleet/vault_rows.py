"""One sighting -> one row: what the files' own bytes say, or why they cannot be served."""

from __future__ import annotations

import json
import logging
import math
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.utils import timezone

from . import tokenizers
from .fingerprint import fingerprint
from .models import Vault
from .sightings import Sighting, printable
from .vaultfile.errors import VaultError
from .vaultfile.reader import Identity, identify

SETTLE_SECONDS = 2  # a file that is younger and moved between two looks is being written
_SAME_NAME = (
    *("quant", "bits", "format_version", "model_type", "moe_layers", "hidden_layers", "experts_per_layer"),
    *("top_k", "d_model", "vocab_size", "heads", "kv_heads", "head_dim", "trained_context", "record_bytes"),
    *("kept_width", "matrix_bytes", "matrix_weights", "unloaded_bytes", "description", "lineage", "assumed"),
)
LARGEST_METADATA = 64 << 10  # characters of JSON kept in a row

log = logging.getLogger(__name__)


def read(sighting: Sighting, known: Vault | None) -> Vault:
    """The row for one sighting; `known` is the one of the look before. An empty signature asks for another look."""
    row = Vault(name=sighting.candidate.name, **_from_stat(sighting), last_seen=timezone.now())
    if sighting.state:
        row.state, row.reason = sighting.state, sighting.reason
        return row
    try:
        _describe(row, _identify(sighting), sighting)
    except VaultError as error:
        _refuse(row, error)
    except OSError as error:  # removed or locked between the reads
        _refuse(row, VaultError("unreadable", f"It cannot be read: {error.strerror}."))
    except Exception as error:  # one hostile file must not hide the others
        log.exception("reading %s failed", row.vault_path)
        _refuse(row, VaultError("invalid", f"It could not be understood ({type(error).__name__}): replace the file."))
    _consider_growth(row, sighting, known)
    return row


def _from_stat(sighting: Sighting) -> dict[str, Any]:
    candidate, tokenizer = sighting.candidate, sighting.tokenizer
    return {
        "vault_path": printable(str(candidate.vault)),
        "scout_path": printable(str(candidate.scout)),
        "vault_bytes": sighting.vault_bytes,
        "scout_bytes": sighting.scout_bytes,
        "modified": _time(sighting.modified_ns) if sighting.modified_ns else None,
        "signature": sighting.signature,
        "tokenizer": printable(tokenizer.path),
        "tokenizer_source": tokenizer.source,
    }


def _identify(sighting: Sighting) -> Identity:
    config = sighting.tokenizer.checkpoint / "config.json"
    return identify(sighting.candidate.vault, sighting.candidate.scout, config)


def _describe(row: Vault, identity: Identity, sighting: Sighting) -> None:
    row.state, row.reason = Vault.State.SERVABLE, ""
    for name in _SAME_NAME:
        setattr(row, name, clean(getattr(identity, name)))
    row.ffn_dim = identity.moe_ffn
    row.eos_ids = sorted({*identity.eos_ids, *_known_to(identity, tokenizers.eos_ids(sighting.tokenizer))})
    row.metadata = _bounded(clean(identity.metadata))
    row.fingerprint = fingerprint(sighting.candidate.vault, sighting.candidate.scout)
    row.tokenizer_fit, row.tokenizer_note = tokenizers.fit(sighting.tokenizer, identity.vocab_size)


def _known_to(identity: Identity, ids: set[int]) -> set[int]:
    return {i for i in ids if i < identity.vocab_size}


def _bounded(metadata: dict[str, Any]) -> dict[str, Any]:
    """Without the longest values, so that nobody's scout makes every page of the admin slow."""
    kept = dict(sorted(metadata.items(), key=lambda item: len(json.dumps(item[1]))))
    while len(json.dumps(kept)) > LARGEST_METADATA:
        kept.popitem()
    return kept


def clean(value: Any) -> Any:
    """`value` without what databases refuse: NUL, and halves of surrogate pairs."""
    if isinstance(value, str):
        return value.replace("\0", "").encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {clean(k): clean(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [clean(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _refuse(row: Vault, error: VaultError) -> None:
    row.state = Vault.State.INCOMPLETE if error.kind == "incomplete" else Vault.State.INVALID
    row.reason = _without_folders(clean(error.message), row)
    if error.kind == "unreadable":
        row.signature = ""  # permissions can change without a trace in the file


def _without_folders(message: str, row: Vault) -> str:
    """Reasons reach clients, whom the server's folders do not concern."""
    for path in (row.vault_path, row.scout_path):
        message = message.replace(path, Path(path).name)
    return message


def _consider_growth(row: Vault, sighting: Sighting, known: Vault | None) -> None:
    """A copy that ends shows its full length; one into reserved space only moves the file's time: that one waits."""
    young = time.time_ns() - sighting.modified_ns < SETTLE_SECONDS * 1_000_000_000
    if not young or known is None or known.state not in (Vault.State.SERVABLE, Vault.State.INCOMPLETE):
        return
    grew = (row.vault_bytes, row.scout_bytes) != (known.vault_bytes, known.scout_bytes)
    if row.state == Vault.State.INCOMPLETE and grew:
        row.reason, row.signature = f"Still growing. {row.reason}", ""
    elif row.state == Vault.State.SERVABLE and not grew and row.modified != known.modified:
        row.state, row.signature = Vault.State.INCOMPLETE, ""
        row.reason = "Still being written: its files changed a moment ago. It is looked at again by itself."


def _time(nanoseconds: int) -> datetime | None:
    """None where a file system gives a time that no calendar has."""
    try:
        return datetime.fromtimestamp(nanoseconds / 1e9, UTC)
    except (OverflowError, ValueError, OSError):
        return None
