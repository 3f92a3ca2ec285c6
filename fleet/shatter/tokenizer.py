"""A checkpoint's tokenizer files: what to copy, and which ids end a sequence."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

from fleet.vaultfile.config import token_ids

FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "merges.txt", "tokenizer.model", "chat_template.jinja", "chat_template.json"),
    *("config.json", "generation_config.json"),
)
NAMED_TEMPLATES = "additional_chat_templates/*.jinja"  # of a tokenizer with several, beside chat_template.jinja


def copy(source: Path, target: Path) -> None:
    if target.exists() and target.samefile(source):
        return
    target.mkdir(parents=True, exist_ok=True)
    for file in (*map(source.joinpath, FILES), *source.glob(NAMED_TEMPLATES)):
        if file.is_file():
            kept = target / file.relative_to(source)
            kept.parent.mkdir(exist_ok=True)
            shutil.copyfile(file, kept)


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
