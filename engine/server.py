"""daphne in the foreground, with a beginning and an end: the ready message, the server file, an orderly shutdown.

On the first signal no new connection is taken, every generation ends with ShuttingDown (so that its stream closes in
its protocol's form), the engine ends, then the server. A second signal ends everything at once, unless it is a hangup
or comes with the first: make and timeout pass on what they get, also where their whole group has got it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from daphne.endpoints import build_endpoint_description_strings
from twisted.internet import error, reactor

from . import generation
from .daphne_request import RequestServer
from .errors import EngineFailed
from .worker import get_worker

log = logging.getLogger("smoe.server")
FAREWELL = 1.0  # seconds that streams have to say how they end
ECHO = 0.5  # seconds after the first signal in which another is the same
BODY_CHUNK = 1 << 20  # bytes of a request body for each message to the application


class ForegroundServer(RequestServer):
    """`run` returns when the server has ended; `failure` then tells why it could not listen, if it could not."""

    def __init__(self, application: Any, host: str, port: int, server_file: Path, ready: Callable[[str], None]) -> None:
        super().__init__(
            application,
            endpoints=build_endpoint_description_strings(host=host, port=port),
            signal_handlers=False,
            request_buffer_size=BODY_CHUNK,
            server_name="S-MoE",
            verbosity=0,
        )
        self.failure = ""
        self._host, self._port = host, port
        self._server_file, self._ready = server_file, ready
        self._ports: list[Any] = []
        self._loop = reactor._asyncioEventloop
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping: float | None = None  # the loop's time of the first signal

    def run(self) -> None:
        handlers = {signal.SIGINT: self._on_signal, signal.SIGTERM: self._on_signal}
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup has it
            handlers[signal.SIGHUP] = self._on_hangup
        for number, handler in handlers.items():
            self._loop.add_signal_handler(number, handler)
        super().run()
        for number in handlers:  # Python, as it ends, gives what has a handler its default back: to die of it
            signal.signal(number, signal.SIG_IGN)
        if not self.failure:
            self._server_file.unlink(missing_ok=True)

    def listen_success(self, port: Any) -> None:
        super().listen_success(port)
        self._ports.append(port)
        self._spawn(self._begin(_url(self._host, port.getHost().port)))

    def listen_error(self, failure: Any) -> None:
        reason = failure.value
        if isinstance(reason, error.CannotListenError):
            reason = getattr(reason.socketError, "strerror", None) or reason.socketError
        self._fail(f"Port {self._port} of {self._host} cannot be used ({reason}): choose another --port or --host.")

    async def _begin(self, url: str) -> None:
        worker = get_worker()
        try:
            await worker.lock.acquire(worker.limits.lock)
            _write_private(self._server_file, {"pid": os.getpid(), "url": url, "token": secrets.token_urlsafe(32)})
        except EngineFailed as failed:
            self._fail(failed.message)
        except OSError as failed:
            self._fail(f"{self._server_file.parent} cannot be written: {failed.strerror}.")
        else:
            self._ready(url)
            await generation.start()

    def _fail(self, sentence: str) -> None:
        self.failure = sentence
        self.stop()

    def _on_signal(self) -> None:
        now = self._loop.time()
        if self._stopping is None:
            self._stopping = now
            self._spawn(self._shut_down())
        elif now - self._stopping > ECHO:
            self._end_at_once()

    def _on_hangup(self) -> None:
        """A terminal that is closed sends more than one: from its shell, and from the kernel."""
        if self._stopping is None:
            self._on_signal()

    async def _shut_down(self) -> None:
        log.info("stopping; a second signal ends everything at once")
        for port in self._ports:
            port.stopListening()
        await get_worker().close()
        await self._farewell()
        self.stop()

    async def _farewell(self) -> None:
        """Until no request is being answered any more, or FAREWELL is over."""
        running = [task for each in self.connections.values() if (task := each.get("application_instance"))]
        if running:
            await asyncio.wait(running, timeout=FAREWELL)

    def _end_at_once(self) -> None:
        """The engine sees the end of its input, so it ends too; SIGKILL is for one that does not look."""
        if pid := get_worker().snapshot().pid:
            os.kill(pid, signal.SIGKILL)
        self._server_file.unlink(missing_ok=True)
        os._exit(1)

    def _spawn(self, coroutine: Any) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _url(host: str, port: int) -> str:
    """One that a browser on this machine can open."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}"


def _write_private(path: Path, content: dict[str, Any]) -> None:
    """Whole or not at all, and readable by this user only from its first byte on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(content, file)
    new.replace(path)
