"""A checkpoint's config.json as an architecture: old and new spellings, class defaults, and what cannot be run.

Defaults, for fields that a config.json leaves out, are the family's (families.py).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .families import FAMILIES, Family
from .layout import Architecture, LatentAttention

Config = Mapping[str, Any]
_MISSING = object()


class ConfigError(ValueError):
    """One line that names the field of config.json and why it cannot be used."""


@dataclass(frozen=True, slots=True)
class Yarn:
    """Frequencies for contexts `factor` times longer than the first training's (https://arxiv.org/abs/2309.00071)."""

    factor: float
    beta_fast: float  # turns over `original` positions: a frequency of more is left as it is
    beta_slow: float  # one of fewer is divided by the factor
    original: int
    truncate: bool  # the bounds between them, to whole dimensions
    attention_factor: float  # of cosines and sines


def load(path: Path) -> dict[str, Any]:
    """A config.json. Raises ConfigError."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read as JSON: {error}") from None
    if not isinstance(config, dict):
        raise ConfigError(f"{path} holds no JSON object")
    return config


def architecture(config: Config) -> Architecture:
    """Raises ConfigError for anything that the arch block cannot say or the engine cannot run."""
    model_type = config.get("model_type")
    if "text_config" in config and "hidden_size" not in config:
        raise ConfigError("text_config: multimodal checkpoints are not supported, use the text-only one")
    if model_type not in FAMILIES:
        raise ConfigError(f"model_type {model_type!r} is not supported; supported are {', '.join(FAMILIES)}")
    family = FAMILIES[model_type]
    heads = _size(config, "num_attention_heads")
    head_dim = _head_dim(config, family, heads)
    _refuse_unsupported(config, family, head_dim)
    moe_ffn = _size(config, family.moe_ffn_field)
    return Architecture(
        renormalize_top_k=family.always_renormalize or bool(config.get("norm_topk_prob", family.renormalize)),
        qk_norm=bool(config.get(family.qk_norm)) if isinstance(family.qk_norm, str) else family.qk_norm,
        first_layer_dense=dense_layers(config) > 0,
        rope_theta=rope_theta(config, family),
        heads=heads,
        kv_heads=_size(config, "num_key_value_heads", heads),
        head_dim=head_dim,
        top_k=_size(config, "num_experts_per_tok"),
        moe_ffn=moe_ffn,
        dense_ffn=_size(config, "intermediate_size", 0),
        shared_ffn=_shared_ffn(config, family, moe_ffn),
        layers=_size(config, "num_hidden_layers"),
        rms_epsilon=_number(config, "rms_norm_eps", family.rms_epsilon),
        model_type=model_type,
        latent=latent(config, family),
    )


def expert_count(config: Config) -> int:
    """`num_local_experts` in what transformers 5 writes, `num_experts` before; `n_routed_experts`: GLM."""
    names = (name for name in ("num_local_experts", "n_routed_experts") if name in config)
    return _size(config, next(names, "num_experts"))


def dense_layers(config: Config) -> int:
    """How many layers at the beginning have no experts."""
    family = FAMILIES[config["model_type"]]
    if family.first_dense is None:
        return int(_first_layer_dense(config))
    if family.layer_kinds:
        return _dense_by_kind(config, family.first_dense)
    return _count(config, "first_k_dense_replace", family.first_dense)


def prediction_layers(config: Config) -> int:
    """Layers for multi-token prediction that a checkpoint keeps behind its last one."""
    default = FAMILIES[config["model_type"]].prediction_layers
    return default and _count(config, "num_nextn_predict_layers", default)


def latent(config: Config, family: Family) -> LatentAttention | None:
    """`q_lora_rank` may be null; left out, it is the class's."""
    widths = family.latent
    if widths is None:
        return None
    rank = _size(config, "kv_lora_rank", widths.kv_lora_rank)
    if not 16 <= rank <= 1 << 14 or rank % 16:
        raise ConfigError(f"kv_lora_rank is {rank}: only multiples of 16 up to 16384 are supported")
    direct = "q_lora_rank" in config and config["q_lora_rank"] is None
    return LatentAttention(
        query_rank=None if direct else _size(config, "q_lora_rank", widths.q_lora_rank),
        rank=rank,
        rope_dim=_size(config, "qk_rope_head_dim", widths.qk_rope_head_dim),
        value_dim=_size(config, "v_head_dim", widths.v_head_dim),
    )


