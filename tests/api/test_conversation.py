"""The same conversation in the forms in which clients send it again gives the same messages."""

import json

import pytest

from api.anthropic.parsing import parse_request
from api.conversation import arguments_object, fold_system, merge_turns
from api.fields import Fields
from api.openai.messages import parse_messages


def neutral(messages, **fields):
    return parse_request(Fields({"model": "m", "messages": messages, **fields}))[0].messages


def test_a_block_list_equals_the_string():
    blocks = [{"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]}]
    assert neutral(blocks) == neutral([{"role": "user", "content": "hi"}])


def test_two_turns_of_an_agent_keep_their_prefix():
    first = [
        {"role": "user", "content": [{"type": "text", "text": "reminder"}, {"type": "text", "text": "hi"}]},
        {"role": "system", "content": [{"type": "text", "text": "skills", "cache_control": {"type": "ephemeral"}}]},
    ]
    second = [
        first[0],
        {"role": "system", "content": "skills", "output_config": {"effort": "medium"}},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "Read", "input": {"b": 1, "a": 2}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "text"}]},
    ]
    system = [
        [{"type": "text", "text": f"x-anthropic-billing-header: cch={cch};"}, {"type": "text", "text": "You are."}]
        for cch in ("1f", "2e")
    ]
    before = neutral(first, system=system[0])
    after = neutral(second, system=system[1])
    assert after[: len(before)] == before


def test_openai_arguments_serialized_again_are_equal():
    def turn(arguments):
        call = {"id": "c", "type": "function", "function": {"name": "get", "arguments": arguments}}
        return {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [call]}]}

    assert parse_messages(Fields(turn('{"a":1,"b":[2]}'))) == parse_messages(Fields(turn('{"a": 1, "b": [2]}\n')))


def test_arguments_that_are_no_object_are_kept():
    assert arguments_object("") == {}
    assert arguments_object("[1]") == {"raw": "[1]"}
    assert arguments_object('{"a": ') == {"raw": '{"a": '}


def test_arguments_hold_nothing_that_no_tokenizer_takes():
    assert json.dumps(arguments_object(r'{"a\ud83d": ["\ud83d", "\ud83d\ude00"]}'), ensure_ascii=False).encode()
    assert arguments_object(r'{"a": "\ud83d\ude00"}') == {"a": "\U0001f600"}
    assert arguments_object("{" * 100_000) == {"raw": "{" * 100_000}


def test_leading_system_messages_become_one_and_later_ones_stay_in_place():
    def system(content):
        return {"role": "system", "content": content}

    def user(content):
        return {"role": "user", "content": content}

    answer = {"role": "assistant", "content": "b"}
    reminder = "<system-reminder>\nlater\n</system-reminder>"
    assert fold_system([system("one"), system("two"), user("a")]) == [system("one\n\ntwo"), user("a")]
    assert fold_system([user("a"), answer, system("later"), user("c")]) == [user("a"), answer, user(f"{reminder}\nc")]
    assert fold_system([user("a"), answer, system("later")]) == [user("a"), answer, user(reminder)]


def test_user_turns_in_a_row_are_one():
    turns = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}, {"role": "assistant", "content": "c"}]
    assert merge_turns(turns) == [{"role": "user", "content": "a\nb"}, {"role": "assistant", "content": "c"}]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "system", "content": ""}]}),
        ("/v1/messages", {"messages": [{"role": "system", "content": ""}]}),
        ("/v1/messages/count_tokens", {"system": "", "messages": [{"role": "system", "content": []}]}),
        ("/v1/responses", {"input": [{"role": "developer", "content": ""}]}),
    ],
)
def test_a_conversation_of_nothing_is_refused(http, path, body):
    answer = http.post(path, json=body)
    assert answer.status_code == 400
    assert "holds no text" in answer.json()["error"]["message"]
