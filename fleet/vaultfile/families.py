"""What the class of a model_type fixes, and its defaults for fields that a config.json leaves out.

As in the model classes of transformers 5.24.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Latent:
    """Widths of a class with latent attention, by the config's names."""

    q_lora_rank: int = 1536
    kv_lora_rank: int = 512
    qk_rope_head_dim: int = 64
    qk_nope_head_dim: int = 128
    v_head_dim: int = 128


@dataclass(frozen=True, slots=True)
class Family:
    qk_norm: bool | str  # of each head, before RoPE; or the config's field that says so
    always_renormalize: bool = False
    renormalize: bool = False  # where norm_topk_prob is absent
    rms_epsilon: float = 1e-6
    rope_theta: float = 10_000.0
    head_dim: int | None = None  # None: hidden_size / heads
    moe_ffn_field: str = "moe_intermediate_size"
    shared_ffn_field: str | None = None
    shared_experts: int | None = None  # default of n_shared_experts, each as wide as a routed one; None: no such field
    first_dense: int | None = None  # default of first_k_dense_replace; None: mlp_only_layers says it
    layer_kinds: bool = False  # mlp_layer_types says it in place of first_k_dense_replace
    bias_field: str | None = None  # says whether queries, keys and values have biases; None: the tensors do
    biased: bool = False  # where the config does not say
    prediction_layers: int = 0  # default of num_nextn_predict_layers: behind the last layer, not used
    needs_config: bool = False  # the arch block cannot say all of it: the scout's metadata must hold the config
    sigmoid_router: bool = False  # with a correction bias, which the choice alone uses
    groups: tuple[int, int] | None = None  # defaults of n_group and topk_group; None: the class knows none
    group_methods: tuple[str, str] | None = None  # of topk_method, with groups and without, its default; None: with
    routed_scale: float = 1.0  # default of routed_scaling_factor
    latent: Latent | None = None  # of latent attention; None: grouped queries
    whole_qk_norm: bool = False  # over all heads together
    rotary_share: float = 1.0  # of each head, where the config does not say
    yarn: Mapping[str, Any] | None = None  # rope_parameters where the config has none; None: cannot be YaRN's
    sliding_window: int | None = None  # of every other layer from the first on, where the config does not say
    sinks: bool = False  # a logit of each head that takes part in the softmax and has no value
    biased_experts: bool = False  # and their router
    clamped_swiglu: bool = False  # (up + 1) * gate * sigmoid(alpha * gate), both within limits
    mxfp4: bool = False  # as released: fused experts of 4 bits
    only: dict[str, object] = field(default_factory=dict)  # fields that have this value where they are there


_DEEPSEEK_V3 = Family(
    qk_norm=False,
    renormalize=True,
    shared_experts=1,
    first_dense=3,
    bias_field="attention_bias",
    prediction_layers=1,
    needs_config=True,
    sigmoid_router=True,
    groups=(8, 4),
    routed_scale=2.5,
    latent=Latent(),
    yarn={"rope_type": "default"},
    only={"scoring_func": "sigmoid", "topk_method": "noaux_tc", "moe_layer_freq": 1, "index_topk": None},
)

FAMILIES = {
    "qwen3_moe": Family(qk_norm=True),
    "qwen2_moe": Family(qk_norm=False, shared_ffn_field="shared_expert_intermediate_size"),
    "mixtral": Family(
        qk_norm=False,
        always_renormalize=True,
        rms_epsilon=1e-5,
        rope_theta=1e6,
        moe_ffn_field="intermediate_size",
    ),
    "glm4_moe": Family(
        qk_norm="use_qk_norm",
        renormalize=True,
        rms_epsilon=1e-5,
        shared_experts=1,
        first_dense=1,
        bias_field="attention_bias",
        prediction_layers=1,
        needs_config=True,
        sigmoid_router=True,
        groups=(1, 1),
        rotary_share=0.5,
        only={"scoring_func": "sigmoid", "topk_method": "noaux_tc"},
    ),
    "minimax_m2": Family(
        qk_norm=False,
        always_renormalize=True,
        rope_theta=5e6,
        head_dim=128,
        moe_ffn_field="intermediate_size",
        needs_config=True,
        sigmoid_router=True,
        whole_qk_norm=True,
        only={"scoring_func": "sigmoid", "routed_scaling_factor": 1, "n_group": 1, "topk_group": 1},
    ),
    "olmoe": Family(
        qk_norm=False,
        rms_epsilon=1e-5,
        moe_ffn_field="intermediate_size",
        bias_field="attention_bias",
        needs_config=True,
        whole_qk_norm=True,
        only={"clip_qkv": None},
    ),
    "gpt_oss": Family(
        qk_norm=False,
        always_renormalize=True,
        rms_epsilon=1e-5,
        rope_theta=150_000.0,
        head_dim=64,
        moe_ffn_field="intermediate_size",
        bias_field="attention_bias",
        biased=True,
        needs_config=True,
        yarn={
            "rope_type": "yarn",
            "factor": 32.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": False,
            "original_max_position_embeddings": 4096,
        },
        sliding_window=128,
        sinks=True,
        biased_experts=True,
        clamped_swiglu=True,
        mxfp4=True,
    ),
    "deepseek_v3": _DEEPSEEK_V3,
    "kimi_k2": _DEEPSEEK_V3,
    "glm4_moe_lite": Family(
        qk_norm=False,
        renormalize=True,
        rms_epsilon=1e-5,
        shared_experts=1,
        first_dense=1,
        layer_kinds=True,
        bias_field="attention_bias",
        prediction_layers=1,
        needs_config=True,
        sigmoid_router=True,
        groups=(1, 1),
        routed_scale=1.8,
        latent=Latent(q_lora_rank=768, qk_nope_head_dim=192, v_head_dim=256),
        yarn={"rope_type": "default"},
        only={"scoring_func": "sigmoid", "topk_method": "noaux_tc", "index_topk": None},
    ),
    "deepseek_v2": Family(
        qk_norm=False,
        shared_experts=2,
        first_dense=0,
        bias_field="attention_bias",
        needs_config=True,
        groups=(1, 1),
        group_methods=("group_limited_greedy", "greedy"),
        latent=Latent(),
        yarn={"rope_type": "default"},
        only={
            "scoring_func": "softmax",
            "norm_topk_prob": False,  # which its class ignores
            "moe_layer_freq": 1,
            "rope_interleave": True,
            "mlp_bias": False,
            "index_topk": None,
        },
    ),
}


def of(model_type: str) -> Family | None:
    """None where the arch block tells everything."""
    return FAMILIES.get(model_type)
