"""The tensors that a scout must and may hold for an architecture, by their names in checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

from . import families
from .layout import GROUP, Architecture, LatentAttention
from .scout import FLOAT_DTYPES, ScoutHeader, TensorInfo

if TYPE_CHECKING:
    from .structure import Structure

Shapes = dict[str, tuple[int, ...]]
EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"  # absent when tied to the embedding
LARGEST_EMBEDDING = 64 << 20  # bytes that the engine takes into memory
SHARED_GATE = "shared_expert_gate.weight"
ROUTERS = ("mlp.gate.weight", "block_sparse_moe.gate.weight", "mlp.router.weight")  # 2: Mixtral, MiniMax; 3: gpt-oss
SHARED = ("mlp.shared_expert", "mlp.shared_experts")
CORRECTIONS = {  # of a sigmoid router, by the router's spelling
    ROUTERS[0]: "mlp.gate.e_score_correction_bias",
    ROUTERS[1]: "block_sparse_moe.e_score_correction_bias",
}


LATENT_BIASED = ("q_a_proj.weight", "kv_a_proj_with_mqa.weight", "o_proj.weight")  # where attention_bias is set


class Names(NamedTuple):
    """Spellings that differ between checkpoints, within `model.layers.N.`."""

    router: str
    shared: str


DEFAULT_NAMES = Names(ROUTERS[0], SHARED[0])


def _latent_attention(a: Architecture, latent: LatentAttention, d_model: int) -> Shapes:
    q_width, plain = a.heads * a.head_dim, a.head_dim - latent.rope_dim
    shapes = {
        "self_attn.kv_a_proj_with_mqa.weight": (latent.rank + latent.rope_dim, d_model),
        "self_attn.kv_a_layernorm.weight": (latent.rank,),
        "self_attn.kv_b_proj.weight": (a.heads * (plain + latent.value_dim), latent.rank),
        "self_attn.o_proj.weight": (d_model, a.heads * latent.value_dim),
    }
    if latent.query_rank is None:
        return shapes | {"self_attn.q_proj.weight": (q_width, d_model)}
    return shapes | {
        "self_attn.q_a_proj.weight": (latent.query_rank, d_model),
        "self_attn.q_a_layernorm.weight": (latent.query_rank,),
        "self_attn.q_b_proj.weight": (q_width, latent.query_rank),
    }


def _grouped_attention(a: Architecture, d_model: int) -> Shapes:
    shapes = {
        "self_attn.q_proj.weight": (a.heads * a.head_dim, d_model),
        "self_attn.k_proj.weight": (a.kv_heads * a.head_dim, d_model),
        "self_attn.v_proj.weight": (a.kv_heads * a.head_dim, d_model),
        "self_attn.o_proj.weight": (d_model, a.heads * a.head_dim),
    }
    family = families.of(a.model_type)
    if family and family.whole_qk_norm:
        shapes |= {f"self_attn.{n}_norm.weight": shapes[f"self_attn.{n}_proj.weight"][:1] for n in "qk"}
    elif a.qk_norm:
        shapes |= {"self_attn.q_norm.weight": (a.head_dim,), "self_attn.k_norm.weight": (a.head_dim,)}
    if family and family.sinks:
        shapes["self_attn.sinks"] = (a.heads,)
    return shapes


def _attention(a: Architecture, d_model: int) -> Shapes:
    norms = {"input_layernorm.weight": (d_model,), "post_attention_layernorm.weight": (d_model,)}
    return norms | (_latent_attention(a, a.latent, d_model) if a.latent else _grouped_attention(a, d_model))


def _mlp(prefix: str, d_model: int, ffn: int) -> Shapes:
    return {
        f"{prefix}.gate_proj.weight": (ffn, d_model),
        f"{prefix}.up_proj.weight": (ffn, d_model),
        f"{prefix}.down_proj.weight": (d_model, ffn),
    }


def _layer(a: Architecture, d_model: int, experts: int, names: Names) -> Shapes:
    """Names within `model.layers.N.`; `experts` is 0 for a dense layer."""
    if not experts:
        return _attention(a, d_model) | _mlp("mlp", d_model, a.dense_ffn)
    shared = _mlp(names.shared, d_model, a.shared_ffn) if a.shared_ffn else {}
    family = families.of(a.model_type) or families.Family(qk_norm=a.qk_norm)
    correction = {CORRECTIONS.get(names.router, CORRECTIONS[ROUTERS[0]]): (experts,)} if family.sigmoid_router else {}
    biases = _biases(a, d_model, experts) if family.biased_experts else {}
    return _attention(a, d_model) | {names.router: (experts, d_model)} | correction | biases | shared


def _biases(a: Architecture, d_model: int, experts: int) -> Shapes:
    """Of the router and of the experts: a gate's and an up projection's elements in turns."""
    return {
        "mlp.router.bias": (experts,),
        "mlp.experts.gate_up_proj_bias": (experts, 2 * a.moe_ffn),
        "mlp.experts.down_proj_bias": (experts, d_model),
    }


def shapes(
    a: Architecture, d_model: int, vocab_size: int, experts: Mapping[int, int], names: Names = DEFAULT_NAMES
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Every tensor that a scout must hold, with its shape. `experts`: MoE layer -> its number of experts."""
    yield EMBEDDING, (vocab_size, d_model)
    yield "model.norm.weight", (d_model,)
    for layer in range(a.layers):
        for name, shape in _layer(a, d_model, experts.get(layer, 0), names).items():
            yield f"model.layers.{layer}.{name}", shape


