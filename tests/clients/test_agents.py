"""Agents that speak chat completions: each answers a question, and reads a file through its own tool."""

import json

import pytest
from world import SECRET

ANSWER = f"The word is {SECRET}."
QUESTION = "Which word is in secret.txt?"

CONTINUE = """
name: local
version: 1.0.0
schema: v1
models:
  - name: S-MoE
    provider: openai
    model: s-moe
    apiBase: {url}/v1
    apiKey: unused
    roles: [chat]
"""


def ask_continue(home, url, question):
    config = home.write(".continue/config.yaml", CONTINUE.format(url=url))
    return home.run("continue", "-p", question, "--config", str(config), CONTINUE_TELEMETRY_ENABLED="0")


def ask_opencode(home, url, question):
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "S-MoE",
        "options": {"baseURL": f"{url}/v1", "apiKey": "unused"},
        "models": {"s-moe": {"name": "S-MoE", "limit": {"context": 200_000, "output": 4096}}},
    }
    settings = {"autoupdate": False, "share": "disabled", "provider": {"smoe": provider}}
    home.write(".config/opencode/opencode.json", json.dumps(settings))
    return home.run(
        "opencode",
        *("run", "-m", "smoe/s-moe", question),
        OPENCODE_DISABLE_MODELS_FETCH="1",
        OPENCODE_DISABLE_AUTOUPDATE="1",
    )


def ask_qwen_code(home, url, question):
    settings = {
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"disableAutoUpdate": True},
        "security": {"auth": {"selectedType": "openai"}},
    }
    home.write(".qwen/settings.json", json.dumps(settings))
    return home.run(
        "qwen-code",
        *("-p", question, "--yolo"),
        OPENAI_BASE_URL=f"{url}/v1",
        OPENAI_API_KEY="unused",
        OPENAI_MODEL="s-moe",
    )


AGENTS = {
    "continue": (ask_continue, "Read", "filepath"),
    "opencode": (ask_opencode, "read", "filePath"),
    "qwen-code": (ask_qwen_code, "read_file", "file_path"),
}


@pytest.mark.parametrize("name", AGENTS)
def test_a_question(home, scripted, name):
    ask, _, _ = AGENTS[name]
    scripted.says("Good morning to you.")
    assert "Good morning to you." in ask(home, scripted.url, "Say good morning.")


@pytest.mark.parametrize("name", AGENTS)
def test_it_reads_a_file_through_its_tool(home, scripted, name):
    ask, tool, argument = AGENTS[name]
    scripted.calls(tool, **{argument: home.secret})
    assert ANSWER in ask(home, scripted.url, QUESTION)
