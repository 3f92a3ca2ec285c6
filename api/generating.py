"""The way of every generation endpoint: parse, then stream through a renderer or collect and answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Any, Protocol

from engine import generation
from engine.errors import InvalidRequest
from engine.messages import Accepted, Event, GenerationRequest

from . import errors
from .exchange import JsonAnswer, Request, StreamAnswer
from .fields import Fields
from .replies import Reply, collect
from .sse import Frame, encode


class Renderer(Protocol):
    """Events -> frames of one stream. Pure; called in the order of the stream."""

    def opening(self) -> list[Frame]: ...
    def event(self, choice: int, event: Event) -> list[Frame]: ...
    def keep_alive(self) -> list[Frame]: ...
    def closing(self) -> list[Frame]: ...
    def failure(self, failure: errors.Failure) -> list[Frame]: ...


class Call(Protocol):
    """A parsed request: the generations that it asks for, run one after the other, and how they are told."""

    requests: list[GenerationRequest]
    stream: bool

    def renderer(self) -> Renderer: ...
    def answer(self, replies: list[Reply]) -> Any: ...


def endpoint(parse: Callable[[Fields, Request], Call], protocol: errors.Protocol, prompt: str):
    """parse(body, request) -> Call, as a handler. prompt: the body's field that holds it."""

    async def handle(request: Request) -> JsonAnswer | StreamAnswer:
        body = Fields(await request.json())
        with told_of(prompt):
            call = parse(body, request)
        requests = [replace(item, protocol=protocol, **_origin(request)) for item in call.requests]
        if call.stream:
            # A token is a byte or more; only a long body is worth the wait for its count.
            fits = not generation.may_not_fit(len(request.body), requests[0])
            return RenderedStream(requests, call.renderer(), protocol, prompt, accepted=fits)
        with told_of(prompt):
            replies = [await collect(item) for item in requests]
        return JsonAnswer(call.answer(replies))

    return handle


@contextlib.contextmanager
def told_of(prompt: str) -> Iterator[None]:
    """What is wrong with the prompt, `messages` of the neutral request, is told of the client's own field."""
    try:
        yield
    except InvalidRequest as error:
        if error.param == "messages":
            error.param = prompt
        raise


def _origin(request: Request) -> dict[str, Any]:
    """What the queue, the key's limits and the request log need to know of the request's sender."""
    return {
        "request_id": request.id,
        "client": request.client.id,
        "vaults": request.client.vaults,
        "endpoint": request.path,
        "client_name": request.headers.get("user-agent", ""),
    }


class RenderedStream:
    """A StreamAnswer: the events of `requests`, rendered."""

    def __init__(
        self,
        requests: list[GenerationRequest],
        renderer: Renderer,
        protocol: errors.Protocol,
        prompt: str,
        accepted: bool,
    ):
        self.requests = requests
        self.renderer = renderer
        self.protocol = protocol
        self.prompt = prompt
        self.accepted = asyncio.Event()
        if accepted:
            self.accepted.set()

    def opening(self) -> bytes:
        return _encode(self.renderer.opening())

    async def chunks(self) -> AsyncIterator[bytes]:
        for choice, request in enumerate(self.requests):
            with told_of(self.prompt):
                async with contextlib.aclosing(generation.stream(request)) as events:
                    async for event in events:
                        if isinstance(event, Accepted):
                            self.accepted.set()
                        else:
                            yield _encode(self.renderer.event(choice, event))
        yield _encode(self.renderer.closing())

    def keep_alive(self) -> bytes:
        return _encode(self.renderer.keep_alive())

    def failure(self, error: BaseException) -> bytes:
        return _encode(self.renderer.failure(errors.describe(error, self.protocol)))


def _encode(frames: list[Frame]) -> bytes:
    return b"".join(map(encode, frames))
