"""Text that may name special tokens -> a Lark expression."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping


class Marks:
    """ids: the special tokens of the vocabulary. A special token is matched by its id only, never by its letters."""

    def __init__(self, ids: Mapping[str, int]) -> None:
        self._ids = ids
        names = sorted(ids, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, names))) if names else None

    def __contains__(self, name: str) -> bool:
        return name in self._ids

    def literal(self, text: str) -> str:
        """`<|a|>b` -> `<[17]> "b"`: what must stand in the reply exactly so."""
        pieces, at = [], 0
        for match in self._pattern.finditer(text) if self._pattern else ():
            pieces += [_quoted(text[at : match.start()]), f"<[{self._ids[match[0]]}]>"]
            at = match.end()
        pieces.append(_quoted(text[at:]))
        return " ".join(filter(None, pieces))

    def text_then(self, rule: str, closing: str) -> str:
        """A rule for any text followed by `closing`."""
        if closing in self._ids:
            return f"{rule}: /(.|\\n)*/ {self.literal(closing)}\n"
        return f"{rule}[suffix={_quoted(closing)}]: /(.|\\n)*/\n"

    def text_without(self, rule: str, sign: str) -> str:
        """A rule for any text that `sign` does not stand in."""
        if sign in self._ids:
            return f"{rule}: /(.|\\n)*/\n"
        letters = re.escape(sign).replace("/", "\\/")
        return f"{rule}: {rule.upper()}\n{rule.upper()}: /(.|\\n)*/ & ~/(.|\\n)*{letters}(.|\\n)*/\n"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if text else ""
