"""Uses of each expert over every boot: the engine counts since its own start, and forgets with its end.

They are taken in some seconds after a reply and whenever someone looks; what was used in the last seconds before the
engine's end is not among them.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import dataclass
from datetime import datetime

from channels.db import database_sync_to_async
from django.conf import settings
from django.db import DatabaseError

from engine.happenings import Happening
from engine.protocol import Heat
from engine.records import Record
from engine.worker import get_worker

from . import control
from .models import ExpertUse

DELAY = 2.0  # seconds from a reply until its uses are taken in: one look for a burst

log = logging.getLogger(__name__)
_lock = threading.Lock()
_told: tuple[tuple[str, int | None], Heat] = (("", None), Heat(0, []))  # what which process has told so far
_waiting: asyncio.Task[None] | None = None
_warming: set[asyncio.Task[None]] = set()


@dataclass(frozen=True, slots=True)
class Total:
    """counts: one list a MoE layer, the first being layer `first`."""

    first: int
    counts: list[list[int]]
    since: datetime


def total(name: str) -> Total | None:
    """Of one vault, as of now where the engine runs it. None: never used. Blocking, for sync views."""
    try:
        take_in()
    except DatabaseError as error:
        log.error("the uses of experts could not be written; the next look has them too: %s", error)
    row = ExpertUse.objects.filter(vault=name).first()
    return Total(row.first, row.counts, row.since) if row else None


def uses(name: str) -> list[list[int]]:
    """As of the last look. Blocking."""
    row = ExpertUse.objects.filter(vault=name).first()
    return row.counts if row else []


def take_in() -> None:
    """What the engine has counted since the last look. Blocking, for sync views."""
    before = control.snapshot()
    heat = control.heat()
    if heat is not None and before.model and before.pid == control.snapshot().pid:
        add(before.model, before.pid, heat)


def add(name: str, pid: int | None, heat: Heat) -> None:
    """`heat` counts from the start of process `pid`. Blocking."""
    global _told
    with _lock:
        known, before = _told
        new = _difference(heat, before) if known == (name, pid) else heat.counts
        if any(map(any, new)):
            _store(name, heat.first, new)
        _told = ((name, pid), heat)


def _store(name: str, first: int, new: list[list[int]]) -> None:
    """A vault of another shape under the same name begins anew."""
    row = ExpertUse.objects.filter(vault=name).first()
    if row is None or (row.first, _shape(row.counts)) != (first, _shape(new)):
        ExpertUse.objects.filter(vault=name).delete()
        row = ExpertUse(vault=name, first=first, counts=[[0] * len(layer) for layer in new])
    row.counts = [[a + b for a, b in zip(*layers, strict=True)] for layers in zip(row.counts, new, strict=True)]
    row.save()


def _difference(heat: Heat, before: Heat) -> list[list[int]]:
    return [[a - b for a, b in zip(*layers, strict=True)] for layers in zip(heat.counts, before.counts, strict=True)]


def _shape(counts: list[list[int]]) -> list[int]:
    return [len(layer) for layer in counts]


def happened(happening: Happening) -> None:
    """A listener of the engine's happenings, on the event loop: a new engine is told what the ones before used."""
    if settings.SMOE.prewarm and happening.kind in ("boot", "switch", "respawn"):
        task = asyncio.get_running_loop().create_task(_warm(happening.vault))
        _warming.add(task)
        task.add_done_callback(_warming.discard)


async def _warm(name: str) -> None:
    try:
        counts = await database_sync_to_async(uses, thread_sensitive=False)(name)
    except DatabaseError:
        log.exception("the uses of experts could not be read: popular ones are not read first")
        counts = []
    get_worker().warm(name, counts)


def after(record: Record) -> None:
    """A listener of finished generations, on the event loop."""
    global _waiting
    if record.model and (_waiting is None or _waiting.done()):
        _waiting = asyncio.get_running_loop().create_task(_take_in_later())


async def _take_in_later() -> None:
    await asyncio.sleep(DELAY)
    before = get_worker().snapshot()
    heat = await get_worker().heat()
    if heat is None or not before.model or before.pid != get_worker().snapshot().pid:
        return
    try:
        await database_sync_to_async(add, thread_sensitive=False)(before.model, before.pid, heat)
    except DatabaseError:
        log.exception("the uses of experts could not be written; the next look has them too")
