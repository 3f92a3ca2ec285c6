import fcntl
import os
import struct

import numpy as np
import pytest

from fleet.vaultfile import layout, reader
from fleet.vaultfile.records import decode_expert
from fleet.vaultfile.structure import read_structure
from fleet.vaultfile.upgrade import upgrade
from fleet.vaultfile.verify import verify
from fleet.vaultfile.writer import VaultPlan, partial_path, scout_path_of, write_pair, write_vault
from tests import synthetic

EVERY_FORM = [
    {},
    {"bits": 2},
    {"bits": 8},
    {"first_layer_dense": True, "dense_ffn": 96},
    {"shared_ffn": 32, "shared_gate": True},
    {"tied": True, "dtype": "F32", "qk_norm": False, "biases": True},
    {"bits": 2, "d_model": 72, "moe_ffn": 25, "dtype": "F16"},
]


def silent(done, total):
    pass


def look(pair):
    return verify(*pair, None, silent)


@pytest.mark.parametrize("form", EVERY_FORM)
def test_what_is_written_is_read_and_sound(tmp_path, form):
    pair = synthetic.write(tmp_path / "a.smoe", **form)
    identity = reader.identify(*pair)
    assert identity.bits == form.get("bits", 4)
    assert identity.d_model == form.get("d_model", 64)
    assert look(pair) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.scout.safetensors", "a.smoe"]


