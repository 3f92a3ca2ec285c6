"""Reply parsing: every family, cut at every place, gives the same reasoning, text and calls."""

import json
import random
import time

import jsonschema
import pytest

from engine.messages import ToolCallDelta, ToolCallStart
from engine.replies import Reasoning, ReplyParser, Text, profile_for

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "days": {"type": "integer"},
                    "tags": {"type": "array"},
                    "code": {"type": "string"},
                },
            },
        },
    }
    for name in ("weather", "write_file")
]

# family -> (what in a template or vocabulary tells it, a reply as the model's template documents it)
WEATHER = {"city": 'Zürich "ZH" {x}', "days": 3, "tags": ["a", {"b": "]}"}]}
JSON_ARGS = json.dumps(WEATHER, ensure_ascii=False)
SECOND = {"code": "if a < b:\n    print('</x>')\n"}
FAMILIES = {
    "hermes": (
        "<tool_call>",
        'Let me look.\n<tool_call>\n{"name": "weather", "arguments": %s}\n</tool_call>\n'
        '<tool_call>\n{"arguments": %s, "name": "write_file"}\n</tool_call>' % (JSON_ARGS, json.dumps(SECOND)),
    ),
    "qwen-coder": (
        "<function=",
        "Let me look.\n<tool_call>\n<function=weather>\n<parameter=city>\n" + WEATHER["city"] + "\n</parameter>\n"
        "<parameter=days>\n3\n</parameter>\n<parameter=tags>\n" + json.dumps(WEATHER["tags"]) + "\n</parameter>\n"
        "</function>\n</tool_call>\n<tool_call>\n<function=write_file>\n<parameter=code>\n"
        + SECOND["code"]
        + "\n</parameter>\n</function>\n</tool_call>",
    ),
    "mistral": (
        "[TOOL_CALLS]",
        'Let me look.[TOOL_CALLS][{"name": "weather", "arguments": %s}, {"name": "write_file", "arguments": %s}]'
        % (JSON_ARGS, json.dumps(SECOND)),
    ),
    "mistral-v11": (
        "[TOOL_CALLS]",
        "Let me look.[TOOL_CALLS]weather[ARGS]%s[TOOL_CALLS]write_file[CALL_ID]abc123xyz[ARGS]%s"
        % (JSON_ARGS, json.dumps(SECOND)),
    ),
    "llama": (
        "<|python_tag|>",
        '<|python_tag|>{"name": "weather", "parameters": %s}; {"name": "write_file", "parameters": %s}'
        % (JSON_ARGS, json.dumps(SECOND)),
    ),
    "deepseek": (
        "<｜tool▁calls▁begin｜>",
        "Let me look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n%s\n```"
        "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>write_file<｜tool▁sep｜>%s<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
        % (JSON_ARGS, json.dumps(SECOND)),
    ),
    "deepseek-dsml": (
        "｜DSML｜",
        'Let me look.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="weather">\n'
        '<｜DSML｜parameter name="city" string="true">' + WEATHER["city"] + "</｜DSML｜parameter>\n"
        '<｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="tags" string="false">' + json.dumps(WEATHER["tags"]) + "</｜DSML｜parameter>\n"
        '</｜DSML｜invoke>\n<｜DSML｜invoke name="write_file">\n<｜DSML｜parameter name="code" string="true">'
        + SECOND["code"]
        + "\n</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
    ),
    "glm": (
        "<arg_key>",
        "Let me look.\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>" + WEATHER["city"] + "</arg_value>\n"
        "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n<arg_key>tags</arg_key>\n<arg_value>"
        + json.dumps(WEATHER["tags"])
        + "</arg_value>\n</tool_call>\n<tool_call>write_file\n<arg_key>code</arg_key>\n"
        "<arg_value>" + SECOND["code"] + "</arg_value>\n</tool_call>",
    ),
    "kimi": (
        "<|tool_calls_section_begin|>",
        "Let me look.<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>%s"
        "<|tool_call_end|><|tool_call_begin|>functions.write_file:1<|tool_call_argument_begin|>%s<|tool_call_end|>"
        "<|tool_calls_section_end|>" % (JSON_ARGS, json.dumps(SECOND)),
    ),
    "minimax": (
        "<minimax:tool_call>",
        'Let me look.\n<minimax:tool_call>\n<invoke name="weather">\n<parameter name="city">'
        + WEATHER["city"]
        + '</parameter>\n<parameter name="days">3</parameter>\n<parameter name="tags">'
        + json.dumps(WEATHER["tags"])
        + '</parameter>\n</invoke>\n<invoke name="write_file">\n<parameter name="code">'
        + SECOND["code"]
        + "\n</parameter>\n</invoke>\n</minimax:tool_call>",
    ),
    "harmony": (
        "<|channel|>",
        "<|channel|>analysis<|message|>Think first.<|end|><|start|>assistant<|channel|>final<|message|>Let me look."
        "<|end|><|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>%s<|call|>"
        "<|start|>assistant to=functions.write_file<|channel|>commentary json<|message|>%s<|call|>"
        % (JSON_ARGS, json.dumps(SECOND)),
    ),
}


