"""data_dir/server.json: how commands on this machine find the running server, and prove that they may steer it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import psutil
from django.conf import settings

TOKEN_HEADER = "X-Smoe-Control"


@dataclass(frozen=True, slots=True)
class ServerFile:
    """`token` is a secret: the file's mode is 0600."""

    pid: int
    url: str
    token: str


def path() -> Path:
    return settings.SMOE.data_dir / "server.json"


def read() -> ServerFile | None:
    """The running server; None where there is none, or the file is what a killed one left."""
    try:
        content = json.loads(path().read_text())
        server = ServerFile(int(content["pid"]), str(content["url"]), str(content["token"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return server if psutil.pid_exists(server.pid) else None
