"""Checkpoints in 8-bit floats: what they stand for, what their vault is, and what is refused."""

import hashlib
import json
import shutil

import numpy as np
import pytest
from django.core.management import CommandError, call_command
from transformers import AutoTokenizer

from fleet.shatter import float8
from fleet.shatter.checkpoint import Checkpoint
from fleet.shatter.plan import plan
from fleet.vaultfile import scout
from fleet.vaultfile.config import architecture
from fleet.vaultfile.verify import verify
from tests.families import checkpoints, eight_bit

FORMS = {
    "blocks": eight_bit.FINE_GRAINED,
    "full blocks": eight_bit.FINE_GRAINED | {"weight_block_size": [32, 16]},
    "one block": eight_bit.FINE_GRAINED | {"weight_block_size": [128, 128]},
    "one scale": eight_bit.FINE_GRAINED | {"weight_block_size": None},
    "channel": eight_bit.compressed_tensors("channel"),
    "tensor": eight_bit.compressed_tensors("tensor"),
    "block": eight_bit.compressed_tensors("block", [40, 48]),
    "weights only": eight_bit.compressed_tensors("channel") | {"format": "naive-quantized"},
}
# Of numpy's float16 of torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn), NaN as 0x7e00.
TORCH = "7cb230f4a456ffdd669842a257b4ffdb30f3ffa9179f0ecca10a831a3a907a84"
MATRIX = "model.layers.1.block_sparse_moe.experts.2.w2.weight"
QUERY = "model.layers.0.self_attn.q_proj.weight"


@pytest.fixture
def source(tmp_path, interop_dir):
    """source(form, family): a tiny checkpoint in 8-bit floats."""

    def make(form, family="minimax_m2", scale_dtype="F32"):
        folder = tmp_path / "tiny"
        if family == "qwen3_moe":
            shutil.copytree(interop_dir / "tiny-qwen3moe-checkpoint", folder)
        else:
            checkpoints.write(folder, family)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"quantization_config": form}))
        eight_bit.rewrite(folder, scale_dtype)
        return folder

    return make


@pytest.fixture
def shatter(fleet_dir):
    def run(folder, name="tiny", **options):
        call_command("shatter", folder, fleet_dir, name=name, **options)
        return fleet_dir / f"{name}.smoe", fleet_dir / f"{name}.scout.safetensors"

    return run


def change(folder, edit):
    """edit(tensors): name -> (dtype, elements as stored)."""
    tensors = eight_bit.read(folder)
    edit(tensors)
    eight_bit.write(folder, tensors)


def test_every_code_is_what_the_specification_says():
    expected = np.array([eight_bit.value(code) for code in range(256)], np.float32)
    np.testing.assert_array_equal(float8.E4M3, expected)
    np.testing.assert_array_equal(np.signbit(float8.E4M3[:255]), np.signbit(expected[:255]))
    known = {0x01: 2**-9, 0x07: 0.875 * 2**-6, 0x08: 2**-6, 0x38: 1, 0x7E: 448, 0x80: 0, 0xFE: -448}
    assert {code: float(float8.E4M3[code]) for code in known} == known
    assert np.isnan(float8.E4M3[[0x7F, 0xFF]]).all()
    assert np.signbit(float8.E4M3[0x80])


def test_every_code_is_what_torch_says():
    halves = float8.E4M3.astype("<f2").view("<u2")
    halves[np.isnan(float8.E4M3)] = 0x7E00
    assert hashlib.sha256(halves.tobytes()).hexdigest() == TORCH


