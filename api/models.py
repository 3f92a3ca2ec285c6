"""GET /v1/models and /v1/models/{id}, in the caller's protocol: the fleet, the active vault first."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.conf import settings

from engine import generation, worker
from fleet import catalog
from fleet.catalog import ModelCard

from .errors import ModelNotFound
from .exchange import JsonAnswer, Request

LAST_SECOND = 253_402_300_799  # of the year 9999


async def list_models(request: Request) -> JsonAnswer:
    active = worker.get_worker().snapshot().model
    cards = sorted(filter(request.client.may_use, await catalog.aservable()), key=lambda card: card.id != active)
    if _anthropic(request):
        entries = [_anthropic_entry(card, active) for card in cards]
        ends = (
            {"first_id": entries[0]["id"], "last_id": entries[-1]["id"]}
            if entries
            else dict.fromkeys(("first_id", "last_id"))
        )
        return JsonAnswer({"data": entries, "has_more": False, **ends})
    return JsonAnswer({"object": "list", "data": [_openai_entry(card, active) for card in cards]})


async def get_model(request: Request) -> JsonAnswer:
    """`s-moe` (--model-id) is there too: what a request under that name would run on."""
    name = request.arguments["model"]
    card = await catalog.afind(name)
    if card is None and name == settings.SMOE.model_id:
        card = await generation.resolve(name, request.client.vaults)
    if card is None or not request.client.may_use(card):
        reason = await catalog.aunavailable(name)
        raise ModelNotFound(reason or f"There is no vault {name[:100]!r}; GET /v1/models lists those that there are.")
    entry = _anthropic_entry if _anthropic(request) else _openai_entry
    return JsonAnswer(entry(card, worker.get_worker().snapshot().model) | {"id": name})


def _anthropic(request: Request) -> bool:
    return "anthropic-version" in request.headers


def _created(card: ModelCard) -> int:
    """The vault file's time of change, in seconds, as far as calendars go; 0 where it has just gone."""
    try:
        return min(max(0, int(card.vault_path.stat().st_mtime)), LAST_SECOND)
    except OSError:
        return 0


def _openai_entry(card: ModelCard, active: str | None) -> dict[str, Any]:
    return {"id": card.id, "object": "model", "created": _created(card), "owned_by": "s-moe", **_facts(card, active)}


def _anthropic_entry(card: ModelCard, active: str | None) -> dict[str, Any]:
    created = datetime.fromtimestamp(_created(card), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "type": "model",
        "id": card.id,
        "display_name": f"{card.id} ({card.quant})",
        "created_at": created,
        **_facts(card, active),
    }


def _facts(card: ModelCard, active: str | None) -> dict[str, Any]:
    """What a person chooses by. Sizes in bytes."""
    return {
        "active": card.id == active,
        "quant": card.quant,
        "model_type": card.model_type,
        "moe_layers": card.moe_layers,
        "layers": card.hidden_layers,
        "experts_per_layer": card.experts_per_layer,
        "experts_per_token": card.top_k,
        "hidden_size": card.d_model,
        "vocab_size": card.vocab_size,
        "trained_context": card.trained_context,
        "format_version": card.format_version,
        "vault_bytes": card.vault_bytes,
        "scout_bytes": card.scout_bytes,
        "memory_bytes": card.memory_bytes,
        "tokenizer_is_fallback": card.tokenizer_is_fallback,
        "tokenizer_note": card.tokenizer_note,
        "description": card.description,
        "lineage": card.lineage,
    }
