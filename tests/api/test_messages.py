import json
from typing import get_args

import anthropic
import pytest
from anthropic.types import beta
from engine_script import HELLO, THINK_AND_CALL, finished, prefill
from wire import claude, post_stream

from engine.messages import Constraint, Queued, ToolCallDelta, ToolCallStart, ToolChoice

PATH = "/v1/messages"
TOOL = {"name": "get", "input_schema": {"type": "object"}}


@pytest.fixture
def sdk(base_url, script):
    return anthropic.Anthropic(base_url=base_url, api_key="unused", max_retries=0)


def neutral(http, script, **fields):
    answer = http.post(PATH, json=claude(**fields))
    assert answer.status_code == 200, answer.text
    return script.request


def conversation(*contents):
    roles = ("user", "assistant")
    return [{"role": roles[index % 2], "content": content} for index, content in enumerate(contents)]


def test_answer_reads_as_the_sdk_expects(sdk):
    answer = sdk.messages.create(**claude())

    assert [block.model_dump(exclude_unset=True) for block in answer.content] == [{"type": "text", "text": "Hello"}]
    assert answer.stop_reason == "end_turn"
    assert answer.model == "alpha"
    assert (answer.usage.input_tokens, answer.usage.cache_read_input_tokens, answer.usage.output_tokens) == (7, 5, 3)


def test_stream_and_answer_agree(sdk, script):
    script.steps = THINK_AND_CALL
    whole = sdk.messages.create(**claude())
    with sdk.messages.stream(**claude()) as stream:
        streamed = stream.get_final_message()

    assert [block.type for block in whole.content] == ["thinking", "text", "tool_use", "tool_use"]
    for one, other in zip(whole.content, streamed.content, strict=True):
        assert one.model_dump(exclude={"parsed_output"}) == other.model_dump(exclude={"parsed_output"})
    assert whole.content[0].signature
    assert [block.input for block in whole.content[2:]] == [{"x": "1"}, {"x": "2"}]
    assert whole.stop_reason == streamed.stop_reason == "tool_use"
    assert whole.usage == streamed.usage


def test_order_and_indexes_of_the_events(http, script):
    script.steps = THINK_AND_CALL
    frames = post_stream(http, PATH, claude())

    assert all(name == data["type"] for name, data in frames)
    outline = [(name, data.get("index")) for name, data in frames if name != "content_block_delta"]
    blocks = [(f"content_block_{part}", index) for index in range(4) for part in ("start", "stop")]
    assert outline == [("message_start", None), *blocks, ("message_delta", None), ("message_stop", None)]
    open_block = None
    for name, data in frames:
        if name == "content_block_start":
            open_block = data["index"]
        if name == "content_block_delta":
            assert data["index"] == open_block


def test_message_start_is_complete(http):
    message = post_stream(http, PATH, claude())[0][1]["message"]

    assert message["content"] == []
    assert message["role"] == "assistant"
    assert message["usage"]["input_tokens"] == 7
    assert message["usage"]["cache_read_input_tokens"] == 5


def test_ping_comes_before_a_message_start_that_is_late(http, script, sdk):
    script.steps = [Queued(1), 0.3, *HELLO]

    assert [name for name, _ in post_stream(http, PATH, claude())][:2] == ["ping", "message_start"]
    with sdk.messages.stream(**claude()) as stream:
        assert stream.get_final_text() == "Hello"


def test_every_stop_reason(http, script):
    expected = {"stop": "end_turn", "stop_sequence": "stop_sequence", "length": "max_tokens", "tool_calls": "tool_use"}
    for reason, word in expected.items():
        sequence = "END" if reason == "stop_sequence" else None
        script.steps = [prefill(), finished(reason, stop_sequence=sequence)]
        whole = http.post(PATH, json=claude()).json()
        delta = next(data for name, data in post_stream(http, PATH, claude()) if name == "message_delta")["delta"]
        assert (whole["stop_reason"], whole["stop_sequence"]) == (word, sequence)
        assert delta == {"stop_reason": word, "stop_sequence": sequence}


def test_a_call_that_ran_out_has_no_made_up_input(sdk, script):
    script.steps = [prefill(), ToolCallStart(0, "call_a", "get"), ToolCallDelta(0, '{"x": "Pa'), finished("length")]
    answer = sdk.messages.create(**claude(tools=[TOOL]))

    assert (answer.stop_reason, answer.content[0].type, answer.content[0].input) == ("max_tokens", "tool_use", {})


