"""The tensors that a scout must hold for an architecture, and what their shapes tell where no arch block does."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .errors import VaultError
from .layout import Architecture
from .scout import FLOAT_DTYPES, ScoutHeader, TensorInfo

if TYPE_CHECKING:
    from .reader import Structure

Shapes = dict[str, tuple[int, ...]]
EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"  # absent when tied to the embedding
SHARED_GATE = "shared_expert_gate.weight"
ROUTERS = ("mlp.gate.weight", "block_sparse_moe.gate.weight")
_LAYER = re.compile(r"model\.layers\.(\d{1,4})\.(.+)")


def _attention(a: Architecture, d_model: int) -> Shapes:
    shapes = {
        "input_layernorm.weight": (d_model,),
        "post_attention_layernorm.weight": (d_model,),
        "self_attn.q_proj.weight": (a.heads * a.head_dim, d_model),
        "self_attn.k_proj.weight": (a.kv_heads * a.head_dim, d_model),
        "self_attn.v_proj.weight": (a.kv_heads * a.head_dim, d_model),
        "self_attn.o_proj.weight": (d_model, a.heads * a.head_dim),
    }
    if a.qk_norm:
        shapes |= {"self_attn.q_norm.weight": (a.head_dim,), "self_attn.k_norm.weight": (a.head_dim,)}
    return shapes


def _mlp(prefix: str, d_model: int, ffn: int) -> Shapes:
    return {
        f"{prefix}.gate_proj.weight": (ffn, d_model),
        f"{prefix}.up_proj.weight": (ffn, d_model),
        f"{prefix}.down_proj.weight": (d_model, ffn),
    }


def layer_shapes(a: Architecture, d_model: int, experts: int, is_moe: bool, router: str) -> Shapes:
    """Names within `model.layers.N.` and their shapes. A shared expert's gate is optional and not among them."""
    if not is_moe:
        return _attention(a, d_model) | _mlp("mlp", d_model, a.dense_ffn)
    shared = _mlp("mlp.shared_expert", d_model, a.shared_ffn) if a.shared_ffn else {}
    return _attention(a, d_model) | {router: (experts, d_model)} | shared


def shapes(
    a: Architecture, d_model: int, vocab_size: int, moe_layers: tuple[int, ...], experts: int, router: str
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Every tensor that the scout must hold, with its shape. A head is optional and not among them."""
    yield EMBEDDING, (vocab_size, d_model)
    yield "model.norm.weight", (d_model,)
    for layer in range(a.layers):
        for name, shape in layer_shapes(a, d_model, experts, layer in moe_layers, router).items():
            yield f"model.layers.{layer}.{name}", shape


def router_name(tensors: Mapping[str, Any], layer: int) -> str:
    """Mixtral calls its MoE block otherwise."""
    return next((name for name in ROUTERS if f"model.layers.{layer}.{name}" in tensors), ROUTERS[0])


def problems(structure: Structure, a: Architecture, header: ScoutHeader) -> list[str]:
    """What a scout lacks to be the trunk of this vault: one short line each, the first hundred."""
    file, found = structure.header, []
    router = router_name(header.tensors, structure.moe_layers[0])
    expected = dict(shapes(a, file.d_model, file.vocab_size, structure.moe_layers, file.experts_per_layer, router))
    if HEAD in header.tensors:
        expected[HEAD] = (file.vocab_size, file.d_model)
    for name, shape in expected.items():
        if problem := _problem(name, shape, header.tensors.get(name)):
            found.append(problem)
        if len(found) == 100:
            break
    return found


def _problem(name: str, shape: tuple[int, ...], info: TensorInfo | None) -> str:
    if info is None:
        return f"{name} is missing"
    if info.shape != shape:
        return f"{name} is {list(info.shape)}, expected {list(shape)}"
    if info.dtype not in FLOAT_DTYPES:
        return f"{name} is {info.dtype}, supported are {', '.join(FLOAT_DTYPES)}"
    return ""


def guess_architecture(structure: Structure, header: ScoutHeader, moe_ffn: int) -> tuple[Architecture, str]:
    """A version-1 vault without a config: shapes where they tell, the family's habits where they do not.

    Returns the architecture and a sentence that names what was guessed. Raises VaultError.
    """
    layers = {int(m[1]) for m in map(_LAYER.fullmatch, header.tensors) if m}
    first = f"model.layers.{structure.moe_layers[0]}."
    q_rows, k_rows = (_rows(header, f"{first}self_attn.{name}_proj.weight") for name in "qk")
    norm = header.tensors.get(f"{first}self_attn.q_norm.weight")
    head_dim = norm.shape[0] if norm and norm.shape else (128 if q_rows % 128 == k_rows % 128 == 0 else 64)
    shared = f"{first}mlp.shared_expert.gate_proj.weight"
    dense_ffn = _rows(header, "model.layers.0.mlp.gate_proj.weight") if 0 not in structure.moe_layers else 0
    architecture = Architecture(
        renormalize_top_k=True,
        qk_norm=norm is not None,
        first_layer_dense=0 not in structure.moe_layers,
        rope_theta=1e6,
        heads=q_rows // max(head_dim, 1),
        kv_heads=k_rows // max(head_dim, 1),
        head_dim=head_dim,
        top_k=min(8, structure.header.experts_per_layer),
        moe_ffn=moe_ffn,
        dense_ffn=dense_ffn,
        shared_ffn=_rows(header, shared) if shared in header.tensors else 0,
        layers=max(layers) + 1,
        rms_epsilon=1e-6,
        model_type="qwen3_moe" if norm is not None else "unknown",
    )
    guessed = "" if norm is not None else f", head_dim {head_dim}"
    return architecture, (
        "version 1 without a config.json: guessed top_k "
        f"{architecture.top_k}, renormalised, rope_theta 1e6, rms_norm_eps 1e-6{guessed}"
    )


def _rows(header: ScoutHeader, name: str) -> int:
    info = header.tensors.get(name)
    if info is None or len(info.shape) != 2:
        raise VaultError("invalid", f"{header.path}: {name} is missing; version 1 needs it or a config.json")
    return info.shape[0]
