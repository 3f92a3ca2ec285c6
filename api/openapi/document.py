"""GET /openapi.json: what the protocols' routes take and answer, written from the routing table itself.

https://spec.openapis.org/oas/v3.1.1.html
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from smoe_site.options import BASE_DIR

from .answers import ERRORS
from .requests import Schema

if TYPE_CHECKING:
    from ..consumers import Endpoint

ERROR_STATUSES = {
    400: "the request is wrong, or does not fit the window",
    401: "a key is needed, or was refused",
    403: "a page from elsewhere, or a foreign Host",
    404: "no such model, or no such response",
    413: "the body is too large",
    415: "the body is compressed in a way other than gzip",
    429: "the queue is full (OpenAI), or the key's limit is reached",
    500: "the engine failed",
    503: "the server is stopping",
    529: "the queue is full",
}
_SENT = {400, 413, 415}
_GENERATED = {404, 429, 500, 503}
_PARAMETER = re.compile(r"\(\?P<(\w+)>[^)]*\)")


@dataclass(frozen=True, slots=True)
class Description:
    """Of one method of an endpoint. request None: it has no body; answer None: every request is refused."""

    summary: str
    answer: Schema | None
    request: Schema | None = None
    streams: bool = False  # where the body has `"stream": true`
    query: Mapping[str, Schema] = field(default_factory=dict)


def document(endpoints: Mapping[str, Endpoint]) -> dict[str, Any]:
    """Endpoints without a description are none of the API: what they answer is a 404."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "S-MoE",
            "version": _version(),
            "description": "Every path also stands without /v1. docs/api.md says what each field means here.",
        },
        "paths": {
            _path(pattern): {
                method.lower(): _operation(pattern, endpoint, told) for method, told in endpoint.descriptions.items()
            }
            for pattern, endpoint in endpoints.items()
            if endpoint.descriptions
        },
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
            "schemas": {_error_name(protocol): schema for protocol, schema in ERRORS.items()},
        },
    }


@cache
def _version() -> str:
    return tomllib.loads((BASE_DIR / "pyproject.toml").read_text())["project"]["version"]


def _path(pattern: str) -> str:
    return "/v1/" + _PARAMETER.sub(r"{\1}", pattern).replace("\\", "")


def _operation(pattern: str, endpoint: Endpoint, told: Description) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": told.summary,
        "security": [{}] if endpoint.keyless else [{}, {"bearer": []}, {"header": []}],
        "responses": {**_success(told), **_errors(pattern, endpoint, told)},
    }
    if told.request is not None:
        operation["requestBody"] = {"required": True, "content": _json(told.request)}
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in _PARAMETER.findall(pattern)
    ]
    parameters += [{"name": name, "in": "query", "schema": schema} for name, schema in told.query.items()]
    return operation | ({"parameters": parameters} if parameters else {})


def _success(told: Description) -> dict[str, Any]:
    if told.answer is None:
        return {}
    stream = {"text/event-stream": {}} if told.streams else {}
    return {"200": {"description": "the answer", "content": {**_json(told.answer), **stream}}}


def _errors(pattern: str, endpoint: Endpoint, told: Description) -> dict[str, Any]:
    statuses = {403, 500} | (set() if endpoint.keyless else {401})
    if told.request is not None:
        statuses |= _SENT | _GENERATED
    if told.query or told.answer is None:
        statuses.add(400)
    if endpoint.protocol == "anthropic":
        statuses.add(529)
    if _PARAMETER.search(pattern):
        statuses.add(404)
    protocols = [endpoint.protocol] if endpoint.protocol else list(ERRORS)
    schema = {"anyOf": [{"$ref": f"#/components/schemas/{_error_name(protocol)}"} for protocol in protocols]}
    return {
        str(status): {"description": ERROR_STATUSES[status], "content": _json(schema)} for status in sorted(statuses)
    }


def _error_name(protocol: str) -> str:
    return f"{protocol}-error"


def _json(schema: Schema) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