@pytest.mark.parametrize("scale_dtype", ["F32", "BF16"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("family", ["qwen3_moe", "minimax_m2"])
def test_the_vault_is_that_of_the_floats_that_they_stand_for(source, shatter, family, form, scale_dtype):
    folder = source(FORMS[form], family, scale_dtype)
    smoe, scout_path = shatter(folder, validate=True)
    eight_bit.restore(folder)
    plain_smoe, plain_scout = shatter(folder, "plain")
    assert smoe.read_bytes() == plain_smoe.read_bytes()
    found, expected = scout.read_header(scout_path), scout.read_header(plain_scout)
    assert {**found.metadata, "source_sha256": ""} == {**expected.metadata, "source_sha256": ""}
    assert content(found) == content(expected)
    assert verify(smoe, scout_path, None, lambda *_: None) == []


def content(header):
    with open(header.path, "rb") as file:
        return {
            name: (info.dtype, info.shape, header.read_raw(file, name).tobytes())
            for name, info in header.tensors.items()
        }


@pytest.mark.parametrize("form", ["blocks", "channel"])
def test_the_scout_is_one_that_any_tool_reads(source, shatter, form):
    _, scout_path = shatter(source(FORMS[form]))
    header = scout.read_header(scout_path)
    assert {info.dtype for info in header.tensors.values()} == {"BF16", "F32"}
    assert header.tensors[QUERY].dtype == "BF16"
    assert not [name for name in header.tensors if "scale" in name]
    assert "quantization_config" not in json.loads(header.metadata["config"])


def test_what_it_needs_of_the_disk_is_told(source, shatter):
    folder = source(FORMS["channel"])
    files = shatter(folder)
    assert plan(Checkpoint(folder), 4).disk_need == sum(file.stat().st_size for file in files)


@pytest.mark.parametrize("form", ["blocks", "channel"])
def test_the_tokenizer_is_read_from_beside_such_a_config(source, shatter, settings, form):
    shatter(source(FORMS[form], "qwen3_moe"))
    kept = settings.SMOE.checkpoints_dir / "tiny"
    assert "quantization_config" in json.loads((kept / "config.json").read_text())
    assert AutoTokenizer.from_pretrained(kept, local_files_only=True).encode("a b")


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_one_scale_for_a_matrix_is_written_in_several_ways(source, shatter, shape):
    folder = source(FORMS["tensor"])
    whole = shatter(folder)[0].read_bytes()
    change(folder, lambda tensors: tensors.update({k: (d, a.reshape(shape)) for k, (d, a) in scales(tensors)}))
    assert shatter(folder, "other")[0].read_bytes() == whole


def scales(tensors):
    return [item for item in tensors.items() if eight_bit.SCALE.fullmatch(item[0])]


def test_scales_of_the_layers_inputs_are_left_out(source, shatter):
    folder = source(FORMS["tensor"])
    whole = shatter(folder)[0].read_bytes()
    inputs = {k.replace("weight_scale", "input_scale"): v for k, v in scales(eight_bit.read(folder))}
    change(folder, lambda tensors: tensors.update(inputs))
    assert shatter(folder, "static")[0].read_bytes() == whole


def test_shards_may_part_a_matrix_from_its_scale(source, shatter):
    folder = source(FORMS["blocks"])
    whole = shatter(folder)[0].read_bytes()
    tensors = eight_bit.read(folder)
    parts = {"1": dict(scales(tensors)), "2": {k: v for k, v in tensors.items() if not eight_bit.SCALE.fullmatch(k)}}
    for number, part in parts.items():
        eight_bit.write(folder, part)
        (folder / "model.safetensors").rename(folder / f"model-{number}.safetensors")
    places = {name: f"model-{number}.safetensors" for number, part in parts.items() for name in part}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    assert shatter(folder, "sharded")[0].read_bytes() == whole


MIXED = {form: FORMS[form]["config_groups"]["group_0"] for form in ("channel", "tensor")}
REFUSED = [
    ({"quant_method": "gptq", "bits": 4}, "quant_method 'gptq' is not supported; take the checkpoint in bf16"),
    ({"quant_method": "awq", "bits": 4}, "quant_method 'awq'"),
    ({"quant_method": "modelopt", "quant_algo": "FP8"}, "quant_method 'modelopt'"),
    ({"quant_method": "fbgemm_fp8"}, "quant_method 'fbgemm_fp8'"),
    ({"bits": 4}, "quant_method None"),
    ("int4", "quant_method None"),
    (FORMS["blocks"] | {"weight_block_size": [128]}, "weight_block_size [128]"),
    (FORMS["blocks"] | {"weight_block_size": [128, 0]}, "weight_block_size [128, 0]"),
    (FORMS["blocks"] | {"weight_block_size": 128}, "weight_block_size 128"),
    (FORMS["channel"] | {"format": "pack-quantized"}, "compressed-tensors' format 'pack-quantized'"),
    (FORMS["channel"] | {"format": "int-quantized"}, "compressed-tensors' format 'int-quantized'"),
    (FORMS["channel"] | {"transform_config": {"config_groups": {"R1": {}}}}, "transform_config"),
    (FORMS["channel"] | {"sparsity_config": {"format": "sparse-24-bitmask"}}, "sparsity_config"),
    (FORMS["channel"] | {"config_groups": {}}, "without config_groups"),
    (FORMS["channel"] | {"config_groups": {"group_0": {"weights": None}}}, "a config_group without weights"),
    (FORMS["channel"] | {"config_groups": MIXED}, "config_groups of several strategies"),
    (eight_bit.compressed_tensors("group"), "type 'float', num_bits 8, strategy 'group'"),
    (eight_bit.compressed_tensors("block", "x"), "block_structure 'x'"),
]


@pytest.mark.parametrize(("form", "reason"), REFUSED, ids=[reason for _, reason in REFUSED])
def test_another_form_is_refused_by_name(tmp_path, shatter, fleet_dir, form, reason):
    """Whatever its files are: those of other forms are not of these names."""
    (tmp_path / "config.json").write_text(json.dumps(checkpoints.CONFIGS["minimax_m2"] | {"quantization_config": form}))
    assert reason in refused(shatter, tmp_path, fleet_dir)


def refused(shatter, folder, fleet_dir):
    """What the command says of a checkpoint that it does not take; it writes nothing."""
    with pytest.raises(CommandError) as caught:
        shatter(folder)
    assert "\n" not in str(caught.value)
    assert not list(fleet_dir.iterdir())
    return str(caught.value)


def without(name):
    return lambda tensors: tensors.pop(name)


def put(name, dtype, shape):
    kind = {"F32": "<f4", "BF16": "<u2"}.get(dtype, "u1")
    return lambda tensors: tensors.update({name: (dtype, np.ones(shape, kind))})


def filled(name, at, what):
    def edit(tensors):
        dtype, array = tensors[name]
        array = array.copy()
        array[at] = what
        tensors[name] = dtype, array

    return edit


MATRIX_SCALE, QUERY_SCALE = f"{MATRIX}_scale_inv", f"{QUERY}_scale_inv"
WRONG = [
    (without(MATRIX_SCALE), f"{MATRIX} is F8_E4M3, but neither {MATRIX_SCALE} nor _scale is there"),
    (without(QUERY_SCALE), f"{QUERY} is F8_E4M3, but neither"),
    (without(QUERY), f"{QUERY_SCALE}: there is no {QUERY} in F8_E4M3 that it would scale"),
    (put(QUERY, "BF16", (128, 64)), f"{QUERY_SCALE}: there is no {QUERY} in F8_E4M3"),
    (put(QUERY, "F8_E5M2", (128, 64)), f"{QUERY_SCALE}: there is no {QUERY} in F8_E4M3"),
    (put(f"{QUERY}_scale", "F32", (3, 2)), f"{QUERY} has two scales, {QUERY_SCALE} and {QUERY}_scale"),
    (put(f"{QUERY}_scale_2", "F32", (3, 2)), f"{QUERY}_scale_2: nothing of a supported architecture uses it"),
    (put(QUERY_SCALE, "F32", (2, 2)), f"{QUERY_SCALE} is [2, 2], the config asks for [3, 2]"),
    (put(MATRIX_SCALE, "F32", (1,)), f"{MATRIX_SCALE} is [1], the config asks for [2, 2]"),
    (put(MATRIX_SCALE, "F32", (64, 1)), f"{MATRIX_SCALE} is [64, 1], the config asks for [2, 2]"),
    (put(MATRIX_SCALE, "F8_E4M3", (2, 2)), f"{MATRIX_SCALE} is F8_E4M3, supported are F32, F16, BF16"),
    # One byte a scale, a power of two (scale_fmt ue8m0).
    (put(MATRIX_SCALE, "F8_E8M0", (2, 2)), f"{MATRIX_SCALE} is F8_E8M0, supported are F32, F16, BF16"),
    (put(MATRIX, "F8_E4M3", (64, 63)), f"{MATRIX} is [64, 63], the config asks for [64, 64]"),
    (put(MATRIX, "F8_E4M3", (0, 64)), f"{MATRIX_SCALE} is [2, 2], the config asks for [0, 2]"),
    (put(MATRIX, "F8_E4M3", (4096,)), f"{MATRIX} is F8_E4M3 and [4096], not two-dimensional"),
    (filled(MATRIX, (3, 4), 0x7F), f"{MATRIX}: it or its scale holds values that are not finite"),
    (filled(QUERY, (3, 4), 0xFF), f"{QUERY}: it or its scale holds values that are not finite"),
    (filled(MATRIX_SCALE, (1, 0), np.inf), f"{MATRIX}: it or its scale holds values that are not finite"),
    (filled(QUERY_SCALE, (1, 0), np.nan), f"{QUERY}: it or its scale holds values that are not finite"),
]


@pytest.mark.parametrize(("edit", "reason"), WRONG, ids=[reason for _, reason in WRONG])
def test_what_does_not_fit_together_is_refused_by_name(source, shatter, fleet_dir, edit, reason):
    folder = source(FORMS["blocks"])
    change(folder, edit)
    assert f"tensor {reason}" in refused(shatter, folder, fleet_dir)


def test_how_a_checkpoint_was_stored_says_nothing_of_a_vault_made_of_it():
    """Version 1, whose architecture a config.json tells, may have been made of one by another tool."""
    config = checkpoints.CONFIGS["minimax_m2"]
    for form in FORMS.values():
        assert architecture(config | {"quantization_config": form}) == architecture(config)


def test_8_bit_floats_without_a_word_in_the_config_are_refused(source, shatter, fleet_dir):
    folder = source(FORMS["blocks"])
    (folder / "config.json").write_text(json.dumps(checkpoints.CONFIGS["minimax_m2"]))
    assert "is F8_E4M3, but config.json has no quantization_config" in refused(shatter, folder, fleet_dir)
