"""What a look at a directory says of each kind of file, again and after changes."""

import dataclasses
import hashlib
import json
import os
from importlib import import_module

import pytest
import vault_pairs as pairs
from django.apps import apps

from fleet import discovery, sightings
from fleet.models import Event, Vault
from fleet.vaultfile import reader

pytestmark = pytest.mark.django_db


def states() -> dict[str, str]:
    return dict(Vault.objects.values_list("name", "state"))


def test_a_valid_pair_is_described_from_its_own_bytes(fleet_dir):
    config = {"max_position_embeddings": 2048, "eos_token_id": 7}
    vault = pairs.make(
        fleet_dir, "tiny", bits=8, config=json.dumps(config), source_name="org/model", eos_token_ids="[5, 6]"
    )
    discovery.scan()
    row = Vault.objects.get(name="tiny")
    assert (row.state, row.reason) == ("servable", "")
    assert (row.quant, row.bits, row.format_version, row.model_type) == ("Q8", 8, 2, "qwen3_moe")
    assert (row.moe_layers, row.hidden_layers, row.experts_per_layer, row.top_k) == (1, 1, 2, 1)
    assert (row.heads, row.kv_heads, row.head_dim, row.d_model, row.ffn_dim) == (2, 1, 32, 64, 64)
    assert row.kept_width == 2 * 32
    assert (row.vocab_size, row.trained_context, row.eos_ids) == (96, 2048, [5, 6, 7])
    assert row.vault_bytes == os.path.getsize(vault)
    assert row.scout_bytes == os.path.getsize(pairs.scout_of(vault))
    assert row.record_bytes == 16_384
    assert row.lineage == "org/model"
    assert len(row.fingerprint) == 64


def test_a_row_from_before_a_field_is_read_again(fleet_dir):
    pairs.make(fleet_dir, "tiny")
    discovery.scan()
    Vault.objects.update(kept_width=None)
    import_module("fleet.migrations.0008_kept_width").read_again(apps, None)
    discovery.scan()
    assert Vault.objects.get(name="tiny").kept_width == 2 * 32


@pytest.mark.parametrize(
    ("make", "state", "word"),
    [
        (pairs.make_truncated, "incomplete", "40,000 of 49,152 bytes"),
        (pairs.make_foreign, "invalid", "does not begin as a vault"),
        (pairs.make_link_loop, "invalid", "back to itself"),
        (lambda d, n: (d / f"{n}.smoe").mkdir(), "invalid", "is a directory"),
        (lambda d, n: (d / f"{n}.smoe").symlink_to("nowhere"), "invalid", "leads to nothing"),
        (lambda d, n: (d / f"{n}.smoe").write_bytes(b""), "incomplete", "scout is missing"),
        (lambda d, n: pairs.scout_of(pairs.make(d, n)).unlink(), "incomplete", "scout is missing"),
        (lambda d, n: os.truncate(pairs.scout_of(pairs.make(d, n)), 3000), "incomplete", "bytes are there"),
        (lambda d, n: pairs.scout_of(pairs.make(d, n)).write_bytes(b"{}" * 20), "invalid", "safetensors"),
        (lambda d, n: os.mkfifo(d / f"{n}.smoe"), "invalid", "not a regular file"),
    ],
)
def test_what_cannot_be_served_says_why_and_keeps_saying_it(fleet_dir, make, state, word):
    make(fleet_dir, "odd")
    for _ in range(2):
        discovery.scan()
        row = Vault.objects.get(name="odd")
        assert row.state == state
        assert word in row.reason
        assert str(fleet_dir) not in row.reason


def test_an_unreadable_file_becomes_servable_when_its_mode_allows(open_dir, settings, fleet_dir):
    settings.SMOE = dataclasses.replace(settings.SMOE, vault_dir=open_dir)
    vault = pairs.make_unreadable(open_dir, "locked")
    with pairs.ordinary_user():
        discovery.scan()
    row = Vault.objects.get(name="locked")
    assert row.state == "invalid"
    assert "Permission denied" in row.reason
    vault.chmod(0o644)
    with pairs.ordinary_user():
        discovery.scan()
    assert states() == {"locked": "servable"}


