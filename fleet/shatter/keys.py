"""Where checkpoints keep their experts, within `model.layers.N.`: a tensor each, or one of all of a layer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from fleet.vaultfile.records import Expert
from fleet.vaultfile.scout import FLOAT_DTYPES

from . import ShatterError, mxfp4
from .checkpoint import Checkpoint

Shapes = Sequence[tuple[int, int]]  # of an expert's gate, up and down

_EXPERT = re.compile(r"model\.layers\.(\d+)\.(?:mlp|block_sparse_moe)\.experts\.(\d+)\.\w+\.weight")
_FUSED = re.compile(r"model\.layers\.\d+\.(?:.*\.)?experts\.(gate_up_proj|down_proj|gate_proj|up_proj)")


class Needed(NamedTuple):
    """A tensor that a layer's experts are read from."""

    name: str
    shape: tuple[int, ...]
    dtypes: tuple[str, ...] = FLOAT_DTYPES


class ExpertLayout(Protocol):
    def tensors(self, layer: int, experts: int, shapes: Shapes) -> Iterator[Needed]:
        """All that the layer's experts are read from."""

    def owns(self, name: str) -> bool:
        """Whether experts are read from such a tensor, in any layer."""

    def read(self, checkpoint: Checkpoint, layer: int, expert: int) -> Expert: ...


@dataclass(frozen=True, slots=True)
class SeparateExperts:
    """A matrix a tensor."""

    prefix: str
    parts: tuple[str, str, str]  # gate, up, down

    def names(self, layer: int, expert: int) -> tuple[str, ...]:
        """Tensor names of gate, up and down."""
        return tuple(f"model.layers.{layer}.{self.prefix}.{expert}.{part}.weight" for part in self.parts)

    def tensors(self, layer: int, experts: int, shapes: Shapes) -> Iterator[Needed]:
        for expert in range(experts):
            yield from map(Needed, self.names(layer, expert), shapes)

    def owns(self, name: str) -> bool:
        return _EXPERT.fullmatch(name) is not None

    def read(self, checkpoint: Checkpoint, layer: int, expert: int) -> Expert:
        gate, up, down = (checkpoint.read(name) for name in self.names(layer, expert))
        return gate, up, down


def _fused(layer: int, part: str) -> str:
    return f"model.layers.{layer}.mlp.experts.{part}"


def _is_fused(name: str, parts: tuple[str, ...]) -> bool:
    layer, _, part = name.removeprefix("model.layers.").partition(".mlp.experts.")
    return layer.isdecimal() and part in parts


@dataclass(frozen=True, slots=True)
class InterleavedExperts:
    """gpt-oss as transformers saves it: [experts, d_model, 2 ffn], gate and up in turns; [experts, ffn, d_model]."""

    parts = ("gate_up_proj", "down_proj")

    def tensors(self, layer: int, experts: int, shapes: Shapes) -> Iterator[Needed]:
        (ffn, d_model), *_ = shapes
        yield Needed(_fused(layer, "gate_up_proj"), (experts, d_model, 2 * ffn))
        yield Needed(_fused(layer, "down_proj"), (experts, ffn, d_model))

    def owns(self, name: str) -> bool:
        return _is_fused(name, self.parts)

    def read(self, checkpoint: Checkpoint, layer: int, expert: int) -> Expert:
        gate_up, down = (checkpoint.read_item(_fused(layer, part), expert).T for part in self.parts)
        return gate_up[::2], gate_up[1::2], down


@dataclass(frozen=True, slots=True)
class Mxfp4Experts:
    """gpt-oss as released: rows of gate and up in turns; blocks [experts, rows, n, 16], scales [experts, rows, n]."""

    parts = ("gate_up_proj", "down_proj")

    def tensors(self, layer: int, experts: int, shapes: Shapes) -> Iterator[Needed]:
        (ffn, d_model), *_ = shapes
        for part, rows, cols in zip(self.parts, (2 * ffn, d_model), (d_model, ffn), strict=True):
            if cols % mxfp4.BLOCK:
                raise ShatterError(f"tensor {_fused(layer, part)}_blocks: rows of {cols} are not whole blocks")
            scales = (experts, rows, cols // mxfp4.BLOCK)
            yield Needed(f"{_fused(layer, part)}_blocks", (*scales, mxfp4.BLOCK_BYTES), ("U8",))
            yield Needed(f"{_fused(layer, part)}_scales", scales, ("U8",))

    def owns(self, name: str) -> bool:
        return _is_fused(name, tuple(f"{part}_{kind}" for part in self.parts for kind in ("blocks", "scales")))

    def read(self, checkpoint: Checkpoint, layer: int, expert: int) -> Expert:
        gate_up, down = (self._matrix(checkpoint, _fused(layer, part), expert) for part in self.parts)
        return gate_up[::2], gate_up[1::2], down

    def _matrix(self, checkpoint: Checkpoint, name: str, expert: int) -> np.ndarray:
        blocks, scales = (checkpoint.read_item(f"{name}_{kind}", expert) for kind in ("blocks", "scales"))
        return mxfp4.decode(blocks, scales)


SEPARATE = (
    SeparateExperts("mlp.experts", ("gate_proj", "up_proj", "down_proj")),
    SeparateExperts("block_sparse_moe.experts", ("w1", "w3", "w2")),
)
INTERLEAVED = {"gate_up_proj": InterleavedExperts(), "gate_up_proj_blocks": Mxfp4Experts()}


def find(names: Iterable[str], layer: int, *, interleaved: bool) -> ExpertLayout:
    """The layout that this checkpoint uses. `interleaved`: as gpt-oss', where they are fused. Raises ShatterError."""
    known = set(names)
    for keys in SEPARATE:
        if keys.names(layer, 0)[0] in known:
            return keys
    for part, fused_keys in INTERLEAVED.items():
        if interleaved and _fused(layer, part) in known:
            return fused_keys
    if fused := next(filter(_FUSED.match, sorted(known)), None):
        raise ShatterError(f"tensor {fused}: experts that are fused in one tensor are not supported")
    raise ShatterError(f"layer {layer} has no experts under a known name, as {SEPARATE[0].names(layer, 0)[0]}")


def number_of(name: str) -> int | None:
    """The expert's, of a tensor of one expert."""
    found = _EXPERT.fullmatch(name)
    return int(found[2]) if found else None
