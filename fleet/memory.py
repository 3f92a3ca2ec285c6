"""What a vault needs of this machine's memory, before it is loaded."""

from __future__ import annotations

from dataclasses import dataclass

import psutil
from django.conf import settings

from smoe_site import options

from . import cgroups
from .models import Vault

KEPT_BYTES = 4  # a cached element at most: float32
LARGEST_STORED = 1 << 30  # bytes of matrices that the engine's `--trunk auto` leaves as they are
WEIGHT_BYTES = {"q8": 1 + 2 / 64, "q4": 1 / 2 + 2 / 64}  # a code, and its part of the scale


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes. `least`: trunk, window and the experts of one token. `whole`: with every expert in memory."""

    trunk: int
    window: int
    least: int
    whole: int

    def share(self, total: int) -> float:
        """Of the experts, how many fit beside the rest: 0 to 1; below 0 the vault cannot run at all."""
        experts = self.whole - self.trunk - self.window
        if total < self.least:
            return -1.0
        return min(1.0, (total - self.trunk - self.window) / max(experts, 1))


def need(vault: Vault, positions: int, form: str) -> Need | None:
    """None for a vault whose bytes could not be read. `positions`: the window; `form`: of the trunk, as in --trunk."""
    if not vault.top_k or not vault.record_bytes:
        return None
    window = (vault.hidden_layers or 0) * (vault.kept_width or 0) * positions * KEPT_BYTES
    trunk = _trunk(vault, form)
    fixed = trunk + window
    return Need(trunk, window, fixed + vault.top_k * vault.record_bytes, fixed + vault.vault_bytes)


def _trunk(vault: Vault, form: str) -> int:
    stored, loaded = vault.matrix_bytes or 0, vault.scout_bytes - (vault.unloaded_bytes or 0)
    if form == "auto":
        form = "q8" if stored > LARGEST_STORED else "stored"
    if form == "stored":
        return loaded
    return loaded - stored + int((vault.matrix_weights or 0) * WEIGHT_BYTES[form])


def limit() -> int:
    """What the engine may take at most: the least of all that this machine has, what the control groups above this
    process allow, and `--memory`."""
    asked = options.bytes_of(settings.SMOE.memory) if settings.SMOE.memory else None
    limits = (psutil.virtual_memory().total, cgroups.memory_limit(), asked)
    return min(limit for limit in limits if limit is not None)
