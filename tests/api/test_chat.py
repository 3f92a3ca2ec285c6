import json

import openai
import pytest
from engine_script import HELLO, THINK_AND_CALL, finished, prefill, text
from openai.types.chat import ChatCompletionMessageCustomToolCall
from wire import chat, post_stream

from engine.messages import (
    Booting,
    Constraint,
    Queued,
    Sampling,
    TextDelta,
    TokenLogprob,
    ToolCallDelta,
    ToolCallStart,
    ToolChoice,
)
from engine.window import MAX_TOKENS_CAP, reply_budget

PATH = "/v1/chat/completions"
TOOL = {"type": "function", "function": {"name": "get", "parameters": {"type": "object"}}}


@pytest.fixture
def sdk(base_url, script):
    return openai.OpenAI(base_url=f"{base_url}/v1", api_key="unused", max_retries=0)


def chunks(frames):
    return [data for _, data in frames if data != "[DONE]"]


def test_answer_reads_as_the_sdk_expects(sdk):
    answer = sdk.chat.completions.create(**chat())

    assert answer.choices[0].message.content == "Hello"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.model == "alpha"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (12, 3, 15)
    assert answer.usage.completion_tokens_details.reasoning_tokens == 1


def test_stream_and_answer_agree(sdk, script):
    script.steps = THINK_AND_CALL
    whole = sdk.chat.completions.create(**chat())
    with sdk.chat.completions.stream(**chat()) as stream:
        streamed = stream.get_final_completion()

    for kind in (whole, streamed):
        message = kind.choices[0].message
        assert message.content == "Calling"
        assert message.reasoning_content == "think hard"
        assert [(call.id, call.function.name) for call in message.tool_calls] == [("call_a", "get"), ("call_b", "get")]
        assert [call.function.arguments for call in message.tool_calls] == ['{"x": "1"}', '{"x": "2"}']
        assert kind.choices[0].finish_reason == "tool_calls"
    assert streamed.usage == whole.usage


def test_content_is_null_beside_tool_calls_without_text(http, script):
    script.steps = [step for step in THINK_AND_CALL if not isinstance(step, TextDelta)]

    assert http.post(PATH, json=chat()).json()["choices"][0]["message"]["content"] is None


def test_every_finish_reason(http, script):
    expected = {"stop": "stop", "stop_sequence": "stop", "length": "length", "tool_calls": "tool_calls"}
    for reason, word in expected.items():
        script.steps = [prefill(), finished(reason)]
        assert http.post(PATH, json=chat()).json()["choices"][0]["finish_reason"] == word
        assert chunks(post_stream(http, PATH, chat()))[-1]["choices"][0]["finish_reason"] == word


def test_stream_ends_with_done_and_begins_with_the_role(http):
    frames = post_stream(http, PATH, chat())

    assert frames[-1] == (None, "[DONE]")
    assert frames[0][1]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert len({chunk["id"] for chunk in chunks(frames)}) == 1


def test_timings_have_the_names_of_llama_cpp(http):
    timings = http.post(PATH, json=chat()).json()["timings"]

    assert timings["cache_n"] == 5
    assert timings["prompt_n"] == 7
    assert timings["prompt_per_second"] == pytest.approx(7 / 0.070, abs=0.01)
    assert timings["predicted_per_second"] == pytest.approx(3 / 0.030, abs=0.01)


def test_return_progress(http, script):
    script.steps = [prefill(5), prefill(8), prefill(12), *HELLO[1:]]
    told = [
        chunk["prompt_progress"]
        for chunk in chunks(post_stream(http, PATH, chat(return_progress=True)))
        if "prompt_progress" in chunk
    ]

    assert [(one["total"], one["cache"], one["processed"]) for one in told] == [(12, 5, 5), (12, 5, 8), (12, 5, 12)]


