"""Messages -> token ids: chat template and tokenizer, in threads. Knows no HTTP and no engine.

transformers takes seconds to import and a large prompt seconds to tokenize: both happen in this module's threads,
never on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

from django.conf import settings

from fleet.catalog import ModelCard

from .control_tokens import FORMAT_TOKENS, SEAM, Seams, control_tokens, encode_between_seams
from .detokenizer import Vocabulary
from .errors import InvalidRequest, ModelUnavailable
from .message_forms import Messages, attempts, for_harmony, tool_forms
from .messages import GenerationRequest
from .replies import Profile, profile_for
from .tool_prompt import describe_tools, knows_tools

log = logging.getLogger("smoe.prompt")
END_LENGTH = 200  # characters of the prompt that tell how the reply begins
# A model that was never taught to chat gets its conversation as a script.
PLAIN_TEMPLATE = (
    "{% for m in messages %}{{ m.role | capitalize }}: {{ m.content }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Prompt:
    """`end`: the last characters of the text that the ids were made from."""

    ids: list[int]
    end: str


class Codec:
    """One loaded tokenizer with its template. Every method is for a worker thread."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        if not tokenizer.chat_template:
            log.warning("%s has no chat template: its conversations are written as plain text", tokenizer.name_or_path)
            tokenizer.chat_template = PLAIN_TEMPLATE
        added = tokenizer.added_tokens_decoder.items()
        special = {id for id, token in added if token.special} | set(tokenizer.all_special_ids)
        self.special_tokens = {tokenizer.convert_ids_to_tokens(id): id for id in special}
        self.vocabulary = Vocabulary(tokenizer.backend_tokenizer, frozenset(special))
        self.size = len(tokenizer)
        self.eos_ids = frozenset(() if tokenizer.eos_token_id is None else (tokenizer.eos_token_id,))
        self.added_ids = {token.content: id for id, token in added}
        self.profile: Profile = profile_for(self.template, self.added_ids, is_taught=not knows_tools(self.template))
        control = control_tokens({token.content: id in special for id, token in added}, self.template)
        shown = set() if self.profile.own_channels else set(filter(FORMAT_TOKENS.search, control))
        self._seams, self._reply_seams = Seams(control), Seams(control - shown)

    @property
    def template(self) -> str:
        """As its source, all of them where it has several."""
        template = self._tokenizer.chat_template
        return template if isinstance(template, str) else "\n".join(template.values())

    def serialized(self) -> str:
        """The text of its tokenizer.json."""
        return self._tokenizer.backend_tokenizer.to_str()

    def encode(self, request: GenerationRequest) -> Prompt:
        """Raises InvalidRequest, with the template's own words where it refuses the messages."""
        if request.prompt_ids is not None:
            return Prompt(list(request.prompt_ids), "")
        if request.text_prompt is not None:
            return self._tokenized(request.text_prompt.replace(SEAM, ""), add_special_tokens=True)
        return self._tokenized(self._render(request), add_special_tokens=False)

    def encode_reply(self, text: str) -> list[int]:
        """Of text that an assistant's message holds, as `encode` has it there."""
        return self._tokenized(self._reply_seams.put(text), add_special_tokens=False).ids

    def _tokenized(self, text: str, add_special_tokens: bool) -> Prompt:
        def encode(piece: str) -> list[int]:
            return self._tokenizer(piece, add_special_tokens=add_special_tokens)["input_ids"]

        ids = encode_between_seams(text, encode) if SEAM in text else encode(text)
        bos = self._tokenizer.bos_token_id
        while bos is not None and ids[:2] == [bos, bos]:  # the text's own, and the tokenizer's
            del ids[0]
        return Prompt(ids, text[-END_LENGTH:].replace(SEAM, ""))

    def _render(self, request: GenerationRequest) -> str:
        messages = [self._seamed(message) for message in request.messages]
        tools = self._seams.put(request.tools) if request.tool_choice.mode != "none" else []
        if self.profile.own_channels:
            messages = for_harmony(messages)
        if not knows_tools(self.template):
            messages, tools = describe_tools(messages, tools), []
        refusal: Exception | None = None
        for attempt, offered in product(attempts(messages), tool_forms(tools)):
            try:
                return self._apply_template(attempt, offered, request)
            except Exception as error:  # a template is a program: it may raise anything
                refusal = refusal or error
        reason = str(refusal).replace(SEAM, "")
        raise InvalidRequest(f"The model's chat template refuses these messages: {reason}", "messages") from refusal

    def _seamed(self, message: dict[str, Any]) -> dict[str, Any]:
        """A message that holds no control tokens, but for those of a reply in an assistant's."""
        return (self._reply_seams if message["role"] == "assistant" else self._seams).put(message)

    def _named_template(self, messages: Messages) -> str | None:
        """The one for tools also where only the history has calls; None: the tokenizer chooses."""
        named = isinstance(self._tokenizer.chat_template, dict) and "tool_use" in self._tokenizer.chat_template
        return "tool_use" if named and any(m["role"] == "tool" or m.get("tool_calls") for m in messages) else None

    def _apply_template(self, messages: Messages, tools: list[dict[str, Any]], request: GenerationRequest) -> str:
        thinking: dict[str, Any] = {}
        if request.reasoning is not None:
            thinking = {"enable_thinking": request.reasoning, "thinking": request.reasoning}
        if request.reasoning is False and self.profile.own_channels:  # gpt-oss always reasons
            thinking["reasoning_effort"] = "low"
        return self._tokenizer.apply_chat_template(
            messages,
            tools=tools or None,
            tokenize=False,
            chat_template=self._named_template(messages),
            add_generation_prompt=not request.continue_final_message,
            continue_final_message=request.continue_final_message,
            **thinking | self._seams.put(request.template_kwargs),
        )


