"""One HTTP life: paths, methods, limits, ids, who may call, and what happens when things go wrong in mid-stream."""

import gzip
import json
import socket
import threading
from dataclasses import replace
from http import HTTPStatus

import httpx
import openai
import pytest
from django.db import OperationalError
from engine_script import HELLO, finished, prefill, text
from wire import chat, claude, events, post_stream

from api import auth, consumers
from engine import generation
from engine.errors import (
    ContextOverflow,
    EngineFailed,
    InvalidRequest,
    ModelUnavailable,
    QueueFull,
    ShuttingDown,
)
from engine.messages import Accepted, Queued, TextDelta
from fleet.keys import Key, KeyRefused

CHAT = "/v1/chat/completions"
MESSAGES = "/v1/messages"


# --- paths and methods -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [CHAT, f"{CHAT}/", "/chat/completions", "/chat/completions/"])
def test_chat_with_and_without_prefix_and_slash(http, path):
    assert http.post(path, json=chat()).json()["object"] == "chat.completion"


@pytest.mark.parametrize("path", [MESSAGES, f"{MESSAGES}/", "/messages", f"{MESSAGES}?beta=true"])
def test_messages_with_and_without_prefix_and_slash(http, path):
    assert http.post(path, json=claude()).json()["type"] == "message"


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
def test_an_unknown_path_answers_in_the_callers_protocol(http, method):
    plain = http.request(method, "/v1/nonsense")
    assert plain.status_code == 404
    assert plain.json()["error"]["code"] == "not_found"
    for path, headers in (("/v1/nonsense", {"anthropic-version": "2023-06-01"}), ("/v1/messages/batches", {})):
        spoken = http.request(method, path, headers=headers)
        assert (spoken.status_code, spoken.json()["error"]["type"]) == (404, "not_found_error")
        assert spoken.json()["request_id"] == spoken.headers["request-id"]


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/audio/speech", "/v1/images/generations", "/moderations"])
def test_what_is_not_offered_says_so(http, path):
    answer = http.post(path, json={"model": "m", "input": "hi"})
    assert answer.status_code == 404
    assert "does not offer" in answer.json()["error"]["message"]


def test_a_wrong_method_is_405_and_names_the_right_one(http):
    answer = http.get(CHAT)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST, OPTIONS")
    assert answer.json()["error"]["code"] == "method_not_allowed"
    assert http.delete("/health").headers["allow"] == "GET, HEAD, OPTIONS"


def test_head_is_answered_without_a_body(http):
    answer = http.head("/api/hello")
    assert (answer.status_code, answer.content) == (200, b"")


# --- bodies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe{}",
        b'{"a": NaN}',
        b"[" * 100_000,
        b'{"messages": ' + b"9" * 5000 + b"}",
        b"[]",
        b'"hi"',
        b"null",
    ],
)
def test_a_body_that_is_no_json_object(http, body):
    for path in (CHAT, MESSAGES, "/v1/responses", "/v1/completions", "/v1/messages/count_tokens"):
        answer = http.post(path, content=body)
        assert answer.status_code == 400
        assert answer.json()["error"]["type"] == "invalid_request_error"


def test_a_large_body_is_decoded_all_the_same(http, script):
    words = "word " * 50_000
    assert http.post(CHAT, json=chat(messages=[{"role": "user", "content": words}])).status_code == 200
    assert script.request.messages[0]["content"] == words


def test_a_body_over_the_limit(http, settings, script):
    settings.SMOE = replace(settings.SMOE, max_body_mb=1)
    for path, kind in ((CHAT, "invalid_request_error"), (MESSAGES, "request_too_large")):
        answer = http.post(path, content=b" " * (1 << 20) + b"{}")
        assert (answer.status_code, answer.json()["error"]["type"]) == (413, kind)
        assert "1 MiB" in answer.json()["error"]["message"]
    assert script.requests == []


