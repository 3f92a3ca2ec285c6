"""The door for api/ and engine/: what it answers, and that it never names a file that is gone."""

import dataclasses
import json

import pytest
import vault_pairs as pairs
from django.db import OperationalError, connection
from django.utils import timezone

from fleet import catalog, discovery
from fleet.models import Vault

pytestmark = pytest.mark.django_db


def test_a_vault_copied_in_is_there_at_the_next_look(fleet_dir):
    assert catalog.servable() == []
    pairs.make(fleet_dir, "new")
    catalog.forget_look()
    assert [card.id for card in catalog.servable()] == ["new"]


def test_a_look_is_not_repeated_within_a_second(fleet_dir, monkeypatch):
    catalog.rescan()
    monkeypatch.setattr("fleet.discovery.look", lambda options: pytest.fail("looked again"))
    catalog.servable()


def test_a_card_tells_what_the_files_say(fleet_dir):
    vault = pairs.make(fleet_dir, "tiny", config=json.dumps({"eos_token_id": [3, 4]}), source_name="org/model")
    card = catalog.find("tiny")
    assert (card.vault_path, card.scout_path) == (vault, pairs.scout_of(vault))
    assert (card.quant, card.vocab_size, card.eos_ids, card.lineage) == ("Q4", 96, (3, 4), "org/model")
    assert card.tokenizer == ""
    assert "no tokenizer" in card.tokenizer_note


def test_a_file_removed_since_the_look_is_not_served(fleet_dir):
    vault = pairs.make(fleet_dir, "tiny")
    assert catalog.find("tiny") is not None
    vault.unlink()
    assert catalog.find("tiny") is None
    assert catalog.servable() == []
    assert "(missing): Its files" in catalog.unavailable("tiny")


def test_what_cannot_be_written_down_is_left_to_a_later_look(fleet_dir):
    def full(execute, sql, *arguments):
        if not sql.startswith(("SELECT", "SAVEPOINT", "ROLLBACK", "RELEASE", "PRAGMA")):
            raise OperationalError("database or disk is full")
        return execute(sql, *arguments)

    pairs.make(fleet_dir, "known")
    catalog.rescan()
    pairs.make(fleet_dir, "new")
    catalog.forget_look()
    with connection.execute_wrapper(full):
        assert [card.id for card in catalog.servable()] == ["known"]
        with pytest.raises(discovery.NotWritten, match="disk is full"):
            catalog.rescan()
    catalog.forget_look()
    assert [card.id for card in catalog.servable()] == ["known", "new"]


def test_why_a_known_vault_cannot_be_served(fleet_dir):
    pairs.make_truncated(fleet_dir, "cut")
    pairs.make(fleet_dir, "whole")
    assert "incomplete" in catalog.unavailable("cut")
    assert catalog.unavailable("whole") is None
    assert catalog.unavailable("unknown") is None


@pytest.mark.parametrize(
    "name",
    ["../secret", "/etc/passwd", "tiny/../tiny", "tiny\n", "", "TINY", "%74iny", "x" * 10_000, "tiny\0", "\ud800"],
)
def test_a_name_is_an_id_and_never_a_path(fleet_dir, name):
    pairs.make(fleet_dir, "tiny")
    assert catalog.find(name) is None


def test_the_first_to_boot_is_the_named_then_the_last_used(fleet_dir, tmp_path, settings):
    for name in ("a", "b", "c"):
        pairs.make(fleet_dir, name)
    catalog.rescan()
    Vault.objects.filter(name="c").update(last_used=timezone.now())
    assert [card.id for card in catalog.servable()] == ["c", "a", "b"]
    settings.SMOE = dataclasses.replace(settings.SMOE, vault=fleet_dir / "b.smoe")
    assert [card.id for card in catalog.servable()] == ["b", "c", "a"]


def test_what_cannot_answer_here_is_not_the_first_to_boot(fleet_dir, settings, monkeypatch):
    for name in ("a-mute", "b-misfit", "c-huge", "d-good", "e-good"):
        pairs.make(fleet_dir, name)
    settings.SMOE = dataclasses.replace(settings.SMOE, tokenizer="some-name")
    catalog.rescan()
    vaults = Vault.objects
    vaults.filter(name="a-mute").update(tokenizer="", tokenizer_source="none", last_used=timezone.now())
    vaults.filter(name="b-misfit").update(tokenizer_fit="misfit")
    vaults.filter(name="c-huge").update(record_bytes=1 << 40)
    vaults.filter(name="e-good").update(last_used=timezone.now())
    cards = [card.id for card in catalog.servable()]
    assert cards == ["e-good", "d-good", "a-mute", "b-misfit", "c-huge"]
    settings.SMOE = dataclasses.replace(settings.SMOE, vault=fleet_dir / "b-misfit.smoe")
    assert catalog.servable()[0].id == "b-misfit"


@pytest.mark.django_db(transaction=True)
async def test_the_event_loop_asks_through_threads(fleet_dir):
    pairs.make(fleet_dir, "tiny")
    assert (await catalog.afind("tiny")).id == "tiny"
    assert [card.id for card in await catalog.aservable()] == ["tiny"]