def expert_groups(config: Config, family: Family) -> tuple[int, int]:
    """In how many groups experts are, and of how many a token may choose."""
    if family.groups is None or not _is_grouped(config, family):
        return 1, 1
    count, kept = (_size(config, n, d) for n, d in zip(("n_group", "topk_group"), family.groups, strict=True))
    if kept > count:
        raise ConfigError(f"topk_group is {kept}, of n_group {count}")
    return count, kept


def _is_grouped(config: Config, family: Family) -> bool:
    if family.group_methods is None:
        return True
    grouped, plain = family.group_methods
    method = config.get("topk_method") or plain
    if method not in family.group_methods:
        raise ConfigError(f"topk_method is {method!r}: only {plain} and {grouped} are supported")
    return method == grouped


def routed_scale(config: Config, family: Family) -> float:
    """What the chosen experts' weights are multiplied with."""
    return _number(config, "routed_scaling_factor", family.routed_scale)


def score_scale(config: Config, family: Family) -> float:
    """What attention scores are multiplied with beside 1 / sqrt(head_dim): DeepSeek's class does so with YaRN."""
    stretched = yarn(config, family) if family.latent else None
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if stretched is None or rope.get("mscale_all_dim") is None:
        return 1.0
    return _magnitude(rope, "mscale_all_dim", stretched.factor) ** 2


def rotary_dim(config: Config, family: Family, head_dim: int) -> int:
    """How many elements of a head RoPE turns: the first ones; of latent attention, the last."""
    rope = config.get("rope_parameters") or {}
    if found := latent(config, family):
        return found.rope_dim
    share = rope.get("partial_rotary_factor", config.get("partial_rotary_factor"))
    if share is None and family.needs_config and config.get("rotary_dim") is not None:  # released MiniMax checkpoints
        return _size(config, "rotary_dim")
    share = family.rotary_share if share is None else share
    if type(share) not in (int, float) or not 0 < share <= 1:
        raise ConfigError(f"partial_rotary_factor is {share!r}, not above 0 and up to 1")
    return int(head_dim * share)


def rope_theta(config: Config, family: Family) -> float:
    """`rope_parameters.rope_theta` in what transformers 5 writes, `rope_theta` before."""
    places = (config.get(name) or {} for name in ("rope_scaling", "rope_parameters"))
    source = next((place for place in places if place.get("rope_theta") is not None), config)
    return _number(source, "rope_theta", family.rope_theta)


def yarn(config: Config, family: Family) -> Yarn | None:
    """None where RoPE is plain. `rope_parameters` in what transformers 5 writes, `rope_scaling` before."""
    rope = config.get("rope_scaling") or config.get("rope_parameters") or family.yarn or {}
    if _rope_kind(rope) != "yarn":
        return None
    longest = _size(config, "max_position_embeddings", 1 << 17)
    inside = _size(rope, "original_max_position_embeddings", longest)
    original = _size(config, "original_max_position_embeddings", inside)
    factor = _number(rope, "factor", longest / original)
    if (theta := rope_theta(config, family)) <= 1:
        raise ConfigError(f"rope_theta is {theta}, not above 1")
    truncate = rope.get("truncate", True)
    if not isinstance(truncate, bool):
        raise ConfigError(f"truncate is {truncate!r}, not true or false")
    return Yarn(
        factor=factor,
        beta_fast=_number(rope, "beta_fast", 32.0),
        beta_slow=_number(rope, "beta_slow", 1.0),
        original=original,
        truncate=truncate,
        attention_factor=_number(rope, "attention_factor", _attention_factor(rope, factor)),
    )


