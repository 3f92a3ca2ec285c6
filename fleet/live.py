"""What the cockpit shows and polls: the engine, the machine, the last requests and events."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

import psutil
from django.utils import timezone

from . import control
from .models import Event, Generation

LATEST = 6


def figures() -> dict[str, Any]:
    """Bytes, counts since the engine's boot, seconds."""
    memory = psutil.virtual_memory()
    return {
        "time": time.time(),
        "engine": asdict(control.snapshot()),
        "status": control.figures(),
        "machine": {"total": memory.total, "available": memory.available},
        "generations": [_generation(row) for row in Generation.objects.all()[:LATEST]],
        "events": [_event(row) for row in Event.objects.all()[:LATEST]],
    }


def _generation(row: Generation) -> dict[str, Any]:
    return {
        "time": _clock(row.time),
        "vault": row.vault,
        "client": row.client_name or row.client,
        "prompt": row.prompt_tokens,
        "cached": row.cached_tokens,
        "generated": row.generated_tokens,
        "speed": row.tokens_per_second,
        "outcome": row.error or row.finish_reason,
    }


def _event(row: Event) -> dict[str, Any]:
    return {"time": _clock(row.time), "kind": row.get_kind_display(), "message": row.message}


def _clock(moment: Any) -> str:
    return timezone.localtime(moment).strftime("%H:%M:%S")
