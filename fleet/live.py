"""What the cockpit shows and polls: the engine, the machine, the last requests and events."""

from __future__ import annotations

import time
from collections.abc import Container, Iterable
from dataclasses import asdict
from typing import Any

import psutil
from django.db.models import Model
from django.utils import timezone

from . import control
from .models import Event, Generation

LATEST = 6


def figures(visible: Container[str]) -> dict[str, Any]:
    """Bytes, counts since the engine's boot, seconds; `time` is for differences only.

    visible: names of the models whose rows the user may see.
    """
    memory = psutil.virtual_memory()
    return {
        "time": time.monotonic(),
        "engine": asdict(control.snapshot()),
        "status": control.figures(),
        "machine": {"total": memory.total, "available": memory.available},
        "generations": [_generation(row) for row in _latest(Generation, visible)],
        "events": [_event(row) for row in _latest(Event, visible)],
    }


def _latest(model: type[Model], visible: Container[str]) -> Iterable[Any]:
    return model.objects.all()[:LATEST] if model._meta.model_name in visible else ()


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
