"""What a vault pair is, read from its own bytes: header, table, arch block and the scout's header only.

Cheap for files of any size. Anyone may have made them: everything is checked before it is used.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from . import config as model_config
from . import families, layout, scout, trunk
from .errors import VaultError
from .layout import Architecture
from .structure import WIDEST, Structure, invalid, read_structure

__all__ = ["Identity", "VaultError", "identify", "read_pair"]


@dataclass(frozen=True, slots=True)
class Identity:
    """What a pair's own bytes say about it. Sizes in bytes."""

    vault_path: Path
    scout_path: Path
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
    heads: int
    kv_heads: int
    head_dim: int
    kept_width: int  # elements that a layer keeps of a position
    moe_ffn: int
    trained_context: int | None
    eos_ids: tuple[int, ...]
    vault_bytes: int
    scout_bytes: int
    matrix_bytes: int  # of scout_bytes, what the engine may quantize while it loads
    matrix_weights: int
    unloaded_bytes: int  # of scout_bytes, what stays in the file
    record_bytes: int  # the largest expert, padded: what a slot of the ring must hold
    description: str
    lineage: str
    architecture: Architecture
    assumed: str  # version 1: where the architecture comes from; else empty
    metadata: dict[str, Any] = field(default_factory=dict)  # the scout's, with `config` parsed


def identify(smoe: Path, scout_path: Path, config_path: Path | None = None) -> Identity:
    """What the pair holds. `config_path`: where the config.json that a version-1 vault needs may be.

    Raises VaultError.
    """
    structure, header, architecture, assumed = read_pair(smoe, scout_path, config_path)
    if problems := trunk.problems(structure, architecture, header):
        raise VaultError("invalid", f"{scout_path}: {problems[0]}; is it the scout of {smoe.name}?")
    metadata = _metadata(header)
    vocab_size = trunk.vocab_size(structure, header)
    matrices = [header.tensors[name] for name in trunk.matrices(header)]
    return Identity(
        vault_path=smoe,
        scout_path=scout_path,
        quant=f"Q{structure.header.bits}",
        bits=structure.header.bits,
        format_version=structure.header.version,
        model_type=architecture.model_type,
        moe_layers=structure.header.moe_layers,
        hidden_layers=architecture.layers,
        experts_per_layer=structure.header.experts_per_layer,
        top_k=architecture.top_k,
        d_model=structure.header.d_model,
        vocab_size=vocab_size,
        heads=architecture.heads,
        kv_heads=architecture.kv_heads,
        head_dim=architecture.head_dim,
        kept_width=architecture.kept_width,
        moe_ffn=architecture.moe_ffn,
        trained_context=model_config.trained_context(metadata.get("config", {})),
        eos_ids=_eos_ids(metadata, vocab_size),
        vault_bytes=structure.length,
        scout_bytes=os.stat(scout_path).st_size,
        matrix_bytes=sum(info.size for info in matrices),
        unloaded_bytes=trunk.left_in_file(header),
        matrix_weights=sum(math.prod(info.shape) for info in matrices),
        record_bytes=int(structure.table["padded_size"].max()),
        description=str(metadata.get("description", "")),
        lineage=str(metadata.get("source_name", "")),
        architecture=architecture,
        assumed=assumed,
        metadata=metadata,
    )


def read_pair(
    smoe: Path, scout_path: Path, config_path: Path | None = None
) -> tuple[Structure, scout.ScoutHeader, Architecture, str]:
    """Both files' headers, the architecture, and what was assumed for it. Raises VaultError."""
    structure = read_structure(smoe)
    header = scout.read_header(scout_path)
    architecture, assumed = structure.architecture, ""
    if architecture is None:
        config, source = _config(structure, header, config_path)
        architecture = _from_config(config, source)
        assumed = f"version 1: architecture from {source}"
    _check_architecture(structure, architecture)
    return structure, header, _with_family(structure, header, architecture), assumed


