"""A streaming request over a bare socket: a client that costs next to nothing beside the server that it measures."""

from __future__ import annotations

import json
import socket
import time
from dataclasses import dataclass
from typing import Any

CONTENT = b'"content": "', b'"content":"'
DONE = b"data: [DONE]"
PIECE = 1 << 16


@dataclass(slots=True)
class Stream:
    """Nanoseconds of time.monotonic_ns."""

    sent: int
    first: int = 0  # the first event with text
    last: int = 0
    body: bytes = b""

    def report(self) -> dict[str, Any]:
        """The last event that has a body of its own: usage, timings, `smoe`."""
        events = (line[6:] for line in self.body.splitlines() if line.startswith(b"data: {"))
        found: dict[str, Any] = {}
        for event in events:
            if b'"timings"' in event or b'"usage"' in event:
                found |= json.loads(event)
        return found


def chat(port: int, tokens: int, timeout: float) -> Stream:
    """Asks for so many tokens, streamed, with greedy sampling."""
    body = json.dumps(
        {
            "messages": [{"role": "user", "content": "Tell me a long story about a river."}],
            "max_tokens": tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), timeout) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = Stream(time.monotonic_ns())
        connection.sendall(head.encode() + body)
        _receive(connection, stream)
    return stream


def _receive(connection: socket.socket, stream: Stream) -> None:
    pieces = []
    while piece := connection.recv(PIECE):
        now = time.monotonic_ns()
        pieces.append(piece)
        if _has_text(piece):
            stream.first = stream.first or now
            stream.last = now
    stream.body = b"".join(pieces)


def _has_text(piece: bytes) -> bool:
    """A delta with content: the role's first chunk carries an empty one."""
    return any(
        piece[at + len(mark) : at + len(mark) + 1] not in (b'"', b"")
        for mark in CONTENT
        if (at := piece.rfind(mark)) >= 0
    )
