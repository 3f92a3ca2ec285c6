"""Compressed request bodies. The limit holds for what comes out, so that a small body cannot fill the memory."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from django.conf import settings

from engine.errors import InvalidRequest

from .errors import TooLarge, UnsupportedEncoding

_GZIP = 16 + zlib.MAX_WBITS  # zlib's way to ask for gzip's header and trailer
_MOST_MEMBERS = 1_000  # bgzip's blocks of 64 KiB make 512 of 32 MiB


def unpacker(encoding: str) -> Callable[[bytes], bytes] | None:
    """For a Content-Encoding; None where there is nothing to unpack. Raises UnsupportedEncoding."""
    match encoding.strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip":
            return _gunzip
    raise UnsupportedEncoding(f"Content-Encoding {encoding[:40]!r} is not supported: send gzip, or the body as it is.")


def _gunzip(body: bytes) -> bytes:
    """All members of a gzip file, as RFC 1952 has them, but no heap of empty ones: what is left is copied for each."""
    limit = settings.SMOE.max_body_mb << 20
    unpacked = b""
    members = 0
    while body:
        if (members := members + 1) > _MOST_MEMBERS:
            raise InvalidRequest(f"The request body's gzip has more than {_MOST_MEMBERS} members: send it as one.")
        member = zlib.decompressobj(_GZIP)
        try:
            unpacked += member.decompress(body, limit + 1 - len(unpacked))
        except zlib.error:
            raise InvalidRequest("The request body is not gzip, as its Content-Encoding says.") from None
        if len(unpacked) > limit:
            raise TooLarge(
                f"The request body has more than {settings.SMOE.max_body_mb} MiB when it is unpacked, which is what "
                "this server takes (--max-body-mb)."
            )
        if not member.eof:
            raise InvalidRequest("The request body is cut short: its gzip has no end.")
        body = member.unused_data
    return unpacked
