"""Who may call: the Host and Origin of a request, CORS, and the client that the queue is fair to.

A browser sends every page's requests to any address, so a page from elsewhere must not spend this machine's time:
* Host: bound to loopback, only loopback names and the hosts of allowed origins are served. A name that an attacker
  points at 127.0.0.1 (DNS rebinding) is neither.
* Origin: a request that does something must come from no page (no Origin), a loopback page, this server's own page
  or an origin that `--allow-origin` names.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from django.conf import settings

from fleet.catalog import ModelCard
from fleet.keys import Key, KeyRefused, keyring

from .errors import Forbidden, Unauthorized

EXPOSED_HEADERS = "X-Request-Id, Request-Id, Retry-After"
PREFLIGHT_SECONDS = "600"


@dataclass(frozen=True, slots=True)
class Client:
    """`id` is what the queue is fair between: one key or one address."""

    id: str
    address: str
    vaults: frozenset[str] | None = None  # those that its key may use; None: every one

    def may_use(self, card: ModelCard) -> bool:
        return self.vaults is None or card.id in self.vaults


async def authorize(headers: Mapping[str, str], address: str) -> Client:
    """The client behind a request. Raises Unauthorized.

    While no key is needed any is accepted: it tells apart clients that share an address.
    """
    keys = presented_keys(headers)
    owner = await _owner(keys)
    if owner is not None:
        return Client(owner.name, address, owner.vaults)
    identity = hashlib.sha256(keys[0].encode()).hexdigest()[:12] if keys[0] else ""
    return Client(f"{address}/{identity}" if identity else address, address)


async def _owner(keys: Iterable[str]) -> Key | None:
    """Whose the first valid key is; None where none is needed. Clients fill the other header with a word."""
    refusals = []
    for key in keys:
        try:
            return await keyring.identify(key)
        except KeyRefused as refusal:
            refusals.append(str(refusal))
    raise Unauthorized(refusals[0], {"WWW-Authenticate": "Bearer"})


def presented_keys(headers: Mapping[str, str]) -> tuple[str, ...]:
    """From `x-api-key` and `Authorization: Bearer`; one that is empty for none."""
    scheme, _, credentials = headers.get("authorization", "").strip().partition(" ")
    bearer = credentials.strip() if scheme.lower() == "bearer" else ""
    return tuple(filter(None, (headers.get("x-api-key", "").strip(), bearer))) or ("",)


def is_loopback(host: str) -> bool:
    """host: a name or address as it stands in a URL, an IPv6 one without brackets."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_name(netloc: str) -> str:
    """`[::1]:8000` -> `::1`; "" where it is malformed."""
    try:
        return (urlsplit(f"//{netloc}").hostname or "").rstrip(".")
    except ValueError:
        return ""


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """Which hosts and origins are served, from the launch flags."""

    bound_host: str
    allowed_origins: tuple[str, ...]

    @classmethod
    def from_settings(cls) -> AccessPolicy:
        return cls(settings.SMOE.host, tuple(settings.SMOE.allow_origin))

    def check_host(self, host: str | None) -> None:
        """Raises Forbidden. Without a Host (HTTP/1.0) the request is no browser's."""
        if host is None or "*" in self.allowed_origins or not is_loopback(self.bound_host):
            return
        name = host_name(host)
        if not is_loopback(name) and name not in self._allowed_names():
            raise Forbidden(
                f"Host {host[:100]!r} is not this server's: it listens on {self.bound_host}. "
                f"To serve it under another name, start it with --allow-origin http://{name or 'NAME'}."
            )

    def allows_origin(self, origin: str, host: str | None) -> bool:
        if "*" in self.allowed_origins or origin in self.allowed_origins:
            return True
        netloc = origin.partition("://")[2]
        return bool(netloc) and (is_loopback(host_name(netloc)) or netloc == host)

    def check_origin(self, origin: str | None, host: str | None) -> None:
        """For requests that do something. Raises Forbidden."""
        if origin is not None and not self.allows_origin(origin, host):
            raise Forbidden(
                f"Pages from {origin[:100]!r} may not use this server. "
                f"To let them, start it with --allow-origin {origin[:100]}."
            )

    def _allowed_names(self) -> Iterable[str]:
        return (host_name(origin.partition("://")[2]) for origin in self.allowed_origins)

    def cors_headers(self, headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
        """What lets an allowed page read the answer; nothing for other requests."""
        origin = headers.get("origin")
        if origin is None or not self.allows_origin(origin, headers.get("host")):
            return []
        return [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-expose-headers", EXPOSED_HEADERS.encode()),
            (b"vary", b"Origin"),
        ]

    def preflight_headers(self, headers: Mapping[str, str], methods: Iterable[str]) -> dict[str, str]:
        """The answer to OPTIONS: every header that was asked for is allowed."""
        wanted = headers.get("access-control-request-headers", "authorization, content-type, x-api-key")
        answer = {
            "Access-Control-Allow-Methods": ", ".join(methods),
            "Access-Control-Allow-Headers": wanted,
            "Access-Control-Max-Age": PREFLIGHT_SECONDS,
        }
        if headers.get("access-control-request-private-network") == "true":
            answer["Access-Control-Allow-Private-Network"] = "true"
        return answer
