"""A response that has ended -> the form in which it is kept."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..sse import dumps
from .kept_responses import KeptResponse, Piece, kept_responses

# The largest of what a response repeats from its request; a conversation's turns have them in common.
_REPEATED = ("instructions", "tools")
_ID_PREFIXES = {"message": "msg_", "reasoning": "rs_", "function_call": "fc_", "custom_tool_call": "ctc_"}


# A long conversation takes tens of milliseconds, which the event loop does not have; the reply takes longer.
_ENCODING = ThreadPoolExecutor(1, "keeping")


class Keeper:
    """What of a request is kept beside its response: the conversation that it goes on with, and its own items."""

    def __init__(self, client: str, earlier: tuple[Piece, ...], items: list[dict[str, Any]]):
        self.client = client
        self.earlier = earlier
        self.items = items
        self.encoding = _ENCODING.submit(_input_pieces, items, len(earlier))

    def keep(self, document: dict[str, Any]) -> bool:
        """Whether it is kept. What JSON's own reader took may be nested too deeply for its writer."""
        try:
            return kept_responses.keep(self.client, self._response(document))
        except RecursionError:
            return False

    def _response(self, document: dict[str, Any]) -> KeptResponse:
        left_out = dict.fromkeys((*_REPEATED, "output"))  # they keep their places among the fields
        return KeptResponse(
            id=document["id"],
            document=_encoded(document | left_out),
            repeated=Piece("", _encoded({name: document[name] for name in _REPEATED})),
            input=(*self.earlier, *self._own()),
            output=tuple(Piece(item["id"], _without_id(item)) for item in document["output"]),
        )

    def _own(self) -> list[Piece]:
        """A reply that is over before its turn came waits for no other request's items."""
        if self.encoding.cancel():
            return _input_pieces(self.items, len(self.earlier))
        return self.encoding.result()


def _encoded(value: Any) -> bytes:
    return dumps(value).encode()


def _without_id(item: dict[str, Any]) -> bytes:
    return _encoded({name: value for name, value in item.items() if name != "id"})


def _input_pieces(items: list[dict[str, Any]], start: int) -> list[Piece]:
    return [_input_piece(item, place) for place, item in enumerate(items, start)]


def _input_piece(item: dict[str, Any], place: int) -> Piece:
    """With an id, as a list of input items has it: the same for the same item at the same place, so that a
    conversation which is sent again equals what is held of it."""
    listed = _listed(item)
    encoded = _without_id(listed)
    identity = item.get("id")
    if not isinstance(identity, str) or not identity:
        digest = hashlib.blake2b(b"%d %b" % (place, encoded), digest_size=12).hexdigest()
        identity = _ID_PREFIXES.get(listed["type"], "item_") + digest
    return Piece(identity, encoded)


def _listed(item: dict[str, Any]) -> dict[str, Any]:
    """An item in the long form, in which the protocol lists it, of whatever short form the client sent."""
    listed = {**item, "type": item.get("type") or "message", "status": item.get("status") or "completed"}
    if listed["type"] == "message":
        listed["role"] = item.get("role") or "user"
        listed["content"] = _parts(item.get("content"), listed["role"])
    return listed


def _parts(content: Any, role: str) -> list[Any]:
    if not isinstance(content, str):
        return content or []
    if role == "assistant":
        return [{"type": "output_text", "text": content, "annotations": []}]
    return [{"type": "input_text", "text": content}]
