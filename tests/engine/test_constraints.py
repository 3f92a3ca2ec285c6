"""Constrained output: whatever a model samples inside the masks satisfies the schema, in every family's format."""

import base64
import json
import random

import jsonschema
import numpy as np
import pytest
from random_schemas import judge, random_schema
from tokenizers import AddedToken, Tokenizer

from engine.constraints import TokenMasks, Vocabulary, grammar_for, schemas
from engine.constraints.faults import fault_of
from engine.constraints.marks import Marks
from engine.errors import InvalidRequest
from engine.messages import Constraint, GenerationRequest, ToolCallDelta, ToolCallStart, ToolChoice
from engine.replies import ReplyParser, profile_for

EOS = 511
SPECIAL = {  # family -> the special tokens that its vocabulary has
    "hermes": [],
    "qwen-coder": [],
    "glm": ["<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"],
    "minimax": ["<minimax:tool_call>", "</minimax:tool_call>"],
    "deepseek": [
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁end｜>",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁call▁end｜>",
        "<｜tool▁sep｜>",
    ],
    "deepseek-dsml": [],
    "kimi": [
        "<|tool_calls_section_begin|>",
        "<|tool_calls_section_end|>",
        "<|tool_call_begin|>",
        "<|tool_call_end|>",
        "<|tool_call_argument_begin|>",
    ],
    "mistral": ["[TOOL_CALLS]"],
    "mistral-named": ["[TOOL_CALLS]", "[ARGS]"],
    "llama": ["<|python_tag|>"],
    "harmony": ["<|channel|>", "<|message|>", "<|call|>", "<|end|>", "<|start|>", "<|constrain|>"],
}
TEMPLATE_MARK = {
    "hermes": "<tool_call>",
    "qwen-coder": "<function=",
    "deepseek-dsml": "｜DSML｜",
    "harmony": "<|channel|>",
}
FREE_TEXT_CLOSING = {  # where a string parameter stands as it is, only its tag ends it
    "qwen-coder": "</parameter>",
    "glm": "</arg_value>",
    "minimax": "</parameter>",
    "deepseek-dsml": "</｜DSML｜parameter>",
}
PARAMETERS = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 12},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "unit": {"type": "string", "enum": ["celsius", "kelvin"]},
        "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}},
    {"type": "function", "function": {"name": "nothing", "parameters": {"type": "object", "properties": {}}}},
]


@pytest.fixture(scope="module")
def base_tokenizer(interop_dir):
    return (interop_dir / "tiny-qwen3moe-checkpoint" / "tokenizer.json").read_text()


def tokenizer_with(base, special):
    tokenizer = Tokenizer.from_str(base)
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special])
    return tokenizer


def allowed_ids(payload, size):
    kind, _, value = payload.partition(":")
    if kind == "all":
        return list(range(size))
    if kind == "only":
        return [int(id) for id in value.split(";")]
    assert kind == "bits"
    bits = np.unpackbits(np.frombuffer(base64.b64decode(value), np.uint8), bitorder="little")
    assert len(bits) == (size + 7) // 8 * 8
    return np.flatnonzero(bits[:size]).tolist()


def walk(masks, tokenizer, rng, limit=400, prefer=(), closing=()):
    """Sample inside the masks, mostly printable tokens, until the end; the text with special tokens visible.

    prefer: tokens that are often taken where they are allowed; closing: a tag that is written now and then.
    """
    ids, new, plan = [], (), []
    while (payload := masks(new)) != "none":
        choices = allowed_ids(payload, tokenizer.get_vocab_size())
        if not plan and rng.random() < 0.2:
            plan = list(closing)
        plan = plan if plan and plan[0] in choices else []
        liked = [id for id in choices if id in prefer]
        short = [id for id in choices if id != EOS and 33 <= id < 126]
        id = plan.pop(0) if plan else rng.choice(liked if liked and rng.random() < 0.5 else short or choices)
        if EOS in choices and (id == EOS or rng.random() < 0.5):
            break
        ids.append(id)
        new = (id,)
        assert len(ids) < limit
    return tokenizer.decode(ids, skip_special_tokens=False)


