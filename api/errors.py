"""What went wrong -> status and body, per protocol. The only place that knows both.

`ApiError` and its kin are raised by api/ itself; engine.errors by everything below it. Words that clients parse
(context lengths) are written here in each protocol's own wording.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any, Literal

from django.db import OperationalError

from engine import errors as engine

from .folders import without_folders

logger = logging.getLogger(__name__)

Protocol = Literal["openai", "anthropic"]


class ApiError(Exception):
    """An answer other than success that the request itself, not a generation, brought about."""

    status = 400
    openai_type = "invalid_request_error"
    anthropic_type = "invalid_request_error"
    code: str | None = None

    def __init__(self, message: str, headers: dict[str, str] | None = None):
        super().__init__(message)
        self.message = message
        self.headers = headers or {}


class Unauthorized(ApiError):
    status, anthropic_type, code = 401, "authentication_error", "invalid_api_key"


class Forbidden(ApiError):
    status, openai_type, anthropic_type = 403, "permission_error", "permission_error"


class NotFound(ApiError):
    status, anthropic_type, code = 404, "not_found_error", "not_found"


class NotOffered(NotFound):
    """A part of the protocol that this server does not have."""

    code = "not_offered"


class ModelNotFound(NotFound):
    code = "model_not_found"


class MethodNotAllowed(ApiError):
    status, code = 405, "method_not_allowed"


class TooLarge(ApiError):
    status, anthropic_type, code = 413, "request_too_large", "request_too_large"


class UnsupportedEncoding(ApiError):
    status, code = 415, "unsupported_content_encoding"


class Refused(engine.InvalidRequest):
    """A 400 with a code that clients look for; `details` goes into Anthropic's error object."""

    def __init__(self, message: str, param: str | None, code: str, details: dict[str, Any] | None = None):
        super().__init__(message, param)
        self.code = code
        self.details = details


@dataclass(frozen=True, slots=True)
class Failure:
    """One error in one protocol: what an answer with a status says, or an event of a stream that has begun."""

    status: int
    type: str
    message: str
    param: str | None = None
    code: str | None = None
    details: dict[str, Any] | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def openai(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}

    def anthropic(self, request_id: str) -> dict[str, Any]:
        error: dict[str, Any] = {"type": self.type, "message": self.message}
        if self.details is not None:
            error["details"] = self.details
        return {"type": "error", "error": error, "request_id": request_id}


def describe(error: BaseException, protocol: Protocol) -> Failure:
    """Any exception as `protocol` tells it. What nobody foresaw is logged and told without its inside."""
    if isinstance(error, ApiError):
        kind = error.openai_type if protocol == "openai" else error.anthropic_type
        return Failure(error.status, kind, error.message, code=error.code, headers=error.headers)
    if isinstance(error, engine.ContextOverflow):
        words = _openai_overflow(error) if protocol == "openai" else _anthropic_overflow(error)
        return Failure(400, "invalid_request_error", words, error.param, "context_length_exceeded")
    if isinstance(error, engine.InvalidRequest):
        code, details = getattr(error, "code", None), getattr(error, "details", None)
        return Failure(400, "invalid_request_error", error.message, error.param, code, details)
    if isinstance(error, engine.GenerationError):
        return _generation_failure(error, protocol)
    kind = "server_error" if protocol == "openai" else "api_error"
    if isinstance(error, RecursionError):  # in functions that follow what a client sent, level by level
        logger.warning("a request is nested too deeply: %s", error)
        return Failure(400, "invalid_request_error", "The request is nested too deeply.")
    if isinstance(error, OperationalError):  # its disk is full, or its server is down
        logger.error("the database cannot be used: %s", error)
        message = "The server's database cannot be used; its log tells why."
        return Failure(503, kind, message, code="database_unavailable", headers={"Retry-After": "10"})
    logger.error("unforeseen error", exc_info=error)
    return Failure(500, kind, "The server failed on this request; its log tells why.", code="internal_error")


def _generation_failure(error: engine.GenerationError, protocol: Protocol) -> Failure:
    openai, message = protocol == "openai", _for_clients(error.message)
    if isinstance(error, engine.ModelUnavailable):
        kind = "invalid_request_error" if openai else "not_found_error"
        return Failure(404, kind, message, "model", "model_not_found")
    if isinstance(error, engine.QueueFull):
        status, kind = (429, "rate_limit_error") if openai else (529, "overloaded_error")
        headers = {"Retry-After": str(error.retry_after)}
        return Failure(status, kind, error.message, code="queue_full", headers=headers)
    if isinstance(error, engine.LimitReached):
        headers = {"Retry-After": str(error.retry_after)}
        return Failure(429, "rate_limit_error", error.message, code="rate_limit_exceeded", headers=headers)
    status, code = (503, "shutting_down") if isinstance(error, engine.ShuttingDown) else (500, "engine_failed")
    return Failure(status, "server_error" if openai else "api_error", message, code=code)


def _for_clients(message: str) -> str:
    """Without the server's folders; with them it stands in the log."""
    told = without_folders(message)
    if told != message:
        logger.error("%s", message)
    return told


def _openai_overflow(error: engine.ContextOverflow) -> str:
    start = f"This model's maximum context length is {error.window} tokens. However, "
    if error.prompt_tokens > error.window:
        return start + (
            f"your messages resulted in {error.prompt_tokens} tokens. Please reduce the length of the messages."
        )
    return start + (
        f"you requested {error.prompt_tokens + error.max_tokens} tokens ({error.prompt_tokens} in the messages, "
        f"{error.max_tokens} in the completion). Please reduce the length of the messages or completion."
    )


def _anthropic_overflow(error: engine.ContextOverflow) -> str:
    if error.prompt_tokens > error.window:
        return f"prompt is too long: {error.prompt_tokens} tokens > {error.window} maximum"
    return (
        f"input length and `max_tokens` exceed context limit: {error.prompt_tokens} + {error.max_tokens} > "
        f"{error.window}, decrease input length or `max_tokens` and try again"
    )
