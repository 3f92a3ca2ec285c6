"""The conversation at the terminal: lines in, replies out, and the words that begin with a slash."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .client import ChatClient, ServerProblem
from .monitor import Monitor
from .screen import Screen

HELP = """/model [NAME]   list the vaults, or choose the next reply's
/system [TEXT]  set the system prompt; without a text, none
/retry          another reply to the last message
/continue       go on with a reply that was cut off
/reset          forget the conversation
/quit           leave (or Ctrl-D); Ctrl-C stops a reply"""

FINISH = {
    "length": "cut off at its length limit; /continue goes on",
    "content_filter": "filtered",
    "tool_calls": "it calls a tool, which this chat has not",
}


class Chat:
    def __init__(
        self, client: ChatClient, screen: Screen, model: str = "", system: str = "", ask_key: Callable[[], str] = str
    ):
        self.client = client
        self.screen = screen
        self.model = model
        self.system = system
        self.messages: list[dict[str, str]] = []
        self._ask_key = ask_key

    def run(self, read: Callable[[], str]) -> None:
        """Until `read` raises EOFError or a line says so. Ctrl-C while reading drops the line."""
        while True:
            try:
                line = read().strip()
            except KeyboardInterrupt:
                self.screen.text("\n")
                continue
            except EOFError:
                return
            if line == "/quit":
                return
            if line:
                self.handle(line)

    def handle(self, line: str) -> None:
        try:
            self._command(line) if line.startswith("/") else self._say(line)
        except ServerProblem as problem:
            self.screen.note(str(problem))

    def _say(self, text: str) -> None:
        self.messages.append({"role": "user", "content": text})
        self._reply()

    def _command(self, line: str) -> None:
        name, _, argument = line.partition(" ")
        commands = {
            "/model": self._choose,
            "/system": self._set_system,
            "/retry": lambda _: self._retry(),
            "/continue": lambda _: self._proceed(),
            "/reset": lambda _: self.messages.clear(),
        }
        if action := commands.get(name):
            action(argument.strip())
        else:
            self.screen.note(HELP)

    def _choose(self, name: str) -> None:
        models = self.client.models()
        if not name:
            for model in models:
                mark = "*" if model["id"] == self.model or (not self.model and model["active"]) else " "
                self.screen.note(f"{mark} {model['id']} {model['quant']}{' (active)' if model['active'] else ''}")
            return
        if name not in {model["id"] for model in models}:
            raise ServerProblem(f"There is no vault {name!r}; /model lists those that there are.")
        self.model = name
        if not next(model["active"] for model in models if model["id"] == name):
            self.screen.note(f"The next message switches to {name}: its first reply pays the cold boot.")

    def _set_system(self, text: str) -> None:
        self.system = text

    def _retry(self) -> None:
        if self.messages and self.messages[-1]["role"] == "assistant":
            self.messages.pop()
        self._reply() if self.messages else self.screen.note("There is no message yet.")

    def _proceed(self) -> None:
        if self.messages and self.messages[-1]["role"] == "assistant":
            self._reply(self.messages.pop()["content"])
        else:
            self.screen.note("There is no reply to go on with.")

    def _reply(self, begun: str = "") -> None:
        """Streams one reply and keeps what came of it, however it ended. `begun`: the part to go on with."""
        parts = [begun]
        try:
            self._receive(parts)
        except ServerProblem as problem:
            self.screen.note(f"\n{problem} /retry tries again." if any(parts) else f"{problem} /retry tries again.")
            if problem.status == 401:
                self.client.key = self._ask_key()
        finally:
            if text := "".join(parts):
                self.messages.append({"role": "assistant", "content": text})

    def _receive(self, parts: list[str]) -> None:
        monitor, finish = Monitor(), None
        stream = self.client.stream(self._body(parts[0]))
        try:
            for chunk in stream.chunks():
                finish = self._take(chunk, parts, monitor) or finish
            verdict = FINISH.get(finish or "", "")
        except KeyboardInterrupt:
            verdict = "stopped"
        finally:
            stream.close()
        self.screen.text("\n")
        self.screen.note(" · ".join(filter(None, [verdict, monitor.summary()])))

    def _take(self, chunk: dict[str, Any] | None, parts: list[str], monitor: Monitor) -> str | None:
        if chunk is not None:
            monitor.take(chunk)
            for choice in chunk["choices"]:
                self._show(choice["delta"], parts, monitor)
                if choice["finish_reason"]:
                    return choice["finish_reason"]
        show = self.screen.status_below if monitor.began else self.screen.status
        show(monitor.line())
        return None

    def _show(self, delta: dict[str, Any], parts: list[str], monitor: Monitor) -> None:
        if thought := delta.get("reasoning_content"):
            monitor.saw_text()
            self.screen.text(thought, dim=True)
        if text := delta.get("content"):
            monitor.saw_text()
            parts.append(text)
            self.screen.text(text)

    def _body(self, begun: str) -> dict[str, Any]:
        system = [{"role": "system", "content": self.system}] if self.system else []
        prefill = [{"role": "assistant", "content": begun}] if begun else []
        body = {"messages": [*system, *self.messages, *prefill]}
        return body | ({"model": self.model} if self.model else {})
