"""What the SDK reads of a response that is kept, and who may read it."""

import openai
import pytest
from engine_script import HELLO, THINK_AND_CALL, finished, prefill
from openai.types.responses import Response
from wire import create, post_stream, said

from engine.messages import ReasoningDelta
from fleet.keys import Key, KeyRefused

PATH = "/v1/responses"
TOOL = {"type": "function", "name": "get", "parameters": {"type": "object"}, "strict": False}
GONE = "previous_response_not_found"


@pytest.fixture
def sdk(base_url, script):
    return openai.OpenAI(base_url=f"{base_url}/v1", api_key="one", max_retries=0)


@pytest.fixture
def other(base_url, script):
    return openai.OpenAI(base_url=f"{base_url}/v1", api_key="two", max_retries=0)


def assert_missing(sdk, identity):
    with pytest.raises(openai.BadRequestError) as caught:
        sdk.responses.create(model="m", input="x", previous_response_id=identity)
    assert (caught.value.code, caught.value.param) == (GONE, "previous_response_id")
    assert "in memory" in caught.value.message
    assert "whole conversation in input" in caught.value.message
    with pytest.raises(openai.NotFoundError):
        sdk.responses.retrieve(identity)
    with pytest.raises(openai.NotFoundError):
        sdk.responses.input_items.list(identity)
    with pytest.raises(openai.NotFoundError):
        sdk.responses.delete(identity)


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_not_to_be_stored_is_not(sdk, stream):
    answer = create(sdk, stream, input="hi", store=False)
    assert answer.to_dict()["store"] is False
    assert_missing(sdk, answer.id)
    assert_missing(sdk, "resp_of_another_life")


def test_nobody_sees_anothers(sdk, other):
    answer = sdk.responses.create(model="m", input="hi")
    assert_missing(other, answer.id)
    assert sdk.responses.retrieve(answer.id).id == answer.id


def test_a_key_sees_what_it_asked_for(http, monkeypatch):
    async def identify(keyring, key):
        if key not in ("alice", "bob"):
            raise KeyRefused("This server needs a key.")
        return Key(key, "", None, False, None, None, None)

    monkeypatch.setattr("fleet.keys.Keyring.identify", identify)
    path = f"{PATH}/{http.post(PATH, json={'input': 'hi'}, headers={'x-api-key': 'alice'}).json()['id']}"
    statuses = {"alice": 200, "bob": 404, "": 401}
    for key, status in statuses.items():
        for below in ("", "/input_items"):
            assert http.get(path + below, headers={"x-api-key": key}).status_code == status
    for key in ("", "bob", "alice"):
        assert http.delete(path, headers={"x-api-key": key}).status_code == statuses[key]


def test_a_response_is_there_when_it_has_ended(http, script):
    """Not while it runs, not when it failed, not when its client left."""
    script.steps = [*HELLO[:-1], RuntimeError("engine")]
    begun, ended = (post_stream(http, PATH, {"input": "hi"})[place][1]["response"] for place in (0, -1))
    assert (begun["store"], ended["status"], ended["store"]) == (True, "failed", False)
    assert http.get(f"{PATH}/{ended['id']}").status_code == 404

    script.steps = [*HELLO[:-1], 5.0, finished()]
    script.closed.clear()
    with http.stream("POST", PATH, json={"input": "hi", "stream": True}) as answer:
        identity = next(line for line in answer.iter_lines() if "response.created" in line and "data" in line)
        identity = identity.partition('"id":"')[2].partition('"')[0]
        script.steps = HELLO
        going_on = http.post(PATH, json={"input": "x", "previous_response_id": identity})
        assert going_on.json()["error"]["code"] == GONE
    assert script.closed.wait(5)
    assert http.get(f"{PATH}/{identity}").status_code == 404


def test_a_reply_that_was_cut_is_kept_as_it_is(sdk, script):
    script.steps = [prefill(), ReasoningDelta("Hm"), finished("length")]
    answer = sdk.responses.retrieve(sdk.responses.create(model="m", input="hi").id)
    assert (answer.status, answer.output[0].content[0].text) == ("incomplete", "Hm")


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_retrieved_is_the_answer(http, sdk, script, stream):
    script.steps = THINK_AND_CALL
    asked = {"input": "hi", "instructions": "Be brief.", "tools": [TOOL], "metadata": {"a": "b"}}
    told = post_stream(http, PATH, asked)[-1][1]["response"] if stream else http.post(PATH, json=asked).json()
    got = http.get(f"{PATH}/{told['id']}")
    assert got.json() == told
    assert list(got.json()) == list(told)
    assert Response.model_validate(got.json(), strict=False).output[0].type == "reasoning"
    assert http.get(f"/responses/{told['id']}/").json() == told


