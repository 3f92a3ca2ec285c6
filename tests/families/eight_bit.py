"""Checkpoints rewritten as they are released in 8-bit floats, and back by another way than the converter's."""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path

import numpy as np

from fleet.vaultfile import scout
from fleet.vaultfile.scout import TensorSpec

Block = tuple[int | None, int | None]  # rows and columns that share a scale; None: all of them
Tensors = dict[str, tuple[str, np.ndarray]]  # dtype and elements as stored
MATRIX = re.compile(r".+(?:_proj|_with_mqa|\.w[123])\.weight")  # routers, embeddings and heads are left as they are
EXPERT = re.compile(r".+\.experts\..+")
SCALE = re.compile(r"(.+)_scale(?:_inv)?")

# Blocks that do not fill the tiny matrices, as [128, 128] does not fill all of the real ones.
FINE_GRAINED = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [48, 40]}


def compressed_tensors(strategy: str, block: list[int] | None = None) -> dict:
    """A quantization_config, as GLM-4.5-FP8's."""
    weights = {"num_bits": 8, "type": "float", "strategy": strategy, "symmetric": True, "dynamic": False}
    weights |= {"block_structure": block, "group_size": None, "actorder": None, "observer": "minmax"}
    inputs = {"num_bits": 8, "type": "float", "strategy": "token", "symmetric": True, "dynamic": True}
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs, "output_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head", "re:.*gate$"],
        "kv_cache_scheme": None,
        "sparsity_config": {"format": "dense", "global_sparsity": 0.1, "sparsity_structure": "unstructured"},
        "transform_config": {},
    }


def read(folder: Path) -> Tensors:
    header = scout.read_header(folder / "model.safetensors")
    kinds = {"F32": "<f4", "BF16": "<u2", "F8_E4M3": "u1"}
    with open(header.path, "rb") as file:
        return {
            name: (info.dtype, header.read_bytes(file, name).view(kinds[info.dtype]).reshape(info.shape))
            for name, info in header.tensors.items()
        }


def write(folder: Path, tensors: Tensors) -> None:
    specs = [TensorSpec(name, dtype, array.shape) for name, (dtype, array) in tensors.items()]
    with open(folder / "model.safetensors", "wb") as file:
        file.write(scout.header_bytes(specs, {"format": "pt"}))
        file.writelines(array.tobytes() for _, array in tensors.values())


def rewrite(folder: Path, scale_dtype: str = "F32") -> None:
    """Rounds the matrices of the checkpoint in `folder` as the quantization_config of its config.json says."""
    stored = json.loads((folder / "config.json").read_text())["quantization_config"]
    suffix = "_scale_inv" if stored["quant_method"] == "fp8" else "_scale"
    tensors: Tensors = {}
    for name, (dtype, array) in read(folder).items():
        tensors[name] = dtype, array
        if MATRIX.fullmatch(name):
            codes, scales = _rounded(scout.to_float32(array, dtype), block(stored), scale_dtype)
            tensors |= {name: ("F8_E4M3", codes), f"{name}{suffix}": (scale_dtype, scales)}
    write(folder, tensors)


def restore(folder: Path) -> None:
    """Back to floats: experts in float32, the rest in bfloat16; the quantization_config is taken away."""
    config = json.loads((folder / "config.json").read_text())
    stored = config.pop("quantization_config")
    (folder / "config.json").write_text(json.dumps(config))
    tensors = read(folder)
    scales = {found[1]: tensors.pop(name) for name in list(tensors) if (found := SCALE.fullmatch(name))}
    for name, (dtype, scale) in scales.items():
        weights = _restored(tensors[name][1], scout.to_float32(scale, dtype), block(stored))
        tensors[name] = ("F32", weights) if EXPERT.fullmatch(name) else ("BF16", scout.to_bfloat16(weights))
    write(folder, tensors)


def value(code: int) -> float:
    """By OFP8's table of E4M3: S.1111.111 is NaN, S.0000.mmm is mmm / 8 * 2^-6, else 1.mmm * 2^(eeee - 7)."""
    bits = f"{code:08b}"
    sign, exponent, mantissa = 1 - 2 * int(bits[0]), int(bits[1:5], 2), int(bits[5:], 2) / 8
    if bits[1:] == "1111111":
        return float("nan")
    return sign * (mantissa * 2.0**-6 if exponent == 0 else (1 + mantissa) * 2.0 ** (exponent - 7))


def block(stored: dict) -> Block:
    if stored["quant_method"] == "fp8":
        return tuple(stored["weight_block_size"] or (None, None))
    weights = stored["config_groups"]["group_0"]["weights"]
    return {"tensor": (None, None), "channel": (1, None)}.get(weights["strategy"]) or tuple(weights["block_structure"])


def _places(shape: tuple[int, int], block: Block) -> np.ndarray:
    """[blocks along rows, blocks along columns, 2]: each block's slices."""
    sides = [[slice(at, at + (of or n)) for at in range(0, n, of or n)] for n, of in zip(shape, block, strict=True)]
    return np.array(list(product(*sides)), object).reshape(len(sides[0]), len(sides[1]), 2)


def _rounded(weights: np.ndarray, block: Block, scale_dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Codes and scales, those as stored; one for all is stored as [1]."""
    magnitudes = np.array([value(code) for code in range(127)], np.float32)
    places = _places(weights.shape, block)
    codes, scales = np.zeros(weights.shape, np.uint8), np.zeros(places.shape[:2], np.float32)
    for at in np.ndindex(scales.shape):
        scales[at] = np.abs(weights[tuple(places[at])]).max() / np.float32(448)
    stored = scales if scale_dtype == "F32" else scout.to_bfloat16(scales)
    scales = scout.to_float32(stored, scale_dtype)
    for at in np.ndindex(scales.shape):
        part = weights[tuple(places[at])]
        nearest = np.searchsorted((magnitudes[1:] + magnitudes[:-1]) / 2, np.abs(part) / scales[at])
        codes[tuple(places[at])] = nearest + 128 * (part < 0)
    return codes, stored.reshape(1) if block == (None, None) else stored


def _restored(codes: np.ndarray, scales: np.ndarray, block: Block) -> np.ndarray:
    values = np.array([value(code) for code in range(256)], np.float32)[codes]
    places = _places(codes.shape, block)
    weights = np.zeros(codes.shape, np.float32)
    for at in np.ndindex(places.shape[:2]):
        weights[tuple(places[at])] = values[tuple(places[at])] * scales.reshape(places.shape[:2])[at]
    return weights
