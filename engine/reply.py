"""One reply: token ids in, text, reasoning and tool call events out. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from .control_tokens import FORMAT_TOKENS
from .detokenizer import Vocabulary
from .messages import Echo, Event, GenerationRequest, ReasoningDelta, TextDelta, TokenLogprob, ToolCallStart
from .prompt import Codec, Prompt
from .protocol import Token
from .replies import Piece, Reasoning, ReplyParser, Text
from .stops import StopScanner


class Reply:
    """`generated` ids have been taken; `stopped_by` is the stop string that ended the text, if one did."""

    def __init__(self, codec: Codec, request: GenerationRequest, prompt: Prompt) -> None:
        self.generated = self.reasoning = self.calls = 0
        self._vocabulary = codec.vocabulary
        self._request, self._prompt = request, prompt
        self._echoes = request.echo  # still to be told
        self._prompt_tokens: list[Token] = []
        self._parser = _parser(codec, request, prompt)
        continues = request.continue_final_message or not request.messages
        visible = _format_ids(codec) if self._parser else frozenset()
        self._detokenizer = codec.vocabulary.detokenizer(visible, continues)
        self._stops = StopScanner(request.stop)
        self._one_call = not request.tool_choice.parallel
        self._is_full = False  # a further call began where only one is wanted
        self._pending = 0  # ids whose text has not been told
        self._logprobs: list[TokenLogprob] = []

    @property
    def stopped_by(self) -> str | None:
        return self._stops.matched

    @property
    def is_over(self) -> bool:
        """What follows is not the client's: the engine may stop."""
        return self._is_full or self.stopped_by is not None

    def feed_prompt(self, tokens: list[Token]) -> None:
        self._prompt_tokens += tokens

    def echo(self) -> list[Event]:
        """The prompt, at the first call where the request wants it."""
        if not self._echoes:
            return []
        self._echoes = False
        text = self._request.text_prompt
        if text is None:
            text = b"".join(map(self._vocabulary.bytes_of, self._prompt.ids)).decode("utf-8", "replace")
        logprobs = [_logprob(self._vocabulary, token) for token in self._prompt_tokens]
        if logprobs and logprobs[0].id in self._vocabulary.special_ids and not text.startswith(logprobs[0].text):
            logprobs[0] = replace(logprobs[0], text="")  # what the tokenizer has put before the text
        return [Echo(text, tuple(logprobs))]

    def feed(self, token: Token) -> list[Event]:
        self.generated += 1
        self._pending += 1
        if token.logprob is not None:
            self._logprobs.append(_logprob(self._vocabulary, token))
        text = self._detokenizer.step(token.id)
        if not text:
            return []
        return self._told(self._parser.feed(text)) if self._parser else self._text(text)

    def finish(self, cut: bool = False) -> list[Event]:
        """The engine has ended the reply: what was held back comes out. cut: before the model was done."""
        if self.is_over:
            return []
        rest = self._detokenizer.finish()
        events = self._text(rest)
        if self._parser:
            events = self._told(self._parser.feed(rest) + self._parser.finish(cut))
        events += self._delta(self._stops.finish()) if self.stopped_by is None else []
        return events + ([self._take("")] if self._logprobs else [])

    def _told(self, pieces: Iterable[Piece]) -> list[Event]:
        events: list[Event] = []
        for piece in pieces:
            if isinstance(piece, Text):
                events += self._text(piece.text)
            elif isinstance(piece, Reasoning):
                self.reasoning += self._pending
                events.append(ReasoningDelta(piece.text, self._pending))
                self._forget_pending()
            elif isinstance(piece, ToolCallStart) and self.calls and self._one_call:
                self._is_full = True
                return events
            else:
                self.calls += isinstance(piece, ToolCallStart)
                events.append(piece)
        return events

    def _text(self, text: str) -> list[Event]:
        return self._delta(self._stops.feed(text))

    def _delta(self, text: str) -> list[Event]:
        return [self._take(text)] if text else []

    def _take(self, text: str) -> TextDelta:
        delta = TextDelta(text, self._pending, tuple(self._logprobs))
        self._forget_pending()
        return delta

    def _forget_pending(self) -> None:
        self._pending = 0
        self._logprobs.clear()


def _parser(codec: Codec, request: GenerationRequest, prompt: Prompt) -> ReplyParser | None:
    """None for text that has no parts: raw completions, and models that neither think nor are given tools."""
    profile = codec.profile
    tools = request.tools if request.tool_choice.mode != "none" else []
    if not request.messages or not (tools or profile.reasoning or profile.own_channels):
        return None
    return ReplyParser(profile, tools, prompt.end)


def _format_ids(codec: Codec) -> frozenset[int]:
    """Special tokens that the reply parsers read; any other one is never text."""
    everything = codec.profile.own_channels
    return frozenset(id for name, id in codec.special_tokens.items() if everything or FORMAT_TOKENS.search(name))


def _logprob(vocabulary: Vocabulary, token: Token) -> TokenLogprob:
    def told(id: int) -> tuple[str, bytes]:
        raw = vocabulary.bytes_of(id)
        return raw.decode("utf-8", "replace"), raw

    top = tuple((id, *told(id), logprob) for id, logprob in token.top)
    return TokenLogprob(token.id, *told(token.id), token.logprob, top)