@pytest.mark.parametrize("name", ["with space", "日本語-モデル", "a.b.c", "quote\"'<b>&", "%2e%2e", "-rf"])
def test_odd_names_are_ids_like_any_other(fleet_dir, name):
    pairs.make(fleet_dir, name)
    discovery.scan()
    assert states() == {name: "servable"}


@pytest.mark.parametrize("name", ["line\nbreak", "tab\there", " led", b"\xff\xfe"])
def test_names_that_would_break_a_log_or_a_header_are_refused_with_the_reason(fleet_dir, name):
    pairs.make(fleet_dir, os.fsdecode(name))
    discovery.scan()
    row = Vault.objects.get()
    assert row.state == "invalid"
    assert "rename the file" in row.reason


def test_hidden_and_partial_files_are_not_listed(fleet_dir):
    for name in (".hidden.smoe", "._mac.smoe", ".x.smoe.partial", "x.smoe.part"):
        (fleet_dir / name).write_bytes(b"")
    assert discovery.scan().seen == 0


def test_a_growing_copy_waits_and_is_servable_when_whole(fleet_dir):
    data = pairs.vault_bytes()
    vault = pairs.make(fleet_dir, "copy")
    vault.write_bytes(data[:20_000])
    discovery.scan()
    assert states() == {"copy": "incomplete"}
    vault.write_bytes(data[:40_000])
    discovery.scan()
    assert Vault.objects.get().reason.startswith("Still growing.")
    vault.write_bytes(data)
    discovery.scan()
    assert states() == {"copy": "servable"}


def test_a_copy_that_stopped_no_longer_claims_to_grow(fleet_dir):
    vault = pairs.make(fleet_dir, "copy")
    os.truncate(vault, 20_000)
    discovery.scan()
    os.truncate(vault, 30_000)
    discovery.scan()
    assert "Still growing" in Vault.objects.get().reason
    discovery.scan()
    row = Vault.objects.get()
    assert row.state == "incomplete"
    assert "Still growing" not in row.reason


def test_a_copy_into_reserved_space_waits_until_two_looks_agree(fleet_dir):
    vault = pairs.make(fleet_dir, "reserved")
    pairs.age(vault, pairs.scout_of(vault))
    discovery.scan()
    vault.write_bytes(pairs.vault_bytes())
    discovery.scan()
    assert states() == {"reserved": "incomplete"}
    discovery.scan()
    assert states() == {"reserved": "servable"}


def test_removed_is_missing_and_comes_back_with_its_history(fleet_dir):
    vault = pairs.make(fleet_dir, "gone")
    discovery.scan()
    first_seen = Vault.objects.get().first_seen
    vault.unlink()
    assert discovery.scan().missing == ["gone"]
    assert states() == {"gone": "missing"}
    assert discovery.scan().missing == []
    pairs.make(fleet_dir, "gone")
    discovery.scan()
    assert states() == {"gone": "servable"}
    assert Vault.objects.get().first_seen == first_seen
    assert list(Event.objects.order_by("id").values_list("kind", flat=True)) == ["found", "missing", "changed"]


def test_unchanged_files_are_not_opened_again(fleet_dir, monkeypatch):
    pairs.make(fleet_dir, "one")
    pairs.make_foreign(fleet_dir, "two")
    assert discovery.scan().read == 2
    monkeypatch.setattr(reader, "open", None, raising=False)
    assert discovery.scan().read == 0


