"""Cells of the admin's lists: badges, meters and figures, all escaped."""

from __future__ import annotations

from datetime import datetime

from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from .. import memory
from ..models import Vault
from ..tables import human_bytes

TONES = {
    Vault.State.SERVABLE: "good",
    Vault.State.INCOMPLETE: "wait",
    Vault.State.INVALID: "bad",
    Vault.State.MISSING: "off",
}


def badge(text: str, tone: str, title: str = "") -> SafeString:
    return format_html('<span class="smoe-badge smoe-{}" title="{}">{}</span>', tone, title, text)


def state(vault: Vault) -> SafeString:
    return badge(vault.get_state_display(), TONES[Vault.State(vault.state)], vault.reason)


def tokenizer(vault: Vault) -> SafeString:
    tone = {"fits": "good", "misfit": "bad", "unknown": "wait"}[vault.tokenizer_fit]
    text = vault.get_tokenizer_source_display()
    if vault.tokenizer and vault.tokenizer_fit == Vault.TokenizerFit.MISFIT:
        text = f"{text}, {vault.get_tokenizer_fit_display()}"
    return badge(text, "bad" if not vault.tokenizer else tone, vault.tokenizer_note or vault.tokenizer)


def fit(vault: Vault, positions: int, trunk: str) -> SafeString | str:
    """How much of the machine's memory the vault needs at least, and how many of its experts would fit."""
    need = memory.need(vault, positions, trunk)
    if need is None:
        return "-"
    total = memory.limit()
    share = need.share(total)
    title = (
        f"Trunk {human_bytes(need.trunk)}, window of {positions:,} positions {human_bytes(need.window)}; "
        f"with every expert {human_bytes(need.whole)}. The engine may take {human_bytes(total)}."
    )
    if share < 0:
        return badge(f"needs {human_bytes(need.least)}", "bad", title)
    return format_html(
        "<small class='smoe-note smoe-fit' title='{}'><meter min='0' max='100' value='{}'>{} %</meter><br>"
        "runs from {} of memory, {} % of experts fit</small>",
        title,
        round(share * 100),
        round(share * 100),
        human_bytes(need.least),
        round(share * 100),
    )


def noted(text: str, note: str) -> SafeString:
    return format_html("{}<small class='smoe-note'>{}</small>", text, note)


def lines(first: str, note: str) -> SafeString:
    """Figures that stay whole, and what matters less under them."""
    return format_html("<span class='smoe-lines'>{}</span><small class='smoe-note smoe-lines'>{}</small>", first, note)


def moment(time: datetime) -> str:
    """To the second; the year where it is another."""
    local = timezone.localtime(time)
    return local.strftime("%b %d, %H:%M:%S" if local.year == timezone.localtime().year else "%Y %b %d, %H:%M:%S")


def speed(tokens_per_second: float | None) -> str:
    return "-" if tokens_per_second is None else f"{tokens_per_second:.1f} tok/s"
