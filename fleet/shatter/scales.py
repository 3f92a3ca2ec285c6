"""Which tensors of a checkpoint scale its matrices of 8-bit floats, by name: `X.weight` and `X.weight_scale_inv`.

transformers (FineGrainedFP8) writes `_scale_inv`, compressed-tensors `_scale`; the weights are multiplied with both.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from fleet.vaultfile.scout import FLOAT_DTYPES, TensorInfo

from . import ShatterError, float8
from .float8 import Block

_SCALE = re.compile(r"(.+\.weight)_scale(?:_inv)?")
# Of calibrated activations: the engine rounds activations its own way, so that no weight depends on them.
_INPUT_SCALE = re.compile(r"(.+\.)(?:input|activation)_scale")


class Scales:
    """`block`: what shares a scale; None where the config says nothing of 8-bit floats. Raises ShatterError."""

    def __init__(self, tensors: Mapping[str, TensorInfo], block: Block | None) -> None:
        self._tensors = tensors
        self._block = block
        self._names: dict[str, str] = {}  # matrix -> scale
        for name in tensors if block else ():
            if found := _SCALE.fullmatch(name):
                self._add(found[1], name)

    def _add(self, matrix: str, name: str) -> None:
        if not self.has(matrix):
            raise ShatterError(f"tensor {name}: there is no {matrix} in {float8.DTYPE} that it would scale")
        if matrix in self._names:
            raise ShatterError(f"tensor {matrix} has two scales, {self._names[matrix]} and {name}")
        self._names[matrix] = name

    def has(self, matrix: str) -> bool:
        """Whether a tensor is stored in 8-bit floats."""
        return matrix in self._tensors and self._tensors[matrix].dtype == float8.DTYPE

    def __contains__(self, name: str) -> bool:
        """Whether a tensor scales a matrix of 8-bit floats, or what is multiplied with one."""
        if found := _SCALE.fullmatch(name):
            return self._names.get(found[1]) == name
        found = _INPUT_SCALE.fullmatch(name)
        return found is not None and f"{found[1]}weight" in self._names

    def of(self, matrix: str) -> tuple[str, tuple[int, ...], Block]:
        """The name of a matrix's scale, its shape as float8.dequantize() takes it, and the block."""
        if not self._block:
            raise ShatterError(f"tensor {matrix} is {float8.DTYPE}, but config.json has no quantization_config")
        if matrix not in self._names:
            raise ShatterError(f"tensor {matrix} is {float8.DTYPE}, but neither {matrix}_scale_inv nor _scale is there")
        shape = self._tensors[matrix].shape
        if len(shape) != 2:
            raise ShatterError(f"tensor {matrix} is {float8.DTYPE} and {list(shape)}, not two-dimensional")
        name = self._names[matrix]
        expected = float8.scale_shape(shape, self._block)
        self._check(name, expected)
        return name, expected, self._block

    def _check(self, name: str, expected: tuple[int, ...]) -> None:
        info = self._tensors[name]
        if info.dtype not in FLOAT_DTYPES:
            raise ShatterError(f"tensor {name} is {info.dtype}, supported are {', '.join(FLOAT_DTYPES)}")
        single = math.prod(expected) == 1 == math.prod(info.shape)  # one for all is written as [], [1] or [1, 1]
        if info.shape != expected and not single:
            raise ShatterError(f"tensor {name} is {list(info.shape)}, the config asks for {list(expected)}")
