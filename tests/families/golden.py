"""Writes what transformers' own classes say of the tiny checkpoints whose experts went through a vault's quantization.

    python -m tests.families.golden        in an environment with torch, transformers 5, safetensors and numpy

Float32. Greedy ids end before the first near-tie (< 0.02 between the two best logits).
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file

from fleet.shatter.checkpoint import Checkpoint
from fleet.shatter.convert import experts
from fleet.shatter.plan import plan
from fleet.vaultfile.records import decode_expert, encode_expert

from . import checkpoints, eight_bit

PROMPTS = [[5, 80, 3], list(range(1, 120, 7)), [(i * i + 11 * i) % 127 for i in range(45)], [90, 2, 2, 2, 64]]
MOST, NEAR_TIE = 24, 0.02


def main() -> None:
    for name in checkpoints.CONFIGS:
        with tempfile.TemporaryDirectory() as folder:
            source = checkpoints.write(Path(folder) / "source", name)
            if name in checkpoints.EIGHT_BIT:
                _restore(source)
            answers = {f"q{bits}": _cases(_dequantized(source, Path(folder) / str(bits), bits)) for bits in (4, 8)}
        text = json.dumps(answers, separators=(",", ":"))
        Path(__file__).with_name(f"{name}.json").write_text(text + "\n")


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
    """The checkpoint as a vault of it says it, in float32."""
    checkpoint = Checkpoint(source)
    conversion = plan(checkpoint, bits)
    tensors = {name: tensor.float() for name, tensor in load_file(source / "model.safetensors").items()}
    numbers = [(layer, n) for layer in conversion.vault.moe_layers for n in range(conversion.vault.experts)]
    for (layer, number), expert in zip(numbers, experts(checkpoint, conversion), strict=True):
        parts = decode_expert(encode_expert(expert, bits), conversion.vault.shapes, bits)
        for key, part in zip(conversion.keys.names(layer, number), parts, strict=True):
            tensors[key] = torch.tensor(part)
    target.mkdir()
    save_file(tensors, target / "model.safetensors", {"format": "pt"})
    shutil.copy(source / "config.json", target)
    return target


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
