"""The engine against the reference, on every form of vault that the arch block can express."""

from __future__ import annotations

import native
import numpy as np
import pytest

from fleet.vaultfile.writer import scout_path_of
from tests import synthetic
from tests.reference import ReferenceModel

FORMS = {
    "2 bits": {"bits": 2},
    "4 bits": {},
    "8 bits": {"bits": 8},
    "no norm of queries and keys": {"qk_norm": False},
    "weights not renormalised": {"renormalize_top_k": False},
    "a dense first layer": {"first_layer_dense": True, "dense_ffn": 96},
    "a shared expert": {"shared_ffn": 32},
    "a gated shared expert": {"shared_ffn": 32, "shared_gate": True},
    "tied head": {"tied": True},
    "biases": {"biases": True, "qk_norm": False},
    "float32 trunk": {"dtype": "F32"},
    "float16 trunk": {"dtype": "F16"},
    "as many keys as queries": {"kv_heads": 4, "head_dim": 32},
    "one expert": {"top_k": 1},
    "all experts": {"top_k": 4},
    "groups across rows": {"d_model": 72, "moe_ffn": 24, "head_dim": 6, "heads": 6, "kv_heads": 3},
    "groups across rows, 2 bits, odd": {"bits": 2, "d_model": 72, "moe_ffn": 25},
    "another theta and epsilon": {"rope_theta": 5e6, "rms_epsilon": 1e-3},
}
IDS = np.random.default_rng(3).integers(0, 128, 40).tolist()


def relative(found, expected):
    return np.abs(found - expected).max() / np.abs(expected).max()


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_the_engine_agrees_with_the_reference(tmp_path, form):
    smoe, scout = synthetic.write(tmp_path / "a.smoe", **form)
    assert relative(native.logits(smoe, IDS, "--exact"), ReferenceModel(smoe, scout).logits(IDS)) < 1e-4


TRUNKS = {
    "all": {},
    "a dense first layer": {"first_layer_dense": True, "dense_ffn": 128},
    "a gated shared expert": {"shared_ffn": 64, "shared_gate": True},
    "tied head": {"tied": True},
    "biases": {"biases": True, "qk_norm": False},
    "float32": {"dtype": "F32"},
    "float16": {"dtype": "F16"},
    "some rows of 96": {"heads": 6, "kv_heads": 3},
}


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("form", TRUNKS.values(), ids=TRUNKS)
def test_a_quantized_trunk_is_the_rounded_one(tmp_path, form, bits):
    smoe, scout = synthetic.write(tmp_path / "a.smoe", **form)
    expected = ReferenceModel(smoe, scout, trunk_bits=bits).logits(IDS)
    assert relative(expected, ReferenceModel(smoe, scout).logits(IDS)) > 1e-3
    assert relative(native.logits(smoe, IDS, "--exact", "--trunk", f"q{bits}"), expected) < 1e-4


def test_exact_keeps_the_trunk_as_stored(tmp_path):
    smoe, _ = synthetic.write(tmp_path / "a.smoe")
    stored, q8 = (native.logits(smoe, IDS, "--activations", "f32", "--trunk", form) for form in ("stored", "q8"))
    assert np.array_equal(native.logits(smoe, IDS, "--exact"), stored)
    assert np.array_equal(native.logits(smoe, IDS, "--exact", "--trunk", "q8"), q8)
    assert not np.array_equal(stored, q8)


def test_a_window_that_slides(tmp_path):
    smoe, scout = synthetic.write(tmp_path / "a.smoe", layers=1)
    expected = ReferenceModel(smoe, scout).logits(IDS, window=16)
    assert relative(native.logits(smoe, IDS, "--exact", "--ctx", "16"), expected) < 1e-4


@pytest.mark.parametrize("bits", [2, 4])
def test_another_tools_vault(interop_dir, tmp_path, bits):
    name = f"tiny-qwen3moe-q{bits}/tiny-qwen3moe"
    smoe = tmp_path / "tiny.smoe"
    smoe.write_bytes((interop_dir / f"{name}.smoe").read_bytes())
    scout_path_of(smoe).write_bytes((interop_dir / f"{name}.scout.safetensors").read_bytes())
    expected = ReferenceModel(smoe, scout_path_of(smoe)).logits(IDS)
    assert relative(native.logits(smoe, IDS, "--exact"), expected) < 1e-4