def test_waiting_is_told_in_chunks(http, script):
    script.steps = [Queued(2), 0.3, Queued(1), Booting("alpha", 0.5), *HELLO]
    states = [chunk["smoe"] for chunk in chunks(post_stream(http, PATH, chat())) if "state" in chunk.get("smoe", {})]

    assert states[0] == {"state": "queued", "position": 2}
    assert {"state": "queued", "position": 1} in states
    assert {"state": "booting", "model": "alpha", "seconds": 0.5} in states


def test_every_chunk_names_what_runs(http, script):
    script.steps = [Queued(1, "alpha"), 0.3, *HELLO]
    assert {chunk["model"] for chunk in chunks(post_stream(http, PATH, chat()))} == {"alpha"}


def test_the_slid_window_is_told(http, script):
    script.steps = [prefill(), finished(slid=12)]

    assert http.post(PATH, json=chat()).json()["smoe"]["context"] == {"window": 4096, "used": 15, "slid": 12}
    assert chunks(post_stream(http, PATH, chat()))[-1]["smoe"]["context"]["slid"] == 12


def test_several_choices(sdk, script):
    whole = sdk.chat.completions.create(**chat(n=3, seed=7))
    assert [choice.index for choice in whole.choices] == [0, 1, 2]
    assert [request.sampling.seed for request in script.requests] == [7, 8, 9]
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (12, 9)

    with sdk.chat.completions.stream(**chat(n=3)) as stream:
        streamed = stream.get_final_completion()
    assert [choice.message.content for choice in streamed.choices] == ["Hello"] * 3


def test_logprobs(sdk, script):
    token = TokenLogprob(7, "Hé", "Hé".encode(), -0.25, ((7, "Hé", "Hé".encode(), -0.25), (9, "No", b"No", -1.5)))
    script.steps = [prefill(), TextDelta("Hé", 1, (token,)), finished()]
    whole = sdk.chat.completions.create(**chat(logprobs=True, top_logprobs=2)).choices[0].logprobs.content
    with sdk.chat.completions.stream(**chat(logprobs=True, top_logprobs=2)) as stream:
        streamed = stream.get_final_completion().choices[0].logprobs.content

    assert script.request.logprobs == 2
    assert whole[0].model_dump() == streamed[0].model_dump()
    assert (whole[0].token, whole[0].logprob, bytes(whole[0].bytes)) == ("Hé", -0.25, "Hé".encode())
    assert [(top.token, top.logprob) for top in whole[0].top_logprobs] == [("Hé", -0.25), ("No", -1.5)]


def test_logprobs_of_the_chosen_token_only(http, script):
    http.post(PATH, json=chat(logprobs=True))
    assert script.request.logprobs == 0
    http.post(PATH, json=chat())
    assert script.request.logprobs is None


def test_sampling_fields_reach_the_request(http, script):
    http.post(
        PATH,
        json=chat(
            temperature=0,
            top_p=0.5,
            top_k=7,
            min_p=0.1,
            repetition_penalty=1.2,
            presence_penalty=0.3,
            frequency_penalty=-0.4,
            seed=11,
            logit_bias={"5": -100},
            stop="END",
            max_completion_tokens=9,
            max_tokens=3,
        ),
    )

    assert script.request.sampling == Sampling(0, 0.5, 7, 0.1, 1.2, 0.3, -0.4, 11, {5: -100.0})
    assert script.request.stop == ("END",)
    assert script.request.max_tokens == 9


def test_absent_and_null_fields_leave_the_defaults(http, script):
    http.post(PATH, json=chat(temperature=None, stop=None, tools=None, response_format=None, stream=None))

    assert script.request.sampling == Sampling()
    assert script.request.constraint is None
    assert script.request.max_tokens is None


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_minus_one_is_no_limit_as_agents_send_it_for_models_that_they_do_not_know(http, script, name):
    assert http.post(PATH, json=chat(**{name: -1})).status_code == 200
    assert reply_budget(1000, script.request.max_tokens, None) == MAX_TOKENS_CAP
    assert http.post(PATH, json=chat(**{name: -2})).status_code == 400


