"""One HTTP exchange: the body, one task that answers it, the disconnect that cancels it. Knows no JSON shape.

Channels delivers no `http.disconnect` while a handler runs, so the answer is a task of its own. The server also sends
`http.disconnect` after a normal end, which makes it the one end point: the task is cancelled there, a no-op when it
is done.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from channels.consumer import AsyncConsumer, get_handler_name
from channels.exceptions import StopConsumer
from django.conf import settings

from engine.errors import ShuttingDown
from smoe_site import logs

from . import errors, sse
from .auth import AccessPolicy, Client, authorize
from .exchange import JsonAnswer, Request, StreamAnswer, error_payload, request_id
from .openapi.document import Description

# How long a failure may still turn into a status of its own before a stream begins. A client's first event is due
# 100 ms after its request.
HOLD_SECONDS = 0.08
# The same with --context-overflow error where the prompt may be too long: clients compact at a 400, not in a stream.
LONGEST_HOLD_SECONDS = 2.0
KEEP_ALIVE_SECONDS = 8.0
BREATH_SECONDS = 0.0005  # at most between two turns of the event loop while a stream is written

Handler = Callable[[Request], Awaitable[JsonAnswer | StreamAnswer]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What stands at a path: a handler per method. `protocol` None: the caller's headers tell it."""

    handlers: Mapping[str, Handler] = field(default_factory=dict)
    protocol: errors.Protocol | None = None
    any_method: Handler | None = None
    keyless: bool = False  # for supervisors: answered without a key
    descriptions: Mapping[str, Description] = field(default_factory=dict)  # of each method, as /openapi.json tells it

    def protocol_of(self, path: str, headers: Mapping[str, str]) -> errors.Protocol:
        if self.protocol is not None:
            return self.protocol
        spoken = "anthropic-version" in headers or "/messages" in path
        return "anthropic" if spoken else "openai"

    def handler(self, method: str) -> Handler:
        found = self.any_method or self.handlers.get("GET" if method == "HEAD" else method)
        if found is None:
            allowed = ", ".join(self.methods())
            raise errors.MethodNotAllowed(f"{method} is not possible here; {allowed} is.", {"Allow": allowed})
        return found

    def methods(self) -> list[str]:
        return [*self.handlers, *(["HEAD"] if "GET" in self.handlers else []), "OPTIONS"]


class ApiConsumer(AsyncConsumer):
    """`endpoint` answers; this carries bytes."""

    def __init__(self, endpoint: Endpoint):
        self.endpoint = endpoint
        self.body: list[bytes] = []
        self.body_bytes = 0
        self.task: asyncio.Task[None] | None = None

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        except asyncio.CancelledError:
            await self._end_task(stopping=True)
            raise
        await self._end_task(stopping=False)

    async def dispatch(self, message: dict[str, Any]) -> None:
        """Channels' own dispatch first waits for the one database thread; no exchange here uses a database."""
        await getattr(self, get_handler_name(message))(message)

    async def http_request(self, message: dict[str, Any]) -> None:
        chunk = message.get("body", b"")
        self.body_bytes += len(chunk)
        if self.body_bytes <= settings.SMOE.max_body_mb << 20:
            self.body.append(chunk)
        if not message.get("more_body"):
            self.exchange = Exchange(self.scope, self.base_send, self.endpoint)
            self.task = asyncio.create_task(self.exchange.run(b"".join(self.body), self.body_bytes))
            self.body = []

    async def http_disconnect(self, message: dict[str, Any]) -> None:
        raise StopConsumer

    async def _end_task(self, stopping: bool) -> None:
        """Waits for the task, so that what it holds (a place in the queue, the engine) is given back."""
        if self.task is None:
            return
        if not self.task.done():
            self.exchange.stopping = stopping
            self.task.cancel()
            await asyncio.wait({self.task})
        if not self.task.cancelled() and (error := self.task.exception()) is not None:
            raise error


