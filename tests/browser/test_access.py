"""For everyone: axe finds nothing in any state, in both themes; narrow screens, reduced motion, both directions."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from .console import Console


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(browser: Browser, stub, theme):
    context = browser.new_context(color_scheme=theme, bypass_csp=True, reduced_motion="reduce")
    page = context.new_page()
    console = Console(page).open(stub.url)

    def check(state: str) -> None:
        results = Axe().run(page)
        assert results.violations_count == 0, f"{state}: {results.generate_report()}"

    check("empty")
    for scene in ("hello", "say length", "say error", "say think"):
        console.ask(scene)
    check("replies of every kind")
    page.locator("#model").click()
    check("model menu")
    page.keyboard.press("Escape")
    console.button("Settings of this conversation").click()
    check("settings")
    page.keyboard.press("Escape")
    console.button("More").click()
    check("menu")
    page.get_by_role("menuitem", name="Rename").click()
    check("rename")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Edit and branch").last.click()
    check("editor")
    page.keyboard.press("Escape")
    page.locator("#file").set_input_files([{"name": "notes.txt", "mimeType": "text/plain", "buffer": b"notes"}])
    page.get_by_text("Thought process").click()
    page.locator(".monitor summary").last.click()
    console.button("Memory").focus()
    stub.pressure, stub.engine = "critical", "down"
    expect(page.locator("#memory")).to_have_attribute("data-pressure", "critical")
    check("a file, what was folded, memory's breakdown, trouble")
    console.ask("say sliding")
    stub.fail_next = (429, {"Retry-After": "7"}, {"error": {"message": "64 requests wait already."}})
    console.ask("say short")
    check("a full window, a full queue")
    console.send("say endless")
    expect(console.reply).to_contain_text("word2")
    check("streaming")
    console.menu("Reset")
    expect(console.button("Undo")).to_be_visible()
    check("a toast")
    page.set_viewport_size({"width": 360, "height": 700})
    page.locator("#side").click()
    check("drawer")
    stub.key = "secret"
    page.reload()
    expect(page.get_by_role("dialog", name="API key")).to_be_visible()
    check("key")
    context.close()


@pytest.mark.parametrize("width", [320, 768, 1440])
def test_nothing_overflows_the_width(page, stub, width):
    page.set_viewport_size({"width": width, "height": 700})
    console = Console(page).open(stub.url)
    for scene in ("hello, with a first message whose title is longer than the screen is wide", "say error"):
        console.ask(scene)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate("document.getElementById('log').scrollWidth <= document.getElementById('log').clientWidth")
    expect(page.locator("#context-text")).to_be_in_viewport(ratio=1)
    expect(console.button("More")).to_be_in_viewport(ratio=1)


def test_meters_keep_their_names_where_the_words_are_hidden(page, stub):
    page.set_viewport_size({"width": 360, "height": 700})
    Console(page).open(stub.url)
    expect(page.get_by_role("button", name="Memory")).to_be_visible()
    expect(page.get_by_role("meter", name="Context")).to_be_visible()


def test_the_drawer_of_a_narrow_screen_keeps_focus_inside(page, stub):
    page.set_viewport_size({"width": 360, "height": 700})
    console = Console(page).open(stub.url)
    toggle = page.locator("#side")
    expect(toggle).to_have_attribute("aria-expanded", "false")
    toggle.click()
    expect(page.get_by_role("searchbox")).to_be_focused()
    assert page.evaluate("document.getElementById('page').inert")
    page.keyboard.press("Escape")
    expect(toggle).to_have_attribute("aria-expanded", "false")
    expect(toggle).to_be_focused()
    console.ask("say short")


def test_the_theme_is_chosen_and_kept(page, stub):
    """Down to the scrollbars, which Firefox else draws light in the dark."""
    look = """["backgroundColor", "scrollbarColor"].map((name) => getComputedStyle(document.body)[name])"""
    page.emulate_media(color_scheme="light")
    console = Console(page).open(stub.url)
    light = page.evaluate(look)
    console.button("Light or dark").click()
    dark = page.evaluate(look)
    page.reload()
    assert page.evaluate(look) == dark
    assert all(one != other for one, other in zip(light, dark, strict=True))


def test_reduced_motion_is_respected(page, stub):
    page.emulate_media(reduced_motion="reduce")
    console = Console(page).open(stub.url)
    console.send("say endless")
    expect(console.reply).to_contain_text("word1")
    assert page.evaluate("document.getAnimations().length") == 0


def test_right_to_left_text_runs_right_to_left(console):
    console.ask("say rtl")
    directions = console.page.evaluate(
        "[...document.querySelectorAll('.assistant .markdown :is(p, li)')].map((e) => getComputedStyle(e).direction)"
    )
    assert directions == ["rtl", "ltr", "rtl"]


def test_focus_is_visible_everywhere(console):
    """Every stop of the Tab key shows an outline, or a border for the composer."""
    for _ in range(14):
        console.page.keyboard.press("Tab")
        shown = console.page.evaluate(
            """() => {
                const element = document.activeElement;
                if (element === document.body) return true;
                return element.id === "input" || getComputedStyle(element).outlineStyle !== "none";
            }"""
        )
        assert shown, console.page.evaluate("document.activeElement.outerHTML")
