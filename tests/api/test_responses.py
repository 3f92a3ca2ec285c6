from typing import get_args, get_type_hints

import openai
import pytest
from engine_script import HELLO, THINK_AND_CALL, finished, prefill
from openai.types.responses import ResponseInputItemParam, ResponseStreamEvent
from pydantic import TypeAdapter
from wire import post_stream

from api.seal import seal
from engine.messages import (
    Constraint,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
    ToolCallDelta,
    ToolCallStart,
    ToolChoice,
)

PATH = "/v1/responses"
TOOL = {"type": "function", "name": "get", "parameters": {"type": "object"}, "strict": False}
SPACE = {"type": "namespace", "name": "agents", "tools": [{"type": "function", "name": "spawn", "parameters": {}}]}
CUSTOM = {"type": "custom", "name": "patch", "description": "Free text."}


@pytest.fixture
def sdk(base_url, script):
    return openai.OpenAI(base_url=f"{base_url}/v1", api_key="unused", max_retries=0)


def ask(**fields):
    return {"model": "m", "input": "hi", **fields}


def called(name, arguments):
    return [prefill(), ToolCallStart(0, "call_1", name), ToolCallDelta(0, arguments), finished("tool_calls")]


def without_ids(item):
    return {name: value for name, value in item.items() if name != "id"}


def test_answer_reads_as_the_sdk_expects(sdk):
    answer = sdk.responses.create(**ask(instructions="Be brief.", max_output_tokens=9))

    assert (answer.output_text, answer.status, answer.model) == ("Hello", "completed", "alpha")
    assert (answer.usage.input_tokens, answer.usage.input_tokens_details.cached_tokens) == (12, 5)
    assert (answer.usage.output_tokens, answer.usage.output_tokens_details.reasoning_tokens) == (3, 1)
    assert answer.instructions == "Be brief."


def test_stream_and_answer_agree(sdk, http, script):
    script.steps = THINK_AND_CALL
    whole = http.post(PATH, json=ask(tools=[TOOL])).json()
    with sdk.responses.stream(**ask(tools=[TOOL])) as stream:
        streamed = stream.get_final_response().to_dict()

    assert [item["type"] for item in whole["output"]] == ["reasoning", "message", "function_call", "function_call"]
    raw = post_stream(http, PATH, ask(tools=[TOOL]))[-1][1]["response"]
    assert [without_ids(item) for item in raw["output"]] == [without_ids(item) for item in whole["output"]]
    assert raw["usage"] == whole["usage"]
    assert len(streamed["output"]) == 4


def test_order_of_the_events(http, script):
    script.steps = HELLO
    frames = post_stream(http, PATH, ask())

    assert [name for name, _ in frames] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [data["sequence_number"] for _, data in frames] == list(range(len(frames)))
    assert all(name == data["type"] for name, data in frames)


EVENT = TypeAdapter(ResponseStreamEvent)


def test_a_summary_that_is_asked_for_is_the_reasoning(sdk, http, script):
    """What Codex and the AI SDK show: of `reasoning_text` they show nothing by themselves."""
    script.steps = THINK_AND_CALL
    asked = ask(tools=[TOOL], reasoning={"summary": "auto"}, include=["reasoning.encrypted_content"])
    whole = sdk.responses.create(**asked).output[0]
    frames = post_stream(http, PATH, asked)
    events = [EVENT.validate_python(data) for _, data in frames]

    told = [event for event in events if "reasoning" in event.type]
    parts = ["part.added", "text.delta", "text.delta", "text.done", "part.done"]
    assert [event.type.removeprefix("response.reasoning_summary_") for event in told] == parts
    assert "".join(event.delta for event in told if event.type.endswith("delta")) == told[3].text == "think hard"
    done = next(event.item for event in events if event.type == "response.output_item.done")
    for item in (whole, done, events[-1].response.output[0]):
        assert (item.summary[0].text, item.content, len(item.summary)) == ("think hard", [], 1)
    assert events[0].response.reasoning.summary == "auto"

    for fields in ({"summary": None}, {"summary": "none"}):
        assert "summary" not in "".join(name for name, _ in post_stream(http, PATH, asked | {"reasoning": fields}))

    item = {name: value for name, value in done.to_dict().items() if name != "encrypted_content"}
    http.post(PATH, json=ask(input=[{"role": "user", "content": "hi"}, item, {"role": "assistant", "content": "a"}]))
    assert script.request.messages[1]["reasoning_content"] == "think hard"


