"""Sending, streaming, stopping, branching: a conversation as people expect it."""

from playwright.sync_api import expect

from .console import Console

MOD = "ControlOrMeta"


def test_streams_a_reply_and_tells_its_exact_counts(console, stub):
    console.send("hello")
    expect(console.reply.locator("strong").first).to_have_text("router")  # rendered while the rest is on its way
    expect(console.button("Stop (Esc)")).to_be_visible()
    console.settled()
    expect(console.monitor).to_contain_text("211 tokens · 168.8 tok/s")
    expect(console.monitor).to_contain_text("prompt 1,240, warm, 300 cached")
    expect(console.reply.locator(".finish")).to_have_text("finished")
    assert not stub.hangups.acquire(blocking=False)


def test_sends_the_whole_history_and_only_set_options(console, stub):
    console.ask("say short")
    console.ask("and again?")
    assert [(m["role"], m["content"]) for m in stub.requests[1]["messages"]] == [
        ("user", "say short"),
        ("assistant", "The capital of France is Paris."),
        ("user", "and again?"),
    ]
    extra = set(stub.requests[0]) - {"model", "messages", "stream", "stream_options", "return_progress"}
    assert extra == set()
    assert stub.requests[0]["stream_options"] == {"include_usage": True}


def test_settings_belong_to_the_conversation(console, stub):
    console.button("Settings of this conversation").click()
    console.page.get_by_label("System prompt").fill("Be brief.")
    console.page.get_by_label("Temperature").fill("0")
    console.page.get_by_label("Longest reply").fill("99")
    console.page.get_by_label("Longest reply").press("Enter")
    console.button("Settings of this conversation").click()
    console.page.get_by_label("System prompt").fill("Be long.")
    console.button("Cancel").click()
    console.ask("say short")
    assert stub.requests[0]["messages"][0] == {"role": "system", "content": "Be brief."}
    assert (stub.requests[0]["temperature"], stub.requests[0]["max_tokens"]) == (0, 99)
    console.button("New conversation").click()
    console.ask("say short")
    assert "temperature" not in stub.requests[1]
    assert stub.requests[1]["messages"][0]["role"] == "user"


def test_stop_hangs_up_and_keeps_what_came(console, stub):
    console.send("say endless")
    expect(console.reply).to_contain_text("word5")
    console.page.keyboard.press("Escape")
    console.settled()
    expect(console.reply).to_contain_text("Stopped.")
    expect(console.reply).to_contain_text("word5")
    assert stub.hangups.acquire(timeout=30)


def test_length_stands_out_and_continues_in_place(console, stub):
    console.ask("say length")
    expect(console.reply.locator(".finish")).to_have_text("length")
    expect(console.reply).to_contain_text("reached its length limit")
    console.button("Continue").click()
    console.settled()
    assert stub.requests[1]["messages"][-1] == {"role": "assistant", "content": "Once there was a ring of slots that"}
    expect(console.text).to_have_text("Once there was a ring of slots that never filled.")
    expect(console.reply.locator(".monitor")).to_have_count(2)
    expect(console.button("Continue")).to_have_count(0)


def test_regenerate_makes_a_branch_to_go_back_from(console, stub):
    console.ask("say short")
    console.reply.get_by_role("button", name="Regenerate").click()
    console.settled()
    expect(console.reply.locator(".branches")).to_have_text("2 / 2")
    assert stub.requests[1]["messages"] == stub.requests[0]["messages"]
    console.reply.get_by_role("button", name="Previous version").click()
    expect(console.reply.locator(".branches")).to_have_text("1 / 2")


def test_edit_branches_and_both_branches_live_on(console, stub):
    console.ask("say short")
    console.ask("the second")
    first = console.page.get_by_role("article", name="You").first
    first.hover()
    first.get_by_role("button", name="Edit and branch").click()
    area = first.get_by_role("textbox", name="Edit message")
    area.fill("say length")
    area.press("Enter")
    console.settled()
    expect(console.messages).to_have_count(2)
    assert [m["content"] for m in stub.requests[-1]["messages"]] == ["say length"]
    console.page.get_by_role("article", name="You").first.hover()
    console.button("Previous version").click()
    expect(console.messages).to_have_count(4)