def parse(reply, profile, pieces, tools=TOOLS, prompt_end="", cut=False):
    """Text, reasoning and [(id, name, arguments text)] of a reply fed in the given pieces."""
    parser = ReplyParser(profile, tools, prompt_end)
    events = [event for piece in pieces for event in parser.feed(piece)] + parser.finish(cut)
    text = "".join(e.text for e in events if isinstance(e, Text))
    reasoning = "".join(e.text for e in events if isinstance(e, Reasoning))
    calls = [[e.id, e.name, ""] for e in events if isinstance(e, ToolCallStart)]
    for event in events:
        if isinstance(event, ToolCallDelta):
            calls[event.index][2] += event.arguments
    return text, reasoning, calls


def cuts(reply, seed):
    """The reply whole, by single characters, and cut at random places."""
    yield [reply]
    yield list(reply)
    for n in range(20):
        places = sorted(random.Random(seed + n).sample(range(len(reply) + 1), 6))
        yield [reply[a:b] for a, b in zip([0, *places], [*places, len(reply)], strict=True)]


@pytest.mark.parametrize("family", FAMILIES)
def test_calls_of_every_family_however_the_reply_is_cut(family):
    mark, reply = FAMILIES[family]
    profile = profile_for(mark)
    assert profile.family == family.removesuffix("-v11")
    for pieces in cuts(reply, 1):
        text, reasoning, calls = parse(reply, profile, pieces)
        assert [(name, json.loads(arguments)) for _, name, arguments in calls] == [
            ("weather", WEATHER),
            ("write_file", SECOND),
        ]
        assert text == ("" if family == "llama" else "Let me look.")
        assert reasoning == ("Think first." if family == "harmony" else "")
        assert len({id for id, _, _ in calls}) == 2


def test_arguments_stream_inside_a_long_string():
    parser = ReplyParser(profile_for("<tool_call>"), TOOLS)
    parser.feed('<tool_call>{"name": "write_file", "arguments": {"code": "')
    assert parser.feed("first line") == [ToolCallDelta(0, "first line")]
    assert parser.feed(" and \\") == [ToolCallDelta(0, " and \\")]
    assert parser.feed('" more"}}</tool_call>') == [ToolCallDelta(0, '" more"}')]


