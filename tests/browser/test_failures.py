"""When things go wrong: said in the conversation, nothing lost, a way on."""

import re

from playwright.sync_api import expect


def test_an_engine_crash_keeps_the_text_and_offers_both_ways(console):
    console.ask("say error")
    expect(console.reply).to_contain_text("This reply will not")
    expect(console.reply).to_contain_text("The engine ended with signal 9; the next request starts it again.")
    console.button("Continue").click()
    console.settled()
    expect(console.text).to_have_text("This reply will not never filled.")


def test_a_lost_connection_is_not_taken_for_an_end(console):
    console.ask("say cut")
    expect(console.reply).to_contain_text("The line goes")
    expect(console.reply).to_contain_text("broke off")
    expect(console.button("Retry")).to_be_visible()


def test_a_page_that_stays_after_all_tells_what_failed(console, page):
    """A link to mail, or a download, makes the browser ask whether the page may go."""
    console.send("say late")
    expect(console.reply).to_contain_text("stays a while")
    page.evaluate("dispatchEvent(new Event('beforeunload'))")
    expect(console.reply).to_contain_text("broke off")


def test_a_full_queue_says_when_to_come_back_and_retries(console, stub):
    message = {"error": {"message": "64 requests wait already.", "type": "rate_limit_error"}}
    stub.fail_next = (429, {"Retry-After": "7"}, message)
    console.ask("say short")
    expect(console.reply).to_contain_text(re.compile("64 requests wait already. Try again in [4-7] s."))
    expect(console.monitor).to_contain_text("waited")
    console.button("Retry").click()
    console.settled()
    expect(console.reply).to_contain_text("Paris")
    expect(console.reply.locator(".branches")).to_have_count(0)  # the failed attempt leaves no trace


def test_a_server_that_is_gone_keeps_the_message_and_the_draft(console, stub):
    stub.shutdown()
    stub.server_close()
    console.ask("say short")
    expect(console.reply).to_contain_text("The server does not answer")
    expect(console.page.locator("#engine-text")).to_have_text("Server gone")
    console.input.fill("a draft")
    expect(console.button("Retry")).to_be_visible()
    assert console.page.evaluate("Object.values(localStorage).includes('a draft')")


def test_a_context_error_is_said_in_the_servers_words(console, stub):
    error = {"message": "5,000 tokens do not fit the window of 4,096.", "code": "context_length_exceeded"}
    stub.fail_next = (400, {}, {"error": error})
    console.ask("say short")
    expect(console.reply).to_contain_text("5,000 tokens do not fit the window of 4,096.")


LATE_REFUSAL = """
const ask = fetch;
let late = 0;
fetch = async (path, what) => {
  const answer = await ask(path, what);
  if (path === "/v1/models" && what.headers.Authorization === "Bearer wrong" && late++)
    await new Promise((then) => addEventListener("let-go", then));
  return answer;
};
"""


def test_a_refusal_of_an_earlier_key_does_not_ask_for_the_one_just_given(page, stub):
    """The list of models is asked for twice at first: by the page, and by the meters that find the engine locked."""
    stub.key = "secret-1"
    page.add_init_script(LATE_REFUSAL)
    page.goto(stub.url)
    dialog = page.get_by_role("dialog", name="API key")
    for key in ("wrong", "secret-1"):
        dialog.get_by_label("Key", exact=True).fill(key)
        with page.expect_response("**/v1/models"):
            dialog.get_by_label("Key", exact=True).press("Enter")
    expect(page.locator("#model-name")).to_have_text("smollm2-135m-moe8")
    with page.expect_response("**/v1/models"):
        page.evaluate("dispatchEvent(new Event('let-go'))")
    expect(dialog).to_be_hidden()
    expect(page.get_by_role("textbox", name="Message", exact=True)).to_be_focused()


def test_the_focus_goes_to_where_one_writes_if_nothing_had_it(console):
    """As in a browser where a click gives a button no focus."""
    console.page.evaluate("document.activeElement.blur(); document.getElementById('tune').click()")
    console.page.get_by_label("Temperature").press("Escape")
    expect(console.input).to_be_focused()


def test_the_key_is_asked_for_and_stays_out_of_urls(page, stub):
    stub.key = "secret-1"
    urls = []
    page.on("request", lambda request: urls.append(request.url))
    page.goto(stub.url)
    dialog = page.get_by_role("dialog", name="API key")
    expect(page.locator("#about")).to_contain_text("An API key is needed")
    expect(dialog.get_by_role("alert")).to_be_hidden()
    dialog.get_by_label("Key", exact=True).fill("wrong")
    dialog.get_by_role("button", name="Use key").click()
    expect(dialog.get_by_role("alert")).to_have_text("This server needs an API key.")
    expect(dialog.get_by_label("Key", exact=True)).to_have_value("")
    dialog.get_by_label("Key", exact=True).fill("secret-1")
    dialog.get_by_label("Key", exact=True).press("Enter")
    expect(page.locator("#model-name")).to_have_text("smollm2-135m-moe8")
    expect(page.get_by_role("textbox", name="Message", exact=True)).to_be_focused()
    assert page.evaluate("[sessionStorage['smoe.key'], localStorage['smoe.key']]") == ["secret-1", None]
    assert not any("secret-1" in url for url in urls)
    assert "secret-1" in stub.keys