def test_messages_become_neutral(http, script):
    call = {"id": "call_1", "type": "function", "function": {"name": "get", "arguments": '{"b": 1, "a": 2}'}}
    http.post(
        PATH,
        json=chat(
            messages=[
                {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
                {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "42"}]},
            ]
        ),
    )

    assert script.request.messages == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "a\nb"},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "hm",
            "tool_calls": [{**call, "function": {"name": "get", "arguments": {"b": 1, "a": 2}}}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "42"},
    ]


def test_a_last_assistant_message_is_continued(http, script):
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Once"}]
    http.post(PATH, json=chat(messages=messages))
    assert script.request.continue_final_message
    http.post(PATH, json=chat())
    assert not script.request.continue_final_message


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", ToolChoice()),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        ({"type": "auto"}, ToolChoice()),
        ({"type": "required"}, ToolChoice("required")),
        ({"type": "function", "function": {"name": "get"}}, ToolChoice("named", "get")),
    ],
)
def test_tool_choice(http, script, choice, expected):
    http.post(PATH, json=chat(tools=[TOOL], tool_choice=choice))
    assert script.request.tool_choice == expected


def put():
    return {"type": "function", "function": {**TOOL["function"], "name": "put"}}


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_allowed_tools_are_the_only_ones(http, script, mode):
    named = [{"type": "function", "function": {"name": "put"}}]
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": named}}
    assert http.post(PATH, json=chat(tools=[TOOL, put()], tool_choice=choice)).status_code == 200
    assert [tool["function"]["name"] for tool in script.request.tools] == ["put"]
    assert script.request.tool_choice == ToolChoice(mode)


def test_parallel_tool_calls(http, script):
    http.post(PATH, json=chat(tools=[TOOL], parallel_tool_calls=False))
    assert script.request.tool_choice == ToolChoice(parallel=False)


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, Constraint("json_object")),
        (
            {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}},
            Constraint("json_schema", {"type": "object"}),
        ),
        ({"type": "regex", "regex": "a+"}, Constraint("regex", "a+")),
        ({"type": "grammar", "grammar": "start: /a/"}, Constraint("lark", "start: /a/")),
    ],
)
def test_response_format(http, script, form, expected):
    http.post(PATH, json=chat(response_format=form))
    assert script.request.constraint == expected


@pytest.mark.parametrize("name", ["repetition_penalty", "rep_penalty", "repeat_penalty"])
def test_a_repetition_penalty_in_every_spelling(http, script, name):
    http.post(PATH, json=chat(**{name: 1.0}))
    assert script.request.sampling == Sampling(repetition_penalty=1.0)


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("fields", "expected", "param"),
    [
        (
            {"response_format": {"type": "json_object", "schema": SCHEMA}},
            Constraint("json_schema", SCHEMA),
            "response_format.schema",
        ),
        ({"json_schema": SCHEMA}, Constraint("json_schema", SCHEMA), "json_schema"),
        ({"guided_json": SCHEMA}, Constraint("json_schema", SCHEMA), "guided_json"),
        ({"guided_json": json.dumps(SCHEMA)}, Constraint("json_schema", SCHEMA), "guided_json"),
        ({"guided_regex": "a+"}, Constraint("regex", "a+"), "guided_regex"),
        ({"guided_choice": ["yes", 'n"o']}, Constraint("lark", 'start: "yes" | "n\\"o"'), "guided_choice"),
        ({"structured_outputs": {"json": SCHEMA}}, Constraint("json_schema", SCHEMA), "structured_outputs.json"),
        ({"structured_outputs": {"choice": ["a"]}}, Constraint("lark", 'start: "a"'), "structured_outputs.choice"),
    ],
)
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
        ("/v1/completions", {"prompt": "x"}),
    ],
)
def test_constraints_in_other_servers_spelling(http, script, path, body, fields, expected, param):
    answer = http.post(path, json={**body, **fields})
    assert "ignored" not in answer.json()["smoe"]
    assert (script.request.constraint, script.request.constraint.param) == (expected, param)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"json_schema": 5}, "json_schema"),
        ({"guided_json": "{"}, "guided_json"),
        ({"guided_choice": []}, "guided_choice"),
        ({"guided_choice": ["a", ""]}, "guided_choice"),
        ({"guided_regex": 1}, "guided_regex"),
        ({"structured_outputs": {"regex": 1}}, "structured_outputs.regex"),
        ({"response_format": {"type": "json_object"}, "guided_regex": "a"}, "guided_regex"),
        ({"response_format": {"type": "json_object", "schema": 5}}, "response_format.schema"),
    ],
)
def test_constraints_that_are_none_or_two(http, script, fields, param):
    answer = http.post(PATH, json=chat(**fields))
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert script.requests == []