def test_arguments_in_a_string_are_read_once():
    """Begun anew with every token, it took half a minute of the event loop."""
    text = json.dumps({"code": "x" * 40_000})
    reply = '<tool_call>{"name": "write_file", "arguments": %s}</tool_call>' % json.dumps(text)
    began = time.process_time()
    assert parse("", profile_for("<tool_call>"), reply)[2][0][1:] == ["write_file", text]
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    "reply",
    [
        "<tool_call>\nnot json\n</tool_call>",
        '<tool_call>{"name": "weather"',
        '<tool_call>{"name": "nobody_has_this", "arguments": {}}</tool_call> and on',
        "<tool_call>",
        "a < b <tool_cal",
        '<tool_call>["name"]</tool_call>',
    ],
)
def test_malformed_calls_come_back_as_text(reply):
    for pieces in cuts(reply, 2) if len(reply) > 6 else [[reply]]:
        text, _, calls = parse(reply, profile_for("<tool_call>"), pieces)
        assert (text, calls) == (reply, [])


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ('{"tags": [1, {"a": 2]}', {"tags": [1, {"a": 2}]}),
        ('{"tags": [1, [2, 3}', {"tags": [1, [2, 3]]}),
        ('{"city": "Bern"', {"city": "Bern"}),
        ('{"tags": ["}", {"a": "]"', {"tags": ["}", {"a": "]"}]}),
        ('{"days": 3]', {"days": 3}),
    ],
)
def test_arguments_whose_brackets_do_not_match_are_json_however_the_reply_is_cut(written, read):
    reply = '<tool_call>\n{"name": "weather", "arguments": %s}\n</tool_call>\nSo.' % written
    for pieces in cuts(reply, 10):
        text, _, calls = parse("", profile_for("<tool_call>"), pieces)
        assert [(name, json.loads(arguments)) for _, name, arguments in calls] == [("weather", read)]
        assert text.strip() == "So."


@pytest.mark.parametrize("family", ["hermes", "qwen-coder", "glm"])
def test_a_mark_in_prose_does_not_hide_the_call_that_follows(family):
    mark, reply = FAMILIES[family]
    for pieces in cuts("The mark is <tool_call> here.\n" + reply, 14):
        text, _, calls = parse("", profile_for(mark), pieces)
        assert text == "The mark is <tool_call> here.\nLet me look."
        assert [name for _, name, _ in calls] == ["weather", "write_file"]


def test_a_call_cut_by_the_budget_keeps_what_came():
    _, _, calls = parse("", profile_for("<tool_call>"), ['<tool_call>{"name": "weather", "arguments": {"city": "Pa'])
    assert calls[0][1:] == ["weather", '{"city": "Pa']


# What stands where the first call begins, from the models' documentation.
OPENINGS = {
    "hermes": "<tool_call>",
    "qwen-coder": "<tool_call>",
    "mistral": "[TOOL_CALLS]",
    "mistral-v11": "[TOOL_CALLS]",
    "deepseek": "<｜tool▁calls▁begin｜>",
    "deepseek-dsml": "<｜DSML｜function_calls>",
    "glm": "<tool_call>",
    "minimax": "<minimax:tool_call>",
    "kimi": "<|tool_calls_section_begin|>",
}


@pytest.mark.parametrize("family", OPENINGS)
def test_nothing_of_a_call_is_text_wherever_the_budget_cuts_it(family):
    mark, reply = FAMILIES[family]
    opening = OPENINGS[family]
    begun = reply.index(opening) + len(opening)
    second = reply.find(opening, begun)
    inside_second = range(second + 1, second + len(opening))  # no mark yet: see the next test
    for end in set(range(begun, len(reply) + 1)).difference(inside_second):
        for pieces in ([reply[:end]], list(reply[:end])):
            text, _, calls = parse("", profile_for(mark), pieces, cut=True)
            assert text == "Let me look.", reply[:end]
            assert [name for _, name, _ in calls] == ["weather", "write_file"][: len(calls)]


@pytest.mark.parametrize("reply", ["a < b <tool", "x <tool_call> in prose", '<tool_call>{"name": "nobody", "argum'])
def test_what_only_resembles_a_call_is_text_although_the_budget_cuts_it(reply):
    for pieces in ([reply], list(reply)):
        assert parse("", profile_for("<tool_call>"), pieces, cut=True)[::2] == (reply, [])


