"""Writes what transformers' own classes say of the tiny checkpoints whose experts went through a vault's quantization,
and what its own reader makes of every byte of MXFP4 (mxfp4.json).

    python -m tests.families.golden [NAME ...]    in an environment with torch, transformers 5, safetensors and numpy

Float32. Greedy ids end before the first near-tie (< 0.02 between the two best logits).
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from fleet.shatter.checkpoint import Checkpoint
from fleet.shatter.convert import experts
from fleet.shatter.keys import SeparateExperts
from fleet.shatter.plan import plan
from fleet.vaultfile.records import decode_expert, encode_expert

from . import checkpoints, eight_bit

PROMPTS = [[5, 80, 3], list(range(1, 120, 7)), [(i * i + 11 * i) % 127 for i in range(45)], [90, 2, 2, 2, 64]]
MOST, NEAR_TIE = 24, 0.02


def main() -> None:
    for name in sys.argv[1:] or checkpoints.CONFIGS:
        with tempfile.TemporaryDirectory() as folder:
            source = checkpoints.write(Path(folder) / "source", name)
            if name in checkpoints.EIGHT_BIT:
                _restore(source)
            answers = {f"q{bits}": _cases(_dequantized(source, Path(folder) / str(bits), bits)) for bits in (4, 8)}
        text = json.dumps(answers, separators=(",", ":"))
        Path(__file__).with_name(f"{name}.json").write_text(text + "\n")
    Path(__file__).with_name("mxfp4.json").write_text(json.dumps(_mxfp4(), separators=(",", ":")) + "\n")


def _mxfp4() -> dict[str, list]:
    """Two experts of four rows of two blocks: values [experts, rows, columns]."""
    blocks = torch.arange(256, dtype=torch.uint8).reshape(2, 4, 2, 16)
    scales = torch.tensor([127, 128, 120, 121, 0, 110, 140, 126, 1, 2, 3, 4, 5, 6, 118, 119]).reshape(2, 4, 2)
    values = convert_moe_packed_tensors(blocks, scales.to(torch.uint8), dtype=torch.float32).transpose(1, 2)
    return {"blocks": blocks.tolist(), "scales": scales.tolist(), "values": values.tolist()}


def _restore(folder: Path) -> None:
    """8-bit floats to what a vault is made of: experts in float32, the rest in bfloat16."""
    config = json.loads((folder / "config.json").read_text())
    height, width = eight_bit.block(config.pop("quantization_config"))
    (folder / "config.json").write_text(json.dumps(config))
    tensors = load_file(folder / "model.safetensors")
    scales = {found[1]: tensors.pop(name) for name in list(tensors) if (found := eight_bit.SCALE.fullmatch(name))}
    for name, scale in scales.items():
        rows, cols = tensors[name].shape
        grown = scale.repeat_interleave(height or rows, 0).repeat_interleave(width or cols, 1)
        weights = tensors[name].float() * grown[:rows, :cols]
        tensors[name] = weights if eight_bit.EXPERT.fullmatch(name) else weights.bfloat16()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def _dequantized(source: Path, target: Path, bits: int) -> Path:
    """The checkpoint as a vault of it says it, in float32. Fused experts end up where the source has them."""
    checkpoint = Checkpoint(source)
    conversion = plan(checkpoint, bits)
    tensors = _unpacked(load_file(source / "model.safetensors"))
    numbers = [(layer, n) for layer in conversion.vault.moe_layers for n in range(conversion.vault.experts)]
    fused = defaultdict(list)
    for (layer, number), expert in zip(numbers, experts(checkpoint, conversion), strict=True):
        parts = [torch.tensor(p) for p in decode_expert(encode_expert(expert, bits), conversion.vault.shapes, bits)]
        if isinstance(conversion.keys, SeparateExperts):
            tensors |= zip(conversion.keys.names(layer, number), parts, strict=True)
            continue
        gate, up, down = parts
        prefix = f"model.layers.{layer}.mlp.experts"
        fused[f"{prefix}.gate_up_proj"].append(torch.stack([gate, up], dim=1).flatten(0, 1).T)
        fused[f"{prefix}.down_proj"].append(down.T)
    for name, items in fused.items():
        assert (torch.stack(items) - tensors[name]).norm() < 0.2 * tensors[name].norm(), name
        tensors[name] = torch.stack(items)
    target.mkdir()
    save_file(tensors, target / "model.safetensors", {"format": "pt"})
    config = {name: value for name, value in checkpoint.config.items() if name != "quantization_config"}
    if config["model_type"] == "kimi_k2":  # which is what its `architectures` says, and its own code a copy of
        config["model_type"] = "deepseek_v3"
    (target / "config.json").write_text(json.dumps(config))
    return target


def _unpacked(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """As float32, MXFP4 by transformers' own function."""
    packed = {name.removesuffix("_blocks") for name in tensors if name.endswith("_blocks")}
    plain = {name: tensor.float() for name, tensor in tensors.items() if tensor.dtype != torch.uint8}
    return plain | {
        name: convert_moe_packed_tensors(tensors[f"{name}_blocks"], tensors[f"{name}_scales"], dtype=torch.float32)
        for name in packed
    }


def _cases(folder: Path) -> list[dict]:
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    assert not info["missing_keys"], info
    assert not info["mismatched_keys"], info
    return [_case(model, prompt) for prompt in PROMPTS]


@torch.no_grad()
def _case(model: torch.nn.Module, prompt: list[int]) -> dict:
    first = model(torch.tensor([prompt])).logits[0, -1]
    logits, greedy = first, []
    while len(greedy) < MOST:
        best, second = logits.topk(2).values.tolist()
        if best - second < NEAR_TIE:
            break
        greedy.append(int(logits.argmax()))
        logits = model(torch.tensor([prompt + greedy])).logits[0, -1]
    return {"prompt_ids": prompt, "greedy_ids": greedy, "first_logits": [round(x, 5) for x in first.tolist()]}


if __name__ == "__main__":
    main()
