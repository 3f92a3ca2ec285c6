"""POST /v1/messages/count_tokens: the same parsing and templating as messages, without an engine."""

from __future__ import annotations

from dataclasses import replace

from engine import generation

from ..exchange import JsonAnswer, Request
from ..fields import Fields
from .parsing import parse_request


async def count_tokens(request: Request) -> JsonAnswer:
    parsed, _ = parse_request(Fields(await request.json()))
    return JsonAnswer({"input_tokens": await generation.count_tokens(replace(parsed, vaults=request.client.vaults))})
