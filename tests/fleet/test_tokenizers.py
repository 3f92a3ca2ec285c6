"""Where a vault's tokenizer comes from, and whether it fits."""

import dataclasses
import json

import pytest
import vault_pairs as pairs

from fleet import catalog, discovery
from fleet.models import Vault

pytestmark = pytest.mark.django_db


def write_tokenizer(directory, ids, **files):
    directory.mkdir(parents=True, exist_ok=True)
    vocabulary = {f"t{i}": i for i in range(ids - 1)}
    added = [{"id": ids - 1, "content": "<|im_end|>"}]
    content = {"model": {"type": "BPE", "vocab": vocabulary}, "added_tokens": added}
    (directory / "tokenizer.json").write_text(json.dumps(content))
    for name, value in files.items():
        (directory / f"{name}.json").write_text(json.dumps(value))


def test_its_own_directory_comes_first(fleet_dir, tmp_path, settings):
    write_tokenizer(tmp_path / "checkpoints" / "tiny", 90)
    settings.SMOE = dataclasses.replace(settings.SMOE, tokenizer="fallback-name")
    pairs.make(fleet_dir, "tiny")
    pairs.make(fleet_dir, "other")
    own, fallback = catalog.find("tiny"), catalog.find("other")
    assert (own.tokenizer, own.tokenizer_is_fallback) == (str(tmp_path / "checkpoints" / "tiny"), False)
    assert (fallback.tokenizer, fallback.tokenizer_is_fallback) == ("fallback-name", True)


@pytest.mark.parametrize(("ids", "fit"), [(96, "fits"), (80, "fits"), (97, "misfit"), (20, "misfit")])
def test_fit_is_judged_by_the_largest_id(fleet_dir, tmp_path, ids, fit):
    write_tokenizer(tmp_path / "checkpoints" / "tiny", ids)
    pairs.make(fleet_dir, "tiny")
    discovery.scan()
    row = Vault.objects.get()
    assert row.tokenizer_fit == fit
    assert row.state == "servable"
    assert bool(row.tokenizer_note) == (fit == "misfit")


def test_a_unigram_vocabulary_is_a_list(fleet_dir, tmp_path):
    directory = tmp_path / "checkpoints" / "tiny"
    directory.mkdir(parents=True)
    (directory / "tokenizer.json").write_text(json.dumps({"model": {"vocab": [["a", 0.0]] * 96}}))
    pairs.make(fleet_dir, "tiny")
    discovery.scan()
    assert Vault.objects.get().tokenizer_fit == "fits"


@pytest.mark.parametrize("content", ["", "[]", "{", '{"model": 3, "added_tokens": {}}', "[" * 100_000])
def test_a_broken_tokenizer_file_is_unknown_and_breaks_nothing(fleet_dir, tmp_path, content):
    directory = tmp_path / "checkpoints" / "tiny"
    directory.mkdir(parents=True)
    (directory / "tokenizer.json").write_text(content)
    pairs.make(fleet_dir, "tiny")
    discovery.scan()
    assert Vault.objects.get().tokenizer_fit == "unknown"


def test_end_of_sequence_ids_are_the_union_of_every_source(fleet_dir, tmp_path):
    write_tokenizer(
        tmp_path / "checkpoints" / "tiny",
        96,
        generation_config={"eos_token_id": [1, 2, 5000]},
        config={"eos_token_id": 3},
        tokenizer_config={"eos_token": {"content": "<|im_end|>"}},
    )
    pairs.make(fleet_dir, "tiny", eos_token_ids="[4]")
    assert catalog.find("tiny").eos_ids == (1, 2, 3, 4, 95)


@pytest.mark.parametrize(("fallback", "source"), [("", "none"), ("fallback-name", "fallback")])
def test_a_checkpoint_without_a_tokenizer_has_none(fleet_dir, tmp_path, settings, fallback, source):
    """What `shatter` leaves of one: its config's ends hold, also beside the fallback's tokenizer."""
    settings.SMOE = dataclasses.replace(settings.SMOE, tokenizer=fallback)
    directory = tmp_path / "checkpoints" / "tiny"
    directory.mkdir(parents=True)
    (directory / "config.json").write_text('{"eos_token_id": 3}')
    pairs.make(fleet_dir, "tiny")
    card = catalog.find("tiny")
    assert (card.tokenizer, card.eos_ids, Vault.objects.get().tokenizer_source) == (fallback, (3,), source)


@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"])
def test_a_checkpoint_has_a_tokenizer_in_any_of_its_forms(fleet_dir, tmp_path, settings, file):
    settings.SMOE = dataclasses.replace(settings.SMOE, tokenizer="fallback-name")
    directory = tmp_path / "checkpoints" / "tiny"
    directory.mkdir(parents=True)
    (directory / file).write_text("{}")
    pairs.make(fleet_dir, "tiny")
    assert catalog.find("tiny").tokenizer == str(directory)


def test_a_tokenizer_added_later_is_noticed(fleet_dir, tmp_path):
    pairs.make(fleet_dir, "tiny")
    discovery.scan()
    assert Vault.objects.get().tokenizer_source == "none"
    write_tokenizer(tmp_path / "checkpoints" / "tiny", 96)
    discovery.scan()
    assert Vault.objects.get().tokenizer_source == "own"