def test_a_reply_that_ran_out_is_incomplete(http, script):
    script.steps = [*HELLO[:-1], finished("length")]
    name, data = post_stream(http, PATH, ask())[-1]

    assert name == "response.incomplete"
    assert data["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert http.post(PATH, json=ask()).json()["status"] == "incomplete"


CUT = {
    "message": [TextDelta("Hel")],
    "reasoning": [ReasoningDelta("Hm, ")],
    "function_call": [TextDelta("I call."), ToolCallStart(0, "call_1", "get"), ToolCallDelta(0, '{"x": "Pa')],
    "custom_tool_call": [ToolCallStart(0, "call_1", "patch"), ToolCallDelta(0, '{"input": "Pa')],
}


@pytest.mark.parametrize("kind", CUT)
def test_the_item_that_ran_out_is_incomplete(http, sdk, script, kind):
    script.steps = [prefill(), *CUT[kind], finished("length")]
    asked = ask(tools=[TOOL, CUSTOM])
    whole = http.post(PATH, json=asked).json()["output"]
    frames = post_stream(http, PATH, asked)
    done = [data["item"] for name, data in frames if name == "response.output_item.done"]

    statuses = ["completed"] * (len(whole) - 1) + ["incomplete"]  # the protocol's words, as the SDK types them
    for output in (whole, done, frames[-1][1]["response"]["output"]):
        assert [item["status"] for item in output] == statuses
        assert output[-1]["type"] == kind
    assert [item.status for item in sdk.responses.create(**asked).output] == statuses


def test_a_whole_call_before_what_ran_out_is_completed(http, script):
    script.steps = [*called("get", '{"x": "1"}')[:-1], finished("length")]
    answer = http.post(PATH, json=ask(tools=[TOOL])).json()
    assert (answer["status"], answer["output"][0]["status"]) == ("incomplete", "completed")


def test_a_tool_of_a_namespace_is_called_with_it(http, script):
    script.steps = called("agents__spawn", "{}")
    answer = http.post(PATH, json=ask(tools=[TOOL, SPACE]))

    assert [tool["function"]["name"] for tool in script.request.tools] == ["get", "agents__spawn"]
    assert without_ids(answer.json()["output"][0]) == {
        "type": "function_call",
        "call_id": "call_1",
        "namespace": "agents",
        "name": "spawn",
        "arguments": "{}",
        "status": "completed",
    }
    done = [data for name, data in post_stream(http, PATH, ask(tools=[SPACE])) if name == "response.output_item.done"]
    assert (done[0]["item"]["namespace"], done[0]["item"]["name"]) == ("agents", "spawn")


def test_a_custom_tool_takes_free_text(http, script):
    script.steps = called("patch", '{"input": "*** Begin\\n"}')
    item = http.post(PATH, json=ask(tools=[CUSTOM])).json()["output"][0]
    frames = post_stream(http, PATH, ask(tools=[CUSTOM]))

    assert (item["type"], item["name"], item["input"]) == ("custom_tool_call", "patch", "*** Begin\n")
    assert {"response.custom_tool_call_input.delta", "response.custom_tool_call_input.done"} <= {n for n, _ in frames}
    assert not any("function_call_arguments" in name for name, _ in frames)


def test_items_become_neutral_messages(http, script):
    http.post(
        PATH,
        json=ask(
            instructions="Top.",
            input=[
                {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Dev."}]},
                {"role": "user", "content": "hi"},
                {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": seal("hm")},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Sure."}]},
                {
                    "type": "function_call",
                    "call_id": "c1",
                    "name": "spawn",
                    "namespace": "agents",
                    "arguments": '{"a": 1}',
                },
                {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "x"},
                {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "done"}]},
                {"type": "custom_tool_call_output", "call_id": "c2", "output": "ok"},
                {"type": "web_search_call", "id": "ws_1"},
            ],
        ),
    )

    calls = [
        {"id": "c1", "type": "function", "function": {"name": "agents__spawn", "arguments": {"a": 1}}},
        {"id": "c2", "type": "function", "function": {"name": "patch", "arguments": {"input": "x"}}},
    ]
    assert script.request.messages == [
        {"role": "system", "content": "Top.\n\nDev."},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "Sure.", "reasoning_content": "hm", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
        {"role": "tool", "tool_call_id": "c2", "content": "ok"},
    ]


