"""JSON text inside other JSON: a call's arguments, as a model writes them and a client sends them back.

Python reads more than JSON has: half a surrogate pair, which can neither be tokenized nor sent, and NaN or a number
that becomes infinite, which no client can read.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def read_json(text: str) -> Any:
    """The value, made of what JSON can tell again; what is no number is null, as in JavaScript. Raises ValueError."""
    try:
        value = json.loads(text, parse_constant=_null, parse_float=_finite_or_null)
        return without_lone_surrogates(value) if _SURROGATE_ESCAPE.search(text) else value
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def without_lone_surrogates(value: Any) -> Any:
    """Half a surrogate pair, as one leaves it who cuts strings, becomes U+FFFD."""
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [without_lone_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {without_lone_surrogates(key): without_lone_surrogates(item) for key, item in value.items()}
    return value


def _null(name: str) -> None:
    del name


def _finite_or_null(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None
