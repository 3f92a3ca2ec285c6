"""Tiny checkpoints of the families whose class does more than the arch block says; the same bytes wherever made.

Names, dtypes and configs are those of released checkpoints.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fleet.vaultfile import scout
from fleet.vaultfile.scout import TensorSpec

from . import eight_bit

HIDDEN, VOCABULARY, EXPERTS, HEAD_DIM = 64, 128, 8, 32
SIZES = {
    "hidden_size": HIDDEN,
    "vocab_size": VOCABULARY,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": HEAD_DIM,
    "num_experts_per_tok": 3,
    "max_position_embeddings": 4096,
    "eos_token_id": [127],
    "hidden_act": "silu",
}
GLM = SIZES | {
    "model_type": "glm4_moe",
    "architectures": ["Glm4MoeForCausalLM"],
    "n_routed_experts": EXPERTS,
    "n_shared_experts": 1,
    "moe_intermediate_size": 64,
    "intermediate_size": 96,
    "num_nextn_predict_layers": 1,
    "rope_theta": 1e4,
    "rms_norm_eps": 1e-5,
}
GPT_OSS = SIZES | {
    "model_type": "gpt_oss",
    "architectures": ["GptOssForCausalLM"],
    "hidden_size": 192,  # an odd number of groups of 64, as 2880 is
    "intermediate_size": 320,
    "num_hidden_layers": 4,
    "num_local_experts": EXPERTS,
    "sliding_window": 16,
    "rms_norm_eps": 1e-5,
}
DEEPSEEK = SIZES | {
    "model_type": "deepseek_v3",
    "architectures": ["DeepseekV3ForCausalLM"],
    "num_hidden_layers": 3,
    "num_key_value_heads": 4,
    "head_dim": 16,  # as transformers writes it, of RoPE's part alone
    "n_routed_experts": EXPERTS,
    "n_shared_experts": 1,
    "moe_intermediate_size": 64,
    "intermediate_size": 96,
    "kv_lora_rank": 48,  # a row is not whole groups of 64, where 512 is
    "qk_nope_head_dim": 24,
    "qk_rope_head_dim": 16,
    "v_head_dim": 20,
    "first_k_dense_replace": 1,
    "rope_theta": 1e4,
    "rms_norm_eps": 1e-2,  # the latents' norms have their own
}
CONFIGS = {
    # As GLM-4.5 and 4.6: norms, biases, several dense layers; with another scale than 1.
    "glm4_moe": GLM
    | {
        "num_hidden_layers": 4,
        "first_k_dense_replace": 2,
        "use_qk_norm": True,
        "attention_bias": True,
        "partial_rotary_factor": 0.5,
        "norm_topk_prob": True,
        "n_group": 1,
        "topk_group": 1,
        "routed_scaling_factor": 1.5,
    },
    "glm4_moe_groups": GLM | {"num_hidden_layers": 3, "n_group": 4, "topk_group": 2},
    # As GLM-4.5-Air, and whatever may be left out is left to the class's defaults.
    "glm4_moe_air": GLM | {"num_hidden_layers": 3},
    "minimax_m2": SIZES
    | {
        "model_type": "minimax_m2",
        "architectures": ["MiniMaxM2ForCausalLM"],
        "num_hidden_layers": 3,
        "intermediate_size": 64,
        "num_local_experts": EXPERTS,
        "rotary_dim": 16,
        "rope_theta": 5e6,
        "rms_norm_eps": 1e-6,
        "scoring_func": "sigmoid",
        "use_qk_norm": True,
        "qk_norm_type": "per_layer",
        "use_routing_bias": True,
        "shared_intermediate_size": 0,
        "attn_type_list": [1, 1, 1],
    },
    "olmoe": SIZES
    | {
        "model_type": "olmoe",
        "architectures": ["OlmoeForCausalLM"],
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "intermediate_size": 64,
        "num_experts": EXPERTS,
        "norm_topk_prob": False,
        "attention_bias": False,
        "clip_qkv": None,
        "rope_theta": 1e4,
        "rms_norm_eps": 1e-5,
    },
    # As transformers saves one, with limits that are met; whatever may be left out is left to the class's defaults.
    "gpt_oss": GPT_OSS
    | {
        "swiglu_limit": 1.25,
        "swiglu_alpha": 1.5,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 1e4,
            "factor": 8.0,
            "original_max_position_embeddings": 512,
            "attention_factor": 1.25,
        },
    },
    "gpt_oss_mxfp4": GPT_OSS
    | {
        "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
        "attention_bias": True,
        "swiglu_limit": 7.0,
        "rope_theta": 150000,
        "rope_scaling": {
            "beta_fast": 16.0,
            "beta_slow": 2.0,
            "factor": 4.0,
            "original_max_position_embeddings": 1024,
            "rope_type": "yarn",
            "truncate": False,
        },
        "initial_context_length": 4096,
        "experts_per_token": 3,
        "quantization_config": {
            "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "lm_head"],
            "quant_method": "mxfp4",
        },
    },
}
CONFIGS |= {
    # As DeepSeek-V3 and R1; mscale and mscale_all_dim differ, so that both are seen.
    "deepseek_v3": DEEPSEEK
    | {
        "q_lora_rank": 40,
        "first_k_dense_replace": 2,
        "num_hidden_layers": 4,
        "num_nextn_predict_layers": 1,
        "n_group": 2,
        "topk_group": 1,
        "topk_method": "noaux_tc",
        "scoring_func": "sigmoid",
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
        "attention_bias": False,
        "moe_layer_freq": 1,
        "rope_scaling": {
            "beta_fast": 32,
            "beta_slow": 1,
            "factor": 40,
            "mscale": 1.0,
            "mscale_all_dim": 0.5,
            "original_max_position_embeddings": 64,
            "type": "yarn",
        },
    },
    # As Moonlight: queries come from the hidden state, RoPE is plain; with biases and RoPE over halves; whatever may be
    # left out is left to the class's defaults.
    "deepseek_v3_direct": DEEPSEEK
    | {
        "q_lora_rank": None,
        "kv_lora_rank": 64,
        "n_group": 1,
        "topk_group": 1,
        "n_shared_experts": 2,
        "attention_bias": True,
        "rope_interleave": False,
        "num_nextn_predict_layers": 0,
    },
    # As GLM-4.7-Flash.
    "glm4_moe_lite": DEEPSEEK
    | {
        "model_type": "glm4_moe_lite",
        "architectures": ["Glm4MoeLiteForCausalLM"],
        "q_lora_rank": 48,
        "kv_lora_rank": 64,
        "mlp_layer_types": ["dense", "sparse", "sparse"],
        "num_nextn_predict_layers": 1,
        "partial_rotary_factor": 1.0,
        "topk_method": "noaux_tc",
        "rope_theta": 1e6,
    },
    # As DeepSeek-V2.
    "deepseek_v2": DEEPSEEK
    | {
        "model_type": "deepseek_v2",
        "architectures": ["DeepseekV2ForCausalLM"],
        "q_lora_rank": 40,
        "n_shared_experts": 2,
        "n_group": 4,
        "topk_group": 2,
        "topk_method": "group_limited_greedy",
        "scoring_func": "softmax",
        "norm_topk_prob": False,
        "routed_scaling_factor": 4.0,
        "moe_layer_freq": 1,
        "rope_scaling": {
            "beta_fast": 32,
            "beta_slow": 1,
            "factor": 40,
            "mscale": 0.707,
            "mscale_all_dim": 0.707,
            "original_max_position_embeddings": 64,
            "type": "yarn",
        },
    },
    # As DeepSeek-V2-Lite.
    "deepseek_v2_lite": DEEPSEEK
    | {
        "model_type": "deepseek_v2",
        "architectures": ["DeepseekV2ForCausalLM"],
        "q_lora_rank": None,
        "n_shared_experts": 2,
        "n_group": 1,
        "topk_group": 1,
        "topk_method": "greedy",
    },
    # As Kimi K2.
    "kimi_k2": DEEPSEEK
    | {
        "model_type": "kimi_k2",
        "q_lora_rank": 64,
        "kv_lora_rank": 64,
        "n_group": 1,
        "topk_group": 1,
        "topk_method": "noaux_tc",
        "scoring_func": "sigmoid",
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.827,
        "num_nextn_predict_layers": 0,
        "rope_theta": 50000.0,
        "rope_scaling": {
            "beta_fast": 1.0,
            "beta_slow": 1.0,
            "factor": 32.0,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "original_max_position_embeddings": 128,
            "type": "yarn",
        },
    },
}
EIGHT_BIT = {  # as MiniMax-M2, GLM-4.5-Air-FP8 and DeepSeek-V3 are released
    "minimax_m2_fp8": CONFIGS["minimax_m2"] | {"quantization_config": eight_bit.FINE_GRAINED},
    "glm4_moe_air_fp8": CONFIGS["glm4_moe_air"] | {"quantization_config": eight_bit.compressed_tensors("channel")},
    "deepseek_v3_fp8": CONFIGS["deepseek_v3"] | {"quantization_config": eight_bit.FINE_GRAINED},
}
CONFIGS |= EIGHT_BIT


def write(folder: Path, name: str) -> Path:
    """config.json and model.safetensors of CONFIGS[name]."""
    folder.mkdir(parents=True, exist_ok=True)
    config = CONFIGS[name]
    (folder / "config.json").write_text(json.dumps(config))
    specs = [TensorSpec(name, _dtype(name), shape) for name, shape in sorted(_shapes(config))]
    with open(folder / "model.safetensors", "wb") as file:
        scout.write(file, specs, _tensors(specs), {"format": "pt"})
    if name in EIGHT_BIT:
        eight_bit.rewrite(folder)
    return folder


def _dtype(name: str) -> str:
    if name.endswith(("_blocks", "_scales")):
        return "U8"
    return "F32" if name.endswith("e_score_correction_bias") else "BF16"


def _tensors(specs: list[TensorSpec]) -> Iterator[np.ndarray]:
    bits = np.random.PCG64(7)
    for spec in specs:
        values = _values(spec, bits)
        yield scout.to_bfloat16(values) if spec.dtype == "BF16" else values


def _values(spec: TensorSpec, bits: np.random.PCG64) -> np.ndarray:
    """The raw stream is the same in every version of numpy. Uniform, so that activations keep their size."""
    raw = bits.random_raw(int(np.prod(spec.shape))).reshape(spec.shape)
    if spec.name.endswith("_blocks"):
        return (raw >> np.uint64(56)).astype(np.uint8)
    if spec.name.endswith("_scales"):  # 2^-7 to 2^-4
        return (raw >> np.uint64(62)).astype(np.uint8) + np.uint8(120)
    even = ((raw >> np.uint64(40)) / np.float64(1 << 23) - 1).astype(np.float32)  # within -1 and 1
    if spec.name.endswith("norm.weight"):
        return 1 + even / 2
    if spec.name.endswith("sinks"):
        return even * 2
    if len(spec.shape) == 1 or spec.name.endswith("_bias"):  # of the attention, of the choice of experts, of experts
        return even / 2
    sharper = 4 if spec.name.endswith((".gate.weight", ".router.weight")) else 1  # no choice hangs on a sum's last bit
    return even * np.float32(sharper * (3 / spec.shape[-2 if len(spec.shape) == 3 else -1]) ** 0.5)


def _shapes(config: dict) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden = config["hidden_size"]
    yield "model.embed_tokens.weight", (VOCABULARY, hidden)
    yield "lm_head.weight", (VOCABULARY, hidden)
    yield "model.norm.weight", (hidden,)
    layer = LAYERS[config["model_type"]]
    layers = config["num_hidden_layers"]
    for number in range(layers + config.get("num_nextn_predict_layers", 0)):
        for name, shape in layer(config, number):
            yield f"model.layers.{number}.{name}", shape
    if config.get("num_nextn_predict_layers"):
        for name, shape in {"eh_proj": (HIDDEN, 2 * HIDDEN), "enorm": (HIDDEN,), "hnorm": (HIDDEN,)}.items():
            yield f"model.layers.{layers}.{name}.weight", shape


def _attention(config: dict) -> dict[str, tuple[int, ...]]:
    hidden = config["hidden_size"]
    heads = {n: HEAD_DIM * config[f"num_{kind}_heads"] for n, kind in (("q", "attention"), ("k", "key_value"))}
    widths = heads | {"v": heads["k"]}
    shapes = {f"self_attn.{n}_proj.weight": (width, hidden) for n, width in widths.items()}
    if config.get("attention_bias"):
        shapes |= {f"self_attn.{n}_proj.bias": (width,) for n, width in widths.items()}
    whole = config["model_type"] in ("minimax_m2", "olmoe")
    if whole or config.get("use_qk_norm"):
        shapes |= {f"self_attn.{n}_norm.weight": (heads[n] if whole else HEAD_DIM,) for n in "qk"}
    norms = {f"{n}_layernorm.weight": (hidden,) for n in ("input", "post_attention")}
    return shapes | norms | {"self_attn.o_proj.weight": (hidden, heads["q"])}


def _mlp(prefix: str, width: int, names: tuple[str, str, str]) -> dict[str, tuple[int, ...]]:
    shapes = ((width, HIDDEN), (width, HIDDEN), (HIDDEN, width))
    return {f"{prefix}.{name}.weight": shape for name, shape in zip(names, shapes, strict=True)}


def _experts(prefix: str, width: int, names: tuple[str, str, str]) -> dict[str, tuple[int, ...]]:
    shapes = {f"{prefix}.gate.weight": (EXPERTS, HIDDEN)}
    for expert in range(EXPERTS):
        shapes |= _mlp(f"{prefix}.experts.{expert}", width, names)
    return shapes


def _glm_layer(config: dict, number: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    names, width = ("gate_proj", "up_proj", "down_proj"), config["moe_intermediate_size"]
    yield from _attention(config).items()
    if number < config.get("first_k_dense_replace", 1):
        yield from _mlp("mlp", config["intermediate_size"], names).items()
        return
    yield "mlp.gate.e_score_correction_bias", (EXPERTS,)
    yield from _experts("mlp", width, names).items()
    yield from _mlp("mlp.shared_experts", width, names).items()


def _latent_attention(config: dict) -> dict[str, tuple[int, ...]]:
    heads, rank, rope = config["num_attention_heads"], config["kv_lora_rank"], config["qk_rope_head_dim"]
    queries, values = heads * (config["qk_nope_head_dim"] + rope), heads * config["v_head_dim"]
    shapes = {
        "kv_a_proj_with_mqa.weight": (rank + rope, HIDDEN),
        "kv_a_layernorm.weight": (rank,),
        "kv_b_proj.weight": (heads * config["qk_nope_head_dim"] + values, rank),
        "o_proj.weight": (HIDDEN, values),
    }
    if inner := config["q_lora_rank"]:
        shapes |= {"q_a_proj.weight": (inner, HIDDEN), "q_a_layernorm.weight": (inner,)}
        shapes |= {"q_b_proj.weight": (queries, inner)}
    else:
        shapes |= {"q_proj.weight": (queries, HIDDEN)}
    if config.get("attention_bias"):
        shapes |= {"kv_a_proj_with_mqa.bias": (rank + rope,), "o_proj.bias": (HIDDEN,)}
    norms = {f"{n}_layernorm.weight": (HIDDEN,) for n in ("input", "post_attention")}
    return norms | {f"self_attn.{name}": shape for name, shape in shapes.items()}


def _deepseek_layer(config: dict, number: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    names, width = ("gate_proj", "up_proj", "down_proj"), config["moe_intermediate_size"]
    yield from _latent_attention(config).items()
    if number < config["first_k_dense_replace"]:
        yield from _mlp("mlp", config["intermediate_size"], names).items()
        return
    if config["model_type"] != "deepseek_v2":
        yield "mlp.gate.e_score_correction_bias", (EXPERTS,)
    yield from _experts("mlp", width, names).items()
    yield from _mlp("mlp.shared_experts", width * config["n_shared_experts"], names).items()


def _minimax_layer(config: dict, _: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield from _attention(config).items()
    yield "block_sparse_moe.e_score_correction_bias", (EXPERTS,)
    yield from _experts("block_sparse_moe", config["intermediate_size"], ("w1", "w3", "w2")).items()


def _olmoe_layer(config: dict, _: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield from _attention(config).items()
    yield from _experts("mlp", config["intermediate_size"], ("gate_proj", "up_proj", "down_proj")).items()


def _gpt_oss_layer(config: dict, _: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, width = config["hidden_size"], config["intermediate_size"]
    yield from _attention(config | {"attention_bias": True}).items()
    yield "self_attn.o_proj.bias", (hidden,)
    yield "self_attn.sinks", (config["num_attention_heads"],)
    yield "mlp.router.weight", (EXPERTS, hidden)
    yield "mlp.router.bias", (EXPERTS,)
    for part, inner, outer in (("gate_up_proj", hidden, 2 * width), ("down_proj", width, hidden)):
        name = f"mlp.experts.{part}"
        yield f"{name}_bias", (EXPERTS, outer)
        if "quantization_config" not in config:
            yield name, (EXPERTS, inner, outer)
            continue
        yield f"{name}_blocks", (EXPERTS, outer, inner // 32, 16)
        yield f"{name}_scales", (EXPERTS, outer, inner // 32)


LAYERS = {
    "glm4_moe": _glm_layer,
    "minimax_m2": _minimax_layer,
    "olmoe": _olmoe_layer,
    "gpt_oss": _gpt_oss_layer,
    "deepseek_v3": _deepseek_layer,
    "kimi_k2": _deepseek_layer,
    "glm4_moe_lite": _deepseek_layer,
    "deepseek_v2": _deepseek_layer,
}
