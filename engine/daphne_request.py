"""daphne's request without what it and Twisted do before anyone has looked at who is asking.

Twisted keeps a body of any length on the disk, closes the connection without a word where that is full, and parses
every form in it on the event loop: 16 MB of one held up all others for ten seconds. daphne lets the client say where
the site begins: past a proxy that denies `/admin`, as `/static/admin/`. All of that is the application's to read or to
refuse.
"""

from __future__ import annotations

import os
from http import HTTPStatus
from io import BytesIO
from tempfile import TemporaryFile
from typing import IO, Any

from daphne.http_protocol import HTTPFactory, WebRequest
from daphne.server import Server
from django.conf import settings

_PHRASES = {status.value: status.phrase.encode() for status in HTTPStatus} | {529: b"Overloaded"}  # Anthropic's
IN_MEMORY = 1 << 20  # bytes of a body that is still coming; the rest goes to the disk, as uploads may be many and slow


class Request(WebRequest):
    def gotLength(self, length: int | None) -> None:
        largest = self.channel.factory.largest_body + 1
        self._most = largest if length is None else min(length, largest)
        self.content: IO[bytes] = BytesIO()

    def handleContentChunk(self, data: bytes) -> None:
        """Past the largest body one byte is kept, which tells the application that there was more."""
        before = self.content.tell()
        if before <= IN_MEMORY < before + len(data):
            self.content = _on_disk(self.content, self._most)
        room = self._most - before
        if room > 0:
            self.content.write(data[:room])

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        self.requestHeaders.removeHeader(b"daphne-root-path")
        self.content.truncate()  # a file has room for more than may have come
        self.content.seek(0)
        self.args = {}
        self.method, self.uri, self.clientproto = command, path, version
        self.path = path.partition(b"?")[0]
        self.process()

    def setResponseCode(self, code: int, message: bytes | None = None) -> None:
        """In words that Twisted does not know all of: a 429 was an "Unknown Status"."""
        super().setResponseCode(code, message or _PHRASES.get(code))


def _on_disk(content: IO[bytes], most: int) -> IO[bytes]:
    """A file with room for `most` bytes, so that no later write fails; `content` itself where the disk has none."""
    content.seek(0)
    held = content.read()
    try:
        file = TemporaryFile()  # noqa: SIM115 - Twisted closes a request's content
        if hasattr(os, "posix_fallocate"):  # macOS has none: a disk that is full there still ends the connection
            os.posix_fallocate(file.fileno(), 0, most)
        file.write(held)
    except OSError:
        return content
    return file


class Factory(HTTPFactory):
    def __init__(self, server: Any, largest_body: int) -> None:
        super().__init__(server)
        self.largest_body = largest_body

    def buildProtocol(self, addr: Any) -> Any:
        protocol = super().buildProtocol(addr)
        protocol.requestFactory = Request
        return protocol


class RequestServer(Server):
    @property
    def http_factory(self) -> Factory:
        return self._factory

    @http_factory.setter
    def http_factory(self, factory: HTTPFactory) -> None:
        """daphne sets its own when it runs."""
        self._factory = Factory(self, settings.SMOE.max_body_mb << 20)
