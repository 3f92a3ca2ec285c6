"""The server's log on stderr: lines for people, or one JSON object a line (SMOE_LOG=json), with the request's id."""

from __future__ import annotations

import json
import logging
from contextvars import ContextVar
from datetime import UTC, datetime

request_id: ContextVar[str] = ContextVar("request_id", default="")  # of the request that a task serves


class TextFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(name)s: %(message)s", "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        return f"{line} [{identity}]" if (identity := request_id.get()) else line


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        told = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if identity := request_id.get():
            told["request_id"] = identity
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False)


def to_stderr(level: int, as_json: bool) -> None:
    """The project's own loggers, and what a page of Django's fails on: by itself Django would mail that to somebody."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter())
    levels = {**dict.fromkeys(("smoe", "fleet", "api", "engine"), level), "django.request": logging.ERROR}
    for name, least in levels.items():
        logger = logging.getLogger(name)
        logger.setLevel(least)
        logger.handlers = [handler]
        logger.propagate = False