def test_samples_inside_the_masks_validate_for_random_schemas(base_tokenizer):
    vocabulary = Vocabulary(base_tokenizer, 512, [EOS])
    tokenizer = Tokenizer.from_str(base_tokenizer)
    for seed in range(200):
        rng = random.Random(seed)
        schema = random_schema(rng)
        request = GenerationRequest(model=None, constraint=Constraint("json_schema", schema))
        masks = TokenMasks(grammar_for(request, "hermes", Marks({})), vocabulary)
        text = walk(masks, tokenizer, rng, limit=3000, prefer=set(tokenizer.encode('"}]').ids))
        judge(schema).validate(json.loads(text))


@pytest.mark.parametrize("names", [{"type": "string"}, {"type": "string", "enum": ["ab", "cd"]}])
@pytest.mark.parametrize("required", [{}, {"required": ["ab"]}])
def test_a_record_as_zod_writes_it_is_held(names, required, base_tokenizer):
    schema = {"type": "object", "propertyNames": names, "additionalProperties": {"type": "boolean"}, **required}
    tokenizer, vocabulary = Tokenizer.from_str(base_tokenizer), Vocabulary(base_tokenizer, 512, [EOS])
    for seed in range(20):
        request = GenerationRequest(model=None, constraint=Constraint("json_schema", schema))
        masks = TokenMasks(grammar_for(request, "hermes", Marks({})), vocabulary)
        text = walk(masks, tokenizer, random.Random(seed), limit=3000, prefer=set(tokenizer.encode('"}]').ids))
        judge(schema).validate(json.loads(text))


@pytest.mark.parametrize("family", SPECIAL)
def test_a_required_call_is_made_in_every_family(family, base_tokenizer):
    tokenizer = tokenizer_with(base_tokenizer, SPECIAL[family])
    special = {token: tokenizer.token_to_id(token) for token in SPECIAL[family]}
    profile = profile_for(TEMPLATE_MARK.get(family, ""), special)
    assert profile.family == family.removesuffix("-named")
    vocabulary = Vocabulary(tokenizer.to_str(), tokenizer.get_vocab_size(), [EOS])
    for seed in range(6):
        choice = ToolChoice("named", "weather") if seed % 2 else ToolChoice("required")
        request = GenerationRequest(model=None, tools=TOOLS, tool_choice=choice)
        masks = TokenMasks(grammar_for(request, profile.family, Marks(special)), vocabulary)
        closers = {*tokenizer.encode('"}]<').ids, *special.values()}
        tag = tokenizer.encode(FREE_TEXT_CLOSING.get(family, "")).ids
        reply = walk(masks, tokenizer, random.Random(seed), limit=4000, prefer=closers, closing=tag)
        parser = ReplyParser(profile, TOOLS)
        events = parser.feed(reply) + parser.finish()
        names = [e.name for e in events if isinstance(e, ToolCallStart)]
        arguments = json.loads("".join(e.arguments for e in events if isinstance(e, ToolCallDelta)))
        assert len(names) == 1
        if seed % 2:
            assert names == ["weather"]
        if names == ["weather"]:
            if family in FREE_TEXT_CLOSING:  # such a text's length is not held
                arguments["city"] = arguments["city"][:12]
            jsonschema.validate(arguments, PARAMETERS)


def test_thinking_stays_free_and_the_answer_after_it_is_held(base_tokenizer):
    tokenizer = tokenizer_with(base_tokenizer, ["<think>", "</think>"])
    opening, closing = (tokenizer.token_to_id(tag) for tag in ("<think>", "</think>"))
    vocabulary = Vocabulary(tokenizer.to_str(), tokenizer.get_vocab_size(), [EOS])
    request = GenerationRequest(model=None, constraint=Constraint("regex", "yes|no"))
    grammar = grammar_for(request, "hermes", Marks({"<think>": opening, "</think>": closing}))
    tags = ("<think>", "</think>")

    masks = TokenMasks(grammar, vocabulary, tags, opening, open=True)
    assert masks() == "all"
    assert masks([70, 71]) == "all"
    first = {tokenizer.decode([id])[:1] for id in allowed_ids(masks([closing]), vocabulary.size)}
    assert first == {"y", "n"}

    masks = TokenMasks(grammar, vocabulary, tags, opening)
    assert opening in allowed_ids(masks(), vocabulary.size)
    assert masks([opening]) == "all"

    masks = TokenMasks(grammar, vocabulary, tags, opening)
    masks()
    after_y = allowed_ids(masks([tokenizer.token_to_id("y")]), vocabulary.size)
    assert {tokenizer.decode([id])[:1] for id in after_y} == {"e"}


