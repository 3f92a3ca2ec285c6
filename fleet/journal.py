"""Finished generations and the engine's happenings -> rows, written by one thread behind the event loop's back.

A listener puts a value into a queue and returns. The thread writes what has come in one transaction; where the
database is locked it tries again, and beyond QUEUED values the oldest way out is honest: they are counted and logged.
Requests that were turned away are no generations: a flood of them leaves an event a minute, not a row each.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import DatabaseError, close_old_connections, transaction
from django.db.models import F
from django.utils import timezone

from engine import happenings, records
from engine.happenings import Happening
from engine.records import Record
from smoe_site.words import counted

from . import heats
from .keys import keyring
from .metrics import metrics
from .models import ApiKey, Event, Generation, Usage, Vault
from .vault_rows import clean

log = logging.getLogger("smoe.journal")
QUEUED = 10_000
BATCH = 500
GATHER_SECONDS = 0.2  # lets rows that end together share a transaction
ATTEMPTS = 5
SWEEP_SECONDS = 3600.0
TELL_SECONDS = 60.0  # between two events of requests that were turned away
TOLD_REASONS = 20  # in one event, those with most requests
TEXT_LIMIT = 1_000_000  # characters kept of a prompt and of a reply

Entry = Record | Happening


class Journal:
    """`note` from any thread; `close` writes what is left."""

    def __init__(self) -> None:
        self._queue: queue.Queue[Entry | None] = queue.Queue(QUEUED)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._swept = 0.0  # time.monotonic()
        self._turned_away: Counter[str] = Counter()  # since the last event, by what they were told
        self._teller: threading.Timer | None = None
        self.lost = 0

    def note(self, entry: Entry) -> None:
        if isinstance(entry, Record) and entry.turned_away:
            self._count(entry.error)
        else:
            self._put(entry)

    def _count(self, reason: str) -> None:
        with self._lock:
            self._turned_away[reason] += 1
            if self._teller is None:
                self._teller = threading.Timer(TELL_SECONDS, self._tell_turned_away)
                self._teller.daemon = True
                self._teller.start()

    def _tell_turned_away(self) -> None:
        with self._lock:
            told, self._turned_away, self._teller = self._turned_away, Counter(), None
        if told:
            message = f"{counted(told.total(), 'request')} turned away: {told.most_common(1)[0][0]}"
            self._put(Happening("server", "", message, {"reasons": dict(told.most_common(TOLD_REASONS))}))

    def _put(self, entry: Entry) -> None:
        self._start()
        try:
            self._queue.put_nowait(entry)
        except queue.Full:
            self.lost += 1

    def flush(self) -> None:
        """Returns when everything noted so far is written (or given up)."""
        self._queue.join()

    def close(self) -> None:
        if self._teller is not None:
            self._teller.cancel()
            self._tell_turned_away()
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            batch = self._gather()
            entries = [entry for entry in batch if entry is not None]
            try:
                self._write(entries)
                self._sweep()
            except Exception:
                log.exception("%s of the request log could not be written", counted(len(entries), "row"))
            finally:
                close_old_connections()
                for _ in batch:
                    self._queue.task_done()
            if None in batch:
                return

    def _gather(self) -> list[Entry | None]:
        """At least one; those that follow within GATHER_SECONDS too."""
        batch = [self._queue.get()]
        deadline = time.monotonic() + GATHER_SECONDS
        while batch[-1] is not None and len(batch) < BATCH:
            try:
                batch.append(self._queue.get(timeout=max(0.0, deadline - time.monotonic())))
            except queue.Empty:
                break
        return batch

    def _write(self, entries: list[Entry]) -> None:
        for attempt in range(ATTEMPTS - 1):
            try:
                write(entries)
            except DatabaseError:
                time.sleep(0.5 * 2**attempt)
            else:
                return
        write(entries)

    def _sweep(self) -> None:
        if time.monotonic() - self._swept > SWEEP_SECONDS or not self._swept:
            self._swept = time.monotonic()
            forget_old()


def write(entries: list[Entry]) -> None:
    """All or nothing."""
    finished = [entry for entry in entries if isinstance(entry, Record)]
    happened = [entry for entry in entries if isinstance(entry, Happening)]
    with transaction.atomic():
        Generation.objects.bulk_create(map(_generation, finished))
        Event.objects.bulk_create(map(_event, happened))
        _add_usage(finished)
        _note_use(finished)


def forget_old() -> None:
    """The retention setting: rows of the request log and events; usage stays."""
    days = settings.SMOE.log_days
    if days > 0:
        before = timezone.now() - timedelta(days=days)
        Generation.objects.filter(time__lt=before).delete()
        Event.objects.filter(time__lt=before).delete()


def _generation(record: Record) -> Generation:
    timings, usage = record.timings, record.usage
    return Generation(
        time=_moment(record.ended),
        request_id=clean(record.request_id)[:64],
        client=clean(record.client)[:128],
        client_name=clean(record.client_name)[:200],
        protocol=record.protocol,
        endpoint=clean(record.endpoint)[:64],
        vault=record.model or "",
        prompt_tokens=usage.prompt,
        cached_tokens=usage.cached,
        generated_tokens=usage.generated,
        queue_ms=timings.queue_ms,
        boot_ms=timings.boot_ms,
        prefill_ms=timings.prefill_ms,
        decode_ms=timings.decode_ms,
        stall_ms=timings.stall_ms,
        expert_hits=timings.expert_hits,
        expert_misses=timings.expert_misses,
        bytes_read=timings.bytes_read,
        finish_reason=record.reason or "",
        error=clean(record.error),
        prompt=clean(record.prompt)[:TEXT_LIMIT],
        reply=clean(record.reply)[:TEXT_LIMIT],
    )


def _event(happening: Happening) -> Event:
    return Event(
        time=_moment(happening.time),
        kind=happening.kind,
        vault=happening.vault,
        message=clean(happening.message),
        details=clean(happening.details),
    )


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _add_usage(finished: list[Record]) -> None:
    sums: dict[tuple, dict[str, float]] = defaultdict(lambda: defaultdict(int))
    for record in finished:
        total = sums[_moment(record.ended).date(), clean(record.client)[:128], record.model or ""]
        total["requests"] += 1
        total["errors"] += bool(record.error)
        total["prompt_tokens"] += record.usage.prompt
        total["cached_tokens"] += record.usage.cached
        total["generated_tokens"] += record.usage.generated
        total["seconds"] += (record.timings.prefill_ms + record.timings.decode_ms) / 1000
    for (day, client, vault), total in sums.items():
        row, _ = Usage.objects.get_or_create(day=day, client=client, vault=vault)
        Usage.objects.filter(pk=row.pk).update(**{name: F(name) + value for name, value in total.items()})


def _note_use(finished: list[Record]) -> None:
    """When a vault and a key were used last, and how fast the vault decoded then."""
    for client, ended in {record.client: record.ended for record in finished}.items():
        ApiKey.objects.filter(name=clean(client)).update(last_used=_moment(ended))
    vaults: dict[str, dict[str, object]] = defaultdict(dict)
    for record in finished:
        if record.model:
            vaults[record.model]["last_used"] = _moment(record.ended)
            if record.is_whole and (speed := _generation(record).tokens_per_second):
                vaults[record.model]["tokens_per_second"] = speed
    for name, fields in vaults.items():
        Vault.objects.filter(name=name).update(**fields)


journal = Journal()
_FINISHED = (keyring.leave, journal.note, metrics.finished, heats.after)
_HAPPENED = (journal.note, metrics.happened, heats.happened)


def begin() -> None:
    """From now on every generation is held against its key's limits and written down, and so is what happens."""
    records.on_started.append(keyring.enter)
    records.on_finished.extend(_FINISHED)
    happenings.listeners.extend(_HAPPENED)


def end() -> None:
    """Undoes `begin`; returns when everything is written."""
    records.on_started.remove(keyring.enter)
    for listener in _FINISHED:
        records.on_finished.remove(listener)
    for listener in _HAPPENED:
        happenings.listeners.remove(listener)
    journal.close()
