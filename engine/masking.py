"""What a request demands of its reply's text -> the masks that the engine samples inside."""

from __future__ import annotations

from fleet.catalog import ModelCard

from .constraints import TokenMasks, Vocabulary, grammar_for, wants_strict_calls
from .constraints.marks import Marks
from .errors import InvalidRequest
from .job import MaskProvider
from .messages import GenerationRequest
from .prompt import Codec, Prompt, in_thread

_vocabularies: dict[tuple[int, int], tuple[Codec, Vocabulary]] = {}  # by codec and the vault's vocabulary size


async def masks_for(request: GenerationRequest, card: ModelCard, codec: Codec, prompt: Prompt) -> MaskProvider | None:
    """None where anything may come. Raises InvalidRequest for what cannot be enforced."""
    must_call = request.tool_choice.mode in ("required", "named")
    if request.constraint is None and not must_call and not wants_strict_calls(request):
        return None
    return await in_thread(_masks, request, card, codec, prompt)


def _masks(request: GenerationRequest, card: ModelCard, codec: Codec, prompt: Prompt) -> MaskProvider | None:
    try:
        grammar = grammar_for(request, codec.profile.family, Marks(codec.special_tokens))
        return None if grammar is None else _following(grammar, card, codec, request, prompt)
    except InvalidRequest as error:
        error.param = error.param or (request.constraint and request.constraint.param)
        raise


def _following(grammar: str, card: ModelCard, codec: Codec, request: GenerationRequest, prompt: Prompt) -> MaskProvider:
    tags = codec.profile.reasoning if request.messages else None
    opened = tags is not None and prompt.end.rstrip().endswith(tags[0])
    return TokenMasks(grammar, _vocabulary(card, codec), tags, codec.added_ids.get(tags[0]) if tags else None, opened)


def _vocabulary(card: ModelCard, codec: Codec) -> Vocabulary:
    key = (id(codec), card.vocab_size)
    if key not in _vocabularies:
        eos = sorted({*card.eos_ids, *codec.eos_ids})
        _vocabularies[key] = (codec, Vocabulary(codec.serialized(), card.vocab_size, eos))
    return _vocabularies[key][1]
