"""8-bit floats, each block of a matrix with a scale of its own: weight = value * scale.

E4M3 as in the OCP 8-bit Floating Point Specification (OFP8) 1.0; safetensors calls it F8_E4M3.
"""

from __future__ import annotations

import numpy as np

DTYPE = "F8_E4M3"

Block = tuple[int | None, int | None]  # rows and columns that share a scale; None: all of them


def _e4m3() -> np.ndarray:
    """float32 [256]: a sign, 4 bits of exponent (bias 7), 3 of mantissa. No infinities; all bits set is NaN."""
    codes = np.arange(256)
    exponent, mantissa = codes >> 3 & 15, codes & 7
    magnitudes = np.ldexp(8.0 * (exponent > 0) + mantissa, np.maximum(exponent, 1) - 10)
    magnitudes[codes & 127 == 127] = np.nan
    return np.copysign(magnitudes, 127.5 - codes).astype(np.float32)


E4M3 = _e4m3()


def scale_shape(shape: tuple[int, ...], block: Block) -> tuple[int, ...]:
    """How many blocks a matrix has along its rows and its columns; the last ones may be cut off."""
    return tuple(-(-size // (of or max(size, 1))) for size, of in zip(shape, block, strict=True))


def dequantize(codes: np.ndarray, scales: np.ndarray, block: Block) -> np.ndarray:
    """Codes (uint8 [rows, cols]) and scales (float32, of scale_shape) -> float32 [rows, cols]."""
    rows, cols = codes.shape
    height, width = min(block[0] or rows, rows), block[1] or cols
    weights = E4M3[codes]
    of_rows = np.repeat(scales, height, axis=0)[:rows]
    for index, start in enumerate(range(0, cols, width)):
        weights[:, start : start + width] *= of_rows[:, index, None]
    return weights