def test_arguments_that_python_reads_and_json_has_not_are_sent_as_json(http, script):
    written = r'{"half": "x\ud83d", "nan": NaN, "large": -1e999, "one": 1.5}'
    script.steps = [prefill(), ToolCallStart(0, "call_a", "get"), ToolCallDelta(0, written), finished("tool_calls")]
    answer = http.post(PATH, json=claude(tools=[TOOL]))

    told = json.loads(answer.content.decode(), parse_constant=pytest.fail)  # RFC 8259 has no NaN and no Infinity
    # As browsers write such values: JSON.stringify has null for what is no number, UTF-8 has U+FFFD for half a pair.
    assert told["content"][0]["input"] == {"half": "x\ufffd", "nan": None, "large": None, "one": 1.5}


def test_a_reply_without_text_still_has_a_block(http, script):
    script.steps = [prefill(), finished()]

    assert http.post(PATH, json=claude()).json()["content"] == [{"type": "text", "text": ""}]
    names = [name for name, _ in post_stream(http, PATH, claude())]
    assert names == ["message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop"]


def test_thinking_that_is_not_shown_comes_back_in_its_signature(http, script):
    script.steps = THINK_AND_CALL
    thinking = {"type": "adaptive", "display": "omitted"}
    block = http.post(PATH, json=claude(thinking=thinking)).json()["content"][0]
    deltas = [
        data["delta"]
        for name, data in post_stream(http, PATH, claude(thinking=thinking))
        if name == "content_block_delta" and data["index"] == 0
    ]

    assert block["thinking"] == ""
    assert deltas == [{"type": "signature_delta", "signature": block["signature"]}]
    later = conversation("hi", [block, {"type": "text", "text": "Calling"}], "go on")
    assert neutral(http, script, messages=later).messages[1]["reasoning_content"] == "think hard"


def test_a_foreign_signature_is_no_reasoning(http, script):
    block = {"type": "thinking", "thinking": "", "signature": "EqQBCgIYAg"}
    request = neutral(http, script, messages=conversation("hi", [block, {"type": "text", "text": "a"}], "b"))
    assert request.messages[1] == {"role": "assistant", "content": "a"}


def test_tool_results(http, script):
    use = {"type": "tool_use", "id": "toolu_1", "name": "get", "input": {"x": 1}}
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aaaa"}}
    results = [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "seen"}, image]},
        {"type": "tool_result", "tool_use_id": "toolu_2", "content": "no such file", "is_error": True},
        {"type": "tool_result", "tool_use_id": "toolu_3"},
        {"type": "text", "text": "Well?"},
    ]
    request = neutral(http, script, messages=conversation("hi", [use], results))

    call = {"id": "toolu_1", "type": "function", "function": {"name": "get", "arguments": {"x": 1}}}
    assert request.messages[1:] == [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "toolu_1", "content": "seen\n[image left out: this model reads text only]"},
        {"role": "tool", "tool_call_id": "toolu_2", "content": "Error: no such file"},
        {"role": "tool", "tool_call_id": "toolu_3", "content": ""},
        {"role": "user", "content": "Well?"},
    ]


def test_system_as_string_and_blocks(http, script):
    one = neutral(http, script, system="Be brief.")
    other = neutral(
        http, script, system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    )
    assert (
        one.messages
        == other.messages
        == [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "hi"},
        ]
    )


def test_tools_in_a_stable_form(http, script):
    tools = [
        {"name": "get", "description": "d", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}},
        {"type": "custom", "name": "put", "input_schema": {"type": "object"}, "strict": True},
        {"name": "later", "input_schema": {"type": "object"}, "defer_loading": True},
    ]
    assert neutral(http, script, tools=tools).tools == [
        {"type": "function", "function": {"name": "get", "description": "d", "parameters": {"type": "object"}}},
        {"type": "function", "function": {"name": "put", "parameters": {"type": "object"}, "strict": True}},
    ]


