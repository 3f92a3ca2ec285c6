"""Feeds one reply through its family's parser: reasoning first, then text and calls."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from . import families
from .families import Parser
from .output import Output, Piece, Text
from .profile import Profile
from .source import Source
from .tools import Tools


class ReplyParser:
    """One reply. `prompt_end`: the prompt's last characters, which tell whether thinking was opened there.

    tools: OpenAI function tools of the request; with none, a call in the text stays text.
    """

    def __init__(self, profile: Profile, tools: list[dict[str, Any]] = (), prompt_end: str = "") -> None:
        self._source = Source()
        self._out = _output(profile)
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
        parse = partial(profile.parse if tools.schemas or profile.own_channels else families.plain, tools=tools)
        if profile.reasoning and not profile.own_channels:
            yield from self._reasoning(profile, prompt_end, parse)
        yield from parse(self._source, self._out)

    def _reasoning(self, profile: Profile, prompt_end: str, parse: Callable[..., Parser]) -> Parser:
        opening, closing = profile.reasoning
        if not prompt_end.endswith(opening) and not (yield from self._source.leads_to(opening)):
            return
        yield from self._source.skip_space()
        thoughts: list[str] = []

        def think(text: str) -> None:
            thoughts.append(text)
            self._out.reasoning(text)

        closed = yield from self._source.stream_until([closing], think)
        if closed is None and not self._source.cut:
            self._out.add_calls(_last_calls("".join(thoughts), parse, _output(profile)))


def _output(profile: Profile) -> Output:
    return Output(9, "") if profile.family == "mistral" else Output()


def _last_calls(text: str, parse: Callable[..., Parser], out: Output) -> list[Piece]:
    """The calls that a text ends with: models forget to end their thinking before they call, and then wait."""
    source = Source()
    source.append(text)
    source.closed = True
    for _ in parse(source, out):
        pass
    pieces = out.take()
    end_of_text = max((at for at, piece in enumerate(pieces, 1) if isinstance(piece, Text)), default=0)
    return pieces[end_of_text:]


def _schemas(tools: list[dict[str, Any]]) -> Tools:
    functions = (tool.get("function", tool) for tool in tools)
    return Tools({f["name"]: f.get("parameters") or {} for f in functions})
