"""Conversations in the browser: kept, found, moved, and never confused by a second tab."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import expect

from .console import NO_FLEET, Console


def titles(console):
    return console.page.locator("#conversations button")


SLOW_READING = """(slow) => Object.defineProperty(IDBRequest.prototype, "onsuccess", { set(then) {
    const reads = this.transaction?.mode === "readonly";
    this.addEventListener("success", (event) => {
        const wait = reads ? slow[this.result?.title] : 0;
        wait ? setTimeout(() => then.call(this, event), wait) : then.call(this, event);
    });
} })"""


def read_slowly(console, **milliseconds):
    """A browser whose database takes its time for the conversations of these titles, now and after a reload."""
    slow = json.dumps({title.replace("_", " "): wait for title, wait in milliseconds.items()})
    for patch in (console.page.evaluate, console.page.add_init_script):
        patch(f"({SLOW_READING})({slow})")


def test_a_reload_keeps_conversation_and_draft(console):
    console.ask("say short")
    console.input.fill("not sent yet")
    console.page.reload()
    expect(console.messages).to_have_count(2)
    expect(console.reply).to_contain_text("Paris")
    expect(console.reply.locator(".finish")).to_have_text("finished")
    expect(console.input).to_have_value("not sent yet")


def test_a_draft_written_while_the_first_message_is_kept_stays_with_its_conversation(page, stub):
    page.add_init_script("""Object.defineProperty(IDBOpenDBRequest.prototype, "onsuccess", { set(then) {
        this.addEventListener("success", (event) => setTimeout(() => then.call(this, event), 1000));
    } })""")
    console = Console(page).open(stub.url)
    console.send("say short")
    console.input.fill("not sent yet")
    expect(titles(console)).to_have_text(["say short"])
    page.reload()
    expect(console.input).to_have_value("not sent yet")
    console.button("New conversation").click()
    expect(console.input).to_have_value("")


def test_a_message_sent_before_the_fleet_is_known_goes_to_the_vault_that_was_chosen(console, stub):
    console.ask("say short")
    console.page.locator("#model").click()
    console.page.get_by_role("menuitemradio", name="qwen3-30b-a3b").click()
    console.ask("say short")
    console.page.add_init_script(NO_FLEET)
    console.page.reload()
    expect(console.messages).to_have_count(4)
    console.ask("say short")
    assert stub.requests[-1]["model"] == "qwen3-30b-a3b"


def test_what_is_sent_while_a_conversation_opens_goes_into_it(console, stub):
    """From a browser whose database is slow, before any word of the server: by the button, and by the form."""
    console.ask("say short")
    read_slowly(console, say_short=500)
    console.page.add_init_script(
        "fetch = ((ask) => (...what) => new Promise((then) => setTimeout(() => then(ask(...what)), 1000)))(fetch)"
    )
    console.page.reload(wait_until="domcontentloaded")
    console.input.fill("and then?")
    console.input.press("Enter")
    expect(console.messages).to_have_count(2)
    console.button("Send (Enter)").click()
    console.settled()
    expect(console.messages).to_have_count(4)
    assert [message["content"] for message in stub.requests[-1]["messages"]][0::2] == ["say short", "and then?"]


def test_a_reload_in_mid_stream_keeps_the_part_that_came(console):
    console.send("say endless")
    expect(console.reply).to_contain_text("word12")
    console.page.reload()
    expect(console.reply).to_contain_text("word12")
    expect(console.reply).to_contain_text("Interrupted")
    console.button("Continue").click()
    console.settled()
    expect(console.reply).to_contain_text("never filled.")


def test_an_interrupted_reply_is_read_where_the_browser_has_no_room(console):
    console.send("say endless")
    expect(console.reply).to_contain_text("word12")
    console.page.add_init_script(
        "IDBObjectStore.prototype.put = () => { throw new DOMException('full', 'QuotaExceededError') }"
    )
    console.page.reload()
    expect(console.reply).to_contain_text("Interrupted")
    expect(console.page.locator("#toast")).to_contain_text("could not keep this conversation (full)")


def test_a_browser_that_ends_requests_before_the_page_is_left_tells_no_error(console):
    """WebKit does, between `beforeunload` and `pagehide`; what came before is kept."""
    console.page.evaluate("""fetch = ((ask) => async (...what) => {
        const answer = await ask(...what);
        if (!what[0].endsWith("completions")) return answer;
        const tap = new TransformStream({ start(controller) { addEventListener("cut", () => controller.error()) } });
        return new Response(answer.body.pipeThrough(tap));
    })(fetch); undefined""")
    console.send("say endless")
    expect(console.reply).to_contain_text("word3")
    console.page.evaluate("dispatchEvent(new Event('beforeunload')); dispatchEvent(new Event('cut'))")
    console.settled()
    expect(titles(console)).to_have_text(["say endless"])
    console.page.reload()
    expect(console.text).to_contain_text("word3")
    expect(console.reply.locator(".card")).to_contain_text("Interrupted")


def test_a_reply_goes_on_while_another_conversation_is_read(console):
    console.send("say endless")
    expect(console.reply).to_contain_text("word1")
    console.button("New conversation").click()
    expect(console.page.get_by_role("img", name="replying")).to_be_visible()
    console.ask("say short")
    titles(console).filter(has_text="say endless").click()
    expect(console.button("Stop (Esc)")).to_be_visible()
    expect(console.reply).to_contain_text("word20")


def test_the_list_keeps_focus_and_clicks_while_a_reply_grows(console):
    """The conversation is kept every second, and the list looked at again."""
    console.ask("say short")
    console.button("New conversation").click()
    console.send("say endless")
    expect(console.reply).to_contain_text("word1")
    short = titles(console).filter(has_text="say short")
    short.focus()
    short.hover()
    console.page.mouse.down()
    expect(console.reply).to_contain_text("word50")
    expect(short).to_be_focused()
    console.page.mouse.up()
    expect(console.text).to_contain_text("Paris")
    titles(console).filter(has_text="say endless").click()
    short.focus()
    console.page.keyboard.press("Escape")
    expect(console.page.get_by_role("img", name="replying")).to_have_count(0)
    expect(short).to_be_focused()


def test_a_click_that_began_before_the_list_changed_still_counts(console):
    console.ask("say short")
    console.button("New conversation").click()
    console.send("say endless")
    expect(console.page.get_by_role("img", name="replying")).to_be_visible()
    titles(console).filter(has_text="say short").hover()
    console.page.mouse.down()
    console.page.keyboard.press("Escape")
    console.settled()
    console.page.wait_for_timeout(500)
    console.page.mouse.up()
    expect(console.text).to_contain_text("Paris")
    expect(console.page.get_by_role("img", name="replying")).to_have_count(0)


def test_escape_stops_the_reply_of_a_conversation_that_was_just_opened(console):
    console.ask("say short")
    console.button("New conversation").click()
    console.send("say endless")
    expect(console.reply).to_contain_text("word1")
    titles(console).filter(has_text="say short").click()
    expect(console.text).to_contain_text("Paris")
    read_slowly(console, say_endless=2000)
    titles(console).filter(has_text="say endless").click()
    console.page.keyboard.press("Escape")
    expect(console.reply).to_contain_text("Stopped.")


def test_the_conversation_that_was_chosen_last_is_the_one_that_opens(console):
    for text in ("say short", "say markdown", "say length"):
        console.ask(text)
        console.button("New conversation").click()
    read_slowly(console, say_short=1500, say_length=700)
    for text in ("say short", "say length", "say markdown"):
        titles(console).filter(has_text=text).click()
    expect(console.page.locator("#title")).to_have_text("say markdown")
    console.page.wait_for_timeout(2000)
    expect(console.page.locator("#title")).to_have_text("say markdown")


def test_another_tabs_message_stays_in_its_conversation(console, stub):
    """Whose word comes while this tab reads it and goes on to another conversation."""
    console.ask("say short")
    other = Console(console.page.context.new_page()).open(console.page.url)
    expect(other.text).to_contain_text("Paris")
    read_slowly(console, say_short=1500)
    other.send("say endless")
    expect(other.reply).to_contain_text("word1")
    console.button("New conversation").click()
    console.page.wait_for_timeout(2000)
    expect(console.messages).to_have_count(0)
    console.ask("say length")
    assert [message["content"] for message in stub.requests[-1]["messages"]] == ["say length"]


def test_a_conversation_that_is_deleted_in_mid_reply_can_come_back(console):
    console.send("say endless")
    expect(console.reply).to_contain_text("word30")
    console.menu("Delete conversation")
    expect(console.page.locator("#announcer")).to_contain_text("Reply stopped")
    expect(titles(console)).to_have_count(0)
    expect(console.page.locator("#toast")).to_contain_text("Conversation deleted.")
    console.button("Undo").click()
    expect(console.reply).to_contain_text("Stopped.")


def test_rename_search_delete_and_undo(console):
    console.ask("say short")
    console.menu("Rename")
    console.page.get_by_label("Title").fill("Capitals")
    console.page.get_by_label("Title").press("Enter")
    console.button("New conversation").click()
    console.ask("say length")
    expect(titles(console)).to_have_text(["say length", "Capitals"])
    console.page.get_by_role("searchbox").fill("paris")  # stands in a reply only
    expect(titles(console)).to_have_text(["Capitals"])
    console.page.get_by_role("searchbox").fill("")
    console.menu("Delete conversation")
    expect(titles(console)).to_have_text(["Capitals"])
    console.button("Undo").click()
    expect(titles(console)).to_have_count(2)


def test_reset_empties_and_keeps_the_conversation(console):
    console.ask("say short")
    console.menu("Reset")
    expect(console.messages).to_have_count(0)
    console.button("Undo").click()
    expect(console.messages).to_have_count(2)


def test_export_and_import_are_each_others_inverse(console, tmp_path: Path):
    console.ask("say short")
    with console.page.expect_download() as download:
        console.button("Export all").click()
    file = tmp_path / "all.json"
    download.value.save_as(file)
    assert [node["text"] for node in json.loads(file.read_text())[0]["nodes"].values()] == [
        "say short",
        "The capital of France is Paris.",
    ]
    console.menu("Delete conversation")
    expect(titles(console)).to_have_count(0)
    console.page.locator("#import-file").set_input_files(file)
    titles(console).first.click()
    expect(console.reply).to_contain_text("Paris")


NODE = {"id": "b", "parent": None, "role": "user", "text": "x"}
WHOLE = {"id": "a", "title": "", "system": "", "model": "", "sampling": {}, "leaf": "b", "nodes": {"b": NODE}}
WRONG = {
    "another shape": {"messages": []},
    "a branch that runs in a circle": WHOLE | {"nodes": {"b": NODE | {"parent": "b"}}},
    "a role that does not exist": WHOLE | {"nodes": {"b": NODE | {"role": "<b>"}}},
    "a text that is none": WHOLE | {"nodes": {"b": NODE | {"text": {"length": 1}}}},
    "a leaf that is nowhere": WHOLE | {"leaf": "c"},
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_file_is_refused_whole(console, tmp_path: Path, kind):
    file = tmp_path / "other.json"
    file.write_text(json.dumps([WHOLE, WRONG[kind]]))
    console.page.locator("#import-file").set_input_files(file)
    expect(console.page.locator("#toast")).to_have_text("That file holds no conversations of this console.")
    expect(titles(console)).to_have_count(0)


def second_tab(console: Console) -> Console:
    other = Console(console.page.context.new_page()).open(console.page.url)
    expect(other.messages).to_have_count(console.messages.count())
    return other


def test_two_tabs_see_each_others_messages(console):
    console.ask("say short")
    other = second_tab(console)
    expect(other.reply).to_contain_text("Paris")
    other.ask("say length")
    expect(console.messages).to_have_count(4)
    console.ask("say think")
    expect(other.messages).to_have_count(6)


def test_a_second_tab_neither_interrupts_nor_answers_a_running_reply(console):
    console.send("say endless")
    expect(console.reply).to_contain_text("word3")
    other = second_tab(console)
    expect(other.page.locator(".note")).to_have_text("Another tab is answering this conversation.")
    expect(other.reply).to_contain_text("word")
    expect(other.page.get_by_text("Interrupted")).to_have_count(0)
    console.page.keyboard.press("Escape")
    expect(other.page.locator(".note")).to_have_count(0)
    expect(other.reply).to_contain_text("Stopped.")


def test_a_conversation_deleted_elsewhere_stays_deleted(console):
    console.ask("say short")
    other = second_tab(console)
    other.menu("Delete conversation")
    expect(console.messages).to_have_count(0)
    expect(titles(console)).to_have_count(0)


def test_a_reply_whose_tab_was_closed_is_interrupted(console):
    other = second_tab(console)
    other.send("say endless")
    expect(other.reply).to_contain_text("word3")
    console.page.goto(other.page.url)
    console.page.reload()
    expect(console.page.locator(".note")).to_have_text("Another tab is answering this conversation.")
    other.page.close()
    expect(console.reply).to_contain_text("Interrupted")
    expect(console.button("Continue")).to_be_visible()


def test_a_reply_that_ended_is_whole_though_the_page_is_left_before_it_is_kept(console):
    """A transaction that a browser breaks off with the page: the database takes nothing after the first second."""
    console.send("say endless")
    expect(titles(console)).to_have_text(["say endless"])
    expect(console.reply).to_contain_text("word40")
    console.page.evaluate("IDBObjectStore.prototype.put = () => new EventTarget()")
    console.page.keyboard.press("Escape")
    expect(console.reply).to_contain_text("Stopped.")
    text = console.text.text_content()
    console.page.reload()
    expect(console.reply).to_contain_text("Stopped.")
    expect(console.text).to_have_text(text)


def test_the_list_shows_what_was_read_last(console):
    """Not what an earlier reading of the database brought later."""
    console.ask("say short")
    console.page.evaluate("""window.early = 1; Object.defineProperty(IDBRequest.prototype, "onsuccess", { set(then) {
        this.addEventListener("success", (event) => {
            const late = Array.isArray(this.result) && early-- > 0;
            late ? setTimeout(() => then.call(this, event), 1000) : then.call(this, event);
        });
    } })""")
    console.page.get_by_role("searchbox").fill("nothing")
    console.page.get_by_role("searchbox").fill("")
    console.page.wait_for_timeout(1500)
    expect(titles(console)).to_have_text(["say short"])
