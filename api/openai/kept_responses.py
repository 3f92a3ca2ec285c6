"""The last responses, in memory: what `previous_response_id`, GET /v1/responses/{id} and an `item_reference` find.

Every turn of a conversation holds those before it, whether the client chains responses or sends all of it again. So
what is equal is held once, and a response needs no other to be there: the oldest go first, and take with them only what
no later one holds.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

MOST_BYTES = 32 << 20
# What Python's own objects take, so that many small pieces count too.
PIECE_BYTES = 500
REFERENCE_BYTES = 8


class Piece(NamedTuple):
    """An item as JSON without its id; or, where that is empty, something else that turns repeat."""

    id: str
    encoded: bytes

    def item(self) -> dict[str, Any]:
        return {"id": self.id, **json.loads(self.encoded)}


@dataclass(frozen=True, slots=True)
class KeptResponse:
    id: str
    document: bytes  # without what `repeated` and `output` hold
    repeated: Piece
    input: tuple[Piece, ...]  # the whole conversation before the reply
    output: tuple[Piece, ...]

    def conversation(self) -> tuple[Piece, ...]:
        return self.input + self.output

    def pieces(self) -> Iterable[Piece]:
        return (self.repeated, *self.input, *self.output)

    def told(self) -> dict[str, Any]:
        """The document as the client got it."""
        told = {**json.loads(self.document), **json.loads(self.repeated.encoded)}
        return told | {"output": [piece.item() for piece in self.output]}

    def own_bytes(self) -> int:
        return PIECE_BYTES + len(self.document) + REFERENCE_BYTES * (1 + len(self.input) + len(self.output))


@dataclass(slots=True)
class _Held:
    piece: Piece
    uses: int = 0

    def bytes(self) -> int:
        return PIECE_BYTES + len(self.piece.encoded)


class KeptResponses:
    """Each client sees its own."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.bytes = 0
        self._most_bytes = most_bytes
        self._responses: OrderedDict[tuple[str, str], KeptResponse] = OrderedDict()
        self._held: dict[tuple[str, Piece], _Held] = {}
        self._named: dict[tuple[str, str], Piece] = {}

    def keep(self, client: str, response: KeptResponse) -> bool:
        """Whether it is kept: one that would not fit alone must not drive out all others."""
        alone = response.own_bytes() + sum(PIECE_BYTES + len(piece.encoded) for piece in response.pieces())
        if alone > self._most_bytes:
            return False
        self._responses[client, response.id] = replace(
            response,
            repeated=self._hold(client, response.repeated),
            input=tuple(self._hold(client, piece) for piece in response.input),
            output=tuple(self._hold(client, piece) for piece in response.output),
        )
        self.bytes += response.own_bytes()
        while self.bytes > self._most_bytes:
            self.forget(*next(iter(self._responses)))
        return True

    def find(self, client: str, identity: str) -> KeptResponse | None:
        return self._responses.get((client, identity))

    def forget(self, client: str, identity: str) -> bool:
        """Whether it was there. Later responses of its conversation stay whole."""
        response = self._responses.pop((client, identity), None)
        if response is None:
            return False
        self.bytes -= response.own_bytes()
        for piece in response.pieces():
            self._release(client, piece)
        return True

    def find_item(self, client: str, identity: str) -> dict[str, Any] | None:
        piece = self._named.get((client, identity))
        return None if piece is None else piece.item()

    def _hold(self, client: str, piece: Piece) -> Piece:
        held = self._held.setdefault((client, piece), _Held(piece))
        held.uses += 1
        if held.uses == 1:
            self.bytes += held.bytes()
            if piece.id:  # what a client sends back under an item's id may hold less than the item
                self._named.setdefault((client, piece.id), piece)
        return held.piece

    def _release(self, client: str, piece: Piece) -> None:
        held = self._held[client, piece]
        held.uses -= 1
        if held.uses == 0:
            self.bytes -= held.bytes()
            del self._held[client, piece]
            if self._named.get((client, piece.id)) is held.piece:
                del self._named[client, piece.id]


kept_responses = KeptResponses()