def test_a_constraint_tells_its_place(http, script):
    """So that the 400 of a schema that cannot be enforced names the field."""
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"not": {}}}}
    http.post(PATH, json=chat(response_format=form))
    assert script.request.constraint.param == "response_format.json_schema.schema"


def test_reasoning_effort_and_template_kwargs(http, script):
    http.post(PATH, json=chat(reasoning_effort="high", chat_template_kwargs={"tone": "dry"}))
    assert script.request.reasoning is True
    assert script.request.template_kwargs == {"reasoning_effort": "high", "tone": "dry"}
    http.post(PATH, json=chat(reasoning_effort="none"))
    assert script.request.reasoning is False
    http.post(PATH, json=chat(chat_template_kwargs={"enable_thinking": False}))
    assert script.request.reasoning is False
    assert script.request.template_kwargs == {}


@pytest.mark.parametrize("on", [True, False])
def test_thinking_in_the_spellings_of_other_servers(http, script, on):
    """As their documentation has them: Qwen, DeepSeek with GLM and Kimi, Ollama, OpenRouter."""
    kind, effort = ("enabled", "low") if on else ("disabled", "none")
    spellings = [{"enable_thinking": on}, {"thinking": {"type": kind}}, {"think": on}]
    spellings += [{"reasoning": {"enabled": on}}, {"reasoning": {"effort": effort, "exclude": False}}]
    for spelling in spellings:
        http.post(PATH, json=chat(**spelling))
        assert script.request.reasoning is on, spelling


def test_what_other_servers_have_besides_leaves_thinking_as_it_is(http, script):
    for said in (
        {"thinking": {"type": "auto"}},
        {"think": "high"},
        {"reasoning": True},
        {"reasoning": {"effort": ["low"]}},
    ):
        http.post(PATH, json=chat(**said))
        assert script.request.reasoning is None, said


UNREADABLE_NAMES = ("", 'a"b', "a'b", "a\\b", "a<b", "a>b", "a\nb", "a\x00", "a" * 129)


def test_names_of_tools_that_mcp_servers_have(http, script):
    names = ["files.read", "git/log", "mcp__a:b", "söka", "a" * 128]
    http.post(PATH, json=chat(tools=[{"type": "function", "function": {"name": name}} for name in names]))
    assert [tool["function"]["name"] for tool in script.request.tools] == names


