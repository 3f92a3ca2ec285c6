"""daphne's request without what it and Twisted do before anyone has looked at who is asking.

Twisted keeps a body of any length on the disk, and parses every form in it on the event loop: 16 MB of one held up all
others for ten seconds. daphne lets the client say where the site begins: past a proxy that denies `/admin`, as
`/static/admin/`. All of that is the application's to read or to refuse.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from daphne.http_protocol import HTTPFactory, WebRequest
from daphne.server import Server
from django.conf import settings

_PHRASES = {status.value: status.phrase.encode() for status in HTTPStatus} | {529: b"Overloaded"}  # Anthropic's


class Request(WebRequest):
    def handleContentChunk(self, data: bytes) -> None:
        """Past the largest body one byte is kept, which tells the application that there was more."""
        room = self.channel.factory.largest_body + 1 - self.content.tell()
        if room > 0:
            self.content.write(data[:room])

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        self.requestHeaders.removeHeader(b"daphne-root-path")
        self.content.seek(0)
        self.args = {}
        self.method, self.uri, self.clientproto = command, path, version
        self.path = path.partition(b"?")[0]
        self.process()

    def setResponseCode(self, code: int, message: bytes | None = None) -> None:
        """In words that Twisted does not know all of: a 429 was an "Unknown Status"."""
        super().setResponseCode(code, message or _PHRASES.get(code))


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