def optional_shapes(
    a: Architecture, d_model: int, vocab_size: int, experts: Mapping[int, int]
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """What a scout may hold besides: an untied head, a shared expert's gate, biases of the attention."""
    yield HEAD, (vocab_size, d_model)
    for layer in range(a.layers):
        if a.shared_ffn and layer in experts:
            yield f"model.layers.{layer}.mlp.{SHARED_GATE}", (1, d_model)
        for name, shape in _attention(a, d_model).items():
            if name.endswith(LATENT_BIASED if a.latent else "_proj.weight"):
                yield f"model.layers.{layer}.{name.removesuffix('weight')}bias", shape[:1]


def names_in(tensors: Iterable[str], layer: int) -> Names:
    """Which of the spellings in use a checkpoint has, by its MoE layer `layer`."""
    prefix = f"model.layers.{layer}."
    router = next((name for name in ROUTERS if f"{prefix}{name}" in tensors), ROUTERS[0])
    shared = next((n for n in SHARED if f"{prefix}{n}.gate_proj.weight" in tensors), SHARED[0])
    return Names(router, shared)


def vocab_size(structure: Structure, header: ScoutHeader) -> int:
    """The header's, or where it is 0 the embedding's rows."""
    embedding = header.tensors.get(EMBEDDING)
    rows = embedding.shape[0] if embedding and embedding.shape else 0
    return structure.header.vocab_size or rows


def matrices(header: ScoutHeader) -> list[str]:
    """The tensors that the engine may quantize while it loads them (--trunk): what every token is multiplied with.

    Not the routers, and the embedding only where it is the head too.
    """
    head = HEAD if HEAD in header.tensors else EMBEDDING
    return [
        name
        for name, info in header.tensors.items()
        if (name == head or name.endswith(("_proj.weight", "_proj_with_mqa.weight")))
        and info.dtype in FLOAT_DTYPES
        and len(info.shape) == 2
        and info.shape[1] % GROUP == 0
    ]


def left_in_file(header: ScoutHeader) -> int:
    """Bytes of an embedding that the engine reads row by row: a large one that is not the head too."""
    embedding = header.tensors.get(EMBEDDING)
    large = embedding is not None and embedding.size > LARGEST_EMBEDDING and HEAD in header.tensors
    return embedding.size if large else 0


def problems(structure: Structure, a: Architecture, header: ScoutHeader) -> list[str]:
    """What keeps a scout from being the trunk of this vault: one short line each, at most a hundred."""
    sizes = (a, structure.header.d_model, vocab_size(structure, header), structure.experts)
    names = names_in(header.tensors, min(structure.experts))
    required = ((name, shape, header.tensors.get(name)) for name, shape in shapes(*sizes, names))
    present = ((name, shape, header.tensors[name]) for name, shape in optional_shapes(*sizes) if name in header.tensors)
    found = (_problem(*tensor) for tensor in chain(required, present))
    return list(islice(filter(None, found), 100))


def _problem(name: str, shape: tuple[int, ...], info: TensorInfo | None) -> str:
    if info is None:
        return f"{name} is missing"
    if info.shape != shape:
        return f"{name} is {list(info.shape)}, expected {list(shape)}"
    if info.dtype not in FLOAT_DTYPES:
        return f"{name} is {info.dtype}, supported are {', '.join(FLOAT_DTYPES)}"
    return ""
