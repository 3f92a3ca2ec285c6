"""What a request demands of its reply's text -> the masks that the engine samples inside."""

from __future__ import annotations

from fleet.catalog import ModelCard

from .constraints import TokenMasks, Vocabulary, grammar_for, wants_strict_calls
from .constraints.marks import Marks
from .errors import InvalidRequest
from .job import MaskProvider
from .messages import GenerationRequest
from .prompt import END_LENGTH, Codec, Prompt, holds_more, in_thread

MOST_CHARACTERS = 1 << 20  # of a schema or grammar: reading one takes 120 bytes a character, and so large a one fails

_vocabularies: dict[tuple[int, int], tuple[Codec, Vocabulary]] = {}  # by codec and the vault's vocabulary size


async def masks_for(request: GenerationRequest, card: ModelCard, codec: Codec, prompt: Prompt) -> MaskProvider | None:
    """None where anything may come. Raises InvalidRequest for what cannot be enforced."""
    must_call = request.tool_choice.mode in ("required", "named")
    if request.constraint is None and not must_call and not wants_strict_calls(request):
        return None
    if request.constraint and holds_more(request.constraint.value, MOST_CHARACTERS):
        raise InvalidRequest(
            f"the schema or grammar cannot be enforced: it has more than {MOST_CHARACTERS:,} characters.",
            request.constraint.param,
        )
    return await in_thread(_masks, request, card, codec, prompt)


def _masks(request: GenerationRequest, card: ModelCard, codec: Codec, prompt: Prompt) -> MaskProvider | None:
    try:
        return _begin(request, card, codec, prompt)
    except InvalidRequest as error:
        error.param = error.param or (request.constraint and request.constraint.param)
        raise


def _begin(request: GenerationRequest, card: ModelCard, codec: Codec, prompt: Prompt) -> TokenMasks | None:
    """Masks that have followed what the prompt has begun of the reply."""
    thinks, begun = _begun(request, codec, prompt)
    masks = _from_the_start(request, card, codec, thinks)
    if masks is None or not begun or masks.begin(begun):
        return masks
    if request.constraint is None or request.tool_choice.mode in ("required", "named"):
        return masks  # text may stand before calls
    masks = _from_the_start(request, card, codec, thinks, spaced=True)
    if masks is None or masks.begin(begun):
        return masks
    raise InvalidRequest(
        "The last assistant message is continued, and nothing that the request's schema or grammar allows begins as it "
        "does: send the beginning of such a text there, or leave the message out.",
        "messages",
    )


def _from_the_start(
    request: GenerationRequest, card: ModelCard, codec: Codec, thinks: bool, spaced: bool = False
) -> TokenMasks | None:
    grammar = grammar_for(request, codec.profile.family, Marks(codec.special_tokens), spaced)
    if grammar is None:
        return None
    tags = codec.profile.reasoning if request.messages else None
    return TokenMasks(grammar, _vocabulary(card, codec), tags, codec.added_ids.get(tags[0]) if tags else None, thinks)


def _begun(request: GenerationRequest, codec: Codec, prompt: Prompt) -> tuple[bool, list[int]]:
    """-> whether the reply begins inside of thinking; the ids of the answer that the prompt has begun already."""
    tags = codec.profile.reasoning if request.messages else None
    if not request.continue_final_message:
        return tags is not None and prompt.end.rstrip().endswith(tags[0]), []
    text = request.messages[-1]["content"].lstrip()
    if not prompt.end.endswith(text[-END_LENGTH:]):  # the template has stripped it
        text = text.rstrip()
    if tags is not None:
        _, closing, answer = text.rpartition(tags[1])
        if not closing and answer.startswith(tags[0]):
            return True, []
        text = answer.lstrip() if closing else answer
    return False, codec.encode_reply(text)


def _vocabulary(card: ModelCard, codec: Codec) -> Vocabulary:
    key = (id(codec), card.vocab_size)
    if key not in _vocabularies:
        eos = sorted({*card.eos_ids, *codec.eos_ids})
        _vocabularies[key] = (codec, Vocabulary(codec.serialized(), card.vocab_size, eos))
    return _vocabularies[key][1]
