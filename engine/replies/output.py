"""What a parser says: text, reasoning, tool calls, in the order of the reply."""

from __future__ import annotations

import json
import secrets
import string
from dataclasses import dataclass
from typing import Any

from ..messages import ToolCallDelta, ToolCallStart

_ALPHABET = string.ascii_letters + string.digits


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    text: str


Piece = Text | Reasoning | ToolCallStart | ToolCallDelta


class Output:
    """Collects pieces until `take`. White space around tool calls and after reasoning is dropped."""

    def __init__(self, id_length: int = 24, id_prefix: str = "call_") -> None:
        self._pieces: list[Piece] = []
        self._id_length, self._id_prefix = id_length, id_prefix
        self._held_space = ""
        self._after_reasoning = False
        self._lacks_arguments = False  # the last call, so far
        self.calls = 0

    def take(self) -> list[Piece]:
        pieces, self._pieces = self._pieces, []
        return pieces

    def text(self, text: str) -> None:
        """White space after reasoning is dropped; at the end of a text it is held until more text follows."""
        text = self._held_space + text
        if self._after_reasoning:
            text = text.lstrip()
        body = text.rstrip()
        self._held_space = text[len(body) :]
        if body:
            self._after_reasoning = False
            self._end_call()
            self._pieces.append(Text(body))

    def finish(self, cut: bool) -> None:
        """The reply is over: what white space is held belongs to it unless a call came last."""
        if not cut:
            self._end_call()
        if self._held_space and not self.calls:
            self._pieces.append(Text(self._held_space))
        self._held_space = ""

    def drop_space(self) -> None:
        """What is held stood before a call."""
        self._held_space = ""

    def reasoning(self, text: str) -> None:
        self._after_reasoning = True
        self._end_call()
        self._pieces.append(Reasoning(text))

    def call_start(self, name: str, id: str | None = None) -> None:
        self.drop_space()
        self._end_call()
        self._pieces.append(ToolCallStart(self.calls, id or self._new_id(), name))
        self.calls += 1
        self._lacks_arguments = True

    def call_arguments(self, piece: str) -> None:
        if piece:
            self._lacks_arguments = False
            self._pieces.append(ToolCallDelta(self.calls - 1, piece))

    def call(self, name: str, arguments: dict[str, Any]) -> None:
        self.call_start(name)
        self.call_arguments(json.dumps(arguments, ensure_ascii=False))

    def add_calls(self, pieces: list[Piece]) -> None:
        """Calls that another output has told."""
        for piece in pieces:
            if isinstance(piece, ToolCallStart):
                self.call_start(piece.name, piece.id)
            elif isinstance(piece, ToolCallDelta):
                self.call_arguments(piece.arguments)

    def _end_call(self) -> None:
        """A call that the model wrote no arguments for has none: clients read JSON there."""
        if self._lacks_arguments:
            self.call_arguments("{}")

    def _new_id(self) -> str:
        return self._id_prefix + "".join(secrets.choice(_ALPHABET) for _ in range(self._id_length))