def test_an_answer_in_json_that_the_budget_cuts_is_text_where_calls_have_no_mark():
    reply = '{"city": "Par'
    assert parse("", profile_for("<|python_tag|>"), list(reply), cut=True) == (reply, "", [])


def test_harmony_reads_a_name_with_a_slash():
    tool = {"type": "function", "function": {"name": "git/v1.log"}}
    reply = "<|channel|>commentary to=functions.git/v1.log<|channel|>commentary json<|message|>{}<|call|>"
    assert parse("", profile_for("<|channel|>"), [reply], tools=[tool])[2][0][1:] == ["git/v1.log", "{}"]


OPTIONAL = {"anyOf": [{"type": "string"}, {"type": "null"}]}  # how pydantic spells `str | None`
TYPED = [
    (OPTIONAL, "2024", "2024"),
    (OPTIONAL, '{"name": "package.json"}', '{"name": "package.json"}'),
    (OPTIONAL, '"as JSON"', "as JSON"),
    ({"type": "string"}, '"quoted"', '"quoted"'),
    (OPTIONAL, "null", None),
    ({"type": ["string", "null"]}, "true", "true"),
    ({"type": ["string", "integer"]}, "7", 7),
    ({"$ref": "#/$defs/Size"}, "42", "42"),
    ({"$ref": "#/$defs/Size"}, '"42"', "42"),
    ({"allOf": [{"$ref": "#/$defs/Size"}], "default": "40"}, "42", "42"),
    ({"oneOf": [{"const": "1"}, {"const": "2"}]}, "1", "1"),
    ({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}]}, '["a"]', ["a"]),
    ({"type": "number"}, "3", 3),
    ({"type": "boolean"}, "True", True),
    (True, "[1]", [1]),
    ({}, "NaN", "NaN"),
    ({}, "[1e999]", "[1e999]"),
    ({}, "[" * 100_000, "[" * 100_000),
]


@pytest.mark.parametrize(("schema", "text", "value"), TYPED, ids=[f"{s} {t[:20]}" for s, t, _ in TYPED])
def test_a_tagged_parameter_has_a_type_that_its_schema_takes(schema, text, value):
    parameters = {"properties": {"p": schema}, "$defs": {"Size": {"enum": ["40", "42"], "type": "string"}}}
    whole = {"type": "object", **parameters}
    jsonschema.validate({"p": value}, whole)
    tools = [{"type": "function", "function": {"name": "f", "parameters": whole}}]
    reply = f"<tool_call>\n<function=f>\n<parameter=p>\n{text}\n</parameter>\n</function>\n</tool_call>"
    _, _, calls = parse("", profile_for("<function="), [reply], tools=tools)
    assert json.loads(calls[0][2], parse_constant=pytest.fail) == {"p": value}


@pytest.mark.parametrize("properties", [None, [], {"p": None}, {"p": {"$ref": "#/properties/p"}}])
def test_a_schema_that_is_none_is_no_reason_to_fail(properties):
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"properties": properties}}}]
    reply = "<tool_call><function=f><parameter=p>1</parameter></function></tool_call>"
    assert parse("", profile_for("<function="), [reply], tools=tools)[2][0][1:] == ["f", '{"p": 1}']


def test_alternatives_that_are_themselves_have_an_end():
    itself = {"anyOf": [{"$ref": "#/properties/p"}] * 30}
    test_a_schema_that_is_none_is_no_reason_to_fail({"p": itself})


