"""The model's tokenizer from the GGUF's vocabulary and merges.

By hand: transformers' own reading of a GGUF drops the step that splits numbers into digits, and then disagrees with
the model's tokenizer wherever there is a number.
"""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from .model import DenseModel

CONTROL_TOKEN = 3  # tokenizer.ggml.token_type of a special token


def build(model: DenseModel) -> Tokenizer:
    tokens = model.field("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in model.field("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = zip(tokens, model.field("tokenizer.ggml.token_type"), strict=True)
    special = [AddedToken(token, normalized=False, special=True) for token, kind in kinds if kind == CONTROL_TOKEN]
    tokenizer.add_special_tokens(special)
    return tokenizer


def save(model: DenseModel, folder: Path) -> None:
    """What transformers reads a tokenizer from, the chat template included."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(build(model).to_str(pretty=True))
    tokens = model.field("tokenizer.ggml.tokens")
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[model.field("tokenizer.ggml.bos_token_id")],
        "eos_token": tokens[model.field("tokenizer.ggml.eos_token_id")],
        "pad_token": tokens[model.field("tokenizer.ggml.padding_token_id")],
        "unk_token": tokens[model.field("tokenizer.ggml.unknown_token_id")],
        "add_bos_token": False,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": model.context,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    (folder / "chat_template.jinja").write_text(model.field("tokenizer.chat_template"))
