"""Safari's engine, WebKitGTK (Debian: webkit2gtk-driver, xvfb), where it could differ. Skipped where it is absent."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

ENTER, ESCAPE = "\ue007", "\ue00c"
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # WebDriver's name for a reference to one
TO_THE_END = "const log = document.getElementById('log'); return log.scrollHeight - log.scrollTop - log.clientHeight"


def until(true: Callable[[], Any], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.05)


class Driver:
    """As much of WebDriver as this takes."""

    def __init__(self, base: str):
        self.base = base
        self.session = ""

    def do(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if method == "GET" else json.dumps(body or {}).encode()
        with urlopen(Request(f"{self.base}{self.session}{path}", data, method=method), timeout=60) as answer:
            return json.load(answer)["value"]

    def ready(self) -> bool:
        try:
            return self.do("GET", "/status")["ready"]
        except (URLError, ConnectionError):
            return False

    def script(self, code: str) -> Any:
        return self.do("POST", "/execute/sync", {"script": code, "args": []})

    def press(self, css: str, keys: str) -> None:
        found = self.do("POST", "/element", {"using": "css selector", "value": css})[ELEMENT]
        self.do("POST", f"/element/{found}/value", {"text": keys})

    def click(self, css: str) -> None:
        self.script(f"document.querySelector({json.dumps(css)}).click()")

    def says(self, css: str, text: str) -> None:
        until(
            lambda: (
                text
                in self.script(f"return [...document.querySelectorAll({json.dumps(css)})].at(-1)?.textContent ?? ''")
            )
        )

    def ask(self, text: str) -> None:
        self.press("#input", text + ENTER)
        self.says(".message.user:nth-last-of-type(2) p", text)
        until(lambda: self.script("return document.getElementById('send').title.startsWith('Send')"))


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    if not (shutil.which("WebKitWebDriver") and shutil.which("xvfb-run")):
        pytest.skip("No WebKitWebDriver or no xvfb-run on the PATH.")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["xvfb-run", "-a", "WebKitWebDriver", f"--port={port}"]
    environment = os.environ | {
        "WEBKIT_DISABLE_SANDBOX_THIS_IS_DANGEROUS": "1"
    }  # root has no namespaces of its own here
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    driver = Driver(f"http://127.0.0.1:{port}")
    try:
        until(driver.ready)
        driver.session = "/session/" + driver.do("POST", "/session", {"capabilities": {}})["sessionId"]
        yield driver
        driver.do("DELETE", "")
    finally:
        os.killpg(process.pid, 15)
        process.wait()


@pytest.fixture
def console(driver: Driver, stub) -> Driver:
    driver.do("POST", "/url", {"url": stub.url})
    driver.says("#engine-text", "Engine up")
    driver.script(
        "window.faults = []; for (const kind of ['error', 'unhandledrejection', 'securitypolicyviolation']) "
        "addEventListener(kind, (event) => faults.push(kind + (event.message ?? event.reason ?? event.blockedURI)))"
    )
    return driver


def test_streams_and_stays_at_the_end(console):
    console.ask("hello")
    console.says(".monitor .line", "211 tokens")
    console.says(".code .k", "return")
    console.ask("say long")
    console.says(".monitor .line", "4,000 tokens")
    until(lambda: console.script(TO_THE_END) < 2)
    assert console.script("return faults") == []


def test_stops(console, stub):
    console.press("#input", "say endless" + ENTER)
    console.says(".assistant .markdown", "word3")
    console.press("#input", ESCAPE)
    console.says(".card", "Stopped.")
    assert stub.hangups.acquire(timeout=10)


def test_a_reload_in_mid_stream_keeps_the_part_that_came(console):
    console.press("#input", "say endless" + ENTER)
    console.says(".assistant .markdown", "word12")
    console.do("POST", "/refresh")
    console.says(".card", "Interrupted")
    console.says(".assistant .markdown", "word12")


def test_enter_saves_in_a_dialog(console):
    console.ask("say short")
    console.click("#do-rename")
    console.press("#rename input", " renamed" + ENTER)
    console.says("#conversations button", "say short renamed")
