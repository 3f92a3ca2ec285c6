"""Open WebUI's requests, as its source builds them (backend/open_webui/routers/{openai,tasks}.py, commit 074d488).

A turn is the chat itself, streamed, then three tasks at once that are not: title, tags and follow-ups.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest
from engine_script import HELLO
from wire import events

HEADERS = {"Authorization": "Bearer unused", "X-OpenWebUI-User-Name": "Ada"}
CHAT = {
    "model": "alpha",
    "stream": True,
    "stream_options": {"include_usage": True},
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
}


def task(words, **more):
    return {"model": "alpha", "stream": False, "messages": [{"role": "user", "content": words}], **more}


TASKS = [
    task("### Task: Generate a concise title", max_completion_tokens=1000),
    task("### Task: Generate 1-3 broad tags"),
    task("### Task: Suggest 3-5 relevant follow-up questions"),
]


def test_it_lists_the_models(http, fleet, engine):
    listed = http.get("/v1/models", headers=HEADERS).json()
    assert [model["id"] for model in listed["data"]] == ["alpha", "beta", "org/gamma"]


def test_a_turn_with_its_tasks(http, script):
    script.steps = [0.05, *HELLO]
    streamed = events(http.post("/v1/chat/completions", json=CHAT, headers=HEADERS).text)
    assert streamed[-1] == (None, "[DONE]")
    assert "".join(c["delta"].get("content", "") for _, e in streamed[:-1] for c in e["choices"]) == "Hello"

    with ThreadPoolExecutor() as threads:
        answers = threads.map(lambda body: http.post("/v1/chat/completions", json=body, headers=HEADERS), TASKS)
        told = [answer.json()["choices"][0] for answer in answers]
    assert [(one["message"]["content"], one["finish_reason"]) for one in told] == [("Hello", "stop")] * 3
    assert script.requests[0].client == script.requests[1].client  # one client to the queue


@pytest.mark.parametrize("path", ["/api/version", "/v1/audio/voices", "/v1/embeddings"])
def test_what_it_asks_elsewhere_is_a_json_404(http, path):
    answer = http.get(path, headers=HEADERS)
    assert answer.status_code == 404
    assert answer.json()["error"]["message"]
