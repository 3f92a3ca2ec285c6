"""The fleet as commands print it: a table for people, JSON for programs."""

from __future__ import annotations

import json
from typing import Any

from .models import Vault
from .tables import human_bytes, table

HEAD = ("VAULT", "STATE", "QUANT", "TYPE", "LAYERS", "EXPERTS", "SIZE", "TOKENIZER", "REASON")


def as_table(vaults: list[Vault]) -> str:
    return table(HEAD, map(_line, vaults)) if vaults else "The fleet is empty."


def as_json(vaults: list[Vault]) -> str:
    return json.dumps([_object(vault) for vault in vaults], indent=2)


def _line(vault: Vault) -> tuple[object, ...]:
    experts = f"{vault.experts_per_layer} x {vault.moe_layers}, top {vault.top_k}" if vault.top_k else None
    return (
        vault.name,
        vault.state,
        vault.quant or None,
        vault.model_type or None,
        vault.hidden_layers,
        experts,
        human_bytes(vault.total_bytes),
        _tokenizer(vault),
        vault.reason or vault.assumed,
    )


def _tokenizer(vault: Vault) -> str:
    misfit = vault.tokenizer_fit == Vault.TokenizerFit.MISFIT
    return vault.get_tokenizer_source_display() + (", does not fit" if misfit else "")


def _object(vault: Vault) -> dict[str, Any]:
    hidden = {"id", "signature", "metadata"}
    fields = {f.attname: getattr(vault, f.attname) for f in vault._meta.concrete_fields if f.attname not in hidden}
    fields["id"] = fields.pop("name")
    return {key: value.isoformat() if hasattr(value, "isoformat") else value for key, value in fields.items()}