def test_records_lie_where_the_table_says(tmp_path):
    plan = VaultPlan(synthetic.ARCHITECTURE, 8, 64, 128, (0, 1), 2)
    experts = [tuple(np.full(shape, n + 1, np.float32) for shape in plan.shapes) for n in range(4)]
    path = tmp_path / "a.smoe"
    with open(path, "wb") as file:
        write_vault(file, plan, experts)
    assert path.stat().st_size == plan.file_size
    for entry, expert in zip(read_structure(path).table, experts, strict=True):
        assert entry["offset"] % 16384 == 0
        record = path.read_bytes()[entry["offset"] :][: entry["raw_size"]]
        for found, expected in zip(decode_expert(record, plan.shapes, 8), expert, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_the_documented_bytes_of_a_header():
    plan = VaultPlan(synthetic.ARCHITECTURE, 4, 64, 128, (0, 1), 4)
    fields = struct.unpack("<8sIIIIQQIIIIII", plan.prologue()[:64])
    tables_end = 64 + 8 * (48 + 3 * 44)
    arch_offset = -(-tables_end // 64) * 64
    assert fields == (b"SMOE\xde\xea\x00\x01", 2, 2, 4, 8, 64, 16384, 64, 4, 64, 128, 64, arch_offset)
    assert plan.prologue()[arch_offset:][:16] == struct.pack("<4sIII", b"SARC", 1, 128, 3)


@pytest.mark.parametrize("fails_at", ["scout", "experts", "check"])
def test_a_failure_leaves_nothing_and_keeps_what_was_there(tmp_path, fails_at):
    smoe, scout = synthetic.write(tmp_path / "a.smoe")
    before = smoe.read_bytes(), scout.read_bytes()

    def fail(step):
        if step == fails_at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_pair(smoe, lambda file: fail("experts"), lambda file: fail("scout"), lambda *files: fail("check"))
    assert (smoe.read_bytes(), scout.read_bytes()) == before
    assert len(list(tmp_path.iterdir())) == 2


def test_two_writers_of_one_pair(tmp_path):
    smoe = tmp_path / "a.smoe"

    def second(file):
        with pytest.raises(BlockingIOError):
            write_pair(smoe, lambda file: None, lambda file: None)
        file.write(b"first")

    write_pair(smoe, second, lambda file: file.write(b"scout"))
    assert (smoe.read_bytes(), scout_path_of(smoe).read_bytes()) == (b"first", b"scout")
    assert len(list(tmp_path.iterdir())) == 2


def test_what_a_killed_writer_left_goes_with_the_next_write(tmp_path):
    """But nothing that a living one holds, or that has another name or is a link."""
    target = tmp_path / "precious"
    target.write_bytes(b"kept")
    others = {".mine.partial", "x.smoe.partial", ".link.smoe.partial", "precious"}
    (tmp_path / ".link.smoe.partial").symlink_to(target)
    for name in (".dead.smoe.partial", ".dead.scout.safetensors.partial", ".mine.partial", "x.smoe.partial"):
        (tmp_path / name).write_bytes(b"half")

    def meanwhile(file):
        synthetic.write(tmp_path / "b.smoe")
        file.write(b"first")

    write_pair(tmp_path / "a.smoe", meanwhile, lambda file: file.write(b"scout"))
    assert (tmp_path / "a.smoe").read_bytes() == b"first"
    vaults = {f"{name}{ending}" for name in "ab" for ending in (".smoe", ".scout.safetensors")}
    assert {path.name for path in tmp_path.iterdir()} == others | vaults
    assert target.read_bytes() == b"kept"


def test_a_partial_file_removed_between_opening_and_locking_is_made_anew(tmp_path, monkeypatch):
    smoe, flock, removed = tmp_path / "a.smoe", fcntl.flock, []

    def remove_first(file, how):
        if not removed:
            removed.extend(tmp_path.iterdir())
            removed[0].unlink()
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    write_pair(smoe, lambda file: file.write(b"vault"), lambda file: file.write(b"scout"))
    assert len(removed) == 1
    assert (smoe.read_bytes(), scout_path_of(smoe).read_bytes()) == (b"vault", b"scout")


def test_the_vault_appears_after_its_scout(tmp_path, monkeypatch):
    order = []
    replace = type(tmp_path).replace
    monkeypatch.setattr(type(tmp_path), "replace", lambda self, to: (order.append(to.name), replace(self, to))[1])
    synthetic.write(tmp_path / "a.smoe")
    assert order == ["a.scout.safetensors", "a.smoe"]
    assert partial_path(tmp_path / "a.smoe").name == ".a.smoe.partial"


def patched(path, offset, data):
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


@pytest.mark.parametrize(
    ("offset", "data", "problem"),
    [
        (16384 + 64 * 32, b"\x00\x7c", "layer 0 expert 0: gate has scales that are not finite"),
        (16384 + 64 * 32, b"\x00\x7e", "layer 0 expert 0: gate has scales that are not finite"),
        (2 * 16384 - 1, b"\x01", "layer 0 expert 0: the padding of its record is not zero"),
        (16383, b"\x01", "the padding before the records is not zero"),
    ],
)
def test_verify_finds_damage(tmp_path, offset, data, problem):
    pair = synthetic.write(tmp_path / "a.smoe")
    patched(pair[0], offset, data)
    assert look(pair) == [problem]


def test_verify_finds_a_trunk_that_is_not_finite(tmp_path):
    pair = synthetic.write(tmp_path / "a.smoe", dtype="F32")
    patched(pair[1], pair[1].stat().st_size - 4, struct.pack("<f", float("nan")))
    assert look(pair) == ["lm_head.weight holds values that are not finite"]


def test_verify_finds_a_wrong_descriptor_that_identify_does_not_read(tmp_path):
    pair = synthetic.write(tmp_path / "a.smoe")
    last = 64 + 8 * layout.ENTRY.itemsize + 23 * layout.DESCRIPTOR.itemsize
    patched(pair[0], last + 4, struct.pack("<I", 1))
    reader.identify(*pair)
    assert "layer 1 expert 3 down: rows is 1" in look(pair)[0]


def version_1(tmp_path):
    config = tmp_path / "config.json"
    config.write_text(
        '{"model_type": "qwen3_moe", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,'
        ' "num_key_value_heads": 2, "head_dim": 16, "num_experts_per_tok": 2, "moe_intermediate_size": 64,'
        ' "norm_topk_prob": true, "rope_theta": 10000.0, "rms_norm_eps": 1e-6}'
    )
    return (*synthetic.write(tmp_path / "a.smoe", version=1), config)


def test_upgrade_writes_what_a_version_2_would_have(tmp_path):
    smoe, scout, config = version_1(tmp_path)
    upgrade(smoe, scout, config)
    second = synthetic.write(tmp_path / "b.smoe")[0]
    assert smoe.read_bytes() == second.read_bytes()
    assert reader.identify(smoe, scout).format_version == 2


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_an_interrupted_upgrade_is_a_valid_version_1_and_can_be_finished(tmp_path, monkeypatch, steps):
    smoe, scout, config = version_1(tmp_path)
    synced, pwrite = [], os.pwrite

    def stop_after(descriptor, data, at):
        if len(synced) == steps:
            raise KeyboardInterrupt
        return pwrite(descriptor, data, at)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", stop_after)
        patch.setattr(os, "fsync", synced.append)
        with pytest.raises(KeyboardInterrupt):
            upgrade(smoe, scout, config)
    assert reader.identify(smoe, scout, config).format_version == 1
    upgrade(smoe, scout, config)
    assert reader.identify(smoe, scout).format_version == 2


def test_upgrade_refuses_unknown_bytes_where_the_block_would_go(tmp_path):
    smoe, scout, config = version_1(tmp_path)
    patched(smoe, 1600, b"?")
    with pytest.raises(reader.VaultError, match="bytes of an unknown kind"):
        upgrade(smoe, scout, config)
