"""Behind a proxy on this machine (SMOE_HTTPS=1): the client's address in place of the proxy's.

Without it the admin's pause for whoever guesses passwords would be everyone's.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable
from typing import Any

Application = Callable[..., Awaitable[None]]


def behind_proxy(application: Application) -> Application:
    async def forwarded(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await application({**scope, "client": client(scope)}, receive, send)

    return forwarded


def client(scope: dict[str, Any]) -> tuple[str, int]:
    """Address and port. Of X-Forwarded-For only the last entry counts, which the proxy itself has written, and only
    from a proxy on this machine: anyone else could write what they like."""
    peer = scope.get("client") or ("", 0)
    told = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
    if not told or not _loopback(peer[0]):
        return peer
    last = told[-1].decode("latin-1").rpartition(",")[2].strip()
    try:
        return str(ipaddress.ip_address(last)), 0
    except ValueError:
        return peer


def _loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