def test_a_tool_that_a_reference_loads_comes_last(http, script):
    tools = [{"name": name, "input_schema": {"type": "object"}} for name in ("a", "loaded", "z")]
    reference = [{"type": "tool_reference", "tool_name": "loaded"}]
    messages = conversation(
        "hi",
        [{"type": "tool_use", "id": "t", "name": "a", "input": {}}],
        [{"type": "tool_result", "tool_use_id": "t", "content": reference}],
    )
    names = [tool["function"]["name"] for tool in neutral(http, script, tools=tools, messages=messages).tools]
    assert names == ["a", "z", "loaded"]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, ToolChoice()),
        ({"type": "any"}, ToolChoice("required")),
        ({"type": "tool", "name": "get"}, ToolChoice("named", "get")),
        ({"type": "none"}, ToolChoice("none")),
        ({"type": "auto", "disable_parallel_tool_use": True}, ToolChoice(parallel=False)),
    ],
)
def test_tool_choice(http, script, choice, expected):
    assert neutral(http, script, tools=[TOOL], tool_choice=choice).tool_choice == expected


def test_a_tool_of_the_provider_is_left_out_and_told(http, script):
    answer = http.post(PATH, json=claude(tools=[{"type": "web_search_20250305", "name": "web_search"}])).json()

    assert script.request.tools == []
    assert "web_search" in script.request.messages[0]["content"]
    assert "web_search" in answer["smoe"]["ignored"][0]


