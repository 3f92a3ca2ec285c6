"""Constrained answers of a real model at temperature 1, through the whole server: each validates against its schema."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import httpx
import pytest
from llguidance import LLMatcher
from random_schemas import DEEPEST, judge, random_schema
from serving import serving
from tokenizers import Tokenizer

from engine.constraints import Vocabulary, grammar_for
from engine.constraints.marks import Marks
from engine.messages import Constraint, GenerationRequest

pytestmark = pytest.mark.demo
BUDGET = 48  # tokens: most answers end within it
BATCH = 40


@pytest.fixture(scope="module")
def server(demo, tmp_path_factory) -> Iterator[httpx.Client]:
    data = tmp_path_factory.mktemp("constrained")
    environment = {
        "SMOE_VAULT_DIR": str(demo.smoe.parent),
        "SMOE_CHECKPOINTS_DIR": str(demo.checkpoint.parent),
    }
    with (
        serving(data, "--ctx", "4096", **environment) as url,
        httpx.Client(base_url=f"{url}/v1", timeout=120) as http,
    ):
        yield http


@pytest.fixture(scope="module")
def vocabulary(demo) -> Vocabulary:
    text = (demo.checkpoint / "tokenizer.json").read_text()
    return Vocabulary(text, Tokenizer.from_str(text).get_vocab_size(), [2])


def answered(server: httpx.Client, schema: dict, seed: int) -> tuple[str, str]:
    """-> the text and why it ended."""
    body = {
        "model": "s-moe",
        "messages": [{"role": "user", "content": "Give an example."}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}},
        "max_tokens": BUDGET,
        "temperature": 1,
        "seed": seed,
    }
    answer = server.post("/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    choice = answer.json()["choices"][0]
    return choice["message"]["content"], choice["finish_reason"]


def is_accepted_prefix(vocabulary: Vocabulary, schema: dict, text: str) -> bool:
    request = GenerationRequest(model=None, constraint=Constraint("json_schema", schema))
    grammar = LLMatcher.grammar_from_lark(grammar_for(request, "hermes", Marks({})))
    ids = vocabulary.tokenizer.tokenize_str(text)
    return LLMatcher(vocabulary.tokenizer, grammar, log_level=0).try_consume_tokens(ids) == len(ids)


@pytest.mark.parametrize(
    "batch", [0, *(pytest.param(batch, marks=pytest.mark.slow) for batch in range(1, 200 // BATCH))]
)
def test_every_answer_validates(server, vocabulary, batch):
    whole = 0
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        schema = random_schema(random.Random(seed), depth=DEEPEST - 1)
        text, finish = answered(server, schema, seed)
        if finish == "stop":
            whole += 1
            judge(schema).validate(json.loads(text))
        else:
            assert finish == "length"
            assert is_accepted_prefix(vocabulary, schema, text), (schema, text)
    print(f"{whole} of {BATCH} answers ended by themselves")
    assert whole > BATCH // 2