def test_reasoning_comes_back_through_encrypted_content(http, script):
    script.steps = THINK_AND_CALL
    asked = ask(include=["reasoning.encrypted_content"], tools=[TOOL])
    output = http.post(PATH, json=asked).json()["output"]
    sealed = {name: value for name, value in output[0].items() if name != "content"}
    http.post(PATH, json=ask(input=[{"role": "user", "content": "hi"}, sealed, output[1]]))

    assert script.request.messages[1]["reasoning_content"] == "think hard"


def test_fields_reach_the_request(http, script):
    form = {"type": "json_schema", "name": "a", "schema": {"type": "object"}, "strict": True}
    http.post(
        PATH,
        json=ask(
            max_output_tokens=9,
            temperature=0,
            text={"format": form},
            reasoning={"effort": "low", "summary": "auto"},
            tools=[TOOL, SPACE],
            tool_choice={"type": "function", "name": "spawn", "namespace": "agents"},
            parallel_tool_calls=False,
        ),
    )

    request = script.request
    assert (request.max_tokens, request.sampling.temperature) == (9, 0)
    assert request.constraint == Constraint("json_schema", {"type": "object"})
    assert (request.reasoning, request.template_kwargs) == (True, {"reasoning_effort": "low"})
    assert request.tool_choice == ToolChoice("named", "agents__spawn", parallel=False)


def test_what_would_change_the_answer_and_is_not_honoured_is_told(http):
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: /a/"}
    tools = [{"type": "custom", "name": "patch", "format": grammar}, {"type": "web_search"}]
    told = http.post(PATH, json=ask(tools=tools, text={"verbosity": "low"})).json()["smoe"]["ignored"]
    assert [line.partition(":")[0] for line in told] == ["tools.0.format", "tools.1", "text.verbosity"]


@pytest.mark.parametrize(("asked", "told"), [(None, "auto"), ("auto", "auto"), ("disabled", "disabled")])
def test_truncation(http, script, asked, told):
    assert http.post(PATH, json=ask(truncation=asked)).json()["truncation"] == told
    assert script.request.may_slide == (asked != "disabled")


def test_allowed_tools_are_the_only_ones(http, script):
    named = [{"type": "function", "name": "spawn", "namespace": "agents"}, {"type": "mcp", "server_label": "x"}]
    choice = {"type": "allowed_tools", "mode": "required", "tools": named}
    http.post(PATH, json=ask(tools=[TOOL, SPACE], tool_choice=choice))
    assert [tool["function"]["name"] for tool in script.request.tools] == ["agents__spawn"]
    assert script.request.tool_choice == ToolChoice("required")


def test_logprobs_where_they_are_included(http, script):
    token = TokenLogprob(7, "a", b"a", -0.5, ((7, "a", b"a", -0.5),))
    script.steps = [prefill(), TextDelta("a", 1, (token,)), finished()]
    asked = ask(include=["message.output_text.logprobs"], top_logprobs=1)
    whole = http.post(PATH, json=asked).json()["output"][0]["content"][0]["logprobs"]
    delta = next(data for name, data in post_stream(http, PATH, asked) if name == "response.output_text.delta")

    assert script.request.logprobs == 1
    assert (
        whole
        == delta["logprobs"]
        == [
            {
                "token": "a",
                "logprob": -0.5,
                "bytes": [97],
                "top_logprobs": [{"token": "a", "logprob": -0.5, "bytes": [97]}],
            }
        ]
    )


