"""A double of the server for the console: the page and its files are the real ones, the API is a script.

The last user message names the scene: `say length`, `say error`, ...; anything else is an ordinary reply. Delays are
those that a person would see, shortened where a test gains nothing from them. `python -m tests.browser.stub_server`
serves it for looking at.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from django.test import RequestFactory

from smoe_site import views

from . import scenes

STATIC = Path(views.__file__).parent.parent / "templates" / "static"
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


class Stub(ThreadingHTTPServer):
    """`requests` holds every chat body; `hangups` is released for every stream that was left before its end."""

    daemon_threads = True

    def __init__(self, port: int = 0):
        super().__init__(("127.0.0.1", port), Handler)
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.hangups = threading.Semaphore(0)
        self.key = ""  # where set, requests without it are refused
        self.models = [dict(model) for model in scenes.MODELS]
        self.engine = "up"
        self.pressure = "normal"
        self.fail_next: tuple[int, dict[str, str], dict[str, Any]] | None = None
        self.reads = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> Stub:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is part of the play."""

    def memory(self) -> dict[str, Any]:
        self.reads += 1
        engine = {"rss": 312_344_576, "trunk": 108_000_000, "ring": 120_000_000, "kv": 94_371_840}
        counters = {"hits": 970 * self.reads, "misses": 30 * self.reads, "bytes": 180_000_000 * self.reads}
        return {
            "installed": 25_769_803_776,
            "limit": 25_769_803_776,
            "used": 9_800_000_000,
            "free": 15_969_803_776,
            "swap_used": 0,
            "pressure": {"level": self.pressure, "some_avg10": 0.0, "used_percent": 38.0},
            "engine": {**engine, **counters},
        }


class Handler(BaseHTTPRequestHandler):
    server: Stub

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.path == "/":
            self._page()
        elif self.path.startswith("/static/"):
            file = STATIC / self.path.removeprefix("/static/")
            self._send(200, file.read_bytes(), {"Content-Type": TYPES[file.suffix]})
        elif self._authorized():
            self._json(200, self._facts())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self._authorized():
            return
        self.server.requests.append(body)
        if self.server.fail_next:
            status, headers, answer = self.server.fail_next
            self.server.fail_next = None
            self._json(status, answer, headers)
        else:
            self._stream(scenes.play(body, self.server))

    def _facts(self) -> dict[str, Any]:
        if self.path == "/v1/models":
            return {"object": "list", "data": self.server.models}
        if self.path == "/sysmem":
            return self.server.memory()
        return {"status": "ok", "engine": self.server.engine, "context": 4096}

    def _authorized(self) -> bool:
        sent = (self.headers["Authorization"] or "").removeprefix("Bearer ")
        self.server.keys.append(sent)
        if self.server.key in ("", sent):
            return True
        self._json(401, {"error": {"message": "This server needs an API key.", "code": "invalid_api_key"}})
        return False

    def _page(self) -> None:
        response = views.console(RequestFactory().get("/"))
        self._send(200, response.content, dict(response.headers))

    def _json(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        self._send(status, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, chunks: Iterator[dict[str, Any] | str | float]) -> None:
        """A float waits; `"cut"` drops the connection; a dict is an event."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        try:
            for chunk in chunks:
                if isinstance(chunk, float):
                    self._wait(chunk)
                elif chunk == "cut":
                    return
                else:
                    self.wfile.write(b"data: %s\n\n" % json.dumps(chunk).encode())
                    self.wfile.flush()
            self.wfile.write(b"data: [DONE]\n\n")
        except (BrokenPipeError, ConnectionResetError):
            self.server.hangups.release()

    def _wait(self, seconds: float) -> None:
        """Sleeps, but notices a client that has gone: an end of file arrives on its socket."""
        self.connection.settimeout(seconds)
        try:
            if not self.connection.recv(1):
                raise BrokenPipeError
        except TimeoutError:
            pass
        finally:
            self.connection.settimeout(None)


def main() -> None:
    import os

    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "smoe_site.settings")
    django.setup()
    with Stub(8150) as stub:
        print(stub.url)
        while True:
            time.sleep(3600)


if __name__ == "__main__":
    main()
