"""A dense Llama GGUF as a checkpoint: Hugging Face tensor names and row order, float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, dequantize

_LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def unpermuted(weights: np.ndarray, heads: int) -> np.ndarray:
    """Rows of a query or key projection in the order of rotated halves.

    llama.cpp's converter stores each head's rows interleaved (0, d/2, 1, d/2 + 1, ...), for its own form of RoPE.
    """
    rows, cols = weights.shape
    return weights.reshape(heads, rows // heads // 2, 2, cols).swapaxes(1, 2).reshape(rows, cols)


class DenseModel:
    """Tensors by their Hugging Face names, dequantized on request."""

    def __init__(self, path: Path) -> None:
        reader = GGUFReader(path)
        self._tensors = {tensor.name: tensor for tensor in reader.tensors}
        self._fields = reader.fields
        self.layers: int = self.field("llama.block_count")
        self.d_model: int = self.field("llama.embedding_length")
        self.ffn: int = self.field("llama.feed_forward_length")
        self.heads: int = self.field("llama.attention.head_count")
        self.kv_heads: int = self.field("llama.attention.head_count_kv")
        self.context: int = self.field("llama.context_length")
        self.rope_theta: float = self.field("llama.rope.freq_base")
        # Stored as float32: 9.999999747378752e-06 stands for 1e-05.
        self.rms_epsilon = float(str(np.float32(self.field("llama.attention.layer_norm_rms_epsilon"))))
        self.vocab_size: int = self.field("llama.vocab_size")

    def field(self, name: str) -> Any:
        return self._fields[name].contents()

    def _dequantized(self, name: str) -> np.ndarray:
        tensor = self._tensors[name]
        shape = tuple(int(n) for n in reversed(tensor.shape))
        return dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False).reshape(shape)

    def embedding(self) -> np.ndarray:
        """[vocab, d_model]; the output head too."""
        return self._dequantized("token_embd.weight")

    def final_norm(self) -> np.ndarray:
        return self._dequantized("output_norm.weight")

    def layer(self, layer: int, name: str) -> np.ndarray:
        """`name` as in `self_attn.q_proj`; projections are [out, in]."""
        weights = self._dequantized(f"blk.{layer}.{_LAYER_NAMES[name]}.weight")
        heads = {"self_attn.q_proj": self.heads, "self_attn.k_proj": self.kv_heads}.get(name)
        return unpermuted(weights, heads) if heads else weights
