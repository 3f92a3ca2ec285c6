"""Event rows."""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from .models import Event


def record(kind: str, message: str, vault: str = "", **details: Any) -> None:
    """One row, now. Blocking."""
    Event.objects.create(time=timezone.now(), kind=kind, vault=vault, message=message, details=details)