WRONG = {
    "messages": [{"messages": None}, {"messages": []}, {"messages": "hi"}],
    "messages.0": [{"messages": ["hi"]}],
    "messages.0.role": [{"messages": [{"content": "x"}]}, {"messages": [{"role": "king", "content": "x"}]}],
    "messages.0.content": [{"messages": [{"role": "user"}]}, {"messages": [{"role": "user", "content": 5}]}],
    "messages.0.content.0": [
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]}
    ],
    "messages.0.tool_calls.0.function": [{"messages": [{"role": "assistant", "tool_calls": [{"id": "a"}]}]}],
    "temperature": [{"temperature": "hot"}, {"temperature": -1}, {"temperature": 2.5}, {"temperature": True}],
    "top_p": [{"top_p": 1.5}],
    "top_k": [{"top_k": 1.5}],
    "seed": [{"seed": "1"}],
    "n": [{"n": 0}, {"n": 1000}, {"n": "2"}],
    "max_tokens": [{"max_tokens": 0}, {"max_tokens": "many"}],
    "stop": [{"stop": 5}, {"stop": ["a"] * 65}, {"stop": ""}],
    "stop.1": [{"stop": ["a", 5]}],
    "stream": [{"stream": "yes"}],
    "stream_options": [{"stream_options": True}],
    "logit_bias": [{"logit_bias": [1]}],
    "logit_bias.word": [{"logit_bias": {"word": 1}}],
    "logit_bias.5": [{"logit_bias": {"5": 101}}],
    "top_logprobs": [{"logprobs": True, "top_logprobs": 21}, {"top_logprobs": 2}],
    "tools": [{"tools": {}}],
    "tools.0.function.name": [
        {"tools": [{"type": "function", "function": function}]}
        for function in ({}, *({"name": name} for name in UNREADABLE_NAMES))
    ],
    "functions.0.name": [{"functions": [{"name": 'a"b'}]}],
    "tool_choice": [
        {"tool_choice": "required"},
        {"tool_choice": "sometimes"},
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "put"}}},
        {"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": []}},
    ],
    "tool_choice.tools": [{"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "mode": "auto"}}],
    "tool_choice.allowed_tools.mode": [
        {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "none", "tools": []}}}
    ],
    "tool_choice.tools.0": [
        {"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"name": "put"}]}}
    ],
    "response_format.type": [{"response_format": {"type": "xml"}}],
    "response_format.json_schema.schema": [{"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}}],
    "function_call": [
        {"functions": [TOOL["function"]], "function_call": "required"},
        {"functions": [TOOL["function"]], "function_call": {"name": "put"}},
    ],
    "reasoning_effort": [{"reasoning_effort": "huge"}],
    "modalities": [{"modalities": ["text", "audio"]}],
    "chat_template_kwargs": [{"chat_template_kwargs": {"messages": []}}],
}


@pytest.mark.parametrize(("param", "fields"), [(param, one) for param, many in WRONG.items() for one in many])
def test_wrong_fields_are_named(http, script, param, fields):
    answer = http.post(PATH, json=chat(stream=True) | fields)

    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    assert error["message"].endswith(".")
    assert script.requests == []


def test_unknown_fields_are_ignored(http):
    assert http.post(PATH, json=chat(service_tier="auto", store=False, user="u", frobnicate={})).status_code == 200


CUSTOM = {"type": "custom", "custom": {"name": "patch", "description": "Free text."}}
FREE_TEXT = '*** Begin\n"x"\n'
CALL_CUSTOM = [
    prefill(),
    ToolCallStart(0, "call_a", "patch"),
    ToolCallDelta(0, '{"input": "*** Begin\\n'),
    ToolCallDelta(0, '\\"x\\"\\n"}'),
    ToolCallStart(1, "call_b", "get"),
    ToolCallDelta(1, '{"x": "1"}'),
    finished("tool_calls"),
]


def test_a_custom_tool_takes_free_text(sdk, script):
    script.steps = CALL_CUSTOM
    asked = chat(tools=[TOOL, CUSTOM], tool_choice="required")
    custom, function = sdk.chat.completions.create(**asked).choices[0].message.tool_calls

    assert isinstance(custom, ChatCompletionMessageCustomToolCall)
    assert (custom.id, custom.custom.name, custom.custom.input) == ("call_a", "patch", FREE_TEXT)
    assert (function.type, function.function.arguments) == ("function", '{"x": "1"}')
    assert script.request.tools[1]["function"]["parameters"]["required"] == ["input"]


def test_a_stream_has_a_custom_tools_text_and_not_its_json(http, script):
    script.steps = CALL_CUSTOM
    frames = post_stream(http, PATH, chat(tools=[TOOL, CUSTOM]))
    deltas = [choice["delta"] for _, data in frames if data != "[DONE]" for choice in data["choices"]]
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]

    assert calls[:2] == [
        {"index": 0, "id": "call_a", "type": "custom", "custom": {"name": "patch", "input": ""}},
        {"index": 0, "custom": {"input": FREE_TEXT}},
    ]
    assert {call["index"] for call in calls[2:]} == {1}


def test_a_custom_tools_call_comes_back_as_the_model_wrote_it(http, script):
    call = {"id": "call_a", "type": "custom", "custom": {"name": "patch", "input": FREE_TEXT}}
    history = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_a", "content": "ok"},
    ]
    http.post(PATH, json=chat(messages=history, tools=[CUSTOM]))
    assert script.request.messages[1]["tool_calls"][0]["function"] == {
        "name": "patch",
        "arguments": {"input": FREE_TEXT},
    }


