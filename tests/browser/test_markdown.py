"""Markdown: right, the same however it arrives, cheap while it grows, and never live."""

import random

import pytest
from playwright.sync_api import expect

RENDER = """async ([chunks, every]) => {
    const { Markdown } = await import("/static/console/markdown.js");
    const markdown = new Markdown();
    let text = "";
    for (const chunk of chunks) markdown.update(text += chunk);
    for (const element of markdown.element.querySelectorAll("*"))
        for (const name of every ? [] : ["dir", "title", "target", "rel"]) element.removeAttribute(name);
    return markdown.element.innerHTML;
}"""

# After the examples of the CommonMark and GFM specifications, with headings ranked for the page and line breaks kept.
CASES = {
    "emphasis": ("*a* **b** ***c*** _d_ ~~e~~", 
        "<p><em>a</em> <strong>b</strong> <strong><em>c</em></strong> <em>d</em> <del>e</del></p>"),
    "nested": ("**bold *and it***", "<p><strong>bold <em>and it</em></strong></p>"),
    "not emphasis": ("2 * 3 * 4 snake_case_name a**", "<p>2 * 3 * 4 snake_case_name a**</p>"),
    "code span": ("`` a`b `` and `*c*`", "<p><code>a`b</code> and <code>*c*</code></p>"),
    "code hides marks": ("*a `*` b*", "<p><em>a <code>*</code> b</em></p>"),
    "escape": (r"\*no\* &amp; &lt;", "<p>*no* &amp; &lt;</p>"),
    "heading": ("## Two ##\ntext", '<h2 class="level2">Two</h2><p>text</p>'),
    "C sharp": ("# C#", '<h2 class="level1">C#</h2>'),
    "headings skip no rank": ("### a\n# b\n### c\n### d\n## e", '<h2 class="level3">a</h2><h2 class="level1">b</h2>'
        '<h3 class="level3">c</h3><h3 class="level3">d</h3><h3 class="level2">e</h3>'),
    "breaks": ("a\nb", "<p>a<br>b</p>"),
    "rule": ("a\n\n---\n\nb", "<p>a</p><hr><p>b</p>"),
    "list": ("- a\n- b\n  - c\n- d", "<ul><li>a</li><li>b<ul><li>c</li></ul></li><li>d</li></ul>"),
    "ordered": ("3. a\n4. b", '<ol start="3"><li>a</li><li>b</li></ol>'),
    "loose": ("- a\n\n- b", "<ul><li><p>a</p></li><li><p>b</p></li></ul>"),
    "quote": ("> a\n> > b", "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote>"),
    "link": ("[a](https://x.org/b_(c) \"t\")", '<p><a href="https://x.org/b_(c)">a</a></p>'),
    "bare link": ("see https://x.org/a_b.", '<p>see <a href="https://x.org/a_b">https://x.org/a_b</a>.</p>'),
    "relative link": ("[a](/admin/)", "<p><span>a</span></p>"),
    "script link": ("[a](javascript:alert(1)) [b](JaVa\tScript:x)", "<p><span>a</span> [b](JaVa\tScript:x)</p>"),
    "image": ("![alt](https://x.org/i.png)", '<p><a href="https://x.org/i.png">alt</a></p>'),
    "html": ("<b onclick=x>bold</b>", "<p>&lt;b onclick=x&gt;bold&lt;/b&gt;</p>"),
    "entity is text": ("&lt;script&gt;", "<p>&lt;script&gt;</p>"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_renders(console, name):
    source, html = CASES[name]
    assert console.page.evaluate(RENDER, [[source]]) == html


PIECES = [
    *(
        "# h\n",
        "para *em* ",
        "text\n",
        "\n",
        "- item\n",
        "  - inner\n",
        "1. one\n",
        "> quote\n",
        "- [x] task\n",
        "12.",
        "-",
        "- ",
        "> ",
        "שלום ",
        "مرحبا\n",
    ),
    *("```py\n", "def f(): # c\n", "```\n", "'''", "/* c\n", "*/", '"s"', "~~~\n", "    deep\n"),
    *("| a | b |\n", "| --- | --- |\n", "| 1 | 2 |\n", "---\n", "`code` ", "**b", "**", "[l](https://x.org) ", "  "),
]


def test_any_way_of_arriving_renders_the_same(console):
    """Closed blocks are never rendered again: that must not show, whatever the chunks' borders."""
    dice = random.Random(7)
    for _ in range(150):
        text = "".join(dice.choices(PIECES, k=dice.randint(3, 40)))
        cuts = sorted(dice.randint(0, len(text)) for _ in range(dice.randint(1, len(text))))
        chunks = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        whole = console.page.evaluate(RENDER, [[text], True])
        assert console.page.evaluate(RENDER, [chunks, True]) == whole, repr(text)


HARMLESS = """() => ({
    title: document.title,
    made: document.querySelectorAll("article :is(script, img, iframe, object, embed, style, link, form)").length,
    handlers: [...document.querySelectorAll("article *")]
        .flatMap((element) => [...element.attributes]).filter((attribute) => /^on/.test(attribute.name)).length,
    links: [...document.querySelectorAll("article a")].map(a => a.protocol + a.rel),
})"""


def test_hostile_replies_stay_text(console):
    asked = []
    console.page.on("request", lambda request: asked.append(request.url))
    console.ask("say hostile")
    found = console.page.evaluate(HARMLESS)
    assert found["title"] == "say hostile · S-MoE"
    assert (found["made"], found["handlers"]) == (0, 0)
    assert set(found["links"]) == {"https:noopener noreferrer nofollow"}
    assert not [url for url in asked if "evil" in url or "example" in url]
    expect(console.text).to_contain_text("<script>document.title = 'owned'</script>")


@pytest.mark.parametrize(
    "hostile", ["*a", "[", "[a](", "`", "> ", "- ", "**a *b ", "#", "|a|\n|-|\n", "![[", "_a_", "[a [b] "]
)
def test_hostile_repetition_neither_fails_nor_nests_without_end(console, hostile):
    """A tree that is too deep would overflow the browser's own recursion."""
    measure = """async ([text]) => {
        const { Markdown } = await import("/static/console/markdown.js");
        const markdown = new Markdown();
        markdown.update(text);
        let level = [...markdown.element.children];
        let depth = 0;
        for (; level.length; depth++) level = level.flatMap((element) => [...element.children]);
        return [markdown.element.textContent.length > 0, depth];
    }"""
    shown, depth = console.page.evaluate(measure, [hostile * 4000 + "a"])
    assert shown
    assert depth < 30


def test_the_policy_forbids_what_the_page_does_not_need(page, stub):
    response = page.goto(stub.url)
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    blocked = page.evaluate(
        """() => { try { document.body.innerHTML = "<b>x</b>"; return false; } catch (error) { return error.name; } }"""
    )
    assert blocked == "TypeError"


def test_every_request_stays_on_the_server(console, stub):
    hosts = set()
    console.page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
    console.page.reload()
    console.ask("hello")
    assert hosts == {stub.url.removeprefix("http://")}


def test_lists_and_quotes_run_in_their_own_direction(console):
    console.ask("say rtl")
    expect(console.text.get_by_role("list")).to_have_attribute("dir", "rtl")
    expect(console.text.get_by_role("paragraph").nth(1)).to_have_css("direction", "ltr")
