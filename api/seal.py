"""Reasoning text that travels inside an opaque field and comes back with the conversation.

Both protocols let a server keep reasoning unseen (`signature`, `encrypted_content`); a client returns the field
untouched. Ours holds the text itself, so that the next turn's prompt equals what the model wrote, with nothing kept
here. It hides nothing: whoever reads the field can unpack it.
"""

from __future__ import annotations

import base64
import zlib

_PREFIX = "smoe1."
_MAX_TEXT_BYTES = 1 << 20


def seal(text: str) -> str:
    return _PREFIX + base64.urlsafe_b64encode(zlib.compress(text.encode())).decode()


def unseal(sealed: str | None) -> str | None:
    """The text, or None for what is not ours."""
    if not sealed or not sealed.startswith(_PREFIX):
        return None
    unpacker = zlib.decompressobj()
    try:
        return unpacker.decompress(base64.urlsafe_b64decode(sealed[len(_PREFIX) :]), _MAX_TEXT_BYTES).decode()
    except (ValueError, zlib.error):
        return None