class Exchange:
    """One request and its response. `begun` tells whether an error can still have a status of its own."""

    def __init__(self, scope: dict[str, Any], send: Any, endpoint: Endpoint):
        self.scope = scope
        self.send = send
        self.endpoint = endpoint
        self.headers = header_map(scope["headers"])
        self.id = request_id(self.headers)
        self.protocol = endpoint.protocol_of(scope["path"], self.headers)
        self.policy = AccessPolicy.from_settings()
        self.begun = self.streaming = False
        self.stopping = False  # the server ends, not the client
        self.last_sent = self.breathed = 0.0
        self.now = asyncio.get_running_loop().time
        self.beginning = asyncio.Lock()

    async def run(self, body: bytes, body_bytes: int) -> None:
        logs.request_id.set(self.id)
        try:
            answer = await self._answer(body, body_bytes)
            if isinstance(answer, JsonAnswer):
                await self._send_json(answer)
            else:
                await self._stream(answer)
        except asyncio.CancelledError:
            if self.stopping and not self.begun:
                await self.fail(ShuttingDown("The server is shutting down."))
            raise
        except Exception as error:
            await self.fail(error)

    async def _answer(self, body: bytes, body_bytes: int) -> JsonAnswer | StreamAnswer:
        method = self.scope["method"]
        self.policy.check_host(self.headers.get("host"))
        if method == "OPTIONS":
            return self._preflight()
        if method not in ("GET", "HEAD"):
            self.policy.check_origin(self.headers.get("origin"), self.headers.get("host"))
        handler = self.endpoint.handler(method)
        address = (self.scope.get("client") or ("", 0))[0]
        keyless = self.endpoint.keyless
        client = Client(address, address) if keyless else await authorize(self.headers, address)
        if body_bytes > settings.SMOE.max_body_mb << 20:
            raise errors.TooLarge(
                f"The request body is larger than this server takes: {settings.SMOE.max_body_mb} MiB (--max-body-mb)."
            )
        arguments = self.scope["url_route"]["kwargs"]
        query = dict(parse_qsl(self.scope["query_string"].decode("latin-1")))
        return await handler(Request(method, self.scope["path"], self.headers, body, arguments, client, self.id, query))

    def _preflight(self) -> JsonAnswer:
        origin, host = self.headers.get("origin"), self.headers.get("host")
        self.policy.check_origin(origin, host)
        return JsonAnswer(None, 204, self.policy.preflight_headers(self.headers, self.endpoint.methods()))

    async def fail(self, error: Exception) -> None:
        failure = errors.describe(error, self.protocol)
        payload = error_payload(failure, self.protocol, self.id)
        await self._send_json(JsonAnswer(payload, failure.status, failure.headers))

    async def _send_json(self, answer: JsonAnswer) -> None:
        body = b"" if answer.payload is None else sse.dumps(answer.payload).encode()
        headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in answer.headers.items()]
        if answer.payload is not None:
            headers += [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await self._begin(answer.status, headers)
        await self.send({"type": "http.response.body", "body": body})

    async def _begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.begun = True
        identity = self.id.encode()
        common = [(b"x-request-id", identity), (b"request-id", identity), *self.policy.cors_headers(self.headers)]
        await self.send({"type": "http.response.start", "status": status, "headers": [*headers, *common]})

    async def _stream(self, answer: StreamAnswer) -> None:
        """Sends the answer's chunks. The response begins with the first, or once the hold is over."""
        clock = asyncio.create_task(self._keep_alive(answer))
        try:
            async with contextlib.aclosing(answer.chunks()) as chunks:
                async for chunk in chunks:
                    await self._write(chunk)
        except asyncio.CancelledError:
            if self.stopping and self.begun:
                await self._write(answer.failure(ShuttingDown("The server is shutting down.")))
                await self._end_stream()
            raise
        except Exception as error:
            if not self.begun:
                raise
            await self._write(answer.failure(error))
        finally:
            clock.cancel()
        await self._end_stream()

    async def _end_stream(self) -> None:
        await self.send({"type": "http.response.body", "body": b""})

    async def _write(self, chunk: bytes) -> None:
        if not chunk:
            return
        if not self.streaming:
            await self._begin_stream()
        self.last_sent = self.now()
        await self.send({"type": "http.response.body", "body": chunk, "more_body": True})
        # Lets the transport write: a source that never waits would delay its first chunk. A turn of the loop for each
        # would cost more than the chunk.
        if self.last_sent - self.breathed >= BREATH_SECONDS:
            self.breathed = self.last_sent
            await asyncio.sleep(0)

    async def _begin_stream(self) -> None:
        """Once, whoever comes first: the source's first chunk, or what keeps the connection alive until then."""
        async with self.beginning:
            if not self.begun:
                await self._begin(200, sse.HEADERS)
        self.streaming = True

    async def _keep_alive(self, answer: StreamAnswer) -> None:
        """Begins the response when its first chunk is late, then fills every silence."""
        await asyncio.sleep(HOLD_SECONDS)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(answer.accepted.wait(), LONGEST_HOLD_SECONDS)
        if not self.begun:
            await self._write(answer.opening())
        while True:
            await asyncio.sleep(max(0.0, self.last_sent + KEEP_ALIVE_SECONDS - self.now()))
            if self.now() >= self.last_sent + KEEP_ALIVE_SECONDS:
                await self._write(answer.keep_alive())


def guard_host(application: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """`application`, a site for browsers, under the Host check that the protocols have."""

    async def guarded(scope: dict[str, Any], receive: Any, send: Any) -> None:
        exchange = Exchange(scope, send, Endpoint())
        try:
            exchange.policy.check_host(exchange.headers.get("host"))
        except errors.Forbidden as error:
            await exchange.fail(error)
        else:
            await application(scope, receive, send)

    return guarded


def header_map(pairs: list[tuple[bytes, bytes]]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in pairs:
        headers.setdefault(name.decode("latin-1"), value.decode("latin-1"))
    return headers
