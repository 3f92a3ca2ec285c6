"""The same model for llama.cpp: random experts in Q4_0, trunk in Q8_0, streamed to disk tensor by tensor."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter

from . import geometry
from .files import drop_from_cache, flush, need_room
from .synthetic import SEED, random_bytes

BLOCK = 32  # weights that share a float16 scale, in both types
ALL_BYTES_Q8 = 73.9  # deviation of a uniform int8
ALL_NIBBLES_Q4 = 4.637  # root mean square of a uniform nibble - 8
CONTEXT = 40_960
DENSE_FFN = 6144  # in the header only: no layer is dense


@dataclass(frozen=True, slots=True)
class Tensor:
    name: str
    shape: tuple[int, ...]  # numpy's order: [..., rows, columns]
    kind: str  # Q8_0, Q4_0, F32 or ones
    deviation: float = 0.0

    @property
    def block_bytes(self) -> int:
        return {"Q8_0": 34, "Q4_0": 18}[self.kind]

    @property
    def stored_shape(self) -> tuple[int, ...]:
        if self.kind in ("F32", "ones"):
            return self.shape
        return (*self.shape[:-1], self.shape[-1] // BLOCK * self.block_bytes)

    @property
    def size(self) -> int:
        return math.prod(self.stored_shape) * (4 if self.kind in ("F32", "ones") else 1)


def obtain(folder: Path, layers: int) -> Path:
    """The GGUF of so many layers, written into `folder` unless it is there. Raises BenchError."""
    path = folder / f"random-30b-{layers}.gguf"
    if not path.exists():
        write(path, layers)
    return path


def write(path: Path, layers: int) -> None:
    tensors = list(_tensors(layers))
    need_room(path.parent, sum(tensor.size for tensor in tensors))
    print(f"writing {path.name} ({sum(tensor.size for tensor in tensors) / 1e9:.1f} GB) ...", flush=True)
    partial = path.with_suffix(".partial")
    writer = GGUFWriter(partial, "qwen3moe")
    _describe(writer, layers)
    for tensor in tensors:
        _declare(writer, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    random = np.random.Generator(np.random.SFC64(SEED))
    for tensor in tensors:
        writer.write_tensor_data(_values(tensor, random))
        flush(writer.fout[0])
    writer.close()
    partial.replace(path)
    drop_from_cache(path)


def _tensors(layers: int) -> Iterator[Tensor]:
    a, d, vocabulary = geometry.plan(layers).architecture, geometry.D_MODEL, geometry.VOCABULARY
    yield Tensor("token_embd.weight", (vocabulary, d), "Q8_0", 1.0)
    yield Tensor("output_norm.weight", (d,), "ones")
    yield Tensor("output.weight", (vocabulary, d), "Q8_0", d**-0.5)
    queries, keys, experts = a.heads * a.head_dim, a.kv_heads * a.head_dim, geometry.EXPERTS
    for layer in range(layers):
        p = f"blk.{layer}."
        yield from (Tensor(f"{p}{norm}_norm.weight", (d,), "ones") for norm in ("attn", "ffn"))
        yield from (Tensor(f"{p}attn_{norm}_norm.weight", (a.head_dim,), "ones") for norm in ("q", "k"))
        yield Tensor(f"{p}attn_q.weight", (queries, d), "Q8_0", d**-0.5)
        yield from (Tensor(f"{p}attn_{name}.weight", (keys, d), "Q8_0", d**-0.5) for name in ("k", "v"))
        yield Tensor(f"{p}attn_output.weight", (d, queries), "Q8_0", geometry.OUTPUT_GAIN * queries**-0.5)
        yield Tensor(f"{p}ffn_gate_inp.weight", (experts, d), "F32", d**-0.5)
        yield from (
            Tensor(f"{p}ffn_{name}_exps.weight", (experts, a.moe_ffn, d), "Q4_0", d**-0.5) for name in ("gate", "up")
        )
        yield Tensor(f"{p}ffn_down_exps.weight", (experts, d, a.moe_ffn), "Q4_0", a.moe_ffn**-0.5)


def _declare(writer: GGUFWriter, tensor: Tensor) -> None:
    if tensor.kind in ("F32", "ones"):
        writer.add_tensor_info(tensor.name, tensor.shape, np.dtype(np.float32), tensor.size)
    else:
        raw = GGMLQuantizationType[tensor.kind]
        writer.add_tensor_info(tensor.name, tensor.stored_shape, np.dtype(np.uint8), tensor.size, raw_dtype=raw)


def _values(tensor: Tensor, random: np.random.Generator) -> np.ndarray:
    if tensor.kind == "ones":
        return np.ones(tensor.shape, np.float32)
    if tensor.kind == "F32":
        return random.standard_normal(tensor.shape, dtype=np.float32) * np.float32(tensor.deviation)
    blocks = random_bytes(random, tensor.size).reshape(-1, tensor.block_bytes)
    scales = np.full(len(blocks), tensor.deviation / ALL_BYTES_Q8, np.float16)
    if tensor.kind == "Q4_0":  # nibbles - 8 average -0.5: a random sign takes that away
        signs = random.integers(0, 2, len(blocks), dtype=np.int8) * 2 - 1
        scales = (tensor.deviation / ALL_NIBBLES_Q4 * signs).astype(np.float16)
    blocks[:, :2] = scales.view(np.uint8).reshape(-1, 2)
    return blocks.reshape(tensor.stored_shape)


def _describe(writer: GGUFWriter, layers: int) -> None:
    plan = geometry.plan(layers)
    a = plan.architecture
    writer.add_name(f"random weights, {layers} layers of Qwen3-30B-A3B's geometry")
    writer.add_block_count(layers)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(plan.d_model)
    writer.add_feed_forward_length(DENSE_FFN)
    writer.add_head_count(a.heads)
    writer.add_head_count_kv(a.kv_heads)
    writer.add_key_length(a.head_dim)
    writer.add_value_length(a.head_dim)
    writer.add_rope_freq_base(a.rope_theta)
    writer.add_layer_norm_rms_eps(a.rms_epsilon)
    writer.add_expert_count(plan.experts)
    writer.add_expert_used_count(a.top_k)
    writer.add_expert_feed_forward_length(a.moe_ffn)
    writer.add_vocab_size(plan.vocab_size)
    writer.add_file_type(2)  # mostly Q4_0
    writer.add_quantization_version(2)
    _add_tokenizer(writer, plan.vocab_size)


def _add_tokenizer(writer: GGUFWriter, vocabulary: int) -> None:
    """The least that llama.cpp loads: 256 bytes in GPT-2's spelling, one merge, and fillers."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = (byte for byte in range(256) if byte not in printable)
    spelling = {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}
    fillers = [f"<|t{n}|>" for n in range(257, vocabulary - 1)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([*(spelling[byte] for byte in range(256)), "\u0120t", *fillers, "<|endoftext|>"])
    writer.add_token_types([1] * 257 + [4] * len(fillers) + [3])  # normal, user-defined, control
    writer.add_token_merges(["\u0120 t"])
    writer.add_eos_token_id(vocabulary - 1)
    writer.add_bos_token_id(vocabulary - 1)
    writer.add_add_bos_token(False)
