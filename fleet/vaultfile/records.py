"""One expert's record: gate codes, gate scales, up codes, up scales, down codes, down scales, without a gap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from . import layout
from .quantize import dequantize, quantize

Expert = tuple[np.ndarray, np.ndarray, np.ndarray]  # gate [ffn, d], up [ffn, d], down [d, ffn], float32


def encode_expert(expert: Expert, bits: int) -> bytes:
    """The record without its padding. Raises ValueError for weights that cannot be quantized."""
    return b"".join(part.tobytes() for tensor in expert for part in quantize(tensor, bits))


def parts(record: bytes, shapes: Sequence[tuple[int, int]], bits: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Codes (uint8) and scales (float16) of gate, up and down, as the writer lays them out."""
    data, start = np.frombuffer(record, np.uint8), 0
    for rows, cols in shapes:
        codes = layout.packed_bytes(rows * cols, bits)
        end = start + codes + 2 * layout.group_count(rows * cols)
        yield data[start : start + codes], data[start + codes : end].view("<f2")
        start = end


def decode_expert(record: bytes, shapes: Sequence[tuple[int, int]], bits: int) -> list[np.ndarray]:
    """Gate, up and down as float32."""
    return [
        dequantize(codes, scales, shape, bits)
        for (codes, scales), shape in zip(parts(record, shapes, bits), shapes, strict=True)
    ]
