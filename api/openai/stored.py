"""/v1/responses/{id} and below: what is kept of a response, told or forgotten. Each client meets only its own."""

from __future__ import annotations

from typing import Any

from engine.errors import InvalidRequest

from ..errors import ApiError, NotFound
from ..exchange import JsonAnswer, Request
from ..fields import Fields
from .kept_responses import KeptResponse, Piece, kept_responses

ORDERS = ("asc", "desc")
MOST_ITEMS = 100
DEFAULT_ITEMS = 20


async def get_response(request: Request) -> JsonAnswer:
    response = _find(request)
    if request.query.get("stream", "").lower() in ("true", "1"):
        raise InvalidRequest(
            "stream is not possible here: only background responses can be streamed again, and this server has none. "
            "Leave it out to get the response.",
            "stream",
        )
    return JsonAnswer(response.told())


async def delete_response(request: Request) -> JsonAnswer:
    response = _find(request)
    kept_responses.forget(request.client.id, response.id)
    return JsonAnswer({"id": response.id, "object": "response", "deleted": True})


async def cancel_response(request: Request) -> JsonAnswer:
    _find(request)
    raise ApiError("Cannot cancel a synchronous response.")


async def list_input_items(request: Request) -> JsonAnswer:
    """The whole conversation before the reply, a page at a time."""
    pieces = list(_find(request).input)
    order, limit = _page(request)
    if order == "desc":
        pieces.reverse()
    if after := request.query.get("after"):
        pieces = pieces[_place(pieces, after) + 1 :]
    items = [piece.item() for piece in pieces[:limit]]
    return JsonAnswer(
        {
            "object": "list",
            "data": items,
            "first_id": items[0]["id"] if items else None,
            "last_id": items[-1]["id"] if items else None,
            "has_more": len(pieces) > limit,
        }
    )


def _find(request: Request) -> KeptResponse:
    identity = request.arguments["response_id"]
    response = kept_responses.find(request.client.id, identity)
    if response is None:
        raise NotFound(
            f"Response with id {identity[:80]!r} not found: this server keeps the last responses, in memory, and each "
            "for the client that asked for it."
        )
    return response


def _page(request: Request) -> tuple[str, int]:
    values: dict[str, Any] = dict(request.query)
    if (limit := values.get("limit", "")).isdecimal() and len(limit) < 10:
        values["limit"] = int(limit)
    fields = Fields(values)
    return fields.choice("order", ORDERS, "desc"), fields.integer("limit", 1, MOST_ITEMS, DEFAULT_ITEMS)


def _place(pieces: list[Piece], identity: str) -> int:
    for place, piece in enumerate(pieces):
        if piece.id == identity:
            return place
    raise InvalidRequest(f"after names no input item of this response: {identity[:80]!r}.", "after")
