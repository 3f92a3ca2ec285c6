"""The admin in a real Chromium: the live first page, and every operation by its button."""

import shutil

import pytest
import vault_pairs as pairs
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import expect, sync_playwright

from engine.protocol import Heat
from fleet import catalog, keys, signin
from fleet.models import ApiKey, Event, Generation, Vault

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.fixture(scope="module")
def chromium(django_db_setup):
    """Playwright's event loop occupies the thread, so the database must be used beside it."""
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    assert program, "No Chromium on the PATH: install it (Debian: apt install chromium) to test the admin."
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(params=[("light", 1280), ("dark", 400)], ids=str)
def page(request, chromium, live_server, fleet_dir, worker):
    """Signed in; fails its test where a script failed or the page is wider than the window."""
    pairs.make(fleet_dir, "whole")
    pairs.make_truncated(fleet_dir, "cut")
    catalog.rescan()
    User.objects.create_superuser("op", password="op")
    scheme, width = request.param
    context = chromium.new_context(
        base_url=live_server.url, color_scheme=scheme, viewport={"width": width, "height": 900}
    )
    context.set_default_timeout(15_000)
    page = context.new_page()
    problems = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto("/admin/login/?next=/admin/")
    page.fill("#id_username", "op")
    page.fill("#id_password", "op")
    page.click("input[type=submit]")
    page.wait_for_selector("#user-tools")
    yield page
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()
    assert problems == []


def test_a_newcomer_gets_in_by_the_printed_link(chromium, live_server, worker):
    """In a browser: what a browser sends as Origin depends on the page's Referrer-Policy."""
    context = chromium.new_context(base_url=live_server.url)
    page = context.new_page()
    page.goto("/admin/")
    expect(page.locator(".smoe-newcomer")).to_contain_text("The server printed a link")
    link = signin.offer()
    page.goto(link)
    page.fill("#id_username", "op")
    page.fill("#id_password1", "correct horse battery")
    page.fill("#id_password2", "correct horse battery")
    page.get_by_role("button", name="Begin").click()
    expect(page.locator("#user-tools")).to_contain_text("op")
    page.goto(link)
    expect(page.locator("#content-main")).to_contain_text("This link has been used")
    context.close()


def test_the_first_page_is_live(page, worker):
    expect(page.locator("[data-live=state]")).to_have_text("down")
    worker.model, worker.figures = "whole", {"state": "decode", "hits": 9, "misses": 1, "rss": 312_000_000}
    expect(page.locator("[data-live=model]")).to_have_text("whole")
    expect(page.locator("[data-live=state]")).to_have_text("decode")
    expect(page.locator("[data-live=hits]")).to_have_text("90.0 %")
    expect(page.locator("[data-live=resident]")).to_have_text("312 MB")
    expect(page.locator("[data-live=queue]")).to_have_text("1 running, 2 waiting")


LOGGED = {
    "vault": "qwen3-30b-a3b-instruct-2507-q4",
    "client": "192.168.100.155/ab12cd34ef56",
    "client_name": "claude-cli/2.0.1 (external, cli)",
    "protocol": "anthropic",
    "prompt_tokens": 118_116,
    "cached_tokens": 101_500,
    "generated_tokens": 4_353,
    "queue_ms": 12_345.6,
    "prefill_ms": 187_654.3,
    "decode_ms": 876_543.2,
    "finish_reason": "tool_calls",
}