def zipped(http, content, encoding="gzip", path=CHAT):
    return http.post(path, content=content, headers={"content-encoding": encoding})


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "x-gzip"])
def test_a_gzipped_body(http, script, encoding):
    body = json.dumps(chat(messages=[{"role": "user", "content": "word " * 50_000}])).encode()
    assert zipped(http, gzip.compress(body), encoding).status_code == 200
    assert script.request.messages[0]["content"] == "word " * 50_000
    members = gzip.compress(body[:100]) + gzip.compress(body[100:])
    assert zipped(http, members, encoding).status_code == 200
    assert script.requests[0] == replace(script.requests[1], request_id=script.requests[0].request_id)


def test_a_gzipped_body_over_the_limit_is_not_unpacked(http, script, settings):
    settings.SMOE = replace(settings.SMOE, max_body_mb=1)
    fits = json.dumps(chat()).encode().ljust(1 << 20)
    assert zipped(http, gzip.compress(fits)).status_code == 200
    for body in (gzip.compress(fits + b" "), gzip.compress(bytes(1 << 19)) * 3):
        answer = zipped(http, body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")
    assert zipped(http, body, path=MESSAGES).json()["error"]["type"] == "request_too_large"
    assert len(script.requests) == 1


GZIPPED = gzip.compress(b"{}", mtime=0)  # workers of pytest-xdist must agree on the tests' names


@pytest.mark.parametrize("body", [b"\x1f\x8b", b"{}", GZIPPED[:-4], GZIPPED + b"more"])
def test_a_body_that_is_no_gzip(http, body):
    answer = zipped(http, body)
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
    assert "gzip" in answer.json()["error"]["message"]


def test_a_heap_of_empty_gzip_members_is_refused_before_it_is_unpacked(http, script):
    """Each member's end copies what follows: 1.6 million of them in 32 MiB would take a core for hours."""
    body = json.dumps(chat()).encode()
    blocks = b"".join(gzip.compress(body[at : at + 1]) for at in range(len(body)))  # bgzip and pigz make many members
    assert zipped(http, blocks).status_code == 200
    answer = zipped(http, gzip.compress(b"") * 100_000 + gzip.compress(body))
    assert answer.status_code == 400
    assert "members" in answer.json()["error"]["message"]
    assert len(script.requests) == 1


@pytest.mark.parametrize("encoding", ["zstd", "br", "deflate", "gzip, gzip"])
def test_other_compressions_are_refused_clearly(http, encoding):
    answer = zipped(http, b"{}", encoding)
    assert answer.status_code == 415
    assert "gzip" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("number", "words"), [("9" * 5000, "too many digits"), ("-1e999", "too large: -1e999"), ("NaN", "NaN is none")]
)
def test_numbers_that_python_cannot_hold(http, number, words):
    answer = http.post(CHAT, content=json.dumps(chat())[:-1] + f', "metadata": {{"n": {number}}}}}')
    assert answer.status_code == 400
    assert words in answer.json()["error"]["message"]
    assert "set_int_max_str_digits" not in answer.text


@pytest.mark.parametrize("depth", [100, 400, 900])
def test_a_deeply_nested_request_is_no_failure_of_the_server(http, depth):
    nested = '{"type": "object", "properties": {"a": ' * depth + "{}" + "}}" * depth
    tool = f'{{"type": "function", "function": {{"name": "f", "parameters": {nested}}}}}'
    for path, body in ((CHAT, chat()), (MESSAGES, claude()), ("/v1/responses", {"model": "m", "input": "hi"})):
        lone = ', "x": "\\ud800"'
        answer = http.post(path, content=json.dumps(body)[:-1] + f', "tools": [{tool}], "metadata": {nested}{lone}}}')
        assert answer.status_code in (200, 400), answer.text


# --- request ids and clients -----------------------------------------------------------------------------------------


def test_the_clients_request_id_is_echoed_where_it_is_sane(http, script):
    answer = http.post(CHAT, json=chat(), headers={"x-request-id": "trace-1"})
    assert answer.headers["x-request-id"] == answer.headers["request-id"] == "trace-1"
    assert script.request.request_id == "trace-1"
    for odd in ("a b", "x" * 200, "<script>"):
        assert http.post(CHAT, json=chat(), headers={"x-request-id": odd}).headers["x-request-id"].startswith("req_")