MARKUP = "<config>\n<arg_value>1</arg_value>\n<parameter=x>1</parameter> </｜DSML｜parameter>!</config>"
IN_TAGS = {
    "qwen-coder": f"<tool_call>\n<function=write_file>\n<parameter=code>\n{MARKUP}\n</parameter>\n"
    "<parameter=city>\nBern\n</parameter>\n</function>\n</tool_call>",
    "glm": f"<tool_call>write_file\n<arg_key>code</arg_key>\n<arg_value>{MARKUP}</arg_value>\n"
    "<arg_key>city</arg_key>\n<arg_value>Bern</arg_value>\n</tool_call>",
    "minimax": f'<minimax:tool_call>\n<invoke name="write_file">\n<parameter name="code">{MARKUP}</parameter>\n'
    '<parameter name="city">Bern</parameter>\n</invoke>\n</minimax:tool_call>',
    "deepseek-dsml": '<｜DSML｜function_calls>\n<｜DSML｜invoke name="write_file">\n'
    f'<｜DSML｜parameter name="code" string="true">{MARKUP}</｜DSML｜parameter>\n'
    '<｜DSML｜parameter name="city" string="true">Bern</｜DSML｜parameter>\n'
    "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
}


@pytest.mark.parametrize("family", IN_TAGS)
def test_code_may_hold_the_tags_that_it_stands_between(family):
    profile = profile_for(FAMILIES[family][0])
    for pieces in cuts(IN_TAGS[family], 5):
        text, _, calls = parse("", profile, pieces)
        assert text == ""
        assert [json.loads(arguments) for _, _, arguments in calls] == [{"code": MARKUP, "city": "Bern"}]


CODE = "def f(x):\n    return '</function>' if x < 3 else '<parameter=0>'"


@pytest.mark.parametrize(
    "tags",
    [
        f"<parameter=code>\n{CODE}\n</parameter>\n<parameter=city>\nBern\n</parameter>\n</tool_call>",
        f"<parameter=code>\n{CODE}\n</parameter>\n<parameter=city>\nBern\n</function>\n</tool_call>",
        f"<parameter=code>\n{CODE}\n</parameter>\n<parameter=city>\nBern\n</function>",
        f"<parameter=code>\n{CODE}\n</parameter>\n<parameter=city>\nBern\n</tool_call>",
        f"<parameter=code>\n{CODE}\n<parameter=city>\nBern\n</parameter>\n</function>\n</tool_call>",
    ],
)
def test_qwen_coder_may_forget_a_closing_tag(tags):
    """As it does in long conversations: a value ends where the next tag begins."""
    for opening in ("<tool_call>\n<function=write_file>\n", "<function=write_file>\n"):
        for pieces in cuts(opening + tags, 6):
            text, _, calls = parse("", profile_for("<function="), pieces)
            assert [json.loads(arguments) for _, _, arguments in calls] == [{"code": CODE, "city": "Bern"}]
            assert text == ""


def test_a_value_that_the_budget_cuts_behind_a_tag_is_no_whole_one():
    reply = "<tool_call>\n<function=write_file>\n<parameter=code>\nprint('</function>"
    assert parse("", profile_for("<function="), [reply], cut=True) == ("", "", [])


@pytest.mark.parametrize(
    ("mark", "reply"),
    [
        ("<tool_call>", '<tool_call>\n{"name": "weather", "arguments": null}\n</tool_call>'),
        ("<tool_call>", '<tool_call>\n{"arguments": "", "name": "weather"}\n</tool_call>'),
        ("<tool_call>", '<tool_call>\n{"name": "weather"}\n</tool_call>'),
        ("<function=", "<tool_call>\n<function=weather>\n</function>\n</tool_call>"),
        ("<arg_key>", "<tool_call>weather\n</tool_call>"),
        ("<minimax:tool_call>", '<minimax:tool_call>\n<invoke name="weather">\n</invoke>\n</minimax:tool_call>'),
        ("[TOOL_CALLS]", "[TOOL_CALLS]weather[ARGS]"),
        ("[TOOL_CALLS]", '[TOOL_CALLS] [{"name": "weather", "arguments": {}}]'),
        ("<|python_tag|>", '{"name": "weather", "parameters": null}'),
        (
            "<|tool_calls_section_begin|>",
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>"
            "<|tool_call_end|><|tool_calls_section_end|>",
        ),
        (
            "<｜tool▁calls▁begin｜>",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜><｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        ),
        ("<|channel|>", "<|channel|>commentary to=functions.weather <|constrain|>json<|message|><|call|>"),
    ],
)
def test_a_call_without_arguments_has_an_empty_object(mark, reply):
    for pieces in cuts(reply, 7):
        text, _, calls = parse("", profile_for(mark), pieces)
        assert (text, [call[1:] for call in calls]) == ("", [["weather", "{}"]])


