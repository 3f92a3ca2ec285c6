"""A browser that keeps nothing for the page: private windows, blocked site data."""

import pytest
from playwright.sync_api import expect

from .console import Console

NO_DATABASE = "indexedDB.open = () => { throw new DOMException('blocked', 'SecurityError') }"
NO_STORAGE = (
    NO_DATABASE
    + """;
for (const name of ["localStorage", "sessionStorage"]) {
    Object.defineProperty(window, name, { get() { throw new DOMException("blocked", "SecurityError") } });
}"""
)
NO_ROOM = "IDBObjectStore.prototype.put = () => { throw new DOMException('no room', 'QuotaExceededError') }"
FULL = "Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError') }"


@pytest.mark.parametrize("script", [NO_DATABASE, NO_STORAGE], ids=["no database", "no storage"])
def test_it_works_and_says_that_nothing_lasts(page, stub, script):
    page.add_init_script(script)
    console = Console(page).open(stub.url)
    expect(page.locator("#unkept")).to_contain_text("keeps nothing")
    console.ask("say short")
    expect(console.text).to_contain_text("Paris")
    console.button("New conversation").click()
    console.ask("say length")
    page.get_by_role("navigation").get_by_role("button", name="say short").click()
    expect(console.text).to_contain_text("Paris")
    console.menu("Delete conversation")
    page.get_by_role("button", name="Undo").click()
    expect(console.text).to_contain_text("Paris")


def test_nothing_is_said_where_all_is_kept(console):
    expect(console.page.locator("#unkept")).to_be_hidden()


def test_a_full_storage_loses_no_draft_and_no_reply(page, stub):
    page.add_init_script(FULL)
    console = Console(page).open(stub.url)
    console.ask("say short")
    expect(console.text).to_contain_text("Paris")
    console.button("Light or dark").click()


def test_a_conversation_that_cannot_be_kept_is_said(page, stub):
    page.add_init_script(
        "IDBObjectStore.prototype.put = () => { throw new DOMException('no room', 'QuotaExceededError') }"
    )
    console = Console(page).open(stub.url)
    console.ask("say short")
    expect(page.locator("#toast")).to_contain_text("could not keep this conversation")
    expect(console.text).to_contain_text("Paris")


def test_new_conversations_are_kept_after_the_sites_data_was_cleared(console):
    page = console.page
    console.ask("say short")
    origin = {"origin": page.evaluate("origin"), "storageTypes": "all"}
    page.context.new_cdp_session(page).send("Storage.clearDataForOrigin", origin)
    console.button("New conversation").click()
    console.ask("say length")
    page.reload()
    expect(page.locator("#conversations button")).to_have_text(["say length"])