def test_keys_tell_clients_apart_and_are_not_kept(http, script):
    for headers in ({}, {"authorization": "Bearer secret"}, {"x-api-key": "secret"}, {"x-api-key": "other"}):
        http.post(CHAT, json=chat(), headers=headers)
    anonymous, bearer, header, other = (request.client for request in script.requests)
    assert bearer == header
    assert len({anonymous, bearer, other}) == 3
    assert "secret" not in bearer


def test_a_supervisor_needs_no_key(http, engine, monkeypatch):
    async def refuse(keyring, key):
        raise KeyRefused("This server needs a key.")

    monkeypatch.setattr("fleet.keys.Keyring.identify", refuse)
    assert http.get("/health").status_code == http.head("/api/hello").status_code == 200
    assert (http.get("/sysmem").status_code, http.post(CHAT, json=chat()).status_code) == (401, 401)
    spoken = http.post(MESSAGES, json=claude()).json()
    assert spoken["error"]["type"] == "authentication_error"
    assert http.options(CHAT, headers={"origin": "http://localhost"}).status_code == 204


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ({"x-api-key": "unused", "authorization": "Bearer good"}, None),
        ({"x-api-key": "good", "authorization": "Bearer unused"}, None),
        ({"x-api-key": "unused", "authorization": "Bearer bad"}, "unused is not known"),
        ({"authorization": "Basic Z29vZDpnb29k"}, " is not known"),
    ],
)
def test_either_header_may_name_the_key(http, monkeypatch, headers, told):
    async def identify(keyring, key):
        if key != "good":
            raise KeyRefused(f"{key} is not known")
        return Key("alice", "", None, False, None, None, None)

    monkeypatch.setattr("fleet.keys.Keyring.identify", identify)
    answer = http.post(CHAT, json=chat(), headers=headers)

    assert answer.status_code == (401 if told else 200)
    assert told is None or answer.json()["error"]["message"] == told


# --- origins and hosts -----------------------------------------------------------------------------------------------


def test_a_preflight_needs_no_key_and_gets_its_headers_back(http):
    asked = "authorization,content-type,x-stainless-os"
    answer = http.options(
        CHAT,
        headers={
            "origin": "http://localhost:5173",
            "access-control-request-method": "POST",
            "access-control-request-headers": asked,
        },
    )
    assert answer.status_code == 204
    assert answer.headers["access-control-allow-origin"] == "http://localhost:5173"
    assert answer.headers["access-control-allow-headers"] == asked
    assert "POST" in answer.headers["access-control-allow-methods"]


@pytest.mark.parametrize(
    "origin", ["http://localhost:3000", "https://127.0.0.1", "http://[::1]:8080", "http://app.localhost"]
)
def test_pages_on_loopback_may_call(http, origin):
    answer = http.post(CHAT, json=chat(stream=True), headers={"origin": origin})
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == origin


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost.evil.example", "http://127.0.0.1.nip.io"]
)
def test_a_page_from_elsewhere_cannot_spend_the_machines_time(http, script, origin):
    for path in (CHAT, MESSAGES, "/v1/nonsense"):
        answer = http.post(path, content=b"{}", headers={"origin": origin, "content-type": "text/plain"})
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers
    assert http.options(CHAT, headers={"origin": origin}).status_code == 403
    assert "access-control-allow-origin" not in http.get("/api/hello", headers={"origin": origin}).headers
    assert script.requests == []


