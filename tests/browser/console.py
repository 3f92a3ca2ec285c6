"""What a person does at the console, by the names that a screen reader would say."""

from __future__ import annotations

from playwright.sync_api import Locator, Page, expect

# A page whose list of vaults never comes.
NO_FLEET = """fetch = ((ask) => (path, what) => path === "/v1/models" ? new Promise(() => {}) : ask(path, what))(fetch);
undefined"""


class Console:
    def __init__(self, page: Page):
        self.page = page

    def open(self, url: str) -> Console:
        self.page.goto(url)
        expect(self.page.locator("#engine-text")).not_to_have_text("Connecting")
        return self

    @property
    def input(self) -> Locator:
        return self.page.get_by_role("textbox", name="Message", exact=True)

    @property
    def messages(self) -> Locator:
        return self.page.get_by_role("article")

    @property
    def reply(self) -> Locator:
        """The newest one."""
        return self.page.get_by_role("article", name="Reply").last

    @property
    def text(self) -> Locator:
        """What the newest reply says, without its thinking."""
        return self.reply.locator(".body > .markdown")

    @property
    def monitor(self) -> Locator:
        return self.reply.locator(".monitor .line").last

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name)

    def send(self, text: str) -> None:
        self.input.fill(text)
        expect(self.button("Send (Enter)")).to_be_enabled()
        self.input.press("Enter")

    def ask(self, text: str) -> Locator:
        """Sends and waits for the end of the reply."""
        expect(self.button("Send (Enter)")).to_be_enabled()
        before = self.page.get_by_role("article", name="Reply").count()
        self.send(text)
        expect(self.page.get_by_role("article", name="Reply")).to_have_count(before + 1)
        self.settled()
        return self.reply

    def settled(self) -> None:
        expect(self.button("Send (Enter)")).to_be_visible(timeout=60_000)

    def menu(self, entry: str) -> None:
        self.button("More").click()
        self.page.get_by_role("menuitem", name=entry).click()