@pytest.mark.parametrize(
    ("constraint", "reply"),
    [
        (Constraint("regex", "(a{1000}){1000}"), "a"),  # following it takes more than the library's limits
        (Constraint("json_schema", {"$ref": "#"}), ""),
    ],
)
def test_a_grammar_that_cannot_be_followed_is_an_error_and_no_end(constraint, reply, base_tokenizer):
    tokenizer = Tokenizer.from_str(base_tokenizer)
    grammar = grammar_for(GenerationRequest(model=None, constraint=constraint), "hermes", Marks({}))
    masks = TokenMasks(grammar, Vocabulary(base_tokenizer, 512, [EOS]))
    with pytest.raises(InvalidRequest, match=r"cannot be enforced: [a-z]") as refused:
        list(map(masks, [[], tokenizer.encode(reply).ids]))
    assert "<state>" not in refused.value.message


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"not": {"type": "string"}}, "not"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"type": "string", "pattern": "(?=a)b"}, "look-around"),
        ({"type": "object", "properties": {"a": {"if": {}, "then": {}}}}, "if"),
        ({"type": "string", "format": "phone"}, "format: phone"),
        ({"type": "object", "propertyNames": {"type": "string", "minLength": 2}}, "propertyNames"),
        ({"type": "object", "propertyNames": {"type": "string", "enum": 5}}, "propertyNames"),
        ({"type": "object", "minProperties": 2, "required": ["a"]}, "minProperties"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "oneOf"),
        ({"oneOf": [{"const": 1}, {"enum": [2, 1]}]}, "oneOf"),
        ({"$ref": "https://example.com/schema"}, "example.com"),
        (False, "Unsatisfiable"),
    ],
)
def test_what_cannot_be_enforced_is_refused_by_name(schema, keyword, base_tokenizer):
    request = GenerationRequest(model=None, constraint=Constraint("json_schema", schema))
    with pytest.raises(InvalidRequest, match=keyword) as refused:
        TokenMasks(grammar_for(request, "hermes", Marks({})), Vocabulary(base_tokenizer, 512, [EOS]))
    assert "%json" not in refused.value.message


def weather_with(parameters, **more):
    return [{"type": "function", "function": {"name": "weather", "parameters": parameters, **more}}]


def test_alternatives_that_overlap_are_refused_where_a_tool_is_strict_only(base_tokenizer):
    either = {"type": "object", "properties": {"a": {"oneOf": [{"type": "integer"}, {"type": "number"}]}}}
    choice, vocabulary = ToolChoice("required"), Vocabulary(base_tokenizer, 512, [EOS])
    loose = GenerationRequest(model=None, tools=weather_with(either), tool_choice=choice)
    TokenMasks(grammar_for(loose, "hermes", Marks({})), vocabulary)
    strict = GenerationRequest(model=None, tools=weather_with(either, strict=True), tool_choice=choice)
    with pytest.raises(InvalidRequest, match="oneOf") as refused:
        TokenMasks(grammar_for(strict, "hermes", Marks({})), vocabulary)
    assert "call0" not in refused.value.message


