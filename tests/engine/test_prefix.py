"""Agents' second turns, as they really come, find the first one's prefix again: the whole server, the native engine."""

import copy
import json
import shutil

import httpx
import pytest
from serving import serving

TOOL_NAMES = ("Agent", "Bash", "Edit", "Read", "Write")
PATH = "/home/me/notes.txt"


@pytest.fixture(scope="module")
def server(interop_dir, tmp_path_factory):
    folder = tmp_path_factory.mktemp("prefix")
    (folder / "data").mkdir()
    shutil.copytree(interop_dir / "tiny-qwen3moe-q4", folder / "vault")
    shutil.copytree(interop_dir / "tiny-qwen3moe-checkpoint", folder / "checkpoints" / "tiny-qwen3moe")
    environment = {"SMOE_VAULT_DIR": str(folder / "vault"), "SMOE_CHECKPOINTS_DIR": str(folder / "checkpoints")}
    with (
        serving(folder / "data", "--ctx", "8192", **environment) as url,
        httpx.Client(base_url=url, timeout=120) as http,
    ):
        yield http


def schema():
    return {
        "type": "object",
        "properties": {"file_path": {"type": "string", "enum": [PATH]}, "limit": {"type": "integer", "enum": [20]}},
        "required": ["file_path", "limit"],
        "additionalProperties": False,
    }


# --- Claude Code ----------------------------------------------------------------------------------------------------


def claude_tool(name, **more):
    return {"name": name, "description": f"{name}: a tool of the agent.", "input_schema": schema(), **more}


def claude_turn(billing="1a2b"):
    """The first request of `claude -p`, in small: three system blocks, a system message as blocks, tools."""
    return {
        "model": "s-moe",
        "max_tokens": 200,
        "temperature": 0,
        "system": [
            {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1.332; cch={billing};"},
            {"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": "Keep to the rules. " * 20},
        ],
        "tools": [*map(claude_tool, TOOL_NAMES), claude_tool("Search", defer_loading=True)],
        "tool_choice": {"type": "tool", "name": "Read"},
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "<env>Linux</env>"}, {"type": "text", "text": "hi"}]},
            {
                "role": "system",
                "content": [{"type": "text", "text": "Skills: none."}],
                "output_config": {"effort": "low"},
            },
        ],
    }


def claude_second_turn(first, answer, result):
    """What changes although the conversation did not: the hash, the form of the system message, the tools' places."""
    second = copy.deepcopy(first)
    second["system"][0]["text"] = second["system"][0]["text"].replace("1a2b", "9f8e")
    second["tools"].insert(2, claude_tool("WebFetch", defer_loading=True))
    second["messages"][1] = {"role": "system", "content": "Skills: none."}
    call = answer["content"][-1]
    second["messages"] += [
        {"role": "assistant", "content": answer["content"]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call["id"], "content": result}]},
    ]
    return second


def claude(server, body):
    answer = server.post("/v1/messages?beta=true", json=body)
    assert answer.status_code == 200, answer.text
    told = answer.json()
    usage = told["usage"]
    return told, usage["input_tokens"] + usage["cache_read_input_tokens"], usage["cache_read_input_tokens"]


def test_claude_codes_second_turn_pays_for_what_is_new(server):
    first = claude_turn()
    answer, prompt, _ = claude(server, first)
    assert answer["stop_reason"] == "tool_use"
    assert answer["content"][-1]["input"] == {"file_path": PATH, "limit": 20}
    generated = answer["usage"]["output_tokens"]

    _, whole, cached = claude(server, claude_second_turn(first, answer, "PELICAN"))
    assert whole > prompt + generated
    assert cached >= prompt  # all of the first prompt, whatever changed in it
    assert cached >= prompt + generated - 2  # and the call, as it was generated, but for its end