def test_allow_origin_adds(http, settings):
    settings.SMOE = replace(settings.SMOE, allow_origin=("https://chat.example",))
    answer = http.post(CHAT, json=chat(), headers={"origin": "https://chat.example"})
    assert answer.headers["access-control-allow-origin"] == "https://chat.example"
    assert http.get("/api/hello", headers={"host": "chat.example"}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.nip.io:8000", "localhost.evil.example", "[", ""])
def test_a_name_pointed_at_loopback_is_refused(http, script, host):
    answer = http.post(CHAT, json=chat(), headers={"host": host})
    assert answer.status_code in (400, 403)
    assert script.requests == []


def test_the_pages_for_people_have_the_same_host_check(http):
    assert http.get("/static/none.css", headers={"host": "evil.example"}).status_code == 403
    assert http.get("/static/none.css").status_code == 404


@pytest.mark.parametrize("host", ["localhost:8000", "127.0.0.1", "[::1]:8000", "LOCALHOST"])
def test_loopback_names_are_served(http, host):
    assert http.get("/api/hello", headers={"host": host}).status_code == 200


def test_a_server_on_the_network_is_reached_by_any_name():
    policy = auth.AccessPolicy("0.0.0.0", ())
    policy.check_host("box.lan:8000")
    assert policy.allows_origin("http://box.lan:8000", "box.lan:8000")
    assert not policy.allows_origin("http://evil.example", "box.lan:8000")


# --- errors before the stream has begun ------------------------------------------------------------------------------

FAILURES = [
    (InvalidRequest("no.", "seed"), 400, "invalid_request_error", 400, "invalid_request_error"),
    (ModelUnavailable("gone."), 404, "invalid_request_error", 404, "not_found_error"),
    (QueueFull("full.", 7), 429, "rate_limit_error", 529, "overloaded_error"),
    (EngineFailed("died."), 500, "server_error", 500, "api_error"),
    (ShuttingDown("bye."), 503, "server_error", 503, "api_error"),
    (KeyError("surprise"), 500, "server_error", 500, "api_error"),
    (OperationalError("surprise: disk I/O error"), 503, "server_error", 503, "api_error"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure[0]).__name__)
def test_a_failure_at_once_has_its_status(http, script, failure, stream):
    error, openai_status, openai_type, anthropic_status, anthropic_type = failure
    script.steps = [Queued(1), error]
    plain = http.post(CHAT, json=chat(stream=stream))
    assert (plain.status_code, plain.json()["error"]["type"]) == (openai_status, openai_type)
    assert plain.reason_phrase == HTTPStatus(openai_status).phrase
    spoken = http.post(MESSAGES, json=claude(stream=stream))
    assert (spoken.status_code, spoken.json()["error"]["type"]) == (anthropic_status, anthropic_type)
    assert "surprise" not in plain.text + spoken.text


def test_a_full_queue_says_when_to_come_back(http, script):
    script.steps = [QueueFull("full.", 7)]
    for path, body in ((CHAT, chat()), (MESSAGES, claude()), ("/v1/responses", {"model": "m", "input": "hi"})):
        assert http.post(path, json=body).headers["retry-after"] == "7"


def test_context_errors_in_the_words_that_clients_parse(http, script):
    script.steps = [ContextOverflow("x", 5000, 256, 4096)]
    assert "maximum context length is 4096 tokens" in http.post(CHAT, json=chat()).json()["error"]["message"]
    assert http.post(CHAT, json=chat()).json()["error"]["code"] == "context_length_exceeded"
    told = http.post(MESSAGES, json=claude()).json()["error"]["message"]
    assert told == "prompt is too long: 5000 tokens > 4096 maximum"

    script.steps = [ContextOverflow("x", 4000, 256, 4096)]
    assert (
        "you requested 4256 tokens (4000 in the messages, 256 in the completion)" in http.post(CHAT, json=chat()).text
    )
    told = http.post(MESSAGES, json=claude()).json()["error"]["message"]
    assert told.startswith("input length and `max_tokens` exceed context limit: 4000 + 256 > 4096")


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, chat(), "messages"),
        ("/v1/completions", {"model": "m", "prompt": "hi"}, "prompt"),
        ("/v1/responses", {"model": "m", "input": "hi"}, "input"),
    ],
)
def test_what_is_wrong_with_the_prompt_is_told_of_the_field_that_holds_it(http, script, path, body, param):
    for failure in (ContextOverflow("x", 5000, 256, 4096), InvalidRequest("The prompt is empty.", "messages")):
        script.steps = [failure]
        for stream in (False, True):
            assert http.post(path, json=body | {"stream": stream}).json()["error"]["param"] == param


# --- errors after it --------------------------------------------------------------------------------------------------


