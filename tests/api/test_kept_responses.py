"""What bounds the responses that are kept, and what the turns of a conversation share."""

import threading

import pytest

from api.openai import keeping
from api.openai.keeping import Keeper
from api.openai.kept_responses import KeptResponse, KeptResponses, Piece, kept_responses

TEXT = 10_000


@pytest.fixture
def kept(monkeypatch):
    store = KeptResponses(most_bytes=100_000)
    monkeypatch.setattr(keeping, "kept_responses", store)
    return store


def said(name, size=TEXT):
    return {"role": "user", "content": name.ljust(size, "x")}


def reply(name):
    return {"id": f"msg_{name}", "type": "message", "role": "assistant", "content": [], "text": name.ljust(TEXT, "y")}


def keep(name, items, client="a", earlier=(), tools=()):
    document = {"id": name, "object": "response", "instructions": None, "tools": list(tools), "output": [reply(name)]}
    return Keeper(client, earlier, items).keep(document)


def test_the_oldest_go_first(kept):
    for name in "123456":  # of some 20,000 bytes each
        assert keep(name, [said(name)])
    assert [bool(kept.find("a", name)) for name in "123456"] == [False, False, True, True, True, True]
    assert (kept.find_item("a", "msg_1"), kept.find_item("a", "msg_6")) == (None, reply("6"))
    assert kept.find("b", "6") is None
    assert kept.find_item("b", "msg_6") is None


def test_a_chain_holds_its_messages_once(kept):
    keep("0", [said("0")])
    for turn in range(1, 4):
        keep(str(turn), [said(str(turn))], earlier=kept.find("a", str(turn - 1)).conversation())
    assert 8 * TEXT < kept.bytes < 9 * TEXT
    assert len(kept.find("a", "3").conversation()) == 8


def test_a_conversation_that_is_sent_again_is_held_once(kept):
    tools = [{"type": "function", "name": "get", "description": "z" * TEXT}]
    conversation = []
    for turn in "0123":
        conversation.append(said(turn))
        keep(turn, conversation, tools=tools)
        conversation.append(reply(turn))
    assert 9 * TEXT < kept.bytes < 10 * TEXT
    assert kept.find("a", "3").told()["tools"] == tools


def test_the_last_of_a_chain_stays_whole_without_those_before_it(kept):
    keep("0", [said("0")])
    keep("1", [said("1")], earlier=kept.find("a", "0").conversation())
    assert kept.forget("a", "0")
    assert not kept.forget("a", "0")
    told = [piece.item() for piece in kept.find("a", "1").conversation()]
    assert [item["role"] for item in told] == ["user", "assistant", "user", "assistant"]
    assert told[0]["content"][0]["text"] == said("0")["content"]
    assert told[1] == reply("0")
    kept.forget("a", "1")
    assert kept.bytes == 0
    assert kept.find_item("a", "msg_0") is None


def test_what_is_too_large_drives_nothing_out(kept):
    keep("small", [said("small")])
    assert not keep("huge", [said("huge", 100_000)])
    assert kept.find("a", "small")
    assert kept.find("a", "huge") is None


def test_many_small_items_count_as_what_they_take(kept):
    assert not keep("many", [{"role": "user", "content": "x"}] * 1000)


def test_what_cannot_be_written_is_not_kept(kept):
    deep = {}
    for _ in range(5000):
        deep = {"a": deep}
    assert not keep("deep", [said("0"), {"type": "web_search_call", "action": deep}])
    assert kept.bytes == 0


def test_a_reply_waits_for_no_other_requests_items(kept):
    going_on = threading.Event()
    other = keeping._ENCODING.submit(going_on.wait, 20)
    try:
        assert keep("1", [said("1")])
        assert not other.done()
    finally:
        going_on.set()
    assert kept.find("a", "1").input[0].item()["content"][0]["text"] == said("1")["content"]


def test_an_item_sent_back_without_its_text_does_not_stand_for_the_whole_one(kept):
    keep("1", [said("1")])
    keep("2", [said("1"), {"id": "msg_1", "role": "assistant", "content": ""}, said("2")])
    assert kept.find_item("a", "msg_1") == reply("1")


def test_the_servers_own_bound():
    """Some megabytes beside the gigabytes of a model."""
    whole = KeptResponse("r", b"x" * (32 << 20), Piece("", b""), (), ())
    assert not kept_responses.keep("a", whole)