def test_a_kimi_call_without_arguments_is_not_the_sections_last():
    call = "<|tool_call_begin|>functions.{}<|tool_call_argument_begin|>{}<|tool_call_end|>"
    section = call.format("weather:0", "") + call.format("write_file:1", '{"code": "x"}')
    reply = f"<|tool_calls_section_begin|>{section}<|tool_calls_section_end|>"
    for pieces in cuts(reply, 8):
        _, _, calls = parse("", profile_for("<|tool_calls_section_begin|>"), pieces)
        assert [call[1:] for call in calls] == [["weather", "{}"], ["write_file", '{"code": "x"}']]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ('"a\n\tb\r"', "a\n\tb\r"),
        (r'"\d+\.\w"', r"\d+\.\w"),
        (r'"it\'s"', r"it\'s"),
        ('"a\\\nb"', "a\nb"),
        (r'"\\d \" \u00fc \/ \n"', '\\d " ü / \n'),
        ('"\x00"', "\0"),
    ],
)
def test_strings_that_are_almost_json_are_mended(written, meant):
    """What is JSON stays as it is; line breaks and backslashes that it does not allow are what they look like."""
    reply = '<tool_call>\n{"name": "write_file",\n "arguments": {\n"code": %s\n}}\n</tool_call>' % written
    for pieces in cuts(reply, 9):
        text, _, calls = parse("", profile_for("<tool_call>"), pieces)
        assert (text, [json.loads(arguments) for _, _, arguments in calls]) == ("", [{"code": meant}])
    call = '<｜tool▁call▁begin｜>write_file<｜tool▁sep｜>{"code": %s}<｜tool▁call▁end｜>' % written
    reply = f"<｜tool▁calls▁begin｜>{call}<｜tool▁calls▁end｜>"
    _, _, calls = parse("", profile_for("<｜tool▁calls▁begin｜>"), [reply])
    assert [json.loads(arguments) for _, _, arguments in calls] == [{"code": meant}]


@pytest.mark.parametrize(
    ("mark", "end"),
    [
        ("<tool_call>", "\n</tool_call>"),
        ("<tool_call>", "}\n</tool_call>"),
        ("<tool_call>", "}}}\n</tool_call>"),
        ("<tool_call>", "}}\n]\n</tool_call>"),
        ("<tool_call>", ""),
        ("<tool_call>", "}"),
        ("[TOOL_CALLS]", "]"),
        ("[TOOL_CALLS]", "}]"),
        ("[TOOL_CALLS]", "}"),
    ],
)
def test_brackets_that_a_model_forgets_or_doubles_are_no_text(mark, end):
    opening = "[TOOL_CALLS] [" if mark == "[TOOL_CALLS]" else "<tool_call>\n"
    reply = f'{opening}{{"name": "weather", "arguments": {{"city": "Bern"{end}'
    for pieces in cuts(reply, 11):
        text, _, calls = parse("", profile_for(mark), pieces)
        assert text == ""
        assert [(name, json.loads(arguments)) for _, name, arguments in calls] == [("weather", {"city": "Bern"})]


def test_without_tools_a_call_is_text():
    reply = FAMILIES["hermes"][1]
    assert parse(reply, profile_for("<tool_call>"), list(reply), tools=[]) == (reply, "", [])


