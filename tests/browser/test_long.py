"""What a long reply and a long conversation cost."""

import json

from playwright.sync_api import expect

# Playwright's own queries run in the page's thread too, and cost more as it grows: the page plays by itself.
PLAY = """async ([text, turns]) => {
    const [input, send] = [document.getElementById("input"), document.getElementById("send")];
    const idle = () => new Promise((done) => {
        new MutationObserver((_, observer) => {
            window.early ??= document.querySelector(".assistant .markdown > p:nth-of-type(2)");
            if (!send.title.startsWith("Send")) return;
            observer.disconnect();
            done();
        }).observe(document.body, {subtree: true, childList: true, attributes: true});
    });
    for (; turns; turns--) {
        input.value = text;
        const ended = idle();
        send.click();
        await ended;
    }
}"""
LONGEST_TASK = 50_000  # microseconds of the page's own processor time: other load on the machine does not count


def tasks(trace: bytes) -> list[int]:
    """Processor time of each task of the page's main thread, in microseconds."""
    events = json.loads(trace)["traceEvents"]
    main = {(e["pid"], e["tid"]) for e in events if e.get("args", {}).get("name") == "CrRendererMain"}
    return [e["tdur"] for e in events if e["name"].endswith("RunTask") and (e["pid"], e["tid"]) in main and "tdur" in e]


def test_four_thousand_tokens_stream_in_short_tasks_without_flicker(browser, console):
    page = console.page
    browser.start_tracing(page=page, categories=["toplevel", "disabled-by-default-devtools.timeline", "__metadata"])
    page.evaluate(PLAY, ["say long", 1])
    spent = sorted(tasks(browser.stop_tracing()))
    print("longest tasks, us:", spent[-5:], "of", len(spent))
    assert spent[-1] < LONGEST_TASK
    expect(console.monitor).to_contain_text("4,000 tokens")
    assert page.evaluate("early.isConnected")  # closed blocks are never made again
    expect(console.text.locator(".code")).to_have_count(100)


def test_fifty_turns_leave_nothing_behind(console):
    """Detached nodes and listeners of finished turns must be gone: what stays grows with the text only."""
    session = console.page.context.new_cdp_session(console.page)

    def figures() -> dict[str, float]:
        for _ in range(4):  # what one collection sets free another finds, and what timers held is free after them
            session.send("HeapProfiler.collectGarbage")
            console.page.wait_for_timeout(200)
        metrics = session.send("Performance.getMetrics")["metrics"]
        return {m["name"]: m["value"] for m in metrics}

    session.send("Performance.enable")
    console.page.evaluate(PLAY, ["say short", 10])
    early = figures()
    console.page.evaluate(PLAY, ["say short", 40])
    late = figures()
    print({name: (early[name], late[name]) for name in ("Nodes", "JSEventListeners", "JSHeapUsedSize")})
    assert late["Nodes"] - early["Nodes"] < 40 * 160
    assert late["JSEventListeners"] - early["JSEventListeners"] < 40 * 7  # a turn has six buttons
    assert late["JSHeapUsedSize"] - early["JSHeapUsedSize"] < 40 * 40_000
