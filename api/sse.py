"""(event, data) -> the bytes of one server-sent event. Knows no protocol.

The form is https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream ; JSON text holds
no line break, so every event is one `data:` line.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]

# They end a line for many who read streams, though not in this form: httpx's iter_lines, str.splitlines, readline.
_ESCAPED = {ord(mark): f"\\u{ord(mark):04x}" for mark in "\x85\u2028\u2029"}

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))  # json.dumps would build one a call


class Frame(NamedTuple):
    """`data` is encoded as JSON, a str is sent as it is (OpenAI's `[DONE]`)."""

    data: Any
    event: str | None = None


def encode(frame: Frame) -> bytes:
    data = frame.data if isinstance(frame.data, str) else dumps(frame.data)
    if not data.isascii():
        data = data.translate(_ESCAPED)
    name = f"event: {frame.event}\n" if frame.event else ""
    return f"{name}data: {data}\n\n".encode()


def dumps(value: Any) -> str:
    return _ENCODER.encode(value)
