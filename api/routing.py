"""path -> consumer. Every path stands with and without `/v1` and with and without a trailing slash."""

from __future__ import annotations

from django.urls import re_path

from . import generating, models, system
from .anthropic import count, messages
from .consumers import ApiConsumer, Endpoint, Handler
from .errors import NotFound, NotOffered
from .exchange import JsonAnswer, Request
from .openai import chat, completions, responses

_NOT_OFFERED_HEADS = (
    "assistants audio batches embeddings files fine_tuning images moderations realtime rerank threads uploads videos"
)
NOT_OFFERED = rf"(?:{_NOT_OFFERED_HEADS.replace(' ', '|')})(?:/.*)?"


async def hello(request: Request) -> JsonAnswer:
    """What some clients ask before their first request, to see whether anyone is there."""
    del request
    return JsonAnswer({"message": "hello"})


async def not_found(request: Request) -> JsonAnswer:
    raise NotFound(f"There is nothing at {request.path[:200]}. docs/api.md lists what this server answers.")


async def not_offered(request: Request) -> JsonAnswer:
    raise NotOffered(
        f"This server does not offer {request.path[:200]}: it serves text models through chat completions, "
        "completions, responses and messages."
    )


def get(handler: Handler) -> Endpoint:
    return Endpoint({"GET": handler})


def generate(parse, protocol) -> Endpoint:
    return Endpoint({"POST": generating.endpoint(parse, protocol)}, protocol)


ENDPOINTS = {
    r"chat/completions": generate(chat.parse, "openai"),
    r"completions": generate(completions.parse, "openai"),
    r"responses": generate(responses.parse, "openai"),
    r"messages": generate(messages.parse, "anthropic"),
    r"messages/count_tokens": Endpoint({"POST": count.count_tokens}, "anthropic"),
    r"models": get(models.list_models),
    r"models/(?P<model>.+?)": get(models.get_model),
    r"health": Endpoint({"GET": system.health}, keyless=True),
    r"sysmem": get(system.sysmem),
    r"api/hello": Endpoint({"GET": hello}, keyless=True),
    NOT_OFFERED: Endpoint(any_method=not_offered),
}

routes = [
    re_path(rf"^(?:v1/)?{pattern}/?$", ApiConsumer.as_asgi(endpoint=endpoint))
    for pattern, endpoint in ENDPOINTS.items()
]
fallback = re_path(r"", ApiConsumer.as_asgi(endpoint=Endpoint(any_method=not_found)))
