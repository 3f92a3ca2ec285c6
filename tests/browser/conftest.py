"""A real Chromium (Debian's) and a fresh page on a stub server. CI must have it; elsewhere its absence skips."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from .console import Console
from .stub_server import Stub

expect.set_options(timeout=30_000)  # patience, not speed: a loaded machine is slow, a fault never comes right
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "/browser/" in item.path.as_posix():
            item.add_marker(pytest.mark.browser)


# One module at a time: Playwright's event loop occupies the thread, which asynchronous tests elsewhere need.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    if program is None:
        message = "No Chromium on the PATH: install it (Debian: apt install chromium) to test the console."
        pytest.fail(message) if os.environ.get("CI") == "true" else pytest.skip(message)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def stub() -> Iterator[Stub]:
    with Stub() as stub:
        yield stub


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """Fails its test where the page raised, or broke its own security policy."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(30_000)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if "Content Security" in message.text else None)
    yield page
    context.close()
    assert problems == []


@pytest.fixture
def console(page: Page, stub: Stub) -> Console:
    return Console(page).open(stub.url)
