"""`manage.py chat`: a conversation with a running server, in the terminal."""

from __future__ import annotations

import contextlib
import getpass
import os
import signal
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from engine.terminal.chat import Chat
from engine.terminal.client import ChatClient, ServerProblem
from engine.terminal.screen import Screen


class Command(BaseCommand):
    help = "Chat with a running server. SMOE_API_KEY holds the key where the server asks for one."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        options = settings.SMOE
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(options.host, options.host)
        parser.add_argument("--url", default=f"http://{host}:{options.port}", help="the server (default: %(default)s)")
        parser.add_argument("--model", default="", help="the vault to use (default: the active one)")
        parser.add_argument("--system", default="", help="a system prompt")

    def handle(self, *args: Any, **options: Any) -> None:
        # A shell starts its background jobs with SIGINT ignored, and Python leaves it so: Ctrl-C must be felt here.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        live = sys.stdin.isatty() and sys.stdout.isatty()
        screen = Screen(sys.stdout, live)
        try:
            client = ChatClient(options["url"], os.environ.get("SMOE_API_KEY", ""))
            model = options["model"] or _active(client)
        except ServerProblem as problem:
            raise CommandError(str(problem)) from None
        chat = Chat(client, screen, options["model"], options["system"], lambda: getpass.getpass("API key: "))
        if live:
            screen.note(f"{model} at {client.url}. /help tells the rest, Ctrl-D leaves.")
        with _line_history(settings.SMOE.data_dir / "chat_history") if live else contextlib.nullcontext():
            chat.run((lambda: input("> ")) if live else input)


def _active(client: ChatClient) -> str:
    try:
        return next((model["id"] for model in client.models() if model["active"]), "no vault")
    except ServerProblem as problem:
        if problem.status != 401:
            raise
        try:
            client.key = getpass.getpass("API key: ")
        except EOFError:  # nobody is there to type one
            raise problem from None
        return _active(client)


@contextlib.contextmanager
def _line_history(file: Path):
    """Arrow keys through earlier lines, kept between sessions, for this user's eyes only."""
    import readline

    with contextlib.suppress(OSError):
        readline.read_history_file(file)
    readline.set_history_length(1000)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch(mode=0o600)
            readline.write_history_file(file)