UNENFORCEABLE = [
    {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
    {"type": "string", "format": "path"},
    {"type": "string", "format": "uri-reference"},
    {"type": "string", "pattern": "^(?!-)x"},
    {"not": {"type": "null"}},
    {"if": {"type": "string"}, "then": {"minLength": 2}},
    {"type": "object", "minProperties": 2},
    {"type": "object", "patternProperties": {"(?=a)": {"type": "string"}}},
    {"$ref": "https://example.com/schema"},
    {"type": "string", "minLength": 3, "maxLength": 2},
    {"type": "array", "items": {"enum": 5}},
    {"type": "object", "required": 5},
    {"type": "object", "properties": {"a": {"type": "null"}}, "required": [["a"]]},
    False,
]


@pytest.mark.parametrize("strict", [True, False])
def test_a_keyword_that_is_null_is_absent(strict, base_tokenizer):
    """As Go writes an empty list. The schema judges what was written without those keywords."""
    nulls = dict.fromkeys(("required", "enum", "anyOf", "$defs", "format", "minLength", "additionalProperties"))
    inner = {"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"const": None}}}
    parameters = {**nulls, **inner, "properties": {"in": {**nulls, **inner, "required": ["b"]}}, "required": ["in"]}
    told = {**inner, "properties": {"in": {**inner, "required": ["b"]}}, "required": ["in"]}
    vocabulary, tokenizer = Vocabulary(base_tokenizer, 512, [EOS]), Tokenizer.from_str(base_tokenizer)
    for seed in range(10):
        tools, choice = weather_with(parameters, strict=strict), ToolChoice("required")
        request = GenerationRequest(model=None, tools=tools, tool_choice=choice)
        masks = TokenMasks(grammar_for(request, "hermes", Marks({})), vocabulary)
        text = walk(masks, tokenizer, random.Random(seed), limit=3000, prefer=set(tokenizer.encode('"}]').ids))
        call = json.loads(text.removeprefix("<tool_call>").removesuffix("</tool_call>"))
        judge(told).validate(call["arguments"])


@pytest.mark.parametrize("schema", UNENFORCEABLE)
@pytest.mark.parametrize("family", ["hermes", "qwen-coder"])
def test_a_forced_tool_that_is_not_strict_is_held_as_far_as_it_can_be(family, schema, base_tokenizer):
    """One word that the library lacks costs that word: the other parameters, and what is required, are held."""
    parameters = {**PARAMETERS, "properties": {**PARAMETERS["properties"], "x": schema}}
    tokenizer = Tokenizer.from_str(base_tokenizer)
    request = GenerationRequest(model=None, tools=weather_with(parameters), tool_choice=ToolChoice("required"))
    masks = TokenMasks(grammar_for(request, family, Marks({})), Vocabulary(base_tokenizer, 512, [EOS]))
    closers, tag = set(tokenizer.encode('"}]<').ids), tokenizer.encode(FREE_TEXT_CLOSING.get(family, "")).ids
    parser = ReplyParser(profile_for(TEMPLATE_MARK[family], {}), request.tools)
    reply = walk(masks, tokenizer, random.Random(3), limit=4000, prefer=closers, closing=tag)
    events = parser.feed(reply) + parser.finish()
    arguments = json.loads("".join(event.arguments for event in events if isinstance(event, ToolCallDelta)))
    arguments.pop("x", None)
    if family in FREE_TEXT_CLOSING:
        arguments["city"] = arguments["city"][:12]
    jsonschema.validate(arguments, {**PARAMETERS, "additionalProperties": True})


def test_what_is_left_of_a_schema_keeps_its_types(base_tokenizer):
    """The pattern goes, the type, the other pattern and the key that is required stay."""
    inner = {"a": {"type": "string", "pattern": "(?=x)"}, "b": {"type": "string", "pattern": "^[0-9]{2}$"}}
    parameters = {"type": "object", "properties": inner, "required": ["a", "b"], "additionalProperties": False}
    request = GenerationRequest(model=None, tools=weather_with(parameters), tool_choice=ToolChoice("required"))
    tokenizer, grammar = Tokenizer.from_str(base_tokenizer), grammar_for(request, "hermes", Marks({}))
    vocabulary = Vocabulary(base_tokenizer, 512, [EOS])
    head = '<tool_call>\n{"name": "weather", "arguments": {"a": '
    for written, fits in [('"y", "b": "12"}', True), ("5", False), ('"y", "b": "1a', False), ('"y"}', False)]:
        assert taken(TokenMasks(grammar, vocabulary), tokenizer, head + written)[0] is fits


def test_a_hostile_schema_of_a_forced_tool_does_not_hold_others_up(base_tokenizer, monkeypatch):
    """Tens of thousands of patterns would take a minute, each by itself: those that are not tried are left out."""
    asked = []
    monkeypatch.setattr(schemas, "fault_of", lambda grammar: asked.append(grammar) or fault_of(grammar))
    inner = {f"p{number}": {"type": "string", "pattern": "(?=a)"} for number in range(400)}
    parameters = {"type": "object", "properties": inner, "required": ["p399"]}
    request = GenerationRequest(model=None, tools=weather_with(parameters), tool_choice=ToolChoice("required"))
    grammar, tokenizer = grammar_for(request, "hermes", Marks({})), Tokenizer.from_str(base_tokenizer)
    assert len(asked) < 300
    head = '<tool_call>\n{"name": "weather", "arguments": {"p399": '
    for written, fits in [('"y"}', True), ("5", False)]:
        masks = TokenMasks(grammar, Vocabulary(base_tokenizer, 512, [EOS]))
        assert taken(masks, tokenizer, head + written)[0] is fits


@pytest.mark.parametrize("mode", ["required", "auto"])
def test_a_strict_tool_that_cannot_be_held_is_named(mode):
    tools = [TOOLS[1], *weather_with({"type": "object", "properties": {"a": {"format": "path"}}}, strict=True)]
    with pytest.raises(InvalidRequest, match=r"'weather'.*Unknown format: path") as refused:
        grammar_for(GenerationRequest(model=None, tools=tools, tool_choice=ToolChoice(mode)), "hermes", Marks({}))
    assert refused.value.param == "tools"


@pytest.mark.parametrize("family", FREE_TEXT_CLOSING)
def test_a_parameter_may_refer_to_definitions_of_its_tool(family, base_tokenizer):
    """Each parameter is a rule of its own where a family writes tags around it."""
    point = {"type": "object", "properties": {"x": {"enum": [7]}}, "required": ["x"], "additionalProperties": False}
    parameters = {
        "$defs": {"point": point},
        "type": "object",
        "properties": {"at": {"$ref": "#/$defs/point"}},
        "required": ["at"],
    }
    tokenizer = tokenizer_with(base_tokenizer, SPECIAL[family])
    special = {token: tokenizer.token_to_id(token) for token in SPECIAL[family]}
    tools = weather_with(parameters)
    request = GenerationRequest(model=None, tools=tools, tool_choice=ToolChoice("required"))
    vocabulary = Vocabulary(tokenizer.to_str(), tokenizer.get_vocab_size(), [EOS])
    masks = TokenMasks(grammar_for(request, family, Marks(special)), vocabulary)
    parser = ReplyParser(profile_for(TEMPLATE_MARK.get(family, ""), special), tools)
    events = parser.feed(walk(masks, tokenizer, random.Random(1))) + parser.finish()
    arguments = "".join(event.arguments for event in events if isinstance(event, ToolCallDelta))
    assert json.loads(arguments) == {"at": {"x": 7}}


def test_a_request_that_demands_nothing_has_no_grammar():
    assert grammar_for(GenerationRequest(model=None, tools=TOOLS), "hermes", Marks({})) is None


# --- strict tools that need not be called ----------------------------------------------------------------------------

TRIGGERED = {  # family -> what begins its calls
    "hermes": "<tool_call>",
    "qwen-coder": "<tool_call>",
    "glm": "<tool_call>",
    "minimax": "<minimax:tool_call>",
    "deepseek": "<｜tool▁calls▁begin｜>",
    "deepseek-dsml": "<｜DSML｜function_calls>",
    "kimi": "<|tool_calls_section_begin|>",
    "mistral": "[TOOL_CALLS]",
    "mistral-named": "[TOOL_CALLS]",
}


def strict_masks(family, base, tools):
    tokenizer = tokenizer_with(base, SPECIAL[family])
    special = {token: tokenizer.token_to_id(token) for token in SPECIAL[family]}
    vocabulary = Vocabulary(tokenizer.to_str(), tokenizer.get_vocab_size(), [EOS])
    profile = profile_for(TEMPLATE_MARK.get(family, ""), special)
    grammar = grammar_for(GenerationRequest(model=None, tools=tools), profile.family, Marks(special))
    return TokenMasks(grammar, vocabulary), tokenizer, profile


def taken(masks, tokenizer, text):
    """Follows `text` as far as it is allowed; -> whether all was, and the next mask."""
    payload = masks()
    for id in tokenizer.encode(text).ids:
        if id not in allowed_ids(payload, tokenizer.get_vocab_size()):
            return False, payload
        payload = masks((id,))
    return True, payload


@pytest.mark.parametrize("family", TRIGGERED)
def test_a_strict_tool_is_held_where_it_is_called_and_text_is_free(family, base_tokenizer):
    tools = [*weather_with(PARAMETERS, strict=True), TOOLS[1]]
    masks, tokenizer, profile = strict_masks(family, base_tokenizer, tools)
    whole, payload = taken(masks, tokenizer, 'Hé, 1 < 2 <tool {"name": "x"}.\n')
    assert whole
    assert EOS in allowed_ids(payload, tokenizer.get_vocab_size())

    for seed in range(6):
        masks, tokenizer, profile = strict_masks(family, base_tokenizer, tools)
        prefix = f"I look.\n{TRIGGERED[family]}"
        whole, payload = taken(masks, tokenizer, prefix)
        assert whole
        assert EOS not in allowed_ids(payload, tokenizer.get_vocab_size())
        closers = {*tokenizer.encode('"}]<').ids, *map(tokenizer.token_to_id, SPECIAL[family])}
        tag = tokenizer.encode(FREE_TEXT_CLOSING.get(family, "")).ids
        ids = list(walk_on(masks, payload, tokenizer, random.Random(seed), closers, tag))
        parser = ReplyParser(profile, tools)
        reply = prefix + tokenizer.decode(ids, skip_special_tokens=False)
        events = parser.feed(reply) + parser.finish()
        starts = [event for event in events if isinstance(event, ToolCallStart)]
        assert starts, reply
        for start in starts:
            deltas = (e.arguments for e in events if isinstance(e, ToolCallDelta) and e.index == start.index)
            arguments = json.loads("".join(deltas))
            if start.name == "weather":
                if family in FREE_TEXT_CLOSING:
                    arguments["city"] = arguments["city"][:12]
                jsonschema.validate(arguments, PARAMETERS)


def walk_on(masks, payload, tokenizer, rng, closers, tag):
    """As `walk`, from a mask on, and to the first end that is allowed."""
    plan = []
    for _ in range(4000):
        choices = allowed_ids(payload, tokenizer.get_vocab_size())
        if EOS in choices:
            return
        if not plan and rng.random() < 0.2:
            plan = list(tag)
        plan = plan if plan and plan[0] in choices else []
        liked = [id for id in choices if id in closers]
        short = [id for id in choices if 33 <= id < 126]
        id = plan.pop(0) if plan else rng.choice(liked if liked and rng.random() < 0.5 else short or choices)
        yield id
        payload = masks((id,))
    raise AssertionError("no end")


@pytest.mark.parametrize("family", ["llama", "harmony"])
def test_families_without_a_sign_that_a_call_begins_are_left_free(family):
    request = GenerationRequest(model=None, tools=weather_with(PARAMETERS, strict=True))
    assert grammar_for(request, family, Marks({})) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": []},
        {"type": "object", "required": 5},
        {"type": "object", "properties": {"a": {"enum": 5}}},
        {"$defs": 1},
    ],
)
@pytest.mark.parametrize("family", ["hermes", "qwen-coder"])
@pytest.mark.parametrize("choice", ["auto", "required"])
def test_a_schema_that_is_none_is_a_fault_of_the_request(schema, family, choice):
    tools = weather_with(schema, strict=True)
    with pytest.raises(InvalidRequest, match="must be an"):
        grammar_for(GenerationRequest(model=None, tools=tools, tool_choice=ToolChoice(choice)), family, Marks({}))


def test_a_property_may_have_a_keywords_name(base_tokenizer):
    inner = {"type": "object", "properties": {"x": {"type": "null"}}, "required": ["x"], "additionalProperties": False}
    names = ["enum", "oneOf", "uniqueItems", "required", "minProperties", "$defs"]
    schema = {"type": "object", "properties": dict.fromkeys(names, inner), "required": names}
    request = GenerationRequest(model=None, constraint=Constraint("json_schema", schema))
    masks = TokenMasks(grammar_for(request, "hermes", Marks({})), Vocabulary(base_tokenizer, 512, [EOS]))
    text = json.dumps({name: {"x": None} for name in names})
    assert taken(masks, Tokenizer.from_str(base_tokenizer), text)[0]