def test_delete_can_be_undone(console):
    console.ask("say short")
    console.ask("say length")
    console.page.get_by_role("article", name="You").last.hover()
    console.page.get_by_role("article", name="You").last.get_by_role("button", name="Delete message").click()
    expect(console.messages).to_have_count(2)
    console.button("Undo").click()
    expect(console.messages).to_have_count(4)


def test_thinking_is_folded(console):
    console.ask("say think")
    thought = console.reply.locator(".thinking")
    assert thought.get_attribute("open") is None
    thought.locator("summary").click()
    expect(thought.locator("strong")).to_have_text("always")
    expect(console.text).to_have_text("2 + 2 = 4.")


def test_a_dropped_text_file_is_sent_with_the_message(console, stub):
    console.page.evaluate(
        """() => {
            const data = new DataTransfer();
            data.items.add(new File(["alpha\\n```\\nbeta"], "notes.txt", {type: "text/plain"}));
            data.items.add(new File([new Uint8Array([0, 1, 2])], "image.bin"));
            dispatchEvent(new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true}));
        }"""
    )
    expect(console.page.locator("#files")).to_have_text("notes.txt")
    expect(console.page.locator("#toast")).to_have_text("image.bin is not a text file.")
    console.ask("what is in it?")
    content = stub.requests[0]["messages"][0]["content"]
    assert content == "File notes.txt:\n````\nalpha\n```\nbeta\n````\n\nwhat is in it?"


def test_copy_gives_the_source(console):
    console.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    console.ask("hello")
    console.reply.get_by_role("button", name="Copy code").click()
    assert console.page.evaluate("navigator.clipboard.readText()").startswith("def route(scores, k=2):\n    # The")
    console.reply.get_by_role("button", name="Copy message").click()
    assert "| Trunk | memory | 108 MB |" in console.page.evaluate("navigator.clipboard.readText()")


def test_what_cannot_be_copied_is_not_called_copied(console):
    console.page.evaluate("navigator.clipboard.writeText = async () => { throw 0 }; document.execCommand = () => false")
    console.ask("hello")
    console.reply.get_by_role("button", name="Copy message").click()
    expect(console.page.locator("#toast")).to_contain_text("Not copied")


def test_what_is_written_while_the_page_loads_is_kept_and_sent(page, stub):
    page.route("**/app.js", lambda route: (page.wait_for_timeout(1000), route.continue_()))
    page.goto(stub.url, wait_until="commit")
    console = Console(page)
    console.input.fill("early")
    console.button("Send (Enter)").click()
    console.settled()
    expect(console.text).not_to_be_empty()
    assert stub.requests[0]["messages"][-1]["content"] == "early"


def test_all_of_it_by_keyboard(console, stub):
    page = console.page
    expect(console.input).to_be_focused()
    page.keyboard.type("line one")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("line two")
    page.keyboard.press("Enter")
    console.settled()
    assert stub.requests[0]["messages"][0]["content"] == "line one\nline two"
    console.button("smollm2").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("menuitemradio", checked=True)).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("#model-name")).to_have_text("qwen3-30b-a3b")
    page.keyboard.press(f"{MOD}+k")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.press(f"{MOD}+Shift+O")
    expect(console.messages).to_have_count(0)
    expect(console.input).to_be_focused()


def test_focus_stays_where_it_was_when_a_message_is_made_anew(console):
    console.ask("say short")
    for _ in range(2):
        console.reply.get_by_role("button", name="Regenerate").press("Enter")
        console.settled()
    expect(console.reply.locator(".branches")).to_have_text("3 / 3")
    console.reply.get_by_role("button", name="Previous version").press("Enter")
    expect(console.reply.locator(".branches")).to_have_text("2 / 3")
    expect(console.reply.get_by_role("button", name="Previous version")).to_be_focused()
