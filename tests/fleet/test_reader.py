import json
import os
import struct

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from fleet.vaultfile import layout, reader, scout, trunk
from fleet.vaultfile.errors import VaultError
from fleet.vaultfile.writer import scout_path_of
from tests import synthetic

HEADER_FIELDS = dict(
    zip(
        ("version", "moe_layers", "experts_per_layer", "total_experts", "group_size", "bits", "d_model"),
        (8, 12, 16, 20, 40, 44, 48),
        strict=True,
    )
)
TABLE = 64


@pytest.fixture
def pair(tmp_path):
    return synthetic.write(tmp_path / "tiny.smoe", metadata={"description": "a test"})


def patch(path, offset, data):
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


def refused(pair, kind):
    with pytest.raises(VaultError) as caught:
        reader.identify(*pair)
    assert caught.value.kind == kind
    assert "\n" not in caught.value.message
    assert str(pair[0].parent) in caught.value.message
    return caught.value.message


@pytest.mark.parametrize("bits", [2, 4])
def test_another_tools_pair(interop_dir, bits):
    folder = interop_dir / f"tiny-qwen3moe-q{bits}"
    identity = reader.identify(folder / "tiny-qwen3moe.smoe", folder / "tiny-qwen3moe.scout.safetensors")
    config = json.loads((interop_dir / "tiny-qwen3moe-checkpoint" / "config.json").read_text())
    assert (identity.quant, identity.bits, identity.format_version) == (f"Q{bits}", bits, 2)
    assert identity.model_type == config["model_type"]
    assert identity.hidden_layers == identity.moe_layers == config["num_hidden_layers"]
    assert identity.experts_per_layer == config["num_local_experts"]
    assert identity.top_k == config["num_experts_per_tok"]
    assert (identity.d_model, identity.vocab_size) == (config["hidden_size"], config["vocab_size"])
    assert (identity.heads, identity.kv_heads, identity.head_dim) == (4, 2, 32)
    assert identity.moe_ffn == config["moe_intermediate_size"]
    assert identity.architecture.rope_theta == 1e6
    assert (identity.record_bytes, identity.vault_bytes) == (16384, 409600)


def test_metadata_tells_ends_context_and_lineage(tmp_path):
    config = {"eos_token_id": [5, 999], "max_position_embeddings": 4096}
    metadata = {"config": json.dumps(config), "eos_token_ids": "[7, 5]", "source_name": "org/model"}
    identity = reader.identify(*synthetic.write(tmp_path / "a.smoe", metadata=metadata))
    assert identity.eos_ids == (5, 7)  # 999 is beyond the vocabulary
    assert (identity.trained_context, identity.lineage) == (4096, "org/model")
    assert identity.metadata["config"] == config


@pytest.mark.parametrize("text", ["{", "[1]", "null", "[" * 100_000])
def test_broken_metadata_does_not_keep_a_vault_from_serving(tmp_path, text):
    pair = synthetic.write(tmp_path / "a.smoe", metadata={"config": text, "eos_token_ids": text})
    identity = reader.identify(*pair)
    assert identity.trained_context is None
    assert set(identity.eos_ids) <= {1}


def test_our_scouts_are_read_by_the_safetensors_library(pair):
    header = scout.read_header(pair[1])
    with safe_open(pair[1], "np") as theirs:
        assert set(theirs.keys()) == set(header.tensors)
        assert theirs.metadata() == {"description": "a test"}


def test_scouts_of_the_safetensors_library_are_read(tmp_path):
    tensors = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(4, np.float16)}
    save_file(tensors, tmp_path / "x.safetensors", {"k": "v"})
    header = scout.read_header(tmp_path / "x.safetensors")
    with open(header.path, "rb") as file:
        for name, values in tensors.items():
            np.testing.assert_array_equal(header.read(file, name), values)
    assert header.metadata == {"k": "v"}


def test_bfloat16_rounds_half_to_even_and_keeps_nan():
    values = np.array([1.0, 1.00390625, 1.01171875, -2.5, np.inf, np.nan], np.float32)
    restored = scout.to_float32(scout.to_bfloat16(values), "BF16")
    np.testing.assert_array_equal(restored, np.array([1.0, 1.0, 1.015625, -2.5, np.inf, np.nan], np.float32))


@pytest.mark.parametrize("data", [b"GGUF" + bytes(99), b"\0" * 200, b"SMOX"])
def test_foreign_bytes(pair, data):
    pair[0].write_bytes(data)
    assert "does not begin as a vault does" in refused(pair, "not_a_vault")