def test_a_finished_response_is_not_streamed_again(sdk, http):
    answer = sdk.responses.create(model="m", input="hi")
    with pytest.raises(openai.BadRequestError) as caught:
        sdk.responses.retrieve(answer.id, stream=True)
    assert caught.value.param == "stream"
    assert sdk.responses.retrieve(answer.id, include=["reasoning.encrypted_content"]).output_text == "Hello"


def test_what_is_deleted_is_gone(sdk, http):
    answer = sdk.responses.create(model="m", input="hi")
    later = sdk.responses.create(model="m", input="go", previous_response_id=answer.id)
    raw = sdk.responses.with_raw_response.delete(answer.id).http_response.json()
    assert raw == {"id": answer.id, "object": "response", "deleted": True}
    assert_missing(sdk, answer.id)
    assert len(sdk.responses.input_items.list(later.id).data) == 3  # its own conversation stays whole


def test_only_background_responses_are_cancelled(sdk):
    answer = sdk.responses.create(model="m", input="hi")
    with pytest.raises(openai.BadRequestError, match="Cannot cancel a synchronous response"):
        sdk.responses.cancel(answer.id)
    with pytest.raises(openai.NotFoundError):
        sdk.responses.cancel("resp_x")


def a_long_chain(sdk, script):
    script.steps = THINK_AND_CALL
    first = sdk.responses.create(model="m", input=[said("one"), {"role": "assistant", "content": "a"}, said("two")])
    results = [{"type": "function_call_output", "call_id": call, "output": "ok"} for call in ("call_a", "call_b")]
    return sdk.responses.create(model="m", input=[*results, said("three")], previous_response_id=first.id)


KINDS = [
    *["message"] * 3,
    "reasoning",
    "message",
    *["function_call"] * 2,
    *["function_call_output"] * 2,
    "message",
]


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_input_items_page_by_page(sdk, script, order):
    answer = a_long_chain(sdk, script)
    whole = sdk.responses.input_items.list(answer.id, order=order)
    paged = list(sdk.responses.input_items.list(answer.id, order=order, limit=3))  # the SDK asks for page after page

    assert [item.type for item in whole.data] == (KINDS if order == "asc" else KINDS[::-1])
    assert [item.id for item in paged] == [item.id for item in whole.data]
    assert len({item.id for item in paged}) == len(KINDS)
    assert not whole.has_more
    first, *_ = whole.data if order == "asc" else whole.data[::-1]
    assert (first.role, first.content[0].type, first.content[0].text) == ("user", "input_text", "one")
    assert all(item.status for item in whole.data)


def test_the_newest_come_first_unless_told(sdk, http, script):
    answer = a_long_chain(sdk, script)
    page = http.get(
        f"{PATH}/{answer.id}/input_items", headers={"authorization": "Bearer one"}, params={"limit": 2}
    ).json()
    assert (page["object"], page["has_more"]) == ("list", True)
    assert [item["type"] for item in page["data"]] == ["message", "function_call_output"]
    assert (page["first_id"], page["last_id"]) == (page["data"][0]["id"], page["data"][1]["id"])


@pytest.mark.parametrize(
    ("query", "param"),
    [("limit=0", "limit"), ("limit=101", "limit"), ("limit=x", "limit"), ("order=up", "order"), ("after=x", "after")],
)
def test_wrong_queries_are_named(http, query, param):
    identity = http.post(PATH, json={"input": "hi"}).json()["id"]
    answer = http.get(f"{PATH}/{identity}/input_items?{query}")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_tokens_are_counted_as_the_request_would_be(sdk, script):
    first = sdk.responses.create(model="m", input="hi")
    fields = {"input": "go", "previous_response_id": first.id, "instructions": "Be brief.", "tools": [TOOL]}
    count = sdk.responses.input_tokens.count(model="m", reasoning={"effort": "low"}, **fields)
    sdk.responses.create(model="m", reasoning={"effort": "low"}, **fields)

    assert (count.object, count.input_tokens) == ("response.input_tokens", 42)
    (counted,) = script.counted
    for name in ("model", "messages", "tools", "tool_choice", "reasoning", "template_kwargs"):
        assert getattr(counted, name) == getattr(script.request, name)


@pytest.mark.parametrize("fields", [{}, {"input": []}, {"input": "x", "previous_response_id": "resp_x"}])
def test_a_count_refuses_what_a_request_would_be_refused_for(http, script, fields):
    refused = http.post(f"{PATH}/input_tokens", json=fields)
    asked = http.post(PATH, json=fields)
    assert refused.status_code == 400
    assert refused.json() == asked.json()


def test_a_page_elsewhere_forgets_nothing(http):
    identity = http.post(PATH, json={"input": "hi"}).json()["id"]
    assert http.delete(f"{PATH}/{identity}", headers={"origin": "https://evil.example"}).status_code == 403
    assert http.post(f"{PATH}/{identity}").status_code == 405
    methods = http.options(f"{PATH}/{identity}").headers["access-control-allow-methods"]
    assert methods == "GET, DELETE, HEAD, OPTIONS"
