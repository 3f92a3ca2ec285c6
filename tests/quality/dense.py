"""The demo's source model, straight from the GGUF: dense, float32, with llama.cpp's own form of RoPE.

Nothing of the conversion is used here: neither its names nor its row order, nor experts.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGUFReader, dequantize

from tests.reference import rms_norm, softmax, swiglu

HEADS, KV_HEADS, HEAD_DIM, LAYERS, THETA, EPSILON = 9, 3, 64, 30, 100_000.0, 1e-5


def rotate_pairs(x: np.ndarray) -> np.ndarray:
    """x [n, heads, d] -> neighbours (2i, 2i + 1) turned together."""
    n, _, d = x.shape
    angles = np.arange(n)[:, None] * THETA ** (-np.arange(0, d, 2) / d)
    turned = x.astype(np.float32).view(np.complex64) * np.exp(1j * angles).astype(np.complex64)[:, None]
    return turned.view(np.float32)


def logits(gguf: Path, texts: list[list[int]]) -> list[np.ndarray]:
    """[len(ids), vocab] of each text. Layer by layer, so that each weight is dequantized once."""
    tensors = {t.name: t for t in GGUFReader(gguf).tensors}

    def w(name: str) -> np.ndarray:
        return dequantize(tensors[f"{name}.weight"].data, tensors[f"{name}.weight"].tensor_type)

    embedding = w("token_embd")
    states = [embedding[ids] for ids in texts]
    for layer in range(LAYERS):
        p = f"blk.{layer}."
        attention = [w(f"{p}attn_{name}") for name in ("norm", "q", "k", "v", "output")]
        feed_forward = [w(f"{p}ffn_{name}") for name in ("norm", "gate", "up", "down")]
        states = [_layer(x, attention, feed_forward) for x in states]
    norm = w("output_norm")
    return [rms_norm(x, norm, EPSILON) @ embedding.T for x in states]


def _layer(x: np.ndarray, attention: list[np.ndarray], feed_forward: list[np.ndarray]) -> np.ndarray:
    norm, *qkvo = attention
    x = x + _attention(rms_norm(x, norm, EPSILON), *qkvo)
    norm, *matrices = feed_forward
    return x + swiglu(rms_norm(x, norm, EPSILON), *matrices)


def _attention(x: np.ndarray, wq: np.ndarray, wk: np.ndarray, wv: np.ndarray, wo: np.ndarray) -> np.ndarray:
    n = len(x)
    q = rotate_pairs((x @ wq.T).reshape(n, HEADS, HEAD_DIM))
    k = rotate_pairs((x @ wk.T).reshape(n, KV_HEADS, HEAD_DIM))
    v = (x @ wv.T).reshape(n, KV_HEADS, HEAD_DIM)
    k, v = (np.repeat(t, HEADS // KV_HEADS, axis=1) for t in (k, v))
    scores = np.einsum("qhd,khd->hqk", q, k, optimize=True) / np.float32(HEAD_DIM**0.5)
    scores[:, np.triu(np.ones((n, n), bool), 1)] = -np.inf
    return np.einsum("hqk,khd->qhd", softmax(scores), v, optimize=True).reshape(n, -1) @ wo.T
