"""What `manage.py check` says of an installation."""

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import vault_pairs as pairs
from django.core.checks import run_checks

from fleet import catalog

pytestmark = pytest.mark.django_db
ROOT = Path(__file__).parents[2]


def ids(**kwargs) -> set[str]:
    return {message.id for message in run_checks(**kwargs) if message.id.startswith("smoe.")}


@pytest.fixture
def engine(fleet_dir, tmp_path, settings):
    path = tmp_path / "engine"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    settings.SMOE = dataclasses.replace(settings.SMOE, engine=path)
    return path


def test_a_good_installation_is_silent(engine, fleet_dir, tmp_path, settings):
    assert ids() == set()
    pairs.make(fleet_dir, "whole")
    settings.SMOE = dataclasses.replace(settings.SMOE, tokenizer="some-name")
    assert ids(databases=["default"]) == set()


def test_engine_and_directory(engine, fleet_dir):
    engine.chmod(0o644)
    assert ids() == {"smoe.W002"}
    engine.unlink()
    fleet_dir.rmdir()
    assert ids() == {"smoe.W001", "smoe.W003"}


def test_the_named_vault(engine, fleet_dir, tmp_path, settings):
    settings.SMOE = dataclasses.replace(settings.SMOE, vault=tmp_path / "one.smoe")
    assert ids() == {"smoe.W005"}
    pairs.make(tmp_path, "one")
    pairs.make(fleet_dir, "one")
    assert ids() == {"smoe.W006"}


def test_a_scout_without_its_vault(engine, tmp_path, settings):
    settings.SMOE = dataclasses.replace(settings.SMOE, scout=tmp_path / "one.scout.safetensors")
    assert ids() == {"smoe.W011"}


def test_what_is_wrong_with_the_vaults(engine, fleet_dir):
    assert ids(databases=["default"]) == {"smoe.W007"}
    pairs.make_truncated(fleet_dir, "cut")
    pairs.make(fleet_dir, "mute")
    catalog.forget_look()
    assert ids(databases=["default"]) == {"smoe.W008", "smoe.W009"}


def test_a_proxy_without_its_address(engine, settings):
    settings.BEHIND_PROXY = True
    assert ids() == {"smoe.W013"}
    settings.SMOE = dataclasses.replace(settings.SMOE, allow_origin=("https://models.example.org",))
    assert ids() == set()


@pytest.mark.parametrize(("https", "said"), [("1", set()), ("", {"smoe.W012"})])
def test_what_a_deployment_is_told(engine, fleet_dir, tmp_path, https, said):
    """In a process of its own: Django's security checks read the settings as they were when it began."""
    environment = os.environ | {
        "SMOE_HTTPS": https,
        "SMOE_ALLOW_ORIGIN": "https://models.example.org",
        "SMOE_DATA_DIR": str(tmp_path / "data"),
        "SMOE_VAULT_DIR": str(fleet_dir),
        "SMOE_ENGINE": str(engine),
    }
    command = [sys.executable, "manage.py", "check", "--deploy"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0
    assert set(re.findall(r"\((\w+\.W\d+)\)", done.stderr)) == said
