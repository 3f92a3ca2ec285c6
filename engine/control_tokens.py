"""Which tokens steer a model, and how a text that a client sends is kept from holding any.

A tokenizer turns the letters `<|im_end|>` into the token that ends a turn, wherever they come from. So a seam is put
into every control token that stands in a message before the template is applied, and the prompt is tokenized piece by
piece between the seams: the letters stay, the token does not come about. What the template writes itself has no seam.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

SEAM = "\ufdd0"  # a noncharacter: Unicode keeps it for a program's inside, no text has a use for it
# Tokens that replies are made of beside text: an assistant's message is a reply that comes back, and keeps them.
FORMAT_TOKENS = re.compile(r"tool|think|call|arg|python_tag|DSML", re.IGNORECASE)
_SHAPE = re.compile(r"<[|｜].+[|｜]>")


def control_tokens(added: Mapping[str, bool], template: str) -> set[str]:
    """Of the added tokens (text -> special or not) those with a meaning of their own in a conversation.

    Some that count as plain are markers too: they look like one, or the template writes them (`<think>` in Qwen 3).
    """
    return {
        text
        for text, special in added.items()
        if special or _SHAPE.fullmatch(text) or (text in template and not text.isspace() and not text.isalnum())
    }


class Seams:
    """Puts seams into texts. Thread-safe."""

    def __init__(self, tokens: Iterable[str]) -> None:
        self._tokens = {token for token in tokens if len(token) > 1}
        firsts = {token[0] for token in self._tokens}
        self._candidates = re.compile("[" + "".join(map(re.escape, firsts)) + "]") if firsts else None
        self._lengths: dict[str, set[int]] = {}  # by a token's first two characters
        for token in self._tokens:
            self._lengths.setdefault(token[:2], set()).add(len(token))

    def put(self, value: Any) -> Any:
        """`value` with seams in all its texts, at any depth."""
        if isinstance(value, str):
            return self._in_text(value)
        if isinstance(value, Mapping):
            return {self.put(key): self.put(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.put(item) for item in value]
        return value

    def _in_text(self, text: str) -> str:
        """A seam behind each token's first character: also where tokens overlap, every one is cut."""
        text = text.replace(SEAM, "")
        cuts = [match.end() for match in self._candidates.finditer(text)] if self._candidates else []
        cuts = [cut for cut in cuts if self._is_token(text, cut - 1)]
        if not cuts:
            return text
        return SEAM.join(text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True))

    def _is_token(self, text: str, at: int) -> bool:
        lengths: Collection[int] = self._lengths.get(text[at : at + 2], ())
        return any(text[at : at + length] in self._tokens for length in lengths)


def encode_between_seams(text: str, encode: Callable[[str], list[int]]) -> list[int]:
    first, *others = text.split(SEAM)
    ids = encode(first)
    for piece in others:
        ids += _continued(piece, encode)
    return ids


def _continued(piece: str, encode: Callable[[str], list[int]]) -> list[int]:
    """Ids of a text's later part. SentencePiece begins a text with a space of its own: a line break takes it."""
    line_break, ids = encode("\n"), encode("\n" + piece)
    return ids[len(line_break) :] if ids[: len(line_break)] == line_break else encode(piece)
