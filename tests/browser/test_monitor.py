"""Honest time: what the lines and meters say while a reply is waited for."""

import re

import pytest
from playwright.sync_api import expect

from .console import NO_FLEET


def test_queue_position_is_told(console):
    console.send("say queued")
    expect(console.monitor).to_contain_text("Queued, position 3")
    expect(console.monitor).to_contain_text("Queued, position 1")
    console.settled()
    expect(console.monitor).to_contain_text("7 tokens")


def test_switching_is_announced_and_shows_the_boot(console, stub):
    page = console.page
    console.ask("say short")
    page.locator("#model").click()
    entry = page.get_by_role("menuitemradio", name="qwen3-30b-a3b")
    expect(entry).to_contain_text("Q4")
    expect(entry).to_contain_text("17.5 GB")
    expect(entry).to_contain_text("fits memory")
    assert entry.get_attribute("title") == "Shattered from Qwen/Qwen3-30B-A3B on 2026-11-12."
    expect(page.get_by_role("menuitemradio", name="glm-4.6-air")).to_contain_text("streams from disk")
    expect(page.get_by_role("menuitemradio", name="smollm2")).to_contain_text("active")
    entry.click()
    expect(page.locator(".note")).to_contain_text("pays the cold boot")
    console.send("say boot")
    expect(console.monitor).to_have_text(re.compile(r"^Booting qwen3-30b-a3b · [\d.]+ s$"))
    expect(page.locator("#context-text")).to_have_text("27 / 4,096")  # the last that is known
    console.settled()
    assert [request["model"] for request in stub.requests] == ["smollm2-135m-moe8", "qwen3-30b-a3b"]
    expect(page.locator(".note")).to_have_text("Switched to qwen3-30b-a3b: its first reply pays the cold boot.")
    console.reply.locator(".monitor summary").click()
    expect(console.reply.locator(".monitor .boot dd")).to_have_text("2.1 s")
    expect(console.reply.locator(".monitor .stall dd")).to_have_text("0.21 s, 11% of prefill and decode")


def test_a_switch_that_was_made_is_not_announced_again_before_the_fleet_is_read(console):
    page = console.page
    page.locator("#model").click()
    page.get_by_role("menuitemradio", name="qwen3-30b-a3b").click()
    page.evaluate(NO_FLEET)
    console.ask("say boot")
    expect(page.locator(".note")).to_have_text(["Switched to qwen3-30b-a3b: its first reply pays the cold boot."])


def test_an_engine_that_is_down_leaves_no_vault_for_another(console, stub):
    console.ask("say short")
    stub.models = [model | {"active": False} for model in stub.models]
    console.page.reload()
    expect(console.page.get_by_role("menuitemradio", include_hidden=True)).to_have_count(3)
    expect(console.page.locator(".note")).to_have_count(0)
    console.ask("say short")
    expect(console.page.locator(".note")).to_have_count(0)


def test_twenty_seconds_of_prefill_show_progress_and_can_be_stopped(console, stub):
    console.send("say slow")
    expect(console.monitor).to_contain_text("Prefilling 1,344 of 4,096 · warm, 1,200 cached")
    expect(console.monitor).to_contain_text("Prefilling 1,488 of 4,096")
    expect(console.page.locator("#context-text")).to_have_text("4,096 / 4,096")
    console.button("Stop (Esc)").click()
    console.settled()
    expect(console.monitor).to_contain_text(re.compile(r"^prefilled 1,\d+ of 4,096 · warm, 1,200 cached"))
    assert stub.hangups.acquire(timeout=30)


def test_a_stopped_reply_counts_every_token_it_got(console):
    console.send("say clusters")
    expect(console.text).to_contain_text("four")
    console.page.keyboard.press("Escape")
    console.settled()
    expect(console.monitor).to_contain_text(re.compile("^4 tokens"))


def test_the_engines_memory_is_told_in_a_unit_that_shows_it(console):
    console.button("Memory").focus()
    expect(console.page.get_by_role("tooltip")).to_contain_text("trunk103 MiB")


def test_ring_and_disk_are_shown_while_decoding(console):
    console.send("say endless")
    expect(console.monitor).to_contain_text("ring 97%")
    expect(console.monitor).to_contain_text("MB/s")
    console.page.keyboard.press("Escape")


def test_the_window_is_told_once_when_it_slides(console):
    console.ask("say sliding")
    expect(console.page.locator("#context")).to_have_class("amber")
    expect(console.page.locator(".note")).to_contain_text("The window of 4,096 tokens is full")
    console.ask("say sliding")
    expect(console.page.locator(".note")).to_have_count(1)


@pytest.mark.parametrize("pressure", ["normal", "critical"])
def test_memory_is_coloured_by_pressure(page, stub, pressure):
    stub.pressure = pressure
    page.goto(stub.url)
    memory = page.get_by_role("button", name="Memory")
    expect(memory).to_have_text("Memory 9.1 / 24.0 GiB")
    expect(memory).to_have_attribute("data-pressure", pressure)
    memory.focus()
    expect(page.get_by_role("tooltip")).to_contain_text("Engine's resident set")


def test_the_engine_light_follows_the_engine(console, stub):
    expect(console.page.locator("#engine-text")).to_have_text("Engine up")
    stub.engine = "down"
    expect(console.page.locator("#engine-text")).to_have_text("Engine down")


def test_announcements_tell_states_and_not_tokens(console):
    console.page.evaluate(
        """() => {
            window.said = [];
            new MutationObserver(() => said.push(document.getElementById("announcer").textContent))
                .observe(document.getElementById("announcer"), {childList: true, characterData: true, subtree: true});
        }"""
    )
    console.ask("hello")
    said = console.page.evaluate("said")
    assert said[-1] == "Reply finished, 211 tokens"
    assert len(said) <= 5


def test_the_demo_says_what_it_is(console):
    expect(console.page.locator("#about")).to_contain_text("a small dense model re-expressed")