def test_without_tools_gpt_oss_calls_none():
    """A history with calls makes it call again, where the client has sent no tools or tool_choice is none."""
    reply = '<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{"city": "Bern"}<|call|>'
    assert parse("", profile_for("<|channel|>"), list(reply), tools=[]) == ('{"city": "Bern"}', "", [])


def test_reasoning_tags_opened_in_the_reply_or_in_the_prompt():
    profile = profile_for("{{ '<think>' }} </think> <tool_call>")
    body = "\nI wonder </thin\n</think>\n\n Paris."
    for prompt_end, reply in (("assistant\n<think>\n", body), ("assistant\n", "<think>" + body)):
        for pieces in cuts(reply, 3):
            text, reasoning, _ = parse(reply, profile, pieces, prompt_end=prompt_end)
            assert (text, reasoning) == ("Paris.", "I wonder </thin\n")


@pytest.mark.parametrize("family", ["hermes", "qwen-coder", "glm", "minimax", "kimi", "deepseek"])
def test_a_model_that_forgets_to_end_its_thinking_calls_all_the_same(family):
    mark, reply = FAMILIES[family]
    profile = profile_for(mark + "<think></think>")
    for pieces in cuts("<think>\nI call it.\n" + reply, 12):
        text, reasoning, calls = parse("", profile, pieces)
        assert [(name, json.loads(arguments)) for _, name, arguments in calls] == [
            ("weather", WEATHER),
            ("write_file", SECOND),
        ]
        assert text == ""
        assert reasoning.startswith("I call it.\nLet me look.")


@pytest.mark.parametrize(("end", "cut"), [("\nNo, rather not.", False), ("\n</think>\nNo.", False), ("", True)])
def test_a_call_that_is_only_thought_of_is_none(end, cut):
    profile = profile_for("<tool_call> <think></think>")
    for pieces in cuts("<think>\n" + FAMILIES["hermes"][1] + end, 13):
        text, reasoning, calls = parse("", profile, pieces, cut=cut)
        assert (text, calls) == ("No." if "</think>" in end else "", [])
        assert "write_file" in reasoning


def test_a_reply_that_does_not_think_is_left_alone():
    profile = profile_for("<think></think>")
    for pieces in cuts("\n <b>No</b> tags <think> here ", 4):
        text, reasoning, _ = parse("", profile, pieces)
        assert (text, reasoning) == ("\n <b>No</b> tags <think> here ", "")


def test_kimi_and_mistral_keep_their_own_ids():
    assert [c[0] for c in parse("", profile_for(FAMILIES["kimi"][0]), [FAMILIES["kimi"][1]])[2]] == [
        "functions.weather:0",
        "functions.write_file:1",
    ]
    ids = [c[0] for c in parse("", profile_for("[TOOL_CALLS]"), [FAMILIES["mistral-v11"][1]])[2]]
    assert ids[1] == "abc123xyz"
    assert len(ids[0]) == 9
    assert ids[0].isalnum()


@pytest.mark.parametrize(
    ("template", "reply"),
    [
        ("<function=", r'<function=weather><parameter=tags>["\ud83d", NaN, 1e999]</parameter></function></tool_call>'),
        ("<tool_call>", r'<tool_call>{"name": "weather", "arguments": "{\"city\": \"\ud83d\"}"}</tool_call>'),
        (
            "<｜tool▁calls▁begin｜>",
            '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{"city": "\\ud83d", "days": NaN}'
            "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        ),
    ],
)
def test_what_a_call_is_made_of_can_be_sent(template, reply):
    _, _, calls = parse(reply, profile_for(template), [reply])
    arguments = calls[0][2]
    json.loads(arguments.encode(), parse_constant=pytest.fail)


def test_brackets_without_an_end_in_a_parameter_are_its_text():
    brackets = "[" * 20_000
    reply = f"<function=weather><parameter=tags>{brackets}</parameter></function></tool_call>"
    _, _, calls = parse(reply, profile_for("<function="), [reply])
    assert json.loads(calls[0][2]) == {"tags": brackets}
