"""Incremental decoding against the tokenizers library's own decoding of all ids at once."""

import json
import random

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from engine.detokenizer import Vocabulary

TEXTS = [
    "The quick brown fox jumps over the lazy dog. It costs 1,234.50 €.",
    "  leading, double  spaces\n\n\tand tabs \r\n",
    "Grüße aus Köln, naïve façade — “quotes”…",
    "漢字とひらがな、한국어 그리고 العربية ภาษาไทย",
    "👩‍👩‍👧‍👦 family, 🏳️‍🌈 flag, 👍🏽 tone, 🇩🇪 and e\u0301 combining",
    "\ufffd a replacement character of its own \ufffd\ufffd",
    "def f(x):\n    return {'a': [x, x ** 2]}\n",
]
SPECIALS = ["<s>", "</s>", "<|tool|>"]


def byte_level():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return trained(tokenizer, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False))


def sentencepiece(strip=True):
    """As Llama 2's and Mixtral's, with bytes for what has no token; without `strip` as Gemma's."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    prepend = [normalizers.Prepend("▁")] if strip else []
    tokenizer.normalizer = normalizers.Sequence([*prepend, normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, *([decoders.Strip(" ", 1, 0)] if strip else [])])
    first = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=first, limit_alphabet=90, show_progress=False)
    tokenizer.train_from_iterator([TEXTS[0], TEXTS[6]], trainer)
    plain = Tokenizer.from_str(json.dumps(json.loads(tokenizer.to_str()) | {"added_tokens": []}))
    plain.add_special_tokens(SPECIALS)
    return plain


def metaspace():
    """A decoder that only the library knows."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return trained(tokenizer, trainers.BpeTrainer(vocab_size=400, special_tokens=["<unk>"], show_progress=False))


def trained(tokenizer, trainer):
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.add_tokens([AddedToken("<think>", special=False), AddedToken("two words", special=False)])
    tokenizer.add_special_tokens(SPECIALS)
    return tokenizer


TOKENIZERS = {
    "byte-level": byte_level,
    "llama": sentencepiece,
    "gemma": lambda: sentencepiece(False),
    "other": metaspace,
}


@pytest.fixture(params=TOKENIZERS)
def tokenizer(request):
    return TOKENIZERS[request.param]()


def vocabulary_of(tokenizer):
    return Vocabulary(tokenizer, frozenset(tokenizer.token_to_id(special) for special in SPECIALS))


def deltas(vocabulary, ids, **how):
    detokenizer = vocabulary.detokenizer(**how)
    return [*map(detokenizer.step, ids), detokenizer.finish()]


def random_replies(tokenizer, seed):
    """Texts with special tokens strewn in, and cut anywhere."""
    chance = random.Random(seed)
    specials = [tokenizer.token_to_id(special) for special in SPECIALS]
    for _ in range(100):
        text = "".join(chance.choices(TEXTS, k=3))
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        for special in specials:
            ids.insert(chance.randrange(len(ids)), special)
        start = chance.choice([0, 0, chance.randrange(len(ids))])
        yield ids[start : start + chance.randrange(1, 80)]


def test_texts(tokenizer):
    vocabulary = vocabulary_of(tokenizer)
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        pieces = deltas(vocabulary, ids)
        assert "".join(pieces) == tokenizer.decode(ids, skip_special_tokens=True)


def test_cut_texts_with_special_tokens():
    tokenizer = byte_level()
    vocabulary = vocabulary_of(tokenizer)
    for ids in random_replies(tokenizer, 1):
        assert "".join(deltas(vocabulary, ids)) == tokenizer.decode(ids, skip_special_tokens=True)


def test_random_ids():
    tokenizer = byte_level()
    vocabulary = vocabulary_of(tokenizer)
    chance = random.Random(2)
    for _ in range(500):
        ids = [chance.randrange(vocabulary.size + 20) for _ in range(chance.randrange(1, 60))]
        assert "".join(deltas(vocabulary, ids)) == tokenizer.decode(ids, skip_special_tokens=True)


def test_random_ids_of_a_tokenizer_with_byte_fallback():
    """Between whole characters; where a run of bytes is none, what was whole of it has been shown already."""
    tokenizer = sentencepiece()
    vocabulary = vocabulary_of(tokenizer)
    chance = random.Random(3)
    for _ in range(500):
        text_ids = [chance.randrange(257, vocabulary.size) for _ in range(20)]
        emoji = [tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in "🦊é".encode()]
        ids = text_ids[:7] + emoji + text_ids[7:]
        assert "".join(deltas(vocabulary, ids)) == tokenizer.decode(ids, skip_special_tokens=True)
    broken = [tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in "🦊".encode()[:3]] + tokenizer.encode("a").ids
    assert "".join(deltas(vocabulary, broken)) == tokenizer.decode(broken)


def test_characters_come_whole(tokenizer):
    vocabulary = vocabulary_of(tokenizer)
    text = TEXTS[4]
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert not any("\ufffd" in piece for piece in deltas(vocabulary, ids))


def test_an_unfinished_character_shows_at_the_end_only():
    tokenizer = byte_level()
    ids = tokenizer.encode("🦊", add_special_tokens=False).ids
    assert len(ids) > 1
    assert deltas(vocabulary_of(tokenizer), ids[:-1]) == [*[""] * (len(ids) - 1), "\ufffd"]


def test_special_tokens_show_where_a_parser_needs_them(tokenizer):
    vocabulary = vocabulary_of(tokenizer)
    wanted = tokenizer.token_to_id("<|tool|>")
    ids = [tokenizer.token_to_id("<s>"), wanted]
    assert "".join(deltas(vocabulary, ids)) == ""
    assert "".join(deltas(vocabulary, ids, visible=frozenset({wanted}))) == "<|tool|>"


def test_a_continued_text_keeps_its_space():
    tokenizer = sentencepiece()
    ids = tokenizer.encode("over", add_special_tokens=False).ids
    vocabulary = vocabulary_of(tokenizer)
    assert "".join(deltas(vocabulary, ids)) == "over"
    assert "".join(deltas(vocabulary, ids, continues=True)) == " over"


def test_bytes_of_tokens():
    tokenizer = byte_level()
    vocabulary = vocabulary_of(tokenizer)
    ids = tokenizer.encode("naïve 🦊", add_special_tokens=False).ids
    assert b"".join(map(vocabulary.bytes_of, ids)) == "naïve 🦊".encode()
    assert vocabulary.bytes_of(10**6) == b""


def test_the_work_for_a_token_does_not_grow(monkeypatch):
    """Counted, not timed: ids that pass through the decoder for each id of the reply."""
    for make in TOKENIZERS.values():
        tokenizer = make()
        vocabulary = vocabulary_of(tokenizer)
        counting = Counting(tokenizer)
        monkeypatch.setattr(vocabulary, "_tokenizer", counting)
        ids = tokenizer.encode(TEXTS[0], add_special_tokens=False).ids * 100
        deltas(vocabulary, ids)
        assert counting.decoded < 20 * len(ids)


class Counting:
    """A tokenizer that counts the ids that it decodes."""

    def __init__(self, tokenizer):
        self._tokenizer, self.decoded = tokenizer, 0

    def decode(self, ids, **how):
        self.decoded += len(ids)
        return self._tokenizer.decode(ids, **how)

    def __getattr__(self, name):
        return getattr(self._tokenizer, name)
