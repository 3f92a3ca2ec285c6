"""Fleet directory -> rows. A file is opened only where its stat figures differ from the row's."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from datetime import timedelta

from django.conf import settings
from django.db import DatabaseError, OperationalError, transaction
from django.utils import timezone

from smoe_site.options import Options
from smoe_site.words import counted

from . import vault_rows
from .models import Event, Vault
from .sightings import look

TOUCH_EVERY = timedelta(minutes=1)  # how exact `last_seen` is while nothing changes

_lock = threading.Lock()
_LOOKED_AT = (
    *("name", "state", "signature", "fingerprint"),
    *("vault_bytes", "scout_bytes", "modified", "last_seen"),
)
_KEPT = {"id", "name", "first_seen", "last_used", "tokens_per_second"}  # not the files' to say
_WRITTEN = [f.name for f in Vault._meta.concrete_fields if f.name not in _KEPT]


class NotWritten(OperationalError):
    """The rows were read and could not be brought in line: the disk is full, say."""


@dataclass(frozen=True, slots=True)
class Scan:
    """What one look found; names in order."""

    seen: int
    read: int  # opened, because they were new or had changed
    found: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)  # another state or content than before
    missing: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        parts = ((self.found, "new"), (self.changed, "changed"), (self.missing, "missing"))
        news = ", ".join(f"{len(names)} {word}" for names, word in parts if names)
        return f"{counted(self.seen, 'vault')} seen, {news or 'nothing changed'}"


def scan(options: Options | None = None) -> Scan:
    """Brings the rows in line with the disk. Blocking: call it off the event loop. One look at a time.

    Raises DatabaseError; NotWritten where the database can at least be read.
    """
    with _lock:
        started = time.perf_counter()
        sightings = look(options or settings.SMOE)
        known = {row.name: row for row in Vault.objects.only(*_LOOKED_AT)}
        rows = [
            vault_rows.read(sighting, known.get(name))
            for name, sighting in sightings.items()
            if name not in known or known[name].signature != sighting.signature
        ]
        gone = [row for name, row in known.items() if name not in sightings and row.state != Vault.State.MISSING]
        events = [*filter(None, (_news(row, known.get(row.name)) for row in rows)), *map(_loss, gone)]
        try:
            _record(rows, gone, events)
            _touch(known)
        except DatabaseError as error:
            raise NotWritten(*error.args) from error
        return _report(len(sightings), len(rows), events, time.perf_counter() - started)


def _report(seen: int, read: int, events: list[Event], seconds: float) -> Scan:
    def names(kind: Event.Kind) -> list[str]:
        return [event.vault for event in events if event.kind == kind]

    kinds = (Event.Kind.FOUND, Event.Kind.CHANGED, Event.Kind.MISSING)
    return Scan(seen, read, *map(names, kinds), seconds)


def _news(row: Vault, known: Vault | None) -> Event | None:
    """The event of a row that was read, if its state or its content is new."""
    if known is None:
        return _event(Event.Kind.FOUND, row, f"{row.name} was found: {_standing(row)}")
    if known.state != row.state:
        return _event(Event.Kind.CHANGED, row, f"{row.name} was {known.state}, is now {_standing(row)}")
    if known.fingerprint and row.fingerprint and known.fingerprint != row.fingerprint:
        return _event(Event.Kind.CHANGED, row, f"{row.name} has other contents than before")
    return None


def _standing(row: Vault) -> str:
    return f"{row.state}. {row.reason}" if row.reason else row.state


def _loss(row: Vault) -> Event:
    return _event(Event.Kind.MISSING, row, f"{row.name} is no longer there")


def _event(kind: Event.Kind, row: Vault, message: str) -> Event:
    return Event(time=timezone.now(), kind=kind, vault=row.name, message=message)


def _record(rows: list[Vault], gone: list[Vault], events: list[Event]) -> None:
    """Upserts, so that two processes that look at the same time cannot collide."""
    if not (rows or gone or events):
        return
    with transaction.atomic():
        Vault.objects.bulk_create(
            rows, update_conflicts=True, unique_fields=["name"], update_fields=_WRITTEN, batch_size=200
        )
        Vault.objects.filter(name__in=[row.name for row in gone]).update(
            state=Vault.State.MISSING, reason="Its file is no longer in the fleet directory.", signature=""
        )
        Event.objects.bulk_create(events, batch_size=500)


def _touch(known: dict[str, Vault]) -> None:
    now = timezone.now()
    if any(now - row.last_seen > TOUCH_EVERY for row in known.values() if row.state != Vault.State.MISSING):
        Vault.objects.exclude(state=Vault.State.MISSING).update(last_seen=now)
