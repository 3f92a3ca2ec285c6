"""Real clients, as their registries give them, each in a folder of its own under .cache/clients."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "clients"


@dataclass(frozen=True)
class Client:
    """`command`: in its folder, what starts it."""

    registry: str  # npm or pip
    package: str
    version: str
    command: tuple[str, ...]


def npm(package: str, version: str, binary: str) -> Client:
    return Client("npm", package, version, (f"node_modules/.bin/{binary}",))


CLIENTS = {
    # Its own launcher waits for an install script, which npm may refuse to run.
    "claude-code": Client(
        "npm",
        "@anthropic-ai/claude-code",
        "2.1.332",
        ("node", "node_modules/@anthropic-ai/claude-code/cli-wrapper.cjs"),
    ),
    "codex": npm("@openai/codex", "0.171.0", "codex"),
    "continue": npm("@continuedev/cli", "1.5.47", "cn"),
    "opencode": npm("opencode-ai", "1.18.33", "opencode"),
    "qwen-code": npm("@qwen-code/qwen-code", "0.15.10", "qwen"),
    "llm": Client("pip", "llm", "0.36", ("bin/llm",)),
    "litellm": Client("pip", "litellm", "1.110.2", ("bin/python",)),
    "aider": Client("pip", "aider-chat", "0.86.2", ("bin/aider",)),
}


class NotInstalled(Exception):
    """What the registry's client said."""


def command(name: str) -> list[str]:
    """What starts the client, which is installed first where it is not yet. Raises NotInstalled."""
    client = CLIENTS[name]
    folder = CACHE / name
    done = folder / f"{client.version}.installed"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _install(client, folder)
        done.touch()
    return [word if word == "node" else str(folder / word) for word in client.command]


def _install(client: Client, folder: Path) -> None:
    if client.registry == "npm":
        package = f"{client.package}@{client.version}"
        _run("npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), package)
    else:
        _run(sys.executable, "-m", "venv", str(folder))
        package = f"{client.package}=={client.version}"
        _run(str(folder / "bin/pip"), "install", "--disable-pip-version-check", "-q", package)


def _run(*words: str) -> None:
    try:
        subprocess.run(words, capture_output=True, text=True, timeout=900, check=True)
    except FileNotFoundError:
        raise NotInstalled(f"{words[0]} is not on this machine") from None
    except subprocess.CalledProcessError as error:
        last = "\n".join((error.stderr or error.stdout).strip().splitlines()[-5:])
        raise NotInstalled(f"`{' '.join(words)}` failed:\n{last}") from None