def test_tools_that_only_a_provider_runs_are_told(http):
    answer = http.post(PATH, json=chat(tools=[TOOL, {"type": "web_search"}])).json()
    assert "web_search" in answer["smoe"]["ignored"][0]


@pytest.mark.parametrize("field", ["verbosity", "moderation"])
def test_what_would_change_the_answer_and_is_not_honoured_is_told(http, field):
    answer = http.post(PATH, json=chat(**{field: "low"})).json()
    assert answer["smoe"]["ignored"] == [f"{field}: this server does not have it"]
    assert "ignored" not in http.post(PATH, json=chat(**{field: None})).json()["smoe"]


OTHER_SERVERS = {
    "grammar": 'root ::= "yes"',
    "guided_grammar": 'root ::= "yes"',
    "format": "json",
    "min_tokens": 3,
    "ignore_eos": True,
    "stop_token_ids": [1],
    "n_predict": 5,
}


@pytest.mark.parametrize("field", OTHER_SERVERS)
@pytest.mark.parametrize("stream", [False, True])
def test_other_servers_fields_that_are_not_honoured_are_told(http, field, stream):
    bodies = {PATH: chat(), "/v1/completions": {"prompt": "x"}}
    for path, body in bodies.items():
        body |= {field: OTHER_SERVERS[field], "stream": stream}
        told = [data for _, data in post_stream(http, path, body)][-2] if stream else http.post(path, json=body).json()
        assert told["smoe"]["ignored"] == [f"{field}: this server does not have it"]


# --- functions, the older form of tools ------------------------------------------------------------------------------

OLDER = {"functions": [TOOL["function"]]}


def test_functions_are_called_in_their_own_form(sdk, script):
    script.steps = [step for step in THINK_AND_CALL if getattr(step, "index", 0) == 0]  # one call
    whole = sdk.chat.completions.create(**chat(), **OLDER).choices[0]
    assert (whole.message.function_call.name, whole.message.function_call.arguments) == ("get", '{"x": "1"}')
    assert (whole.message.tool_calls, whole.finish_reason) == (None, "function_call")
    assert script.request.tools[0]["function"]["name"] == "get"
    assert script.request.tool_choice == ToolChoice(parallel=False)

    streamed = [chunk.choices[0] for chunk in sdk.chat.completions.create(**chat(), **OLDER, stream=True)]
    calls = [choice.delta.function_call for choice in streamed if choice.delta.function_call]
    assert (calls[0].name, "".join(call.arguments for call in calls)) == ("get", '{"x": "1"}')
    assert all(choice.delta.tool_calls is None for choice in streamed)
    assert streamed[-1].finish_reason == "function_call"


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("none", ToolChoice("none", parallel=False)),
        ("auto", ToolChoice(parallel=False)),
        ({"name": "get"}, ToolChoice("named", "get", parallel=False)),
    ],
)
def test_function_call(http, script, choice, expected):
    http.post(PATH, json=chat(**OLDER, function_call=choice))
    assert script.request.tool_choice == expected


def test_a_character_outside_ascii_stays_whole_on_the_wire(http, script):
    script.steps = [prefill(), *text("🦙", "日本"), finished()]
    streamed = chunks(post_stream(http, PATH, chat()))
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in streamed) == "🦙日本"
    assert "🦙".encode() in http.post(PATH, json=chat(stream=True)).content


def test_half_an_emoji_in_a_request_becomes_a_replacement_character(http, script):
    body = json.dumps(chat(messages=[{"role": "user", "content": "cut \ud83d"}]))
    assert http.post(PATH, content=body.encode()).status_code == 200
    assert script.request.messages[0]["content"] == "cut \ufffd"
