"""When a request's database connection closes.

Django runs the sync part of each request in a thread of its own, which ends with it. With CONN_MAX_AGE None, which
keeps the connections of the pool's few threads, such a thread's connection would stay open until the garbage
collector finds it: tens of files while pages are loaded.
"""

from __future__ import annotations

from django.core.signals import request_finished
from django.db import connections


def close_with_requests() -> None:
    request_finished.connect(_close, dispatch_uid="connections")


def _close(**signal) -> None:
    """In the request's own thread. A connection in a transaction belongs to a test, which calls its views itself."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()
