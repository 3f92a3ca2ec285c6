"""How checkpoints name their experts' tensors, within `model.layers.N.`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from . import ShatterError

EXPERT = re.compile(r"model\.layers\.(\d+)\.(?:mlp|block_sparse_moe)\.experts\.(\d+)\.\w+\.weight")
_FUSED = re.compile(r"model\.layers\.\d+\.(?:.*\.)?experts\.(gate_up_proj|down_proj|gate_proj|up_proj)")


@dataclass(frozen=True, slots=True)
class ExpertKeys:
    prefix: str
    parts: tuple[str, str, str]  # gate, up, down

    def names(self, layer: int, expert: int) -> tuple[str, ...]:
        """Tensor names of gate, up and down."""
        return tuple(f"model.layers.{layer}.{self.prefix}.{expert}.{part}.weight" for part in self.parts)


LAYOUTS = (
    ExpertKeys("mlp.experts", ("gate_proj", "up_proj", "down_proj")),
    ExpertKeys("block_sparse_moe.experts", ("w1", "w3", "w2")),
)


def find(names: Iterable[str], layer: int) -> ExpertKeys:
    """The layout that this checkpoint uses. Raises ShatterError."""
    known = set(names)
    for keys in LAYOUTS:
        if keys.names(layer, 0)[0] in known:
            return keys
    if fused := next(filter(_FUSED.match, sorted(known)), None):
        raise ShatterError(f"tensor {fused}: experts that are fused in one tensor are not supported")
    raise ShatterError(f"layer {layer} has no experts under a known name, as {LAYOUTS[0].names(layer, 0)[0]}")
