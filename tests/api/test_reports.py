"""Faults that people reported of servers of this kind, one test a row where this layer answers for it.

Elsewhere: 6, 12, 17, 24 in test_http.py, 13, 14, 18, 20, 23 in tests/engine, 21 in tests/native.
"""

import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from engine_script import THINK_AND_CALL, finished, prefill
from wire import chat, claude, post_stream

from engine import generation
from engine.errors import InvalidRequest
from engine.messages import Constraint, Prefill, ToolCallDelta, ToolCallStart, Usage

CHAT = "/v1/chat/completions"
MESSAGES = "/v1/messages"


def test_1_a_header_line_that_changes_each_turn_does_not_move_the_prefix(http, script):
    for turn in ("aaa", "bbb"):
        line = f"x-anthropic-billing-header: cc_version=2.1.{turn}; cch={turn};"
        http.post(MESSAGES, json=claude(system=[{"type": "text", "text": line}, {"type": "text", "text": "Be brief."}]))
        http.post(
            CHAT,
            json=chat(
                messages=[
                    {"role": "system", "content": f"{line}\nBe brief."},
                    {"role": "user", "content": "hi"},
                ]
            ),
        )
    assert all(request.messages == script.requests[0].messages for request in script.requests)
    assert script.requests[0].messages[0] == {"role": "system", "content": "Be brief."}


def test_2_message_start_has_the_real_count(http, script):
    script.steps = [Prefill("alpha", 0, 1200, 0), finished()]
    name, data = post_stream(http, MESSAGES, claude())[0]
    assert (name, data["message"]["usage"]["input_tokens"]) == ("message_start", 1200)


def test_3_cached_tokens_are_told_once(http, script):
    script.steps = [prefill(), finished(usage=Usage(100, 60, 5))]
    plain = http.post(CHAT, json=chat()).json()["usage"]
    assert (plain["prompt_tokens"], plain["prompt_tokens_details"]["cached_tokens"]) == (100, 60)
    spoken = http.post(MESSAGES, json=claude()).json()["usage"]
    assert (spoken["input_tokens"], spoken["cache_read_input_tokens"]) == (40, 60)


def test_4_a_system_message_inside_the_conversation_is_folded_in(http, script):
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "system", "content": [{"type": "text", "text": "Be brief."}], "output_config": {"effort": "medium"}},
    ]
    assert http.post(MESSAGES, json=claude(messages=messages)).status_code == 200
    folded = script.request.messages
    assert folded == [{"role": "user", "content": "hi\n<system-reminder>\nBe brief.\n</system-reminder>"}]

    messages[1]["content"] = "Be brief."
    later = [*messages, {"role": "assistant", "content": "Hello"}, {"role": "user", "content": "and?"}]
    http.post(MESSAGES, json=claude(messages=later))
    assert script.request.messages[: len(folded)] == folded


def test_5_one_start_and_each_block_its_own_index(http, script):
    script.steps = THINK_AND_CALL
    frames = post_stream(http, MESSAGES, claude())
    starts = [data["content_block"]["type"] for name, data in frames if name == "content_block_start"]
    assert [name for name, _ in frames].count("message_start") == 1
    assert starts == ["thinking", "text", "tool_use", "tool_use"]


@pytest.mark.parametrize("asked", [True, False])
def test_7_the_usage_chunk(http, asked):
    options = {"stream_options": {"include_usage": True}} if asked else {}
    frames = [data for _, data in post_stream(http, CHAT, chat(**options)) if data != "[DONE]"]
    if asked:
        assert (frames[-1]["choices"], frames[-1]["usage"]["total_tokens"]) == ([], 15)
        assert all(frame["usage"] is None for frame in frames[:-1])
    else:
        assert all(frame["choices"] for frame in frames)
        assert frames[-1]["usage"]["total_tokens"] == 15
        assert all("usage" not in frame for frame in frames[:-1])


def test_8_tool_call_deltas_as_openai_sends_them(http, script):
    script.steps = [
        prefill(),
        ToolCallStart(0, "call_a", "get"),
        ToolCallDelta(0, "{}"),
        ToolCallStart(1, "call_b", "put"),
        ToolCallDelta(1, "{}"),
        finished("tool_calls"),
    ]
    frames = [data for _, data in post_stream(http, CHAT, chat()) if data != "[DONE]"]
    deltas = [call for frame in frames for call in frame["choices"][0]["delta"].get("tool_calls", [])]
    assert deltas == [
        {"index": 0, "id": "call_a", "type": "function", "function": {"name": "get", "arguments": ""}},
        {"index": 0, "function": {"arguments": "{}"}},
        {"index": 1, "id": "call_b", "type": "function", "function": {"name": "put", "arguments": ""}},
        {"index": 1, "function": {"arguments": "{}"}},
    ]


def test_9_the_finish_says_that_tools_were_called(http, script):
    script.steps = THINK_AND_CALL
    assert http.post(CHAT, json=chat()).json()["choices"][0]["finish_reason"] == "tool_calls"
    assert http.post(MESSAGES, json=claude()).json()["stop_reason"] == "tool_use"


def test_10_role_developer_is_the_system_role(http, script):
    messages = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    http.post(CHAT, json=chat(messages=messages))
    assert script.request.messages[0] == {"role": "system", "content": "Be brief."}


@pytest.mark.parametrize("content", [{"content": None}, {"content": ""}, {}])
def test_11_no_content_beside_tool_calls(http, script, content):
    call = {"id": "call_1", "type": "function", "function": {"name": "get", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", **content, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "1"},
    ]
    assert http.post(CHAT, json=chat(messages=messages)).status_code == 200
    assert script.request.messages[1]["content"] == ""


def test_15_a_window_that_slid_is_visible(http, script):
    script.steps = [prefill(), finished(slid=7)]
    for path, body in ((CHAT, chat()), (MESSAGES, claude()), ("/v1/responses", {"model": "m", "input": "hi"})):
        assert http.post(path, json=body).json()["smoe"]["context"]["slid"] == 7


def test_16_a_schema_is_handed_on_and_leaves_thinking_alone(http, script):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema, "strict": True}}
    http.post(CHAT, json=chat(response_format=form))
    assert script.request.constraint == Constraint("json_schema", schema)
    assert script.request.reasoning is None


def test_16_a_schema_that_cannot_be_enforced_is_a_400(http, script):
    script.steps = [InvalidRequest("The keyword 'uniqueItems' is not supported.", "response_format")]
    answer = http.post(CHAT, json=chat(response_format={"type": "json_object"}, stream=True))
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "response_format")


def test_19_health_answers_while_a_large_prompt_is_tokenized(base_url, engine, fleet, monkeypatch):
    begun, enough = threading.Event(), threading.Event()

    class Slow:
        def encode(self, request):
            begun.set()
            assert enough.wait(60)
            raise InvalidRequest("enough.")

    async def codec_for(card):
        return Slow()

    monkeypatch.setattr(generation.prompt, "codec_for", codec_for)
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(httpx.post, base_url + CHAT, json=chat(model="alpha"), timeout=60)
        assert begun.wait(20)
        assert httpx.get(f"{base_url}/health", timeout=20).json()["status"] == "ok"
        assert not asked.done()
        enough.set()
        assert "enough." in asked.result().text


def test_22_a_template_that_refuses_the_roles_is_a_400(http, script):
    script.steps = [InvalidRequest("The chat template needs alternating roles.", "messages")]
    assert http.post(MESSAGES, json=claude(stream=True)).status_code == 400