def broken():
    return [prefill(), *text("Hel"), EngineFailed("The engine died.")]


def test_a_chat_stream_that_breaks(http, script, base_url):
    script.steps = broken()
    frames = [data for _, data in post_stream(http, CHAT, chat())]

    assert frames[-3]["error"]["message"] == "The engine died."
    assert frames[-2]["choices"][0]["finish_reason"] == "length"
    assert frames[-1] == "[DONE]"
    sdk = openai.OpenAI(base_url=f"{base_url}/v1", api_key="x", max_retries=0)
    with pytest.raises(openai.APIError, match="The engine died"):
        list(sdk.chat.completions.create(**chat(), stream=True))


def test_a_messages_stream_that_breaks_has_no_end_that_looks_clean(http, script):
    script.steps = broken()
    frames = post_stream(http, MESSAGES, claude())

    name, data = frames[-1]
    assert (name, data["error"]) == ("error", {"type": "api_error", "message": "The engine died."})
    assert "message_stop" not in dict(frames)


def test_a_responses_stream_that_breaks(http, script):
    script.steps = broken()
    name, data = post_stream(http, "/v1/responses", {"model": "m", "input": "hi"})[-1]
    assert (name, data["response"]["status"]) == ("response.failed", "failed")
    assert data["response"]["error"]["message"] == "The engine died."


def test_a_completions_stream_that_breaks(http, script):
    script.steps = broken()
    frames = [data for _, data in post_stream(http, "/v1/completions", {"model": "m", "prompt": "hi"})]
    assert (frames[-3]["error"]["code"], frames[-1]) == ("engine_failed", "[DONE]")
    assert frames[-2]["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(("path", "body"), [(CHAT, chat()), (MESSAGES, claude()), ("/v1/responses", {"input": "hi"})])
def test_a_text_with_other_line_ends_is_whole_for_who_splits_at_them(http, script, path, body):
    spoken = "a\x85b\u2028c\u2029d\U0001f600"
    script.steps = [prefill(), *text(spoken), finished()]
    with http.stream("POST", path, json={"stream": True, **body}) as answer:
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line and not line.startswith("event: ")]

    frames = [json.loads(line) for line in lines if line != "[DONE]"]
    assert spoken in json.dumps(frames, ensure_ascii=False)


def test_a_failure_that_comes_late_is_told_in_the_stream(http, script):
    script.steps = [Queued(1), 0.3, ContextOverflow("x", 5000, 256, 4096)]
    name, data = post_stream(http, MESSAGES, claude())[-1]
    assert (name, data["error"]["message"]) == ("error", "prompt is too long: 5000 tokens > 4096 maximum")
    name, data = post_stream(http, "/v1/responses", {"model": "m", "input": "hi"})[-1]
    assert data["response"]["error"]["code"] == "context_length_exceeded"


# --- prompts that may be too long ------------------------------------------------------------------------------------

OVERFLOW = ContextOverflow("x", 5000, 256, 4096)
LONG = chat(messages=[{"role": "user", "content": "word " * 1000}], stream=True)


def test_a_long_prompt_waits_for_its_count_so_that_it_can_be_refused(http, script, engine, settings):
    settings.SMOE = replace(settings.SMOE, context_overflow="error")
    script.steps = [0.3, OVERFLOW]
    answer = http.post(CHAT, json=LONG)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")
    spoken = http.post(MESSAGES, json=claude(messages=LONG["messages"], stream=True))
    assert (spoken.status_code, spoken.json()["error"]["type"]) == (400, "invalid_request_error")
    assert "prompt is too long: 5000 tokens > 4096 maximum" in spoken.text


