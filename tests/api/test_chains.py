"""Conversations that go on from a response's id: the model sees what it would see of one that is sent whole."""

import openai
import pytest
from engine_script import THINK_AND_CALL, finished, prefill, text
from wire import create, said

from engine.messages import ReasoningDelta, ToolCallDelta, ToolCallStart

TOOL = {"type": "function", "name": "get", "parameters": {"type": "object"}, "strict": False}
CUSTOM = {"type": "custom", "name": "patch"}
FORMS = ({}, {"include": ["reasoning.encrypted_content"]}, {"reasoning": {"summary": "auto"}})  # of reasoning


@pytest.fixture
def sdk(base_url, script):
    return openai.OpenAI(base_url=f"{base_url}/v1", api_key="one", max_retries=0)


def by_hand(sdk, script, **fields):
    """The messages of a client that sends everything itself."""
    sdk.responses.create(model="m", store=False, **fields)
    return script.request.messages


@pytest.mark.parametrize("stream", [False, True])
def test_a_chain_is_the_conversation_sent_whole(sdk, script, stream):
    first = create(sdk, stream, input="One?", instructions="Be brief.")
    before = script.request.messages
    script.steps = [prefill(), *text("Two."), finished()]
    second = create(sdk, stream, input=[{"role": "user", "content": "Two?"}], previous_response_id=first.id)
    third = create(sdk, stream, input="Three?", previous_response_id=second.id, instructions="Be brief.")

    assert before == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "One?"}]
    assert script.requests[1].messages[0] == {"role": "user", "content": "One?"}  # instructions are not carried over
    assert script.request.messages == [
        *before,
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "Two?"},
        {"role": "assistant", "content": "Two."},
        {"role": "user", "content": "Three?"},
    ]
    assert (first.previous_response_id, third.previous_response_id) == (None, second.id)
    assert first.to_dict()["store"] is third.to_dict()["store"] is True


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "fields", [{}, {"include": ["reasoning.encrypted_content"]}, {"reasoning": {"summary": "auto"}}]
)
def test_reasoning_and_calls_come_back_as_if_sent(sdk, script, stream, fields):
    script.steps = THINK_AND_CALL
    first = create(sdk, stream, input="hi", tools=[TOOL], **fields)
    results = [{"type": "function_call_output", "call_id": call, "output": "ok"} for call in ("call_a", "call_b")]
    create(sdk, stream, input=results, tools=[TOOL], previous_response_id=first.id)
    chained = script.request.messages

    assert chained[1]["reasoning_content"] == "think hard"
    assert [call["function"]["arguments"] for call in chained[1]["tool_calls"]] == [{"x": "1"}, {"x": "2"}]
    assert [message["role"] for message in chained] == ["user", "assistant", "tool", "tool"]
    output = [item.to_dict() for item in first.output]
    assert chained == by_hand(sdk, script, input=[{"role": "user", "content": "hi"}, *output, *results], tools=[TOOL])


@pytest.mark.parametrize("fields", [{}, {"input": []}])
def test_a_chain_goes_on_without_a_new_input(sdk, script, fields):
    """As OpenAI has it: one of input and previous_response_id is needed."""
    first = create(sdk, False, input="hi")
    second = create(sdk, False, previous_response_id=first.id, **fields)
    assert [message["content"] for message in script.request.messages] == ["hi", "Hello"]
    create(sdk, False, input="go", previous_response_id=second.id)
    assert [message["content"] for message in script.request.messages] == ["hi", "Hello", "Hello", "go"]


def test_a_custom_tools_call_comes_back(sdk, script):
    script.steps = [prefill(), ToolCallStart(0, "call_1", "patch"), ToolCallDelta(0, '{"input": "x"}'), finished()]
    first = sdk.responses.create(model="m", input="hi", tools=[CUSTOM])
    result = {"type": "custom_tool_call_output", "call_id": "call_1", "output": "ok"}
    sdk.responses.create(model="m", input=[result], tools=[CUSTOM], previous_response_id=first.id)

    (call,) = script.request.messages[1]["tool_calls"]
    assert call["function"] == {"name": "patch", "arguments": {"input": "x"}}


def test_a_system_message_on_the_way_stays_at_its_place(sdk, script):
    first = sdk.responses.create(model="m", input=[{"role": "developer", "content": "Dev."}, said("hi")])
    sdk.responses.create(
        model="m", input=[{"role": "system", "content": "Now."}, said("go")], previous_response_id=first.id
    )
    chained = script.request.messages
    whole = [{"role": "developer", "content": "Dev."}, said("hi"), {"role": "assistant", "content": "Hello"}]
    assert chained == by_hand(sdk, script, input=[*whole, {"role": "system", "content": "Now."}, said("go")])
    assert chained[0] == {"role": "system", "content": "Dev."}


def test_a_fork_knows_nothing_of_its_sibling(sdk, script):
    first = sdk.responses.create(model="m", input="One?")
    for question in ("left", "right"):
        sdk.responses.create(model="m", input=question, previous_response_id=first.id)
    assert [message["content"] for message in script.request.messages] == ["One?", "Hello", "right"]


def test_a_chain_of_which_only_the_first_is_stored(sdk, script):
    first = sdk.responses.create(model="m", input="hi")
    second = sdk.responses.create(model="m", input="go", previous_response_id=first.id, store=False)
    assert [message["content"] for message in script.request.messages] == ["hi", "Hello", "go"]
    with pytest.raises(openai.BadRequestError) as caught:
        sdk.responses.create(model="m", input="x", previous_response_id=second.id)
    assert caught.value.code == "previous_response_not_found"


def test_a_reply_that_was_cut_goes_on(sdk, script):
    script.steps = [prefill(), ReasoningDelta("Hm"), finished("length")]
    first = sdk.responses.create(model="m", input="hi")
    assert first.status == "incomplete"
    sdk.responses.create(model="m", input="go", previous_response_id=first.id)
    assert [message["content"] for message in script.request.messages] == ["hi", "go"]