def test_a_thousand_unchanged_files_take_three_queries_at_most(fleet_dir, django_assert_max_num_queries):
    for number in range(500):
        os.link(pairs.make(fleet_dir, "base"), fleet_dir / f"v{number}.smoe")
        os.link(fleet_dir / "base.scout.safetensors", fleet_dir / f"v{number}.scout.safetensors")
        if number == 0:
            pairs.age(fleet_dir / "base.smoe", fleet_dir / "base.scout.safetensors")
    discovery.scan()
    with django_assert_max_num_queries(3):
        assert discovery.scan().read == 0


def test_one_hostile_file_does_not_hide_the_others(fleet_dir, monkeypatch):
    pairs.make(fleet_dir, "good")
    pairs.make(fleet_dir, "hostile")
    identify = reader.identify

    def fails(smoe, *rest):
        if smoe.stem == "hostile":
            raise OverflowError("crafted")
        return identify(smoe, *rest)

    monkeypatch.setattr("fleet.vault_rows.identify", fails)
    discovery.scan()
    assert states() == {"good": "servable", "hostile": "invalid"}


def test_metadata_that_no_database_takes_is_cleaned(fleet_dir):
    scout = pairs.scout_of(pairs.make(fleet_dir, "dirty", description="a000000b d8d8d8 c", long="x" * 200_000))
    data = scout.read_bytes().replace(b"000000", rb"\u0000").replace(b"d8d8d8", rb"\ud800")
    scout.write_bytes(data)
    discovery.scan()
    row = Vault.objects.get()
    assert row.description == "ab ? c"
    assert "long" not in row.metadata


def test_a_vault_named_by_option_is_one_more_entry_with_its_own_scout(fleet_dir, tmp_path, settings):
    pairs.make(fleet_dir, "inside")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    vault = pairs.make(elsewhere, "outside")
    scout = pairs.scout_of(vault).rename(tmp_path / "trunk.safetensors")
    settings.SMOE = dataclasses.replace(settings.SMOE, vault=vault, scout=scout)
    discovery.scan()
    assert states() == {"inside": "servable", "outside": "servable"}
    assert Vault.objects.get(name="outside").scout_path == str(scout)


def test_a_version_1_vault_says_where_its_architecture_comes_from(fleet_dir):
    pairs.make(fleet_dir, "old", version=1, config=json.dumps(pairs.CONFIG))
    discovery.scan()
    row = Vault.objects.get()
    assert (row.state, row.format_version, row.top_k) == ("servable", 1, 1)
    assert row.assumed == "version 1: architecture from the scout's metadata"


def test_a_version_1_vault_without_a_config_asks_for_one(fleet_dir):
    pairs.make(fleet_dir, "old", version=1)
    discovery.scan()
    row = Vault.objects.get()
    assert row.state == "invalid"
    assert "put the checkpoint's config.json into checkpoints/old/" in row.reason


def test_the_fingerprint_knows_a_copy_and_a_change(fleet_dir):
    pairs.make(fleet_dir, "one")
    pairs.make(fleet_dir, "two")
    pairs.make(fleet_dir, "other", bits=8)
    discovery.scan()
    prints = dict(Vault.objects.values_list("name", "fingerprint"))
    assert prints["one"] == prints["two"] != prints["other"]


def test_the_fingerprint_of_a_huge_file_reads_sixteen_blocks(tmp_path):
    from fleet import fingerprint

    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(100 << 30)
    blocks = hashlib.sha256((100 << 30).to_bytes(8, "little") + bytes(16 * fingerprint.BLOCK))
    assert fingerprint.fingerprint(path) == blocks.hexdigest()


def test_a_fleet_without_its_directory_is_empty(fleet_dir):
    fleet_dir.rmdir()
    assert discovery.scan().seen == 0


def test_times_beyond_any_calendar_do_not_stop_the_look(fleet_dir):
    os.utime(pairs.make(fleet_dir, "future"), (2**40, 2**40))
    discovery.scan()
    assert states() == {"future": "servable"}


def test_ids_are_stems(fleet_dir):
    assert sightings.vault_name(fleet_dir / "a.b.smoe") == "a.b"
