"""Reading an event stream in a test: the events with their names, decoded."""

from __future__ import annotations

import json
from typing import Any

import httpx
import openai
from openai.types.responses import Response


def events(text: str) -> list[tuple[str | None, Any]]:
    """[(event name, data)]; `[DONE]` stays a string."""
    found = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        if "data" in lines:
            data = lines["data"]
            found.append((lines.get("event"), data if data == "[DONE]" else json.loads(data)))
    return found


def post_stream(http: httpx.Client, path: str, body: dict[str, Any], **options: Any) -> list[tuple[str | None, Any]]:
    answer = http.post(path, json={"stream": True, **body}, **options)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    return events(answer.text)


def chat(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}


def claude(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 50, "messages": [{"role": "user", "content": "hi"}], **fields}


def create(sdk: openai.OpenAI, stream: bool, **fields: Any) -> Response:
    """A response as the SDK has it in the end."""
    if not stream:
        return sdk.responses.create(model="m", **fields)
    with sdk.responses.stream(model="m", **fields) as events:
        return events.get_final_response()


def said(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}