# --- loading --------------------------------------------------------------------------------------------------------

_threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="prompt")
# Two of 8 MiB held every other prompt up for 25 s: those of this size wait for each other only.
_thread_of_long = ThreadPoolExecutor(max_workers=1, thread_name_prefix="long prompt")
LONG = 1 << 20  # characters
_loaded: dict[str, tuple[float, Codec]] = {}  # name -> (when its files changed, what was read)
_loading = threading.Lock()
_misfits: set[tuple[str, str]] = set()  # (vault, tokenizer) that were warned of


async def codec_for(card: ModelCard) -> Codec:
    """The vault's tokenizer, kept once loaded. Raises ModelUnavailable."""
    codec = await in_thread(_load, card)
    if codec.size > card.vocab_size and (card.id, card.tokenizer) not in _misfits:
        _misfits.add((card.id, card.tokenizer))
        log.warning(
            "THE TOKENIZER DOES NOT FIT %s: %s has %d ids, the vault %d. Its replies will be nonsense.",
            card.id,
            card.tokenizer,
            codec.size,
            card.vocab_size,
        )
    return codec


async def encode(codec: Codec, card: ModelCard, request: GenerationRequest) -> Prompt:
    """Raises InvalidRequest."""
    threads = _thread_of_long if is_long(request) else _threads
    prompt = await asyncio.get_running_loop().run_in_executor(threads, codec.encode, request)
    if not prompt.ids:
        raise InvalidRequest("The prompt is empty: send at least one token.", "messages")
    largest, smallest = max(prompt.ids), min(prompt.ids)
    if largest >= card.vocab_size or smallest < 0:
        wrong = largest if largest >= card.vocab_size else smallest
        note = "" if request.prompt_ids is not None else f" {card.tokenizer_note}".rstrip()
        raise InvalidRequest(
            f"Token id {wrong} is outside the vocabulary of {card.id} (0 to {card.vocab_size - 1}).{note}",
            None if request.prompt_ids is None else "messages",
        )
    return prompt


def is_long(request: GenerationRequest, characters: int = LONG) -> bool:
    texts = [request.text_prompt, request.messages, request.tools, request.template_kwargs]
    return holds_more(texts, characters)


def holds_more(value: Any, characters: int) -> bool:
    """Looks no further than it needs to: on the event loop, and clients nest as they like."""
    left, waiting = characters, [value]
    while waiting and left >= 0:
        value = waiting.pop()
        left -= len(value) if isinstance(value, str) else 8
        if isinstance(value, dict):
            waiting += [*value, *value.values()]
        elif isinstance(value, list):
            waiting += value
    return left < 0


async def in_thread(work: Callable[..., T], *arguments: Any) -> T:
    return await asyncio.get_running_loop().run_in_executor(_threads, work, *arguments)


def _load(card: ModelCard) -> Codec:
    if not card.tokenizer:
        log.error("%s has no tokenizer: there is none in %s", card.id, settings.SMOE.checkpoints_dir / card.id)
        raise ModelUnavailable(
            f"{card.id} has no tokenizer: put its tokenizer files into checkpoints/{card.id}/ (--checkpoints-dir) "
            "or name one with --tokenizer."
        )
    changed_at = _changed_at(Path(card.tokenizer))
    with _loading:
        known = _loaded.get(card.tokenizer)
        if known is None or known[0] != changed_at:
            _loaded[card.tokenizer] = known = (changed_at, _read(card))
        return known[1]


def _changed_at(directory: Path) -> float:
    """A tokenizer that was replaced is loaded again. 0 for a name that is no directory."""
    return max((file.stat().st_mtime for file in directory.glob("*") if file.is_file()), default=0.0)


def _read(card: ModelCard) -> Codec:
    folder = Path(card.tokenizer)
    is_local = folder.is_dir() or not card.tokenizer_is_fallback
    fallback = settings.SMOE.tokenizer
    if not fallback or Path(fallback).is_dir():  # read at import: nothing is ever asked of the model hub
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from transformers import AutoTokenizer

    try:
        return Codec(AutoTokenizer.from_pretrained(card.tokenizer, local_files_only=is_local))
    except Exception as error:  # whatever its files hold, the reader's errors are of many kinds
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        if is_local and not (folder / "tokenizer.json").is_file():
            reason = "there is no tokenizer.json in it"
        raise ModelUnavailable(
            f"The tokenizer {card.tokenizer} of {card.id} cannot be loaded: {reason}. Replace its files on the server."
        ) from error
