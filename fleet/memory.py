"""What a vault needs of this machine's memory, before it is loaded."""

from __future__ import annotations

from dataclasses import dataclass

import psutil

from .models import Vault

KV_BYTES = 4  # a cached value at most: float32


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


def need(vault: Vault, positions: int) -> Need | None:
    """None for a vault whose bytes could not be read. `positions`: the window."""
    if not vault.top_k or not vault.record_bytes:
        return None
    width = (vault.kv_heads or 0) * (vault.head_dim or 0)
    window = 2 * (vault.hidden_layers or 0) * width * positions * KV_BYTES
    fixed = vault.scout_bytes + window
    return Need(vault.scout_bytes, window, fixed + vault.top_k * vault.record_bytes, fixed + vault.vault_bytes)


def installed() -> int:
    return psutil.virtual_memory().total
