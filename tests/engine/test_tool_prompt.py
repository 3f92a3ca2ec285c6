"""The default for templates without tools: what it writes, the hermes parser reads."""

from engine.messages import ToolCallDelta, ToolCallStart
from engine.replies import ReplyParser, profile_for
from engine.tool_prompt import describe_tools, knows_tools

TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Zürich"}}}


def test_tools_end_the_system_message_or_become_one():
    for messages in ([{"role": "system", "content": "Be brief."}], []):
        described = describe_tools([*messages, {"role": "user", "content": "Hi"}], [TOOL])
        assert [m["role"] for m in described] == ["system", "user"]
        assert '{"name": "weather"' in described[0]["content"]
        assert described[0]["content"].startswith("Be brief." if messages else "# Tools")


def test_a_call_in_the_history_is_text_that_parses_back():
    history = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
    ]
    user, assistant, result = describe_tools(history, [])
    assert user == history[0]
    assert result == {"role": "user", "content": "<tool_response>\nsunny\n</tool_response>"}
    parser = ReplyParser(profile_for(""), [TOOL])
    pieces = parser.feed(assistant["content"]) + parser.finish()
    assert [p.name for p in pieces if isinstance(p, ToolCallStart)] == ["weather"]
    assert "".join(p.arguments for p in pieces if isinstance(p, ToolCallDelta)) == '{"city": "Zürich"}'


def test_a_template_that_uses_tools_is_recognised():
    assert knows_tools("{% if tools %}...{% endif %}")
    assert not knows_tools("{% for m in messages %}{{ m.content }}{% endfor %}")
