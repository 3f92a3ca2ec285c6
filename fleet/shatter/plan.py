"""What a conversion will write, checked against the checkpoint before a byte is written."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from fleet.vaultfile import config as model_config
from fleet.vaultfile import families, scout, trunk
from fleet.vaultfile.scout import TensorSpec
from fleet.vaultfile.writer import VaultPlan

from . import ShatterError, keys, tokenizer
from .checkpoint import Checkpoint
from .keys import ExpertLayout, Needed

CONVERTER = "s-moe shatter 1"
_LAYER = re.compile(r"model\.layers\.(\d+)\.")
_DERIVED = re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")  # follows from the config


@dataclass(frozen=True, slots=True)
class Conversion:
    vault: VaultPlan
    keys: ExpertLayout
    trunk: list[TensorSpec]  # names and dtypes as in the checkpoint
    metadata: dict[str, str]

    @property
    def scout_size(self) -> int:
        return len(scout.header_bytes(self.trunk, self.metadata)) + sum(spec.size for spec in self.trunk)

    @property
    def disk_need(self) -> int:
        return self.vault.file_size + self.scout_size


def plan(checkpoint: Checkpoint, bits: int) -> Conversion:
    """Raises ShatterError for whatever cannot be converted, before anything is written."""
    try:
        architecture = model_config.architecture(checkpoint.config)
        experts = model_config.expert_count(checkpoint.config)
        dense = model_config.dense_layers(checkpoint.config)
        predicting = model_config.prediction_layers(checkpoint.config)
    except model_config.ConfigError as error:
        raise ShatterError(f"{checkpoint.folder / 'config.json'}: {error}") from None
    embedding = checkpoint.info(trunk.EMBEDDING).shape
    if len(embedding) != 2:
        raise ShatterError(f"tensor {trunk.EMBEDDING} is {list(embedding)}, not two-dimensional")
    layers = tuple(range(dense, architecture.layers))
    if not layers or architecture.top_k > experts:
        raise ShatterError(f"num_experts_per_tok is {architecture.top_k} of {experts} experts, {len(layers)} layers")
    vault = VaultPlan(architecture, bits, embedding[1], embedding[0], layers, experts)
    interleaved = families.FAMILIES[architecture.model_type].mxfp4
    layout = keys.find(checkpoint.names, layers[0], interleaved=interleaved)
    _check_experts(checkpoint, vault, layout)
    return Conversion(vault, layout, _trunk(checkpoint, vault, predicting, layout), _metadata(checkpoint, vault))


def _check_experts(checkpoint: Checkpoint, vault: VaultPlan, layout: ExpertLayout) -> None:
    for layer in vault.moe_layers:
        for needed in layout.tensors(layer, vault.experts, vault.shapes):
            _check_tensor(checkpoint, needed)
    for name in checkpoint.names:
        if (number := keys.number_of(name)) is not None and number >= vault.experts:
            raise ShatterError(f"tensor {name}: config.json says that there are {vault.experts} experts")


def _check_tensor(checkpoint: Checkpoint, needed: Needed) -> None:
    info = checkpoint.info(needed.name)
    if info.shape != needed.shape:
        raise ShatterError(f"tensor {needed.name} is {list(info.shape)}, the config asks for {list(needed.shape)}")
    if info.dtype not in needed.dtypes:
        raise ShatterError(f"tensor {needed.name} is {info.dtype}, supported are {', '.join(needed.dtypes)}")


def _trunk(checkpoint: Checkpoint, vault: VaultPlan, predicting: int, layout: ExpertLayout) -> list[TensorSpec]:
    """Every tensor but the experts' and the prediction layers', none missing and none that would be left unused."""
    sizes = (vault.architecture, vault.d_model, vault.vocab_size, dict.fromkeys(vault.moe_layers, vault.experts))
    names = trunk.names_in(checkpoint, vault.moe_layers[0])
    required, optional = dict(trunk.shapes(*sizes, names)), dict(trunk.optional_shapes(*sizes))
    tied = bool(checkpoint.config.get("tie_word_embeddings", False))
    if not tied:
        required[trunk.HEAD] = optional[trunk.HEAD]
    present = required | {name: shape for name, shape in optional.items() if name in checkpoint}
    if tied:
        present.pop(trunk.HEAD, None)  # a copy that the model's own code ignores
    for name, shape in present.items():
        _check_tensor(checkpoint, Needed(name, shape))
    _check_biases(checkpoint, present)
    dropped = {str(vault.architecture.layers + i) for i in range(predicting)}
    _refuse_unused(checkpoint, present, dropped, layout)
    return [TensorSpec(name, checkpoint.info(name).dtype, present[name]) for name in sorted(present)]


def _check_biases(checkpoint: Checkpoint, present: dict[str, tuple[int, ...]]) -> None:
    family = families.of(checkpoint.config["model_type"])
    if not family or not family.bias_field:
        return
    asked = bool(checkpoint.config.get(family.bias_field, family.biased))
    if asked != any(name.endswith("_proj.bias") for name in present):
        there = "there are none" if asked else "there are biases"
        raise ShatterError(f"{checkpoint.folder / 'config.json'}: {family.bias_field} is {asked}, but {there}")


def _refuse_unused(
    checkpoint: Checkpoint, present: dict[str, tuple[int, ...]], dropped: set[str], layout: ExpertLayout
) -> None:
    for name in checkpoint.names:
        if name in present or name == trunk.HEAD or layout.owns(name) or _DERIVED.fullmatch(name):
            continue
        if (layer := _LAYER.match(name)) and layer[1] in dropped:
            continue
        raise ShatterError(f"tensor {name}: nothing of a supported architecture uses it")


def _metadata(checkpoint: Checkpoint, vault: VaultPlan) -> dict[str, str]:
    a = vault.architecture
    config = {name: value for name, value in checkpoint.config.items() if name != "quantization_config"}
    name = str(checkpoint.config.get("_name_or_path") or checkpoint.name)
    return {
        "format": "pt",
        "converter": CONVERTER,
        "description": f"{name}: {a.layers} layers, {vault.experts} experts a layer, {a.top_k} used; {vault.bits} bits",
        "source_name": name,
        "source_sha256": checkpoint.fingerprint(),
        "tokenizer_sha256": tokenizer.sha256(checkpoint.folder),
        "eos_token_ids": json.dumps(tokenizer.eos_ids(checkpoint.folder)),
        "config": json.dumps(config),  # of the weights as the scout has them
    }
