"""How config.json says that the weights are stored: as they are, in 8-bit floats, or in a form that cannot be read.

`quantization_config` as transformers 5.24 (FineGrainedFP8Config) and compressed-tensors 0.15 write it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleet.vaultfile import families

from . import ShatterError
from .float8 import Block

_FORMATS = ("float-quantized", "naive-quantized")  # the second where only weights were rounded; stored the same way
_WHOLE: Block = (None, None)
_ROW: Block = (1, None)


def block(config: Mapping[str, Any]) -> Block | None:
    """What shares a scale in the matrices of 8-bit floats; None: there is no such matrix. Raises ShatterError."""
    stored = config.get("quantization_config")
    if not stored:
        return None
    method = stored.get("quant_method") if isinstance(stored, dict) else None
    if method == "fp8":
        return _size(stored.get("weight_block_size"), "weight_block_size")
    if method == "compressed-tensors":
        return _compressed_tensors(stored)
    family = families.of(config.get("model_type", ""))
    if method == "mxfp4" and family and family.mxfp4:
        return None
    raise _unsupported(f"quant_method {method!r}")


def _compressed_tensors(stored: Mapping[str, Any]) -> Block:
    if (form := stored.get("format")) not in _FORMATS:
        raise _unsupported(f"compressed-tensors' format {form!r}")
    if stored.get("transform_config"):
        raise _unsupported("compressed-tensors with a transform_config")
    if (sparsity := stored.get("sparsity_config")) and not _is_dense(sparsity):
        raise _unsupported(f"compressed-tensors' sparsity_config {sparsity!r}")
    groups = stored.get("config_groups")
    if not isinstance(groups, dict) or not groups:
        raise _unsupported("compressed-tensors without config_groups")
    blocks = {_group(group) for group in groups.values()}
    if len(blocks) > 1:
        raise _unsupported("compressed-tensors with config_groups of several strategies")
    return blocks.pop()


def _is_dense(sparsity: Any) -> bool:
    return isinstance(sparsity, dict) and sparsity.get("format") == "dense"  # told of, but not packed


def _group(group: Any) -> Block:
    weights = group.get("weights") if isinstance(group, dict) else None
    if not isinstance(weights, dict):
        raise _unsupported("a config_group without weights")
    kind = (weights.get("type"), weights.get("num_bits"), weights.get("strategy"))
    match kind:
        case ("float", 8, "tensor"):
            return _WHOLE
        case ("float", 8, "channel"):
            return _ROW
        case ("float", 8, "block"):
            return _size(weights.get("block_structure"), "block_structure")
    raise _unsupported("weights of type {!r}, num_bits {!r}, strategy {!r}".format(*kind))


def _size(value: Any, field: str) -> Block:
    if value is None:
        return _WHOLE
    if not isinstance(value, list) or len(value) != 2 or not all(type(n) is int and n > 0 for n in value):
        raise _unsupported(f"{field} {value!r}")
    return value[0], value[1]


def _unsupported(what: str) -> ShatterError:
    return ShatterError(
        f"quantization_config: {what} is not supported; take the checkpoint in bf16, f16 or f32, or in 8-bit floats "
        "(quant_method fp8, or compressed-tensors' float-quantized)"
    )
