"""The model that is measured: Qwen3-30B-A3B's shape with random weights, or fewer of its layers."""

from __future__ import annotations

from fleet.vaultfile.layout import Architecture
from fleet.vaultfile.writer import VaultPlan

LAYERS = 48
D_MODEL = 2048
VOCABULARY = 151_936
EXPERTS = 128
# Of the attention's output projection only, so that a deep stack of random layers keeps its activations' size.
OUTPUT_GAIN = 0.3


def plan(layers: int = LAYERS) -> VaultPlan:
    architecture = Architecture(
        renormalize_top_k=True,
        qk_norm=True,
        first_layer_dense=False,
        rope_theta=1e6,
        heads=32,
        kv_heads=4,
        head_dim=128,
        top_k=8,
        moe_ffn=768,
        dense_ffn=0,
        shared_ffn=0,
        layers=layers,
        rms_epsilon=1e-6,
        model_type="qwen3_moe",
    )
    return VaultPlan(architecture, 4, D_MODEL, VOCABULARY, tuple(range(layers)), EXPERTS)


def deviation(name: str, columns: int) -> float:
    """Standard deviation of a random matrix's weights; `name` as in checkpoints."""
    if name.endswith("embed_tokens.weight"):
        return 1.0
    return columns**-0.5 * (OUTPUT_GAIN if name.endswith("o_proj.weight") else 1)