def _attention_factor(rope: Config, factor: float) -> float:
    if rope.get("mscale") is not None and rope.get("mscale_all_dim") is not None:
        return _magnitude(rope, "mscale", factor) / _magnitude(rope, "mscale_all_dim", factor)
    return 0.1 * math.log(max(factor, 1.0)) + 1.0


def _magnitude(rope: Config, name: str, factor: float) -> float:
    return 0.1 * _number(rope, name, 1.0) * math.log(factor) + 1.0 if factor > 1 else 1.0


def layer_windows(config: Config, family: Family) -> list[int | None]:
    """How many positions a query of each layer sees, up to its own; None: all."""
    layers = _size(config, "num_hidden_layers")
    if family.sliding_window is None:
        return [None] * layers
    default = ["full_attention" if layer % 2 else "sliding_attention" for layer in range(layers)]
    kinds = default if config.get("layer_types") is None else config["layer_types"]
    if not isinstance(kinds, list) or len(kinds) != layers or any(kind not in default for kind in kinds):
        raise ConfigError(f"layer_types is not a list of {layers} times sliding_attention or full_attention")
    window = _size(config, "sliding_window", family.sliding_window)
    return [window if kind == "sliding_attention" else None for kind in kinds]


def trained_context(config: Config) -> int | None:
    value = config.get("max_position_embeddings")
    return value if type(value) is int and value > 0 else None


def token_ids(value: Any) -> set[int]:
    """Ids of a field that holds one id, a list of them, or nothing."""
    values = value if isinstance(value, list) else [value]
    return {i for i in values if type(i) is int and i >= 0}


def _size(config: Config, name: str, default: Any = _MISSING) -> int:
    value = config.get(name)
    if value is None and default is not _MISSING:
        return default
    if type(value) is not int or not 0 < value < 1 << 31:
        raise ConfigError(f"{name} is {value!r}, not a positive whole number")
    return value


def _count(config: Config, name: str, default: int) -> int:
    value = config.get(name)
    if value is None:
        return default
    if type(value) is not int or not 0 <= value < 1 << 14:
        raise ConfigError(f"{name} is {value!r}, not a number of layers")
    return value


def _shared_ffn(config: Config, family: Family, moe_ffn: int) -> int:
    if family.shared_experts is not None:
        return _size(config, "n_shared_experts", family.shared_experts) * moe_ffn
    return _size(config, family.shared_ffn_field) if family.shared_ffn_field else 0


def _number(config: Config, name: str, default: float) -> float:
    value = config.get(name)
    if value is None:
        return default
    if type(value) not in (int, float) or not value > 0:
        raise ConfigError(f"{name} is {value!r}, not a positive number")
    return float(value)


def _dense_by_kind(config: Config, default: int) -> int:
    kinds = config.get("mlp_layer_types")
    if kinds is None:
        return default
    layers = _size(config, "num_hidden_layers")
    dense = kinds.count("dense") if isinstance(kinds, list) else 0
    if kinds != ["dense"] * dense + ["sparse"] * (layers - dense):
        raise ConfigError(f"mlp_layer_types is not a list of dense layers and then sparse ones, {layers} together")
    return dense


