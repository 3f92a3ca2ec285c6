"""One request as the endpoints see it, and the two forms of an answer."""

from __future__ import annotations

import asyncio
import json
import math
import re
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from engine.errors import InvalidRequest
from engine.json_text import without_lone_surrogates

from .auth import Client
from .errors import Failure
from .unpacking import unpacker

# Larger bodies are decoded in a thread: about a millisecond of the event loop's time.
INLINE_JSON_BYTES = 64 * 1024
_SANE_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str]  # names in lower case; of repeated headers the first
    body: bytes
    arguments: Mapping[str, str]  # from the path
    client: Client
    id: str
    query: Mapping[str, str] = field(default_factory=dict)  # of repeated names the last

    async def json(self) -> Any:
        """The body. Raises InvalidRequest, UnsupportedEncoding or TooLarge."""
        unpack = unpacker(self.headers.get("content-encoding", ""))
        if len(self.body) < INLINE_JSON_BYTES and unpack is None:
            return decode_json(self.body)
        return await asyncio.to_thread(lambda: decode_json(unpack(self.body) if unpack else self.body))


@dataclass(frozen=True, slots=True)
class JsonAnswer:
    payload: Any
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


class StreamAnswer(Protocol):
    """The bytes of a stream, each piece whole events.

    accepted: set once the request can no longer be refused for what it asks.
    """

    accepted: asyncio.Event

    def opening(self) -> bytes:
        """A first event, asked for once, when `chunks` is late with its own."""

    def chunks(self) -> AsyncIterator[bytes]:
        """The stream. May raise; an empty chunk is not sent."""

    def keep_alive(self) -> bytes:
        """A real event without content."""

    def failure(self, error: BaseException) -> bytes:
        """How a stream that has begun says that it failed, and ends."""


def request_id(headers: Mapping[str, str]) -> str:
    """The client's own X-Request-Id where it is sane, else a new one."""
    own = headers.get("x-request-id", "")
    return own if _SANE_REQUEST_ID.fullmatch(own) else new_id("req_")


def new_id(prefix: str) -> str:
    return prefix + uuid.uuid4().hex[:24]


def decode_json(body: bytes) -> Any:
    """Strict JSON in UTF-8. Half a surrogate pair, as a client leaves it that cuts strings, becomes U+FFFD."""
    try:
        value = json.loads(body.decode("utf-8-sig"), parse_constant=_refuse_constant, parse_float=_finite)
        return without_lone_surrogates(value) if _SURROGATE_ESCAPE.search(body) else value
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"The request body is not UTF-8: byte {error.start} does not fit.") from None
    except RecursionError:
        raise InvalidRequest("The request body is nested too deeply.") from None
    except json.JSONDecodeError as error:
        raise InvalidRequest(f"The request body is not valid JSON: {error}.") from None
    except ValueError:  # Python reads no integer of more than some thousand digits
        raise InvalidRequest("The request body holds a number with too many digits.") from None


def _refuse_constant(name: str) -> Any:
    raise InvalidRequest(f"The request body is not valid JSON: {name} is none of its values.")


def _finite(text: str) -> float:
    """JSON has no infinity: what became one could not be told back."""
    if math.isinf(number := float(text)):
        raise InvalidRequest(f"The request body holds a number that is too large: {text[:40]}.")
    return number


def error_payload(failure: Failure, protocol: str, identity: str) -> dict[str, Any]:
    return failure.openai() if protocol == "openai" else failure.anthropic(identity)
