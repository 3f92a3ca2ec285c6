"""What real clients sent (long texts replaced by their length): each is answered properly, streaming and not."""

import json
from pathlib import Path

import pytest
from wire import events

SHAPES = sorted((Path(__file__).parent / "shapes").glob("*.json"))
REFUSED = {
    "openai-py-3.57.0.embeddings": (404, "not_offered"),
    "openai-py-3.57.0.responses": (400, "previous_response_not_found"),
    "anthropic-py-2.14.0.tool_runner-1": (400, "thread_unsupported_request"),
    "anthropic-py-2.14.0.tool_runner-2-threaded": (400, "thread_unsupported_request"),
}
LAST_EVENT = {
    "/v1/messages": "message_stop",
    "/v1/responses": "response.completed",
    "/v1/chat/completions": None,
}


@pytest.mark.parametrize("file", SHAPES, ids=lambda file: file.stem)
@pytest.mark.parametrize("stream", [True, False])
def test_a_recorded_request_is_answered(http, file, stream):
    shape = json.loads(file.read_text())
    body = {**shape["body"], "stream": stream} if "count_tokens" not in shape["path"] else shape["body"]
    answer = http.post(f"{shape['path']}?{shape['query']}", json=body, headers=_headers(shape))

    if file.stem in REFUSED:
        status, code = REFUSED[file.stem]
        assert answer.status_code == status
        assert code in answer.text
        return
    assert answer.status_code == 200, answer.text
    if stream and "count_tokens" not in shape["path"]:
        name, data = events(answer.text)[-1]
        assert name == LAST_EVENT[shape["path"]]
        assert name or data == "[DONE]"
    else:
        assert answer.json()


def test_every_shape_is_known():
    assert len(SHAPES) >= 40


def _headers(shape):
    skipped = {"accept-encoding", "content-type", "host", "content-length"}
    return {name: value for name, value in shape["headers"].items() if name.lower() not in skipped}
