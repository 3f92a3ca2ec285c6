import openai
import pytest
from engine_script import finished, prefill
from wire import post_stream

from engine.messages import TextDelta, TokenLogprob
from engine.window import MAX_TOKENS_CAP, reply_budget

PATH = "/v1/completions"


def ask(**fields):
    return {"model": "m", "prompt": "Once", **fields}


def test_the_stops_of_an_editors_completion_are_taken(http, script):
    """What Continue sends for Qwen's coders in F#: the template's marks, ends of a block, words that begin a line."""
    marks = [
        "endoftext",
        "fim_prefix",
        "fim_middle",
        "fim_suffix",
        "fim_pad",
        "repo_name",
        "file_sep",
        "im_start",
        "im_end",
    ]
    words = ["let", "type", "module", "namespace", "open", "if", "then", "else", "match", "with"]
    blocks = ["\n\n", "\r\n\r\n", "/src/", "#- coding: utf-8", "```"]
    stops = [*(f"<|{mark}|>" for mark in marks), *blocks, *(f"\n{word}" for word in words)]
    assert http.post(PATH, json=ask(stop=stops)).status_code == 200
    assert script.request.stop == tuple(stops)


def test_minus_one_is_no_limit(http, script):
    assert http.post(PATH, json=ask(max_tokens=-1)).status_code == 200
    assert reply_budget(1000, script.request.max_tokens, None) == MAX_TOKENS_CAP


def test_answer_and_stream(base_url, script):
    sdk = openai.OpenAI(base_url=f"{base_url}/v1", api_key="x")
    whole = sdk.completions.create(**ask())
    pieces = list(sdk.completions.create(**ask(), stream=True))

    assert whole.choices[0].text == "Hello" == "".join(piece.choices[0].text for piece in pieces)
    assert whole.choices[0].finish_reason == pieces[-1].choices[0].finish_reason == "stop"
    assert whole.usage == pieces[-1].usage
    assert script.request.text_prompt == "Once"


def test_several_prompts_and_choices(http, script):
    answer = http.post(PATH, json=ask(prompt=["a", "b"], n=2, echo=True)).json()

    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert [choice["text"] for choice in answer["choices"]] == ["aHello", "aHello", "bHello", "bHello"]
    assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (24, 12)


def test_token_ids_as_prompts(http, script):
    http.post(PATH, json=ask(prompt=[1, 2, 3]))
    assert script.request.prompt_ids == [1, 2, 3]
    http.post(PATH, json=ask(prompt=[[1], [2, 3]]))
    assert [request.prompt_ids for request in script.requests[1:]] == [[1], [2, 3]]


def test_echo_comes_first_in_the_stream(http):
    frames = [data for _, data in post_stream(http, PATH, ask(echo=True)) if data != "[DONE]"]
    assert frames[0]["choices"][0]["text"] == "Once"
    assert "".join(frame["choices"][0]["text"] for frame in frames) == "OnceHello"


def test_include_usage(http):
    frames = [data for _, data in post_stream(http, PATH, ask(stream_options={"include_usage": True}))]
    assert frames[-2]["choices"] == []
    assert frames[-2]["usage"]["total_tokens"] == 15
    assert all(frame["usage"] is None for frame in frames[:-2])


def test_logprobs_as_parallel_lists(http, script):
    tokens = [
        TokenLogprob(1, "He", b"He", -0.1, ((1, "He", b"He", -0.1), (2, "So", b"So", -2.0))),
        TokenLogprob(3, "y", b"y", -0.2, ((3, "y", b"y", -0.2),)),
    ]
    script.steps = [prefill(), *(TextDelta(token.text, 1, (token,)) for token in tokens), finished()]
    logprobs = http.post(PATH, json=ask(logprobs=2)).json()["choices"][0]["logprobs"]

    assert logprobs == {
        "tokens": ["He", "y"],
        "token_logprobs": [-0.1, -0.2],
        "top_logprobs": [{"He": -0.1, "So": -2.0}, {"y": -0.2}],
        "text_offset": [0, 2],
    }
    streamed = [data["choices"][0]["logprobs"] for _, data in post_stream(http, PATH, ask(logprobs=2))[:-1]]
    assert [one["text_offset"] for one in streamed if one] == [[0], [2]]


ECHOED = (
    TokenLogprob(7, "On", b"On", None),
    TokenLogprob(8, "ce", b"ce", -0.3, ((8, "ce", b"ce", -0.3),)),
)


def test_an_echo_has_the_prompts_log_probabilities(base_url, http, script):
    """What lm-evaluation-harness asks for, and how it reads the answer."""
    script.echoed = ECHOED
    token = TokenLogprob(1, "Hi", b"Hi", -0.1, ((1, "Hi", b"Hi", -0.1),))
    script.steps = [prefill(), TextDelta("Hi", 1, (token,)), finished("length")]
    sdk = openai.OpenAI(base_url=f"{base_url}/v1", api_key="x")
    fields = ask(prompt=[[7, 8]], echo=True, logprobs=1, max_tokens=1, temperature=0, seed=1234)
    (choice,) = sdk.completions.create(**fields).choices
    assert choice.logprobs.model_dump() == {
        "tokens": ["On", "ce", "Hi"],
        "token_logprobs": [None, -0.3, -0.1],
        "top_logprobs": [None, {"ce": -0.3}, {"Hi": -0.1}],
        "text_offset": [0, 2, 4],
    }
    context = 1
    assert sum(choice.logprobs.token_logprobs[context:-1]) == -0.3
    assert script.request.prompt_ids == [7, 8]
    streamed = [data["choices"][0]["logprobs"] for _, data in post_stream(http, PATH, fields)[:-1]]
    assert [one["text_offset"] for one in streamed if one] == [[0, 2], [4]]


def test_parts_of_a_character_keep_their_names(http, script):
    first = TokenLogprob(
        1, "\ufffd", b"\xf0\x9f", -0.4, ((1, "\ufffd", b"\xf0\x9f", -0.4), (2, "\ufffd", b"\xe2", -4.8))
    )
    rest = TokenLogprob(3, "\ufffd", b"\x8e\x89", -0.1), TokenLogprob(4, "!", b"!", -0.2)
    script.steps = [prefill(), TextDelta("🎉!", 3, (first, *rest)), finished()]
    logprobs = http.post(PATH, json=ask(logprobs=2)).json()["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["bytes:\\xf0\\x9f", "bytes:\\x8e\\x89", "!"]
    assert logprobs["top_logprobs"][0] == {"bytes:\\xf0\\x9f": -0.4, "bytes:\\xe2": -4.8}
    assert logprobs["text_offset"] == [0, 0, 1]


def test_only_the_prompt(http, script):
    script.echoed = ECHOED
    script.steps = [prefill(), finished("length")]
    answer = http.post(PATH, json=ask(echo=True, logprobs=0, max_tokens=0)).json()
    assert script.request.max_tokens == 0
    assert (answer["choices"][0]["text"], answer["choices"][0]["finish_reason"]) == ("Once", "length")
    assert answer["choices"][0]["logprobs"]["token_logprobs"] == [None, -0.3]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": {"a": 1}}, "prompt"),
        ({"suffix": "end"}, "suffix"),
        ({"best_of": 3}, "best_of"),
        ({"logprobs": True}, "logprobs"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"echo": True, "max_tokens": -2}, "max_tokens"),
    ],
)
def test_wrong_fields_are_named(http, fields, param):
    answer = http.post(PATH, json=ask() | fields)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
