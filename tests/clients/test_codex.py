"""Codex CLI: over the Responses protocol, with a provider of its own in its configuration."""

from world import SECRET

CONFIG = """
model = "s-moe"
model_provider = "smoe"
model_context_window = 32768
check_for_update_on_startup = false

[model_providers.smoe]
name = "S-MoE"
base_url = "{url}/v1"
wire_api = "responses"

[analytics]
enabled = false
"""


def codex(home, url, question):
    home.write(".codex/config.toml", CONFIG.format(url=url))
    flags = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
    return home.run("codex", "exec", *flags, question, timeout=900)


def test_it_reads_a_file_through_its_shell(home, scripted):
    scripted.calls("exec_command", cmd="cat secret.txt")
    assert f"The word is {SECRET}." in codex(home, scripted.url, "Which word is in secret.txt?")
    assert scripted.generations == 2


def test_a_question_to_the_demo_vault(home, demo):
    assert codex(home, demo, "Say hello.").strip()