def _config(structure: Structure, header: scout.ScoutHeader, path: Path | None) -> tuple[dict[str, Any], str]:
    """The config that a version-1 vault needs, and where it was found."""
    if path is not None and os.path.isfile(path):  # False too in a directory that may not be entered
        try:
            return model_config.load(path), str(path)
        except model_config.ConfigError as error:
            raise VaultError("invalid", f"{error}; replace it") from None
    if config := _metadata(header).get("config"):
        return config, "the scout's metadata"
    raise VaultError(
        "invalid",
        f"{structure.path}: version 1 does not say its architecture; put the checkpoint's config.json into "
        f"checkpoints/{structure.path.stem}/",
    )


def _from_config(config: dict[str, Any], source: str) -> Architecture:
    try:
        return model_config.architecture(config)
    except model_config.ConfigError as error:
        raise VaultError("invalid", f"{source}: {error}") from None
    except TypeError:
        raise VaultError("invalid", f"{source}: a field is of another type than config.json files have") from None


def _check_architecture(structure: Structure, a: Architecture) -> None:
    def need(condition: bool, what: str) -> None:
        if not condition:
            raise invalid(structure.path, what)

    last = max(structure.experts)
    need(1 <= a.heads <= 4096, f"num_heads is {a.heads}")
    need(1 <= a.kv_heads <= a.heads and a.heads % a.kv_heads == 0, f"num_kv_heads is {a.kv_heads} of {a.heads}")
    need(2 <= a.head_dim <= 4096 and a.head_dim % 2 == 0, f"head_dim is {a.head_dim}")
    need(last < a.layers <= 1 << 14, f"num_hidden_layers is {a.layers}, the last layer with experts is {last}")
    need(1 <= a.top_k <= min(structure.experts.values()), f"moe_top_k is {a.top_k}, more than a layer's experts")
    need(a.moe_ffn == structure.moe_ffn, f"moe_ffn_dim is {a.moe_ffn}, the experts have {structure.moe_ffn}")
    need(max(a.dense_ffn, a.shared_ffn) <= WIDEST, f"dense_ffn_dim is {a.dense_ffn}, shared {a.shared_ffn}")
    need(not (a.first_layer_dense and 0 in structure.experts), "layer 0 is said to be dense, but it has experts")
    need(len(structure.experts) == a.layers or a.dense_ffn > 0, "dense_ffn_dim is 0, but there are dense layers")
    need(a.activation == layout.ACTIVATION_SILU, f"activation is {a.activation}, supported is 0 (SiLU)")
    need(0 < a.rope_theta < float("inf"), f"rope_theta is {a.rope_theta}")
    need(0 <= a.rms_epsilon < float("inf"), f"rms_norm_eps is {a.rms_epsilon}")


def _with_family(structure: Structure, header: scout.ScoutHeader, a: Architecture) -> Architecture:
    """With what the arch block cannot say of some families: it is in the scout's config, where the engine reads it."""
    config, family = _metadata(header).get("config", {}), families.of(a.model_type)
    told = config.get("model_type")
    if not any(one and one.needs_config for one in (family, families.of(str(told)))):
        return a
    if told != a.model_type:
        found = f"is of {told!r}" if config else "is missing"
        what = f"the vault is of {a.model_type!r}, the config in its scout's metadata {found}"
        raise VaultError("invalid", f"{structure.path}: {what}; shatter its checkpoint again")
    latent = (whole := _from_config(config, f"{header.path}: config")).latent
    if latent and whole.head_dim != a.head_dim:
        raise invalid(structure.path, f"head_dim is {a.head_dim}, the scout's config says {whole.head_dim}")
    return replace(a, latent=latent)


def _metadata(header: scout.ScoutHeader) -> dict[str, Any]:
    """The scout's own, `config` parsed; a config that is no JSON object is left out: nothing depends on it."""
    metadata: dict[str, Any] = dict(header.metadata)
    config = _json(metadata.pop("config", ""))
    return metadata | {"config": config} if isinstance(config, dict) else metadata


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _eos_ids(metadata: Mapping[str, Any], vocab_size: int) -> tuple[int, ...]:
    """The union of what the converter recorded and what the config says."""
    recorded = model_config.token_ids(_json(metadata.get("eos_token_ids", "")))
    ids = recorded | model_config.token_ids(metadata.get("config", {}).get("eos_token_id"))
    return tuple(sorted(i for i in ids if i < vocab_size))
