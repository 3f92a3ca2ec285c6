"""Management commands -> the running server."""

from __future__ import annotations

import json
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from django.conf import settings
from django.core.management.base import CommandError

from . import server_file

TIMEOUT = 60.0  # seconds; the server answers within a few, also where the work takes longer


class NoServer(CommandError):
    """None runs, or nobody listens where the last one did: a killed one leaves its file, and its number to others."""


class NoAnswer(CommandError):
    """One runs and says nothing, or nothing that can be read."""


def ask(action: str, patience: float = TIMEOUT, **fields: str) -> str:
    """The server's answer to POST /control/<action>, within `patience` seconds.

    Raises CommandError with a sentence for the operator.
    """
    server = server_file.read()
    if server is None:
        raise NoServer(
            f"No server is running on {settings.SMOE.data_dir}: start it with `manage.py serve`, "
            "or name its --data-dir with SMOE_DATA_DIR."
        )
    request = Request(
        f"{server.url.rstrip('/')}/control/{action}",
        data=urlencode(fields).encode(),
        headers={server_file.TOKEN_HEADER: server.token},
    )
    try:
        with urlopen(request, timeout=patience) as response:
            return json.load(response)["message"]
    except HTTPError as error:
        raise CommandError(_reason(error)) from None
    except (URLError, OSError, ValueError, KeyError) as error:
        reason = getattr(error, "reason", error)
        kind = NoServer if isinstance(reason, ConnectionRefusedError) else NoAnswer
        told = f"it was silent for {patience:.0f} s" if isinstance(reason, TimeoutError) else reason
        raise kind(f"The server at {server.url} (process {server.pid}) does not answer: {told}.") from None


def rescan(patience: float = TIMEOUT) -> str | None:
    """The server's look at the fleet directory, which its flags name; None where none runs. Raises CommandError.

    A look of this process at a directory of its own would tell the server's vaults missing.
    """
    try:
        return ask("rescan", patience)
    except NoServer:
        return None


def _reason(error: HTTPError) -> str:
    try:
        return json.load(error)["error"]
    except (ValueError, KeyError, TypeError):
        return f"The server answered {error.code} {error.reason}."
