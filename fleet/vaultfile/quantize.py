"""Group quantization of expert weights: 2, 4 or 8 bits a weight, one float16 scale per 64 consecutive ones.

    2 bits: weight = (code - 1.5) / 1.5 * scale, four codes a byte, lowest bits first
    4 bits: weight = (code - 7.5) / 7.5 * scale, two codes a byte, low nibble first
    8 bits: weight = (code - 128) / 127 * scale, one byte

Codes at 2 and 4 bits reproduce those of other tools bit for bit: they are rounded (half to even) against the
float32 scale, before it is stored as float16. At 8 bits they are rounded against the stored scale, which is more
exact. A group of zeros gets scale 0: without it, no even number of levels holds a zero.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .layout import GROUP, group_count

CENTRE = {2: 1.5, 4: 7.5, 8: 128.0}
SPAN = {2: 1.5, 4: 7.5, 8: 127.0}  # levels from the centre to the scale
LOWEST = {2: 0, 4: 0, 8: 1}
HIGHEST = {2: 3, 4: 15, 8: 255}
SEARCH_STEPS = np.linspace(0.1, 1.0, 64).astype(np.float32)  # of the group's absmax, for 2 bits
CHUNK = 4096  # groups at a time: the search's temporaries stay in the cache

_LEVELS = {
    bits: ((np.arange(1 << bits, dtype=np.float32) - np.float32(CENTRE[bits])) / np.float32(SPAN[bits]))
    for bits in CENTRE
}


def _codes(groups: np.ndarray, scales: np.ndarray, bits: int) -> np.ndarray:
    """float32 codes [n, width] of groups [n, width] against scales [n]; a scale of 0 counts as 1."""
    divisors = np.where(scales == 0, np.float32(1), scales)[:, None]
    scaled = groups / divisors * np.float32(SPAN[bits]) + np.float32(CENTRE[bits])
    return np.clip(np.rint(scaled), LOWEST[bits], HIGHEST[bits])


def _searched_scales(groups: np.ndarray) -> np.ndarray:
    """The scale of each group with the least squared error at 2 bits; the smallest of equals."""
    absmax = np.abs(groups).max(axis=1)
    best_error = np.full(len(groups), np.inf, np.float32)
    best = np.zeros(len(groups), np.float32)
    centre, span = np.float32(CENTRE[2]), np.float32(SPAN[2])
    for step in SEARCH_STEPS:
        scales = absmax * step
        restored = (_codes(groups, scales, 2) - centre) / span * scales[:, None]
        error = ((restored - groups) ** 2).sum(axis=1)
        better = error < best_error
        best_error[better] = error[better]
        best[better] = scales[better]
    return best


def _absmax_scales(groups: np.ndarray) -> np.ndarray:
    return np.abs(groups).max(axis=1)


def _stored_scales(groups: np.ndarray) -> np.ndarray:
    return _absmax_scales(groups).astype(np.float16).astype(np.float32)


_SCALES: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    2: _searched_scales,
    4: _absmax_scales,
    8: _stored_scales,
}


def _quantize_groups(groups: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    scales = _SCALES[bits](groups)
    return _codes(groups, scales, bits).astype(np.uint8).ravel(), scales.astype(np.float16)


def _pack(codes: np.ndarray, bits: int) -> np.ndarray:
    per_byte = 8 // bits
    padded = np.pad(codes, (0, -len(codes) % per_byte)).reshape(-1, per_byte)
    packed = padded[:, 0].copy()
    for place in range(1, per_byte):
        packed |= padded[:, place] << np.uint8(bits * place)
    return packed


def _unpack(packed: np.ndarray, bits: int) -> np.ndarray:
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return (packed[:, None] >> shifts & np.uint8((1 << bits) - 1)).ravel()


def quantize(weights: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights of any shape -> (packed codes uint8, scales float16), both flat.

    Raises ValueError for weights that are not finite or too large for a float16 scale.
    """
    flat = np.ascontiguousarray(weights, np.float32).ravel()
    largest = float(np.abs(flat).max(initial=0))
    if not largest <= float(np.finfo(np.float16).max):
        raise ValueError(f"largest weight {largest}: not finite, or beyond what a float16 scale can hold")
    whole = flat[: len(flat) // GROUP * GROUP].reshape(-1, GROUP)
    parts = [whole[start : start + CHUNK] for start in range(0, len(whole), CHUNK)]
    if len(flat) % GROUP:
        parts.append(flat[whole.size :].reshape(1, -1))
    codes, scales = zip(*(_quantize_groups(part, bits) for part in parts), strict=True)
    return _pack(np.concatenate(codes), bits), np.concatenate(scales)


def dequantize(packed: np.ndarray, scales: np.ndarray, shape: tuple[int, ...], bits: int) -> np.ndarray:
    """The float32 weights of `shape` that packed codes (uint8) and scales (float16) stand for."""
    count = int(np.prod(shape))
    levels = _LEVELS[bits][_unpack(packed, bits)[:count]]
    padded = np.pad(levels, (0, group_count(count) * GROUP - count)).reshape(-1, GROUP)
    return (padded * scales.astype(np.float32)[:, None]).ravel()[:count].reshape(shape)
