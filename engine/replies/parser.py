"""Feeds one reply through its family's parser: reasoning first, then text and calls."""

from __future__ import annotations

from typing import Any

from . import families
from .families import Parser
from .output import Output, Piece
from .profile import Profile
from .source import Source
from .tools import Tools


class ReplyParser:
    """One reply. `prompt_end`: the prompt's last characters, which tell whether thinking was opened there.

    tools: OpenAI function tools of the request; with none, a call in the text stays text.
    """

    def __init__(self, profile: Profile, tools: list[dict[str, Any]] = (), prompt_end: str = "") -> None:
        self._source = Source()
        self._out = Output(9, "") if profile.family == "mistral" else Output()
        self._run: Parser | None = self._parse(profile, _schemas(tools), prompt_end.rstrip())
        self._advance()

    @property
    def calls(self) -> int:
        """How many tool calls have begun."""
        return self._out.calls

    def feed(self, text: str) -> list[Piece]:
        """The reply goes on with `text`, special tokens included."""
        self._source.append(text)
        self._advance()
        return self._out.take()

    def finish(self, cut: bool = False) -> list[Piece]:
        """The reply is over: what was held back comes out. cut: the model was not done, so a call may lack its end."""
        self._source.closed, self._source.cut = True, cut
        self._advance()
        self._out.finish(cut)
        return self._out.take()

    def _advance(self) -> None:
        if self._run is not None:
            try:
                next(self._run)
            except StopIteration:
                self._run = None

    def _parse(self, profile: Profile, tools: Tools, prompt_end: str) -> Parser:
        if profile.reasoning and not profile.own_channels:
            yield from self._reasoning(*profile.reasoning, prompt_end)
        with_calls = tools.schemas or profile.own_channels
        yield from (profile.parse if with_calls else families.plain)(self._source, self._out, tools)

    def _reasoning(self, opening: str, closing: str, prompt_end: str) -> Parser:
        if not prompt_end.endswith(opening) and not (yield from self._source.leads_to(opening)):
            return
        yield from self._source.skip_space()
        yield from self._source.stream_until([closing], self._out.reasoning)


def _schemas(tools: list[dict[str, Any]]) -> Tools:
    functions = (tool.get("function", tool) for tool in tools)
    return Tools({f["name"]: f.get("parameters") or {} for f in functions})
