"""name -> ModelCard: the one door through which api/ and engine/ look at the fleet."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class ModelCard:
    """A servable vault, as read from its own bytes. Sizes in bytes."""

    id: str
    vault_path: Path
    scout_path: Path
    tokenizer: str  # a directory, or the --tokenizer fallback's name
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
