"""Claude Code: one question, answered; and one that it answers by reading a file."""

import json

from world import SECRET


def claude(home, url, question, *flags, **environment):
    output = home.run(
        "claude-code",
        *("-p", question, "--output-format", "json", *flags),
        ANTHROPIC_BASE_URL=url,
        ANTHROPIC_API_KEY="unused",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        CLAUDE_CODE_MAX_CONTEXT_TOKENS="32768",
        DISABLE_AUTOUPDATER="1",
        DISABLE_TELEMETRY="1",
        timeout=600,
        **environment,
    )
    return json.loads(output)


def test_it_reads_a_file_through_its_tool(home, scripted):
    scripted.calls("Read", file_path=home.secret)
    told = claude(home, scripted.url, "Which word is in secret.txt?")
    assert told["result"] == f"The word is {SECRET}."
    assert (told["is_error"], told["num_turns"]) == (False, 2)
    assert scripted.generations == 2


def test_a_question_to_the_demo_vault(home, demo):
    """Without tools and its own instructions the prompt fits the 8,192 positions that the model was trained on."""
    told = claude(home, demo, "What is the capital of France?", "--tools", "", "--system-prompt", "You are brief.")
    assert not told["is_error"]
    assert told["result"].strip()
    assert told["usage"]["input_tokens"] > 10
    assert told["usage"]["output_tokens"] > 0
