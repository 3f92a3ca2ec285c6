"""A checkpoint's tokenizer files: what to copy, and which ids end a sequence."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

from fleet.vaultfile.config import token_ids

CONFIGS = ("config.json", "generation_config.json")
FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "vocab.txt", "merges.txt", "tokenizer.model", "chat_template.jinja", "chat_template.json"),
)
VOCABULARIES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")  # transformers reads any of these
NAMED_TEMPLATES = "additional_chat_templates/*.jinja"  # of a tokenizer with several, beside chat_template.jinja


def copy(source: Path, target: Path) -> None:
    """Whole: what an earlier conversion left in `target` would go on speaking for the new vault.

    A tokenizer that was put there by hand, since the checkpoint has none, stays.
    """
    if target.exists() and target.samefile(source):
        return
    target.mkdir(parents=True, exist_ok=True)
    wanted = [file.relative_to(source) for file in _files(source)]
    for file in wanted:
        (target / file).parent.mkdir(exist_ok=True)
        shutil.copyfile(source / file, target / file)
    has_tokenizer = any(str(file) in VOCABULARIES for file in wanted)
    for old in _files(target) if has_tokenizer else _present(target, CONFIGS):
        if old.relative_to(target) not in wanted:
            old.unlink()


def _files(folder: Path) -> list[Path]:
    return [*_present(folder, CONFIGS), *_present(folder, FILES), *folder.glob(NAMED_TEMPLATES)]


def _present(folder: Path, names: tuple[str, ...]) -> list[Path]:
    return [file for file in map(folder.joinpath, names) if file.is_file()]


def sha256(folder: Path) -> str:
    """Of tokenizer.json; empty where there is none."""
    path = folder / "tokenizer.json"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def eos_ids(folder: Path) -> list[int]:
    """The union of generation_config.json, config.json and the tokenizer's own token."""
    ids: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        ids |= token_ids(_load(folder / name).get("eos_token_id"))
    return sorted(ids | _tokenizer_eos(folder))


def _tokenizer_eos(folder: Path) -> set[int]:
    tokenizer = _load(folder / "tokenizer.json")
    model = tokenizer.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    known = dict(vocabulary) if isinstance(vocabulary, dict) else {}
    added = tokenizer.get("added_tokens")
    for token in added if isinstance(added, list) else []:
        if isinstance(token, dict):
            known[str(token.get("content"))] = token.get("id")
    names = (_load(folder / name).get("eos_token") for name in ("tokenizer_config.json", "special_tokens_map.json"))
    contents = (name.get("content") if isinstance(name, dict) else name for name in names)
    return {i for content in contents if isinstance(content, str) for i in token_ids(known.get(content))}


def _load(path: Path) -> dict[str, Any]:
    """Empty where the file is absent or no JSON object: every one of these files is optional."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