@pytest.mark.parametrize("length", [0, 7, 63, 64, 1000, 16384, 16385])
def test_a_vault_that_is_still_growing(pair, length):
    os.truncate(pair[0], length)
    assert "wait or copy it again" in refused(pair, "incomplete")


def test_a_record_that_is_not_yet_whole(pair):
    os.truncate(pair[0], pair[0].stat().st_size - 1)
    refused(pair, "incomplete")


@pytest.mark.parametrize("length", [0, 5, 100, -1])
def test_a_scout_that_is_still_growing(pair, length):
    os.truncate(pair[1], length if length >= 0 else pair[1].stat().st_size - 1)
    assert pair[1].name in refused(pair, "incomplete")


def test_a_missing_scout(pair):
    pair[1].unlink()
    assert "put the scout beside its vault" in refused(pair, "incomplete")


def test_a_pipe_is_refused_and_not_waited_for(pair):
    pair[0].unlink()
    os.mkfifo(pair[0])
    refused(pair, "not_a_vault")


def test_an_unreadable_vault(open_dir):
    pair = synthetic.write(open_dir / "closed.smoe")
    pair[0].chmod(0)
    user = os.geteuid()
    if user == 0:  # whom no mode stops
        os.seteuid(65534)
    try:
        refused(pair, "unreadable")
    finally:
        os.seteuid(user)


@pytest.mark.parametrize("field", HEADER_FIELDS)
@pytest.mark.parametrize("value", [0, 0xFFFFFFFF, 0x7FFFFFFF, 3])
def test_a_header_with_another_number(pair, field, value):
    patch(pair[0], HEADER_FIELDS[field], struct.pack("<I", value))
    with pytest.raises(VaultError):
        reader.identify(*pair)


@pytest.mark.parametrize(
    ("entry_offset", "value", "name"),
    [
        (0, struct.pack("<I", 0xFFFFFFFF), "layer"),
        (4, struct.pack("<I", 4), "expert"),
        (8, struct.pack("<Q", 0), "offset"),
        (8, struct.pack("<Q", 16385), "offset"),
        (8, struct.pack("<Q", 1 << 63), "offset"),
        (16, struct.pack("<Q", (1 << 64) - 1), "raw_size"),
        (24, struct.pack("<Q", (1 << 64) - 16384), "padded_size"),
        (24, struct.pack("<Q", 0), "padded_size"),
        (32, struct.pack("<I", 32), "group_size"),
    ],
)
def test_a_table_entry_with_another_number(pair, entry_offset, value, name):
    patch(pair[0], TABLE + entry_offset, value)
    assert f"expert table entry 0: {name} is" in refused(pair, "invalid")


def test_two_entries_for_one_expert(pair):
    patch(pair[0], TABLE + layout.ENTRY.itemsize + 4, struct.pack("<I", 0))
    assert "twice" in refused(pair, "invalid")


def test_overlapping_records(pair):
    patch(pair[0], TABLE + layout.ENTRY.itemsize + 8, struct.pack("<Q", 16384))
    assert "overlaps" in refused(pair, "invalid")


def test_a_record_far_beyond_the_end_is_incomplete(pair):
    patch(pair[0], TABLE + 8, struct.pack("<Q", 1 << 50))
    refused(pair, "incomplete")


@pytest.mark.parametrize(
    ("offset", "value", "name"),
    [
        (0, b"SARX", "arch block"),
        (4, struct.pack("<I", 2), "arch block"),
        (12, struct.pack("<I", 64), "flags"),
        (16, struct.pack("<f", float("nan")), "rope_theta"),
        (16, struct.pack("<f", 0.0), "rope_theta"),
        (20, struct.pack("<I", 0), "num_heads"),
        (24, struct.pack("<I", 3), "num_kv_heads"),
        (28, struct.pack("<I", 0xFFFFFFFF), "head_dim"),
        (32, struct.pack("<I", 5), "moe_top_k"),
        (36, struct.pack("<I", 65), "moe_ffn_dim"),
        (48, struct.pack("<I", 1), "activation"),
        (52, struct.pack("<I", 1), "num_hidden_layers"),
        (56, struct.pack("<f", float("inf")), "rms_norm_eps"),
    ],
)
def test_an_arch_block_with_another_number(pair, offset, value, name):
    arch_offset = struct.unpack("<I", pair[0].read_bytes()[60:64])[0]
    patch(pair[0], arch_offset + offset, value)
    assert name in refused(pair, "invalid")