def test_a_tool_that_is_loaded_later_leaves_the_tools_before_it_in_place(server):
    first = claude_turn()
    answer, prompt, _ = claude(server, first)
    second = claude_second_turn(first, answer, [{"type": "tool_reference", "tool_name": "WebFetch"}])
    _, whole, cached = claude(server, second)
    assert cached > 0.8 * prompt
    _, again, cached = claude(server, second)
    assert (again, cached) == (whole, whole - 1)


def test_a_title_request_in_between_evicts_nothing(server):
    first = claude_turn()
    answer, prompt, _ = claude(server, first)
    title = {"model": "s-moe", "max_tokens": 5, "system": "Write a title.", "messages": first["messages"][:1]}
    claude(server, title)
    _, _, cached = claude(server, claude_second_turn(first, answer, "PELICAN"))
    assert cached >= prompt


# --- chat completions -----------------------------------------------------------------------------------------------


def chat_turn():
    function = {"name": "read", "description": "Reads a file.", "parameters": schema()}
    return {
        "model": "s-moe",
        "max_tokens": 200,
        "temperature": 0,
        "tools": [{"type": "function", "function": function}],
        "tool_choice": {"type": "function", "function": {"name": "read"}},
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "Keep to the rules. " * 20}]},
            {"role": "user", "content": [{"type": "text", "text": "Which word is in it?"}]},
        ],
    }


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_arguments_that_come_back_in_another_form(server, separators):
    first = chat_turn()
    answer = server.post("/v1/chat/completions", json=first).json()
    message = answer["choices"][0]["message"]
    call = message["tool_calls"][0]
    call["function"]["arguments"] = json.dumps(json.loads(call["function"]["arguments"]), separators=separators)
    second = copy.deepcopy(first)
    second["messages"] = [
        {"role": "developer", "content": "Keep to the rules. " * 20},
        {"role": "user", "content": "Which word is in it?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": [{"type": "text", "text": "PELICAN"}]},
    ]
    usage = server.post("/v1/chat/completions", json=second).json()["usage"]
    before = answer["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] >= before["total_tokens"] - 2


def test_a_prompt_that_was_given_up_goes_on_where_it_stopped(server):
    words = " ".join(f"word{n}" for n in range(1500))
    body = {"model": "s-moe", "max_tokens": 1, "messages": [{"role": "user", "content": words}], "stream": True}
    with server.stream("POST", "/v1/chat/completions", json={**body, "return_progress": True}) as answer:
        for line in answer.iter_lines():
            progress = json.loads(line[6:]).get("prompt_progress") if line.startswith("data: {") else None
            if progress and progress["processed"] > progress["cache"]:
                break  # the first part is done; the client hangs up
    usage = server.post("/v1/chat/completions", json={**body, "stream": False}).json()["usage"]
    assert 4000 < usage["prompt_tokens"] < 8192
    assert usage["prompt_tokens_details"]["cached_tokens"] >= 512


# --- responses ------------------------------------------------------------------------------------------------------


def test_a_chain_of_responses_pays_for_what_is_new(server):
    rules = {"model": "s-moe", "temperature": 0, "instructions": "Keep to the rules. " * 20, "max_output_tokens": 200}
    function = {"type": "function", "name": "read", "description": "Reads a file.", "parameters": schema()}
    asked = {**rules, "tools": [function], "tool_choice": {"type": "function", "name": "read"}}
    first = server.post("/v1/responses", json={**asked, "input": "Which word is in it?"}).json()
    result = {"type": "function_call_output", "call_id": first["output"][-1]["call_id"], "output": "PELICAN"}
    chained = {**asked, "input": [result], "previous_response_id": first["id"]}
    counted = server.post("/v1/responses/input_tokens", json=chained).json()["input_tokens"]
    usage = server.post("/v1/responses", json=chained).json()["usage"]

    assert usage["input_tokens"] == counted > first["usage"]["total_tokens"]
    assert usage["input_tokens_details"]["cached_tokens"] >= first["usage"]["total_tokens"] - 2
