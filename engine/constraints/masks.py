"""Follows a grammar token by token and says which tokens may come next."""

from __future__ import annotations

import base64
from collections.abc import Sequence

import numpy as np
from llguidance import LLMatcher, LLTokenizer

from ..errors import InvalidRequest
from .faults import reason

_FEW = 64  # up to this many tokens are listed by id; more are sent as a bit set
_TAIL = 16  # ids that are looked back at for the closing tag of thinking


class Vocabulary:
    """A tokenizer as llguidance needs it. Takes about a second to make: keep it.

    tokenizer_json: text of a `tokenizer.json`; size: the vault's vocabulary; eos: every id that ends a reply.
    """

    def __init__(self, tokenizer_json: str, size: int, eos: Sequence[int]) -> None:
        self.size = size
        self.tokenizer = LLTokenizer(tokenizer_json, n_vocab=size, eos_token=list(eos))


class TokenMasks:
    """One reply's masks. Called with the ids sampled since the last call, gives the `<set>` of the next MASK line.

    thinking: the tags of reasoning that may stand before the constrained text; `open` where the prompt opened it.
    Raises InvalidRequest where the grammar cannot be compiled (the message names the keyword), and from a call where
    following it takes more than the library's limits.
    """

    def __init__(
        self,
        grammar: str,
        vocabulary: Vocabulary,
        thinking: tuple[str, str] | None = None,
        opening_id: int | None = None,
        open: bool = False,
    ) -> None:
        self._vocabulary = vocabulary
        self._matcher = LLMatcher(vocabulary.tokenizer, LLMatcher.grammar_from_lark(grammar), log_level=0)
        self._refuse_errors()
        self._thinking, self._opening_id = thinking, opening_id
        self._in_thought = open
        self._may_think = thinking is not None and not open
        self._tail: list[int] = []

    def __call__(self, new_ids: Sequence[int] = ()) -> str:
        for id in new_ids:
            self._accept(id)
        if self._in_thought:
            return "all"
        mask = None if self._matcher.is_stopped() else self._matcher.compute_bitmask()
        self._refuse_errors()
        return "none" if mask is None else self._encode(mask)

    def begin(self, ids: Sequence[int]) -> bool:
        """The reply goes on from these. False, and nothing has happened, where no text that is allowed begins so."""
        if self._matcher.validate_tokens(ids) < len(ids):
            return False
        self._matcher.consume_tokens(ids)
        self._may_think = False
        self._refuse_errors()
        return True

    def _refuse_errors(self) -> None:
        """A matcher that has reached its limits stops too: its text so far is no whole one."""
        if self._matcher.is_error():
            raise InvalidRequest(f"the schema or grammar cannot be enforced: {reason(self._matcher.get_error())}")

    def _accept(self, id: int) -> None:
        if self._in_thought:
            self._tail = [*self._tail[-_TAIL:], id]
            closing = self._thinking[1] if self._thinking else ""
            self._in_thought = closing not in self._vocabulary.tokenizer.decode_str(self._tail)
        elif self._may_think and id == self._opening_id:
            self._in_thought, self._may_think = True, False
        else:
            self._may_think = False
            self._matcher.consume_token(id)

    def _encode(self, mask: bytes) -> str:
        size = self._vocabulary.size
        bits = np.unpackbits(np.frombuffer(mask, np.uint8), bitorder="little")[:size]
        if self._may_think and self._opening_id is not None:
            bits[self._opening_id] = 1
        allowed = np.flatnonzero(bits)
        if len(allowed) == size:
            return "all"
        if len(allowed) <= _FEW:
            return "only:" + ";".join(map(str, allowed)) if len(allowed) else "none"
        return "bits:" + base64.b64encode(np.packbits(bits, bitorder="little").tobytes()).decode()