BUILT_IN = [
    {"type": "bash_20250124", "name": "bash"},
    {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool", "max_characters": 10000},
    {"type": "memory_20250818", "name": "memory"},
]
MEMORY_COMMANDS = [
    beta.BetaMemoryTool20250818ViewCommand,
    beta.BetaMemoryTool20250818CreateCommand,
    beta.BetaMemoryTool20250818StrReplaceCommand,
    beta.BetaMemoryTool20250818InsertCommand,
    beta.BetaMemoryTool20250818DeleteCommand,
    beta.BetaMemoryTool20250818RenameCommand,
]


def shown(http, script, *tools):
    """name -> the schema under which the model sees the tool."""
    functions = (tool["function"] for tool in neutral(http, script, tools=list(tools)).tools)
    return {function["name"]: function["parameters"] for function in functions}


def test_tools_of_the_protocol_that_the_client_runs_are_functions(sdk, http, script):
    script.steps = [
        prefill(),
        ToolCallStart(0, "call_a", "bash"),
        ToolCallDelta(0, '{"command": "ls"}'),
        finished("tool_calls"),
    ]
    answer = sdk.messages.create(**claude(tools=BUILT_IN, tool_choice={"type": "any"}))

    assert (answer.stop_reason, answer.content[0].name, answer.content[0].input) == (
        "tool_use",
        "bash",
        {"command": "ls"},
    )
    assert [tool["function"]["name"] for tool in script.request.tools] == [tool["name"] for tool in BUILT_IN]
    assert "ignored" not in answer.to_dict()["smoe"]
    assert all(message["role"] != "system" for message in script.request.messages)
    assert all(tool["function"]["description"] for tool in script.request.tools)
    bash = script.request.tools[0]["function"]["parameters"]
    assert (set(bash["properties"]), bash["required"]) == ({"command", "restart"}, ["command"])


def test_the_memory_tool_takes_what_the_sdk_reads(http, script):
    memory = shown(http, script, BUILT_IN[2])["memory"]
    fields = [set(command.model_fields) for command in MEMORY_COMMANDS]
    names = [get_args(command.model_fields["command"].annotation)[0] for command in MEMORY_COMMANDS]

    assert set(memory["properties"]) == set.union(*fields)
    assert set(memory["required"]) == set.intersection(*fields)
    assert memory["properties"]["command"]["enum"] == names


@pytest.mark.parametrize(
    ("kind", "commands", "inserted"),
    [
        ("text_editor_20250728", ["view", "create", "str_replace", "insert"], "insert_text"),
        ("text_editor_20250429", ["view", "create", "str_replace", "insert"], "insert_text"),
        ("text_editor_20250124", ["view", "create", "str_replace", "insert", "undo_edit"], "new_str"),
        ("text_editor_20241022", ["view", "create", "str_replace", "insert", "undo_edit"], "new_str"),
    ],
)
def test_the_text_editor_is_that_of_its_date(http, script, kind, commands, inserted):
    """https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/text-editor-tool"""
    editor = shown(http, script, {"type": kind, "name": "edit"})["edit"]
    known = {"command", "path", "file_text", "old_str", "new_str", "insert_line", "view_range", inserted}
    assert set(editor["properties"]) == known
    assert editor["properties"]["command"]["enum"] == commands
    assert editor["required"] == ["command", "path"]


def test_what_would_change_the_answer_and_is_not_honoured_is_told(http):
    document = {"type": "document", "source": {"type": "text", "data": "x"}, "citations": {"enabled": True}}
    body = claude(
        messages=[{"role": "user", "content": [document, {"type": "text", "text": "hi"}]}],
        context_management={"edits": []},
        output_config={"task_budget": {"type": "tokens", "total": 9}},
    )
    told = http.post(PATH, json=body).json()["smoe"]["ignored"]
    assert [line.partition(":")[0] for line in told] == [
        "context_management",
        "output_config.task_budget",
        "messages.0.content.0.citations",
    ]


def test_examples_of_a_tools_input_are_shown(http, script):
    tool = {**TOOL, "description": "Gets it.", "input_examples": [{"x": "é"}, {}]}
    shown = neutral(http, script, tools=[tool]).tools[0]["function"]["description"]
    assert shown == 'Gets it.\nExamples of its input:\n{"x": "é"}\n{}'


def test_a_compaction_block_stands_for_what_it_summarizes(http, script):
    content = [{"type": "compaction", "content": "They greeted."}, {"type": "compaction", "content": None}]
    messages = [{"role": "assistant", "content": content}, {"role": "user", "content": "and?"}]
    http.post(PATH, json=claude(messages=messages))
    assert script.request.messages[0] == {"role": "assistant", "content": "They greeted."}


@pytest.mark.parametrize(
    ("thinking", "expected"),
    [
        (None, False),
        ({"type": "disabled"}, False),
        ({"type": "enabled", "budget_tokens": 1024}, True),
        ({"type": "adaptive"}, None),
    ],
)
def test_thinking(http, script, thinking, expected):
    assert neutral(http, script, thinking=thinking).reasoning is expected


def test_output_format(http, script):
    form = {"type": "json_schema", "schema": {"type": "object"}}
    request = neutral(http, script, output_config={"format": form, "effort": "high"}, thinking={"type": "adaptive"})
    assert request.constraint == Constraint("json_schema", {"type": "object"})
    assert request.template_kwargs == {"reasoning_effort": "high"}


def test_large_max_tokens_are_accepted(http, script):
    assert neutral(http, script, max_tokens=128000).max_tokens == 128000
    assert neutral(http, script, max_tokens=None).max_tokens is None


def test_the_sdk_falls_back_from_threads(sdk, script):
    """tool_runner asks for a thread first; the refusal's details make it send the whole history."""
    script.steps = [prefill(), *HELLO[1:]]

    @anthropic.beta_tool
    def get(x: str) -> str:
        """Get.

        Args:
            x: what
        """
        return x

    runner = sdk.beta.messages.tool_runner(**claude(), tools=[get])
    assert runner.until_done().content[0].text == "Hello"
    assert len(script.requests) == 1


def test_thread_is_refused_with_the_code_that_clients_look_for(http):
    error = http.post(PATH, json=claude(thread={"type": "create"}))

    assert error.status_code == 400
    assert error.json()["error"]["details"] == {"error_code": "thread_unsupported_request"}


WRONG = [
    ({"messages": []}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content"),
    ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages.0.content.0"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages.0.content.0.text"),
    ({"system": 5}, "system"),
    ({"max_tokens": "5"}, "max_tokens"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"temperature": 3}, "temperature"),
    ({"stop_sequences": [""]}, "stop_sequences"),
    ({"thinking": {"type": "deep"}}, "thinking.type"),
    ({"tools": [{"input_schema": {}}]}, "tools.0.name"),
    ({"tools": [{"name": 'a"b', "input_schema": {}}]}, "tools.0.name"),
    ({"tools": [{"name": "a", "input_schema": []}]}, "tools.0.input_schema"),
    ({"tool_choice": {"type": "any"}}, "tool_choice"),
    ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "put"}}, "tool_choice.name"),
    ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
    ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
    ({"compaction": {"type": "summarize"}}, "compaction"),
]


@pytest.mark.parametrize(("fields", "path"), WRONG)
def test_wrong_fields_are_named(http, fields, path):
    answer = http.post(PATH, json=claude(stream=True) | fields)

    assert answer.status_code == 400
    body = answer.json()
    assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")
    assert path in body["error"]["message"]


def test_count_tokens_templates_the_same_request(sdk, script):
    body = {name: value for name, value in claude(system="s", tools=[TOOL]).items() if name != "max_tokens"}
    assert sdk.messages.count_tokens(**body).input_tokens == 42
    sdk.messages.create(**body, max_tokens=5)

    counted, run = script.counted[0], script.request
    assert (counted.messages, counted.tools, counted.reasoning) == (run.messages, run.tools, run.reasoning)
