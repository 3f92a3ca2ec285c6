"""MXFP4: 32 values of 4 bits (E2M1) share a power of two (E8M0).

OCP Microscaling Formats (MX) 1.0; two values a byte, low nibble first, as in released gpt-oss checkpoints.
"""

from __future__ import annotations

import numpy as np

BLOCK = 32  # values that share a scale
BLOCK_BYTES = BLOCK // 2
_MAGNITUDES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
_VALUES = np.concatenate([_MAGNITUDES, -_MAGNITUDES])
_BYTES = np.arange(256)
_PAIRS = _VALUES[np.stack([_BYTES & 15, _BYTES >> 4], axis=1)]  # [256, 2]
_SCALES = np.append(np.ldexp(np.float32(1), np.arange(-127, 128)), np.float32(np.nan))  # the last code is no number


def decode(blocks: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """uint8 [..., n, BLOCK_BYTES] and uint8 [..., n] -> float32 [..., n * BLOCK]."""
    values = _PAIRS[blocks]
    values *= _SCALES[scales][..., None, None]
    return values.reshape(*blocks.shape[:-2], -1)
