"""Which tokenizer a vault uses, whether it fits, its end-of-sequence ids: small JSON reads, no tokenizer is built."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from .models import Vault
from .shatter.tokenizer import VOCABULARIES

FILES = ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "config.json")
LARGEST_JSON = 256 << 20  # bytes
PADDED_AT_MOST = 1.5  # embeddings are padded to round sizes; a vocabulary larger than this belongs to another model


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """`path` is a directory, or the fallback's name where it is no directory; empty for none."""

    path: str
    source: str
    signature: str  # changes with the files of both directories
    checkpoint: Path  # checkpoints/<name>/, whether it is there or not: its configs count without a tokenizer too

    def directory(self) -> Path | None:
        return Path(self.path) if self.path and os.path.isdir(self.path) else None


def locate(name: str, checkpoints_dir: Path, fallback: str) -> Tokenizer:
    """That of `checkpoints/<name>/` where it has one (`shatter` may have left a config alone), else the fallback."""
    own = checkpoints_dir / name
    signature = f"own:{_signature(own)}"
    if any(os.path.isfile(own / file) for file in VOCABULARIES):
        return Tokenizer(str(own), Vault.TokenizerSource.OWN, signature, own)
    if fallback:
        signature = f"{fallback}:{_signature(Path(fallback))}:{signature}"
        return Tokenizer(fallback, Vault.TokenizerSource.FALLBACK, signature, own)
    return Tokenizer("", Vault.TokenizerSource.NONE, signature, own)


def fit(tokenizer: Tokenizer, vocab_size: int) -> tuple[str, str]:
    """(fits, misfit or unknown; a sentence). Compared by the largest token id against the vault's vocabulary."""
    if tokenizer.source == Vault.TokenizerSource.NONE:
        return Vault.TokenizerFit.UNKNOWN, (
            "It has no tokenizer, so it cannot chat: put the checkpoint's tokenizer files into "
            "checkpoints/<its id>/ or start the server with --tokenizer."
        )
    directory = tokenizer.directory()
    size = _ids(directory) if directory else None
    if size is None:
        return Vault.TokenizerFit.UNKNOWN, "The tokenizer's size is not known before it is loaded."
    if size > vocab_size:
        return Vault.TokenizerFit.MISFIT, (
            f"The tokenizer has {size} ids and the vault only {vocab_size}: it belongs to another model."
        )
    if size * PADDED_AT_MOST < vocab_size:
        return Vault.TokenizerFit.MISFIT, (
            f"The tokenizer has {size} ids and the vault {vocab_size}: it probably belongs to another model."
        )
    return Vault.TokenizerFit.FITS, ""


def eos_ids(tokenizer: Tokenizer) -> set[int]:
    """From generation_config.json, config.json and the tokenizer's own `eos_token`, as far as they are there."""
    directory = tokenizer.checkpoint
    found = set(as_ids(_read(directory / "generation_config.json").get("eos_token_id")))
    found.update(as_ids(_read(directory / "config.json").get("eos_token_id")))
    token = _read(directory / "tokenizer_config.json").get("eos_token")
    text = token.get("content") if isinstance(token, dict) else token
    if isinstance(text, str):
        found.update(_added(directory).get(text, ()))
    return found


def as_ids(value: Any) -> list[int]:
    """An id or a list of ids as configs write them; anything else is no id."""
    values = value if isinstance(value, list) else [value]
    return [v for v in values if isinstance(v, int) and not isinstance(v, bool) and v >= 0]


def _signature(directory: Path) -> str:
    return ",".join(_stat_text(directory / name) for name in FILES)


def _stat_text(path: Path) -> str:
    try:
        status = path.stat()
    except OSError:
        return "-"
    return f"{status.st_size}.{status.st_mtime_ns}"


def _read(path: Path) -> dict[str, Any]:
    """The file's JSON object; empty where it is missing, huge or something else."""
    try:
        if path.stat().st_size > LARGEST_JSON:
            return {}
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _ids(directory: Path) -> int | None:
    """One more than the largest token id of tokenizer.json; None where that is not to be had."""
    return _summary(str(directory / "tokenizer.json"), _stat_text(directory / "tokenizer.json"))[0]


def _added(directory: Path) -> dict[str, tuple[int, ...]]:
    return dict(_summary(str(directory / "tokenizer.json"), _stat_text(directory / "tokenizer.json"))[1])


@lru_cache(maxsize=64)
def _summary(path: str, signature: str) -> tuple[int | None, tuple[tuple[str, tuple[int, ...]], ...]]:
    """(size, added tokens by text). `signature` is part of the cache's key only."""
    document = _read(Path(path))
    model = document.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    added = [t for t in _list(document.get("added_tokens")) if isinstance(t, dict)]
    ids = [*_vocabulary_ids(vocabulary), *(i for t in added for i in as_ids(t.get("id")))]
    named = tuple((str(t.get("content")), tuple(as_ids(t.get("id")))) for t in added)
    return (max(ids) + 1 if ids else None), named


def _vocabulary_ids(vocabulary: Any) -> Iterable[int]:
    """BPE and WordPiece keep {token: id}, Unigram a list of [token, score]."""
    if isinstance(vocabulary, dict):
        return as_ids(list(vocabulary.values()))
    return range(len(_list(vocabulary)))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