def _head_dim(config: Config, family: Family, heads: int) -> int:
    if widths := family.latent:  # what its head_dim says is another width
        return sum(_size(config, name, getattr(widths, name)) for name in ("qk_nope_head_dim", "qk_rope_head_dim"))
    return _size(config, "head_dim", family.head_dim or _size(config, "hidden_size") // heads)


def _first_layer_dense(config: Config) -> bool:
    dense = config.get("mlp_only_layers") or []
    if config.get("decoder_sparse_step", 1) != 1:
        raise ConfigError(f"decoder_sparse_step is {config['decoder_sparse_step']}: only layer 0 may be dense")
    if dense not in ([], [0]):
        raise ConfigError(f"mlp_only_layers is {dense}: only layer 0 may be dense")
    return dense == [0]


def _refuse_unsupported(config: Config, family: Family, head_dim: int) -> None:
    for name, value in family.only.items():
        if config.get(name) not in (None, value):
            raise ConfigError(f"{name} is {config[name]!r}: only {value} is supported")
    if family.needs_config:
        routed_scale(config, family)  # the engine reads it
    _refuse_groups(config, family)
    _refuse_latent(config, family, head_dim)
    if config.get("hidden_act", "silu") not in ("silu", "swish"):
        raise ConfigError(f"hidden_act is {config['hidden_act']!r}: only silu is supported")
    if family.clamped_swiglu:
        for name in ("swiglu_alpha", "swiglu_limit"):
            _number(config, name, 1.0)  # the engine reads it
    _refuse_rope_scaling(config, family)
    _refuse_rotary_dim(config, family, head_dim)
    _refuse_sliding_window(config, family)


def _refuse_groups(config: Config, family: Family) -> None:
    count, kept = expert_groups(config, family)
    if count == 1:
        return
    experts, top_k = expert_count(config), _size(config, "num_experts_per_tok")
    if experts % count or experts < 2 * count or experts // count * kept < top_k:
        raise ConfigError(f"n_group is {count}, topk_group {kept}: not with {experts} experts and {top_k} of them used")


def _refuse_latent(config: Config, family: Family, head_dim: int) -> None:
    if family.latent is None:
        return
    if head_dim % 2 or head_dim > 4096:
        raise ConfigError(f"qk_nope_head_dim and qk_rope_head_dim are {head_dim} together, not even and up to 4096")
    if (value_dim := latent(config, family).value_dim) > 4096:
        raise ConfigError(f"v_head_dim is {value_dim}, more than 4096")
    heads, keys = _size(config, "num_attention_heads"), _size(config, "num_key_value_heads", None)
    if keys not in (None, heads):
        raise ConfigError(f"num_key_value_heads is {keys}, of {heads} heads: all have their own")
    rope = config.get("rope_parameters") or {}
    for share in (rope.get("partial_rotary_factor"), config.get("partial_rotary_factor")):
        if share not in (None, 1):
            raise ConfigError(f"partial_rotary_factor is {share!r}: RoPE turns all of qk_rope_head_dim")
    if not isinstance(config.get("rope_interleave", True), bool):
        raise ConfigError(f"rope_interleave is {config['rope_interleave']!r}, not true or false")
    score_scale(config, family)  # the engine reads it


def _rope_kind(parameters: Config) -> Any:
    return parameters.get("rope_type", parameters.get("type", "default"))


def _refuse_rope_scaling(config: Config, family: Family) -> None:
    for name in ("rope_scaling", "rope_parameters"):
        parameters = config.get(name) or {}
        if not isinstance(parameters, dict):
            raise ConfigError(f"{name} is not an object")
        kind = _rope_kind(parameters)
        kinds = ("default", "yarn") if family.yarn else ("default",)
        if kind not in kinds:
            raise ConfigError(f"{name}.rope_type is {kind!r}: only {' and '.join(kinds)} can be read")
    yarn(config, family)  # the engine reads it


def _refuse_rotary_dim(config: Config, family: Family, head_dim: int) -> None:
    dim = rotary_dim(config, family, head_dim)
    if dim != head_dim and not family.needs_config:
        raise ConfigError(
            f"partial_rotary_factor is {dim / head_dim:g}: only 1 is supported for {config['model_type']}"
        )
    if not 2 <= dim <= head_dim or dim % 2:
        raise ConfigError(f"RoPE over {dim} of a head's {head_dim} elements: only an even number of them is supported")


def _refuse_sliding_window(config: Config, family: Family) -> None:
    if family.sliding_window is not None:
        layer_windows(config, family)  # the engine reads it
        return
    kinds = set(config.get("layer_types") or []) - {"full_attention"}
    if kinds:
        raise ConfigError(f"layer_types holds {', '.join(map(str, sorted(kinds)))}: only full_attention is supported")
    window = config.get("sliding_window") if config.get("use_sliding_window", True) else None
    if window and window < (trained_context(config) or window + 1):
        raise ConfigError(f"sliding_window is {window}: only full attention is supported")