# What would change the answer, or stands for what is not here.
UNTAKEN = {"additional_tools", "compaction", "compaction_trigger", "configuration_update"}
KINDS = {get_args(get_type_hints(item)["type"])[0] for item in get_args(ResponseInputItemParam)}


@pytest.mark.parametrize("kind", sorted(kind for kind in KINDS - UNTAKEN if isinstance(kind, str)))
def test_every_item_of_the_sdks_conversations_is_taken(http, kind):
    parts = {"content": [], "summary": [], "output": "", "input": ""}
    item = {"type": kind, "id": "a", "call_id": "c", "name": "get", "role": "assistant", "arguments": "{}", **parts}
    answer = http.post(PATH, json=ask(input=[{"role": "user", "content": "hi"}, item]))
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("stream", [False, True])
def test_a_reference_to_a_replys_item_is_the_item(http, script, stream):
    """The AI SDK sends it from a conversation's second turn on, unless told store: false."""
    script.steps = THINK_AND_CALL
    items = told(http, stream, tools=[TOOL])
    results = [{"type": "function_call_output", "call_id": call, "output": "ok"} for call in ("call_a", "call_b")]
    said = {"role": "user", "content": "hi"}

    http.post(PATH, json=ask(tools=[TOOL], input=[said, *items, *results]))
    references = [{"type": "item_reference", "id": item["id"]} for item in items]
    http.post(PATH, json=ask(tools=[TOOL], input=[said, *references, *results]))
    assert script.requests[-1].messages == script.requests[-2].messages
    assert [call["id"] for call in script.request.messages[1]["tool_calls"]] == ["call_a", "call_b"]


def told(http, stream, **fields):
    if stream:
        return post_stream(http, PATH, ask(**fields))[-1][1]["response"]["output"]
    return http.post(PATH, json=ask(**fields)).json()["output"]


@pytest.mark.parametrize(("fields", "headers"), [({"store": False}, {}), ({}, {"authorization": "Bearer another"})])
def test_nobody_else_and_nothing_unasked_is_remembered(http, fields, headers):
    (item,) = told(http, False, **fields)
    reference = {"type": "item_reference", "id": item["id"]}
    answer = http.post(PATH, json=ask(input=[reference]), headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "item_not_found")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"background": True}, "background"),
        ({"input": []}, "input"),
        ({"input": None}, "input"),
        ({"input": [{"type": "web_search_call"}]}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input.0"),
        ({"input": [{"type": "hologram"}]}, "input.0.type"),
        ({"input": [{"type": "function_call_output", "call_id": "a", "output": {"a": 1}}]}, "input.0.output"),
        ({"input": [{"type": "function_call_output", "call_id": "a", "output": [{"type": "x"}]}]}, "input.0.output.0"),
        ({"input": [{"type": "compaction", "encrypted_content": "x"}]}, "input.0"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input.0.content.0"),
        ({"max_output_tokens": "9"}, "max_output_tokens"),
        ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format.schema"),
        ({"truncation": "middle"}, "truncation"),
        ({"reasoning": {"summary": "long"}}, "reasoning.summary"),
        ({"reasoning": {"generate_summary": 1}}, "reasoning.generate_summary"),
        ({"tool_choice": {"type": "file_search"}}, "tool_choice.type"),
        ({"tools": [TOOL | {"name": 'a"b'}]}, "tools.0.name"),
        ({"tools": [CUSTOM | {"name": "a<b"}]}, "tools.0.name"),
        ({"tools": [SPACE | {"name": ""}]}, "tools.0.name"),
    ],
)
def test_wrong_fields_are_named(http, fields, param):
    answer = http.post(PATH, json=ask(stream=True) | fields)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
