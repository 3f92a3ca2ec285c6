"""path -> consumer. Every path stands with and without `/v1` and with and without a trailing slash."""

from __future__ import annotations

from django.urls import re_path

from . import generating, models, system
from .anthropic import count, messages
from .consumers import ApiConsumer, Endpoint, Handler
from .errors import NotFound, NotOffered, Protocol
from .exchange import JsonAnswer, Request
from .openai import chat, completions, input_tokens, responses, stored
from .openapi import answers, requests
from .openapi.document import Description, document
from .openapi.requests import Schema

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


async def describe(request: Request) -> JsonAnswer:
    del request
    return JsonAnswer(document(ENDPOINTS))


def get(handler: Handler, summary: str, answer: Schema, keyless: bool = False) -> Endpoint:
    return Endpoint({"GET": handler}, keyless=keyless, descriptions={"GET": Description(summary, answer)})


def generate(parse, protocol, summary: str, request: Schema, answer: Schema, prompt: str = "messages") -> Endpoint:
    description = Description(summary, answer, request, streams=True)
    return post(generating.endpoint(parse, protocol, prompt), protocol, description)


def post(handler: Handler, protocol: Protocol, description: Description) -> Endpoint:
    return Endpoint({"POST": handler}, protocol, descriptions={"POST": description})


ENDPOINTS = {
    r"chat/completions": generate(chat.parse, "openai", "OpenAI Chat Completions", requests.CHAT, answers.CHAT),
    r"completions": generate(
        completions.parse, "openai", "Raw prompts", requests.COMPLETION, answers.COMPLETION, "prompt"
    ),
    r"responses": generate(responses.parse, "openai", "OpenAI Responses", requests.RESPONSE, answers.RESPONSE, "input"),
    r"responses/input_tokens": post(
        input_tokens.count_input_tokens,
        "openai",
        Description("A request's input tokens", answers.INPUT_TOKENS, requests.INPUT_TOKENS),
    ),
    r"responses/(?P<response_id>[^/]+)": Endpoint(
        {"GET": stored.get_response, "DELETE": stored.delete_response},
        "openai",
        descriptions={
            "GET": Description("A response that is kept", answers.RESPONSE, query=requests.RESPONSE_QUERY),
            "DELETE": Description("Forgets a response", answers.DELETED_RESPONSE),
        },
    ),
    r"responses/(?P<response_id>[^/]+)/input_items": Endpoint(
        {"GET": stored.list_input_items},
        "openai",
        descriptions={
            "GET": Description("The conversation before a reply", answers.INPUT_ITEMS, query=requests.PAGE_QUERY)
        },
    ),
    r"responses/(?P<response_id>[^/]+)/cancel": post(
        stored.cancel_response, "openai", Description("Refused: no response runs in the background", None)
    ),
    r"messages": generate(messages.parse, "anthropic", "Anthropic Messages", requests.MESSAGES, answers.MESSAGE),
    r"messages/count_tokens": post(
        count.count_tokens,
        "anthropic",
        Description("A request's input tokens", answers.COUNT_TOKENS, requests.COUNT_TOKENS),
    ),
    r"models": get(models.list_models, "The fleet, the active vault first", answers.MODELS),
    r"models/(?P<model>.+?)": get(models.get_model, "One vault", answers.MODEL),
    r"health": get(system.health, "Whether the engine is up", answers.HEALTH, keyless=True),
    r"sysmem": get(system.sysmem, "Memory, in bytes", answers.SYSMEM),
    r"api/hello": get(hello, "Whether anyone is there", answers.HELLO, keyless=True),
    r"openapi\.json": get(describe, "This description", answers.OPENAPI, keyless=True),
    NOT_OFFERED: Endpoint(any_method=not_offered),
}

routes = [
    re_path(rf"^(?:v1/)?{pattern}/?$", ApiConsumer.as_asgi(endpoint=endpoint))
    for pattern, endpoint in ENDPOINTS.items()
]
fallback = re_path(r"", ApiConsumer.as_asgi(endpoint=Endpoint(any_method=not_found)))
