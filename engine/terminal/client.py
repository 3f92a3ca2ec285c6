"""The server's chat API over HTTP: one request at a time, read in a thread so that Ctrl-C is felt at once."""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

EXTRAS = {"stream": True, "stream_options": {"include_usage": True}, "return_progress": True}


class ServerProblem(Exception):
    """`status` is the HTTP status, 0 where there was no answer. The message is for the person at the terminal."""

    def __init__(self, message: str, status: int = 0):
        super().__init__(message)
        self.status = status


class ChatClient:
    def __init__(self, url: str, key: str = ""):
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ServerProblem(f"{url!r} is not an http address; write it like http://127.0.0.1:8000")
        self.url = url
        self.key = key
        self._parts = parts

    def models(self) -> list[dict[str, Any]]:
        connection = self._connect()
        with contextlib.closing(connection):
            return json.load(self._answer(connection, "GET", "/v1/models"))["data"]

    def stream(self, body: dict[str, Any]) -> Stream:
        def send(connection: HTTPConnection) -> HTTPResponse:
            return self._answer(connection, "POST", "/v1/chat/completions", body | EXTRAS)

        return Stream(send, self._connect())

    def _connect(self) -> HTTPConnection:
        kind = HTTPSConnection if self._parts.scheme == "https" else HTTPConnection
        connection = kind(self._parts.hostname, self._parts.port)
        try:
            connection.connect()
        except OSError as error:
            reason = error.strerror or error
            raise ServerProblem(f"No server answers at {self.url} ({reason}). Start it with: manage.py serve") from None
        return connection

    def _answer(self, connection: HTTPConnection, method: str, path: str, body: Any = None) -> HTTPResponse:
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self.key}"} if self.key else {})
        content = None if body is None else json.dumps(body)
        connection.request(method, self._parts.path.rstrip("/") + path, content, headers)
        response = connection.getresponse()
        if response.status != 200:
            raise _refusal(response)
        return response


def _refusal(response: HTTPResponse) -> ServerProblem:
    try:
        message = json.load(response)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = f"The server answered {response.status} {response.reason}."
    if wait := response.headers["Retry-After"]:
        message += f" Try again in {wait} s."
    return ServerProblem(message, response.status)


class Stream:
    """One streamed reply. `chunks` yields its parsed events, and None whenever `tick` seconds brought none."""

    def __init__(self, send: Callable[[HTTPConnection], HTTPResponse], connection: HTTPConnection):
        self._socket = connection.sock
        self._events: queue.SimpleQueue[dict[str, Any] | Exception | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, args=(send, connection), daemon=True).start()

    def chunks(self, tick: float = 0.1) -> Iterator[dict[str, Any] | None]:
        """Raises ServerProblem where the reply ends in any way but its own."""
        while True:
            try:
                event = self._events.get(timeout=tick)
            except queue.Empty:
                yield None
                continue
            if event is None:
                return
            if isinstance(event, Exception):
                raise event
            yield event

    def close(self) -> None:
        """Hangs up: the server ends the generation."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _read(self, send: Callable[[HTTPConnection], HTTPResponse], connection: HTTPConnection) -> None:
        try:
            with contextlib.closing(connection):
                for event in _events(send(connection)):
                    self._events.put(event)
            self._events.put(None)
        except ServerProblem as problem:
            self._events.put(problem)
        except (OSError, HTTPException, ValueError):
            self._events.put(ServerProblem("The connection to the server was lost in the middle of the reply."))


def _events(response: HTTPResponse) -> Iterator[dict[str, Any]]:
    for line in response:
        data = line.removeprefix(b"data:").strip()
        if not line.startswith(b"data:"):
            continue
        if data == b"[DONE]":
            return
        event = json.loads(data)
        if "error" in event:
            raise ServerProblem(event["error"]["message"])
        yield event
    raise ServerProblem("The reply broke off: the server closed the connection before its end.")
