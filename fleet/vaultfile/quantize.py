"""Group quantization of expert weights: 2, 4 or 8 bits a weight, one float16 scale per 64 consecutive ones.

    2 bits: weight = (code - 1.5) / 1.5 * scale, four codes a byte, lowest bits first
    4 bits: weight = (code - 7.5) / 7.5 * scale, two codes a byte, low nibble first
    8 bits: weight = (code - 128) / 127 * scale, one byte

Scales: the group's absmax at 4 bits; at 2 bits the best of 64 steps from 0.1 to 1.0 of it, for the least squared
error; at 8 bits the best of 16 steps from 1 to 1.12 of it. Beside the absmax alone that leaves an
eighth less squared error of Gaussian weights, and a third less of weights that were quantized coarsely before.

Codes at 2 and 4 bits reproduce those of other tools bit for bit: they are rounded (half to even) against the
float32 scale, before it is stored as float16. At 8 bits they are rounded against the stored scale, which is more
exact. A group of zeros gets scale 0: without it, no even number of levels holds a zero.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from .layout import GROUP, group_count

CENTRE = {2: 1.5, 4: 7.5, 8: 128.0}
SPAN = {2: 1.5, 4: 7.5, 8: 127.0}  # levels from the centre to the scale
LOWEST = {2: 0, 4: 0, 8: 1}
HIGHEST = {2: 3, 4: 15, 8: 255}
SEARCH_STEPS = {
    2: np.linspace(0.1, 1.0, 64).astype(np.float32),
    8: (1 + np.arange(16) / 127).astype(np.float32),
}
LARGEST = float(np.finfo(np.float16).max) / 1.125  # weight: room for the search's steps
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


def _restore(codes: np.ndarray, scales: np.ndarray, bits: int) -> np.ndarray:
    return (codes - np.float32(CENTRE[bits])) / np.float32(SPAN[bits]) * scales[:, None]


def _as_stored(scales: np.ndarray) -> np.ndarray:
    return scales.astype(np.float16).astype(np.float32)


def _scales(groups: np.ndarray, bits: int) -> np.ndarray:
    """float32 [n] of groups [n, width]; of the steps tried, the first that has the least squared error."""
    absmax = np.abs(groups).max(axis=1)
    if bits not in SEARCH_STEPS:
        return absmax
    best_error = np.full(len(groups), np.inf, np.float32)
    best = np.zeros(len(groups), np.float32)
    for step in SEARCH_STEPS[bits]:
        scales = absmax * step if bits == 2 else _as_stored(absmax * step)
        error = ((_restore(_codes(groups, scales, bits), scales, bits) - groups) ** 2).sum(axis=1)
        better = error < best_error
        best_error[better] = error[better]
        best[better] = scales[better]
    return best


def _quantize_groups(groups: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    scales = _scales(groups, bits)
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
    if not largest <= LARGEST:
        raise ValueError(f"largest weight {largest}: not finite, or beyond what a float16 scale can hold")
    whole = flat[: len(flat) // GROUP * GROUP].reshape(-1, GROUP)
    parts = [whole[start : start + CHUNK] for start in range(0, len(whole), CHUNK)]
    if len(flat) % GROUP:
        parts.append(flat[whole.size :].reshape(1, -1))
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # numpy leaves the interpreter's lock for the arithmetic
        codes, scales = zip(*pool.map(_quantize_groups, parts, [bits] * len(parts)), strict=True)
    return _pack(np.concatenate(codes), bits), np.concatenate(scales)


def dequantize(packed: np.ndarray, scales: np.ndarray, shape: tuple[int, ...], bits: int) -> np.ndarray:
    """The float32 weights of `shape` that packed codes (uint8) and scales (float16) stand for."""
    count = int(np.prod(shape))
    levels = _LEVELS[bits][_unpack(packed, bits)[:count]]
    padded = np.pad(levels, (0, group_count(count) * GROUP - count)).reshape(-1, GROUP)
    return (padded * scales.astype(np.float32)[:, None]).ravel()[:count].reshape(shape)