def test_the_wait_for_the_count_has_an_end(http, script, engine, settings, monkeypatch):
    monkeypatch.setattr(consumers, "LONGEST_HOLD_SECONDS", 0.05)
    settings.SMOE = replace(settings.SMOE, context_overflow="error")
    script.steps = [0.5, OVERFLOW]
    frames = [data for _, data in post_stream(http, CHAT, LONG)]
    assert frames[0]["choices"][0]["delta"]["role"] == "assistant"
    assert frames[-3]["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize(
    ("overflow", "body", "first"),
    [("slide", LONG, 3600), ("error", chat(stream=True), 3600), ("error", LONG, Accepted(900))],
    ids=["it may slide", "it is short", "it has been counted"],
)
def test_what_cannot_be_refused_begins_at_once(base_url, script, engine, settings, monkeypatch, overflow, body, first):
    monkeypatch.setattr(consumers, "LONGEST_HOLD_SECONDS", 3600)
    settings.SMOE = replace(settings.SMOE, context_overflow=overflow)
    script.steps = [first, 3600]
    with httpx.stream("POST", base_url + CHAT, json=body, timeout=20) as answer:
        assert events(next(answer.iter_text()))


# --- time ------------------------------------------------------------------------------------------------------------


def test_silence_is_filled_with_real_events(http, script, monkeypatch):
    monkeypatch.setattr(consumers, "KEEP_ALIVE_SECONDS", 0.05)
    script.steps = [prefill(), 0.5, *text("Hel"), 0.5, finished()]

    empty = [
        data
        for _, data in post_stream(http, CHAT, chat())
        if data != "[DONE]" and data["choices"][0]["delta"] == {} and data["choices"][0]["finish_reason"] is None
    ]
    assert len(empty) >= 4
    names = [name for name, _ in post_stream(http, MESSAGES, claude())]
    assert names.count("ping") >= 4
    assert names.index("content_block_delta") > names.index("ping")
    names = [name for name, _ in post_stream(http, "/v1/responses", {"model": "m", "input": "hi"})]
    assert names.count("response.in_progress") >= 4


def test_the_first_event_comes_while_the_prompt_still_waits(base_url, script):
    """Headers and an event arrive although the script never goes on."""
    script.steps = [Queued(3), 3600]
    for path, body in ((CHAT, chat()), (MESSAGES, claude()), ("/v1/responses", {"model": "m", "input": "hi"})):
        with httpx.stream("POST", base_url + path, json={**body, "stream": True}, timeout=20) as answer:
            assert answer.headers["x-accel-buffering"] == "no"
            assert answer.headers["cache-control"] == "no-cache"
            assert events(next(answer.iter_text()))


def test_chunks_are_not_held_back_by_a_source_that_never_waits(base_url, script, monkeypatch):
    """The first pieces arrive while the source still has thousands to give."""
    given = []

    async def endless(request):
        yield prefill()
        for index in range(20_000):
            given.append(index)
            yield TextDelta("x")
        yield finished()

    monkeypatch.setattr(generation, "stream", endless)
    with httpx.stream("POST", base_url + CHAT, json=chat(stream=True), timeout=60) as answer:
        next(answer.iter_text())
        assert len(given) < 20_000


def test_health_answers_while_a_generation_runs(base_url, script, engine):
    script.steps = [prefill(), 3600]
    with httpx.stream("POST", base_url + CHAT, json=chat(stream=True), timeout=20) as answer:
        next(answer.iter_text())
        assert httpx.get(f"{base_url}/health", timeout=20).json()["status"] == "ok"


# --- clients that go away --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "steps",
    [[Queued(4), 3600], [prefill(3), 3600], [prefill(), *text("a"), 3600]],
    ids=["queued", "prefill", "decoding"],
)
@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_ends_its_generation(base_url, script, steps, stream):
    script.steps = steps
    host, port = base_url.removeprefix("http://").split(":")
    body = json.dumps(chat(stream=stream)).encode()
    with socket.create_connection((host, int(port))) as client:
        client.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        deadline = threading.Event()
        while not script.requests and not deadline.wait(0.01):
            pass
        if stream:
            client.recv(100)
    assert script.closed.wait(20)


def test_the_generation_is_over_before_the_answer_ends(http, script):
    script.steps = list(HELLO)
    http.post(CHAT, json=chat(stream=True))
    assert script.closed.is_set()


def test_a_web_socket_is_refused(http):
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    answer = http.get("/v1/chat/completions", headers=upgrade | {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="})
    assert answer.status_code == 403