def test_the_last_requests_and_events_are_seen_whole(page):
    """Nothing to push sideways: the first page at both widths, the list of requests on a screen."""
    Generation.objects.create(time=timezone.now(), **LOGGED)
    Event.objects.create(time=timezone.now(), kind="failed", vault="v", message=f"{LOGGED['vault']} did not start.")
    page.goto("/admin/")
    expect(page.locator("[data-live=generations]")).to_contain_text("118,116 in (101,500 cached), 4,353 out")
    hidden = "[...document.querySelectorAll('.smoe-scroll')].map((e) => e.scrollWidth - e.clientWidth)"
    assert page.evaluate(hidden) == [0, 0]
    page.goto("/admin/fleet/event/")
    message = page.locator(".field-message").first.bounding_box()
    assert message["x"] + message["width"] <= page.viewport_size["width"]
    page.goto("/admin/fleet/generation/")
    expect(page.locator(".field-times")).to_contain_text("decode 876.54 s")
    if page.viewport_size["width"] >= 1280:
        assert page.locator(".results").evaluate("(e) => e.scrollWidth - e.clientWidth") == 0


def test_rescan_switch_and_unload(page, worker, fleet_dir):
    pairs.make(fleet_dir, "late")
    page.goto("/admin/fleet/vault/")
    page.get_by_role("button", name="Rescan").click()
    expect(page.locator(".messagelist")).to_contain_text("3 vaults seen")
    page.get_by_role("link", name="late").click()
    page.get_by_role("button", name="Switch to this vault").click()
    expect(page.locator(".messagelist")).to_contain_text("The engine runs late.")
    expect(page.get_by_text("active", exact=True)).to_be_visible()
    row = page.locator("tr", has=page.get_by_role("link", name="whole"))
    row.locator("input.action-select").check()
    page.select_option("select[name=action]", "switch_to")
    page.get_by_role("button", name="Go").click()
    expect(page.locator(".messagelist")).to_contain_text("The engine runs whole.")
    page.get_by_role("button", name="Unload the engine").click()
    expect(page.locator(".messagelist")).to_contain_text("unloaded")
    assert worker.asked == ["switch late", "switch whole", "unload"]


def test_verify_and_the_picture_of_hot_experts(page, worker):
    page.goto(f"/admin/fleet/vault/{Vault.objects.get(name='whole').pk}/change/")
    expect(page.locator(".smoe-heat-words")).to_contain_text("No reply has used")
    expect(page.locator("canvas.smoe-heat")).to_be_hidden()
    worker.model, worker.hot = "whole", Heat(0, [[90, 10]])
    page.goto(f"/admin/fleet/vault/{Vault.objects.get(name='whole').pk}/change/")
    expect(page.locator(".smoe-heat-words")).to_contain_text("100 uses since")
    canvas = page.locator("canvas.smoe-heat")
    expect(canvas).to_be_visible()
    canvas.hover(position={"x": 5, "y": 5})
    expect(page.locator(".smoe-heat-at")).to_have_text("layer 0, expert 0: 90 uses")
    page.get_by_role("button", name="Verify").click()
    expect(page.locator(".smoe-verify span")).to_have_text("sound")


def test_a_key_is_copied_however_late_the_script_comes(page):
    page.route("**/key.js", lambda route: (page.wait_for_timeout(1000), route.continue_()))
    page.goto("/admin/fleet/apikey/add/")
    page.fill("#id_name", "alice")
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()


def test_a_key_that_cannot_be_copied_is_not_called_copied(page):
    page.add_init_script("navigator.clipboard.writeText = async () => { throw 0 }; document.execCommand = () => false")
    page.goto("/admin/fleet/apikey/add/")
    page.fill("#id_name", "alice")
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("button", name="Press Ctrl+C")).to_be_visible()
    secret = page.locator("input.smoe-secret").input_value()
    assert page.evaluate("getSelection().toString()") == secret


def test_a_key_is_made_shown_and_revoked(page):
    page.goto("/admin/fleet/apikey/add/")
    page.fill("#id_name", "alice")
    page.get_by_role("button", name="Save", exact=True).click()
    secret = page.locator("input.smoe-secret").input_value()
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert ApiKey.objects.get().digest == keys.digest(secret)
    page.get_by_role("link", name="Done").click()
    page.locator("input.action-select").check()
    page.select_option("select[name=action]", "revoke")
    page.get_by_role("button", name="Go").click()
    expect(page.get_by_text("revoked", exact=True)).to_be_visible()
