"""API keys: making, recognising and limiting. The event loop asks memory; the database is read at most every 2 s."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import shlex
import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, date, datetime

from channels.db import database_sync_to_async
from django.conf import settings
from django.db.models import Sum
from django.utils import timezone

from engine.errors import LimitReached
from engine.records import Record
from smoe_site.options import Options
from smoe_site.words import counted

from .events import record as record_event
from .models import ApiKey, Event, Usage

PREFIX = "sk-smoe-"
HINT_LENGTH = len(PREFIX) + 4
READ_EVERY = 2.0  # seconds; how long a key that another process revoked may still work
BUSY_RETRY = 5  # seconds


class KeyRefused(Exception):
    """A sentence for the client."""


@dataclass(frozen=True, slots=True)
class Key:
    """A row as the event loop needs it. `vaults` None: every one."""

    name: str
    digest: str
    expires: datetime | None
    revoked: bool
    requests_at_once: int | None
    tokens_a_day: int | None
    vaults: frozenset[str] | None


def create(name: str, **fields) -> tuple[ApiKey, str]:
    """The row and the key itself, which is nowhere else. Blocking. Raises ValidationError."""
    row = ApiKey(name=name, **fields)
    key = mint(row)
    row.full_clean()
    row.save()
    record_event(Event.Kind.KEY, f"The key {name} was made.")
    return row, key


def mint(row: ApiKey) -> str:
    """A new secret for a row that is not saved yet."""
    key = PREFIX + secrets.token_urlsafe(32)
    row.hint, row.digest = key[:HINT_LENGTH], digest(key)
    return key


def revoke(row: ApiKey) -> None:
    if row.revoked is None:
        row.revoked = timezone.now()
        row.save(update_fields=["revoked"])
        record_event(Event.Kind.KEY, f"The key {row.name} was revoked.")


def digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


class Keyring:
    """What is known of all keys, and what each has used: a request asks here, twice."""

    def __init__(self) -> None:
        self._keys: dict[str, Key] = {}
        self._by_name: dict[str, Key] = {}
        self._read_at = float("-inf")  # time.monotonic()
        self._running: Counter[str] = Counter()  # by key name
        self._day: date | None = None
        self._spent: Counter[str] = Counter()  # tokens of `_day`, by key name

    async def identify(self, key: str) -> Key | None:
        """Whose key it is; None where none is needed. Raises KeyRefused."""
        if time.monotonic() - self._read_at > READ_EVERY:
            await database_sync_to_async(self.read, thread_sensitive=False)()
        if not self.needed:
            return None
        if not key:
            raise KeyRefused("This server needs a key: send it as `Authorization: Bearer KEY` or `x-api-key: KEY`.")
        given = digest(key)
        found = self._keys.get(given)
        if found is None or not hmac.compare_digest(found.digest, given):
            raise KeyRefused("This key is not known here.")
        if found.revoked:
            raise KeyRefused(f"The key {found.name} has been revoked.")
        if found.expires is not None and found.expires <= timezone.now():
            raise KeyRefused(f"The key {found.name} has expired.")
        return found

    @property
    def needed(self) -> bool:
        """A revoked key still counts: revoking the last one must not open the server."""
        return bool(self._keys) or (_strangers_come(settings.SMOE.host) and not settings.SMOE.allow_anyone)

    def read(self) -> None:
        """Blocking."""
        rows = ApiKey.objects.prefetch_related("vaults")
        keys = [_key(row) for row in rows]
        self._keys = {key.digest: key for key in keys}
        self._by_name = {key.name: key for key in keys}
        if self._day != _today():
            self._day, self._spent = _today(), Counter(_spent_on(_today()))
        self._read_at = time.monotonic()

    def forget(self) -> None:
        """The next request reads the database: a change made in this process works at once."""
        self._read_at = float("-inf")

    def enter(self, record: Record) -> None:
        """A generation begins. Raises LimitReached."""
        key = self._by_name.get(record.client)
        if key is None:
            return
        if key.requests_at_once is not None and self._running[key.name] >= key.requests_at_once:
            raise LimitReached(
                f"The key {key.name} may have {counted(key.requests_at_once, 'request')} running or waiting; "
                "send this one later.",
                BUSY_RETRY,
            )
        if key.tokens_a_day is not None and self._spent[key.name] >= key.tokens_a_day:
            raise LimitReached(
                f"The key {key.name} has used its {counted(key.tokens_a_day, 'token')} of today (UTC).",
                _until_midnight(),
            )
        self._running[key.name] += 1
        record.admitted = True

    def leave(self, record: Record) -> None:
        if record.admitted:
            self._running[record.client] -= 1
            self._spent[record.client] += record.usage.prompt + record.usage.generated


def refusal_to_listen(host: str) -> str | None:
    """Why a server must not listen on `host` yet; None where it may. Blocking."""
    if not _strangers_come(host) or settings.SMOE.allow_anyone or ApiKey.objects.exists():
        return None
    way = f"{host} can be reached" if not is_loopback(host) else "With SMOE_HTTPS=1 a proxy lets this server be reached"
    return (
        f"{way} from other machines and there is no key to keep strangers out: make one with "
        f"`{_for_this_server('manage.py create_api_key NAME')}`, or start with --allow-anyone 1."
    )


def _for_this_server(command: str) -> str:
    """Commands do not know a --data-dir of the server's: without its variable they make a key for another one."""
    own = settings.SMOE.data_dir
    return command if own == Options().data_dir else f"SMOE_DATA_DIR={shlex.quote(str(own))} {command}"


def _strangers_come(host: str) -> bool:
    return settings.BEHIND_PROXY or not is_loopback(host)


def is_loopback(host: str) -> bool:
    from api.auth import is_loopback as loopback  # api imports this module

    return loopback(host.strip("[]"))


def _key(row: ApiKey) -> Key:
    vaults = frozenset(vault.name for vault in row.vaults.all())
    return Key(
        row.name,
        row.digest,
        row.expires,
        row.revoked is not None,
        row.requests_at_once,
        row.tokens_a_day,
        vaults or None,
    )


def _spent_on(day: date) -> dict[str, int]:
    rows = Usage.objects.filter(day=day).values("client").annotate(Sum("prompt_tokens"), Sum("generated_tokens"))
    return {row["client"]: row["prompt_tokens__sum"] + row["generated_tokens__sum"] for row in rows}


def _today() -> date:
    return datetime.now(UTC).date()


def _until_midnight() -> int:
    now = datetime.now(UTC)
    return 86_400 - (now.hour * 3600 + now.minute * 60 + now.second)


keyring = Keyring()
