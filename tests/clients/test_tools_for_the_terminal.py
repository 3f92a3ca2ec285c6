"""llm, litellm and aider: on the demo vault, and with scripted calls and edits."""

import json

from world import SECRET

LLM_MODEL = """
- model_id: smoe
  model_name: s-moe
  api_base: {url}/v1
  supports_tools: true
  supports_schema: true
"""


def llm(home, url, *arguments):
    home.write("llm/extra-openai-models.yaml", LLM_MODEL.format(url=url))
    user = str(home.folder / "llm")
    return home.run("llm", *("-m", "smoe"), *arguments, LLM_USER_PATH=user, OPENAI_API_KEY="unused")


def test_llm_on_the_demo_vault(home, demo):
    assert llm(home, demo, "What is the capital of France?").strip()


def test_llm_keeps_to_a_schema_on_the_demo_vault(home, demo):
    told = llm(home, demo, "--schema", "name str, age int", "Invent a dog.")
    assert {name: type(value) for name, value in json.loads(told).items()} == {"name": str, "age": int}


def test_llm_calls_a_function(home, scripted):
    scripted.calls("word")
    function = f'def word() -> str:\n    "The word."\n    return "{SECRET}"\n'
    assert f"The word is {SECRET}." in llm(home, scripted.url, "--functions", function, "Which word?")


LITELLM = """
import json, litellm, sys
url, model, base = sys.argv[1:]
tools = [{"type": "function", "function": {"name": "word", "parameters": {"type": "object", "properties": {}}}}]
messages = [{"role": "user", "content": "Which word?"}]
common = dict(model=model, api_base=base, api_key="unused", max_tokens=128000)
whole = litellm.completion(messages=messages, tools=tools, **common)
chunks = list(litellm.completion(messages=messages, tools=tools, stream=True, **common))
streamed = litellm.stream_chunk_builder(chunks)
def told(answer):
    choice = answer.choices[0]
    calls = [call.function.name for call in choice.message.tool_calls or ()]
    return [choice.message.content, calls, choice.finish_reason, answer.usage.completion_tokens]
print(json.dumps([told(whole), told(streamed)]))
"""


def litellm(home, url, model, base):
    script = home.write("ask.py", LITELLM)
    told = home.run("litellm", str(script), url, model, base, LITELLM_LOCAL_MODEL_COST_MAP="True")
    return json.loads(told.splitlines()[-1])


def test_litellm_over_both_protocols(home, scripted):
    for model, base in [("openai/s-moe", f"{scripted.url}/v1"), ("anthropic/s-moe", scripted.url)]:
        scripted.says("Good morning.")
        for text, calls, finish, tokens in litellm(home, scripted.url, model, base):
            assert (text, calls, finish) == ("Good morning.", [], "stop")
            assert tokens == len(scripted.ids("Good morning."))
        scripted.calls("word")
        for _, calls, finish, _ in litellm(home, scripted.url, model, base):
            assert (calls, finish) == (["word"], "tool_calls")


def test_litellm_on_the_demo_vault(home, demo):
    for text, calls, _, tokens in litellm(home, demo, "openai/s-moe", f"{demo}/v1"):
        assert text or calls
        assert tokens > 0


def aider(home, url, message, *files):
    return home.run(
        "aider",
        *("--model", "openai/s-moe", "--openai-api-base", f"{url}/v1", "--openai-api-key", "unused"),
        *("--no-git", "--yes-always", "--no-check-update", "--analytics-disable", "--no-show-model-warnings"),
        *("--no-pretty", "--no-show-release-notes", "--edit-format", "whole", "--message", message, *files),
        timeout=600,
        LITELLM_LOCAL_MODEL_COST_MAP="True",
    )


def test_aider_edits_a_file(home, scripted):
    scripted.says(f"Here it is.\n\nsecret.txt\n```\n{SECRET} twice\n```\n")
    aider(home, scripted.url, "Write it twice.", "secret.txt")
    assert (home.work / "secret.txt").read_text() == f"{SECRET} twice\n"


def test_aider_on_the_demo_vault(home, demo):
    assert "Tokens:" in aider(home, demo, "What is the capital of France?")
