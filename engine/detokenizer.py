"""Ids -> text as they come: whole characters only, the same work for each id however long the reply is.

The text of all steps together is what the tokenizer's own `decode(ids, skip_special_tokens=True)` gives for all ids.
Byte-level and SentencePiece tokenizers are decoded from each token's bytes; any other through its own decoder on a
short window of the last ids.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable
from typing import Protocol

from tokenizers import Tokenizer

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
# SentencePiece decoders give one replacement character for each byte; Unicode's practice is one for each maximal part.
codecs.register_error("smoe-each-byte", lambda error: (REPLACEMENT * (error.end - error.start), error.end))


class Detokenizer(Protocol):
    def step(self, id: int) -> str:
        """The text that this id completes; "" where it is part of a character or not shown."""

    def finish(self) -> str:
        """What an unfinished character leaves."""


class Vocabulary:
    """What a tokenizer's ids stand for. Thread-safe: its only state is a cache."""

    def __init__(self, tokenizer: Tokenizer, special_ids: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self.special_ids = special_ids
        self.size = tokenizer.get_vocab_size(with_added_tokens=True)
        self._bytes_of, self._errors, self._strips = _scheme(tokenizer)
        self._cache: dict[int, bytes] = {}

    def bytes_of(self, id: int) -> bytes:
        """A token's bytes in a text; b"" for an id that is no token's."""
        found = self._cache.get(id)
        if found is None:
            found = self._cache[id] = self._read_bytes(id)
        return found

    def detokenizer(self, visible: frozenset[int] = frozenset(), continues: bool = False) -> Detokenizer:
        """visible: special ids that are shown. continues: the text goes on from another one, whose space it keeps."""
        hidden = self.special_ids - visible
        if self._bytes_of is None:
            return _WindowDetokenizer(self._tokenizer, hidden)
        return _ByteDetokenizer(self.bytes_of, hidden, self._errors, self._strips and not continues)

    def _read_bytes(self, id: int) -> bytes:
        token = self._tokenizer.id_to_token(id)
        if token is None:
            return b""
        if self._bytes_of is None:
            return self._tokenizer.decode([id], skip_special_tokens=False).encode()
        return self._bytes_of(token)


class _ByteDetokenizer:
    def __init__(self, bytes_of: Callable[[int], bytes], hidden: frozenset[int], errors: str, strips: bool) -> None:
        self._bytes_of, self._hidden, self._strips = bytes_of, hidden, strips
        self._decode = codecs.getincrementaldecoder("utf-8")(errors).decode

    def step(self, id: int) -> str:
        if id in self._hidden:
            return ""
        text = self._decode(self._bytes_of(id))
        return self._stripped(text) if self._strips else text

    def finish(self) -> str:
        return self._decode(b"", True)

    def _stripped(self, text: str) -> str:
        """SentencePiece begins every text with a space that is not its own."""
        self._strips = not text
        return text.removeprefix(" ")


class _WindowDetokenizer:
    """Decodes from the last place where the text was whole, so that neighbours shape each other as in the full text."""

    LONGEST = 16  # ids that are held for one character before they count as what they look like

    def __init__(self, tokenizer: Tokenizer, hidden: frozenset[int]) -> None:
        self._tokenizer, self._hidden = tokenizer, hidden
        self._before: list[int] = []  # already told; context for the decoder
        self._held: list[int] = []

    def step(self, id: int) -> str:
        if id in self._hidden:
            return ""
        self._held.append(id)
        text = self._new_text()
        if text.endswith(REPLACEMENT) and len(self._held) < self.LONGEST:
            return ""
        self._before, self._held = self._held, []
        return text

    def finish(self) -> str:
        text, self._held = self._new_text(), []
        return text

    def _new_text(self) -> str:
        told = self._tokenizer.decode(self._before, skip_special_tokens=False)
        return self._tokenizer.decode(self._before + self._held, skip_special_tokens=False)[len(told) :]


def _scheme(tokenizer: Tokenizer) -> tuple[Callable[[str], bytes] | None, str, bool]:
    """token -> bytes (None where only the decoder knows), the error handler, whether a text loses its first space."""
    decoder = json.loads(tokenizer.decoder.__getstate__()) if tokenizer.decoder else {}
    steps = decoder.get("decoders", [decoder])
    kinds = [step.get("type") for step in steps]
    if kinds == ["ByteLevel"]:
        return _byte_level, "replace", False
    space = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    if kinds[:3] == ["Replace", "ByteFallback", "Fuse"] and steps[0] == space and steps[3:] in ([], [strip]):
        return _sentencepiece, "smoe-each-byte", steps[3:] == [strip]
    return None, "", False


def _sentencepiece(token: str) -> bytes:
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        try:
            return bytes([int(token[3:5], 16)])
        except ValueError:
            pass
    return token.replace("▁", " ").encode()


def _byte_level(token: str) -> bytes:
    """A token with a character outside the alphabet is an added one and stands for itself."""
    try:
        return bytes(map(_BYTES.__getitem__, token))
    except KeyError:
        return token.encode()


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's: printable bytes are their own characters, the others follow from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


_BYTES = _byte_alphabet()
