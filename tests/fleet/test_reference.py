"""The reference that the engine is compared with, itself compared with what another implementation computed."""

import json

import numpy as np
import pytest

from fleet.vaultfile.writer import scout_path_of
from tests.reference import ReferenceModel


@pytest.mark.parametrize("bits", [2, 4])
def test_it_reproduces_every_golden_id(interop_dir, bits):
    folder = interop_dir / f"tiny-qwen3moe-q{bits}"
    model = ReferenceModel(folder / "tiny-qwen3moe.smoe", scout_path_of(folder / "tiny-qwen3moe.smoe"))
    for case in json.loads((folder / "golden.json").read_text())["cases"]:
        prompt, greedy = case["prompt_ids"], case["greedy_ids"]
        logits = model.logits(prompt + greedy)[len(prompt) - 1 : -1]  # each greedy id is the best after the ones before
        assert logits.argmax(axis=1).tolist() == greedy
        first = np.array(case["first_logits"])
        assert np.abs(logits[0] - first).max() <= 1e-5 * np.abs(first).max()