@pytest.mark.parametrize(
    "header",
    [
        b"[]",
        b"{",
        b'{"a": 1}',
        b'{"a": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "BF16", "shape": [-1], "data_offsets": [2, 0]}}',
        b'{"a": {"dtype": ["BF16"], "shape": [1], "data_offsets": [0, 2]}}',
        b'{"a": {"dtype": "BF16", "shape": [true], "data_offsets": [0, 2]}}',
        b'{"a": {"dtype": "BF16", "shape": [99999999999999999999], "data_offsets": [0, 2]}}',
        b'{"__metadata__": {"a": 1}}',
        b"\xff\xfe{}",
        b"[" * 5000,
        b'{"a": ' + b"9" * 5000 + b"}",
    ],
)
def test_a_scout_with_a_broken_header(pair, header):
    pair[1].write_bytes(len(header).to_bytes(8, "little") + header + bytes(64))
    assert pair[1].name in refused(pair, "invalid")


def test_another_models_scout(pair, tmp_path):
    other = synthetic.write(tmp_path / "other.smoe", d_model=128)
    os.replace(other[1], pair[1])
    assert "model.embed_tokens.weight is [128, 128], expected [128, 64]" in refused(pair, "invalid")


def test_random_damage_raises_nothing_but_vault_errors(pair):
    """Every byte before the records matters or is padding; whatever it becomes, the answer is one of four kinds."""
    random = np.random.default_rng(11)
    whole = pair[0].read_bytes()
    end = struct.unpack_from("<I", whole, 60)[0] + layout.ARCH.size
    outcomes = set()
    for _ in range(300):
        damaged = bytearray(whole)
        for place in random.integers(0, end, 3):
            damaged[place] = random.integers(0, 256)
        pair[0].write_bytes(damaged)
        try:
            reader.identify(*pair)
            outcomes.add("whole")
        except VaultError as error:
            outcomes.add(error.kind)
    assert outcomes >= {"whole", "invalid", "incomplete", "not_a_vault"}


def uneven_pair(tmp_path, numbers):
    """Two layers, of two experts and of one; `numbers` are the table's expert numbers."""
    smoe, scout_path = synthetic.write(tmp_path / "a.smoe", top_k=1, experts=2)
    whole = smoe.read_bytes()
    table = np.frombuffer(whole[TABLE:], layout.ENTRY, 3).copy()
    table["expert"] = numbers
    descriptors = np.frombuffer(whole[TABLE + 4 * layout.ENTRY.itemsize :], layout.DESCRIPTOR, 9)
    patch(smoe, 20, struct.pack("<I", 3))
    patch(smoe, TABLE, table.tobytes() + descriptors.tobytes())
    shapes = trunk.shapes(synthetic.ARCHITECTURE, 64, 128, {0: 2, 1: 1})
    specs = [scout.TensorSpec(name, "F32", shape) for name, shape in shapes]
    with open(scout_path, "wb") as file:
        scout.write(file, specs, [np.ones(spec.shape, np.float32) for spec in specs], {})
    return smoe, scout_path


def test_a_layer_may_have_fewer_experts_than_another(tmp_path):
    identity = reader.identify(*uneven_pair(tmp_path, [0, 1, 0]))
    assert (identity.moe_layers, identity.experts_per_layer) == (2, 2)


def test_a_layers_experts_are_numbered_without_a_gap(tmp_path):
    assert "lacks experts of layer 1" in refused(uneven_pair(tmp_path, [0, 1, 1]), "invalid")


def test_version_1_takes_its_architecture_from_the_config(tmp_path, interop_dir):
    source = interop_dir / "tiny-qwen3moe-q4"
    smoe = tmp_path / "old.smoe"
    smoe.write_bytes((source / "tiny-qwen3moe.smoe").read_bytes())
    patch(smoe, 8, struct.pack("<I", 1))
    patch(smoe, 60, struct.pack("<I", 0))
    scout_path = source / "tiny-qwen3moe.scout.safetensors"
    config = interop_dir / "tiny-qwen3moe-checkpoint" / "config.json"
    old, new = (
        reader.identify(smoe, scout_path, config),
        reader.identify(source / "tiny-qwen3moe.smoe", scout_path),
    )
    assert (old.format_version, old.assumed) == (1, f"version 1: architecture from {config}")
    assert old.architecture.pack() == new.architecture.pack()
    with pytest.raises(VaultError, match=r"put the checkpoint's config\.json into checkpoints/old/"):
        reader.identify(smoe, scout_path)


def test_the_scout_stands_beside_its_vault(tmp_path):
    assert scout_path_of(tmp_path / "a.b.smoe") == tmp_path / "a.b.scout.safetensors"
