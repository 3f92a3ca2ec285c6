"""POST /v1/responses/input_tokens: the same parsing and templating as responses, without an engine."""

from __future__ import annotations

from dataclasses import replace

from engine import generation

from ..exchange import JsonAnswer, Request
from ..fields import Fields
from ..generating import told_of
from .responses import parse


async def count_input_tokens(request: Request) -> JsonAnswer:
    fields = Fields(await request.json())
    fields.values["store"] = False  # there will be no response to keep
    with told_of("input"):
        (asked,) = parse(fields, request).requests
        count = await generation.count_tokens(replace(asked, protocol="openai", vaults=request.client.vaults))
    return JsonAnswer({"object": "response.input_tokens", "input_tokens": count})
