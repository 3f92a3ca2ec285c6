import dataclasses
import os
import tempfile
from pathlib import Path

import pytest
from engine_double import WorkerDouble

from engine.protocol import Heat
from fleet import catalog


@pytest.fixture
def fleet_dir(tmp_path, settings):
    """An empty fleet directory that the settings point to; no --vault, no fallback tokenizer."""
    directory = tmp_path / "vaults"
    directory.mkdir()
    settings.SMOE = dataclasses.replace(
        settings.SMOE,
        vault_dir=directory,
        checkpoints_dir=tmp_path / "checkpoints",
        data_dir=tmp_path / "data",
        vault=None,
        scout=None,
        tokenizer="",
    )
    catalog.forget_look()
    yield directory
    catalog.forget_look()


@pytest.fixture
def open_dir():
    """A directory that other users may enter, for what root's rights would hide."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.fixture
def worker(monkeypatch):
    double = WorkerDouble()
    monkeypatch.setattr("fleet.control.get_worker", lambda: double)
    monkeypatch.setattr("fleet.heats._told", (("", None), Heat(0, [])))
    return double
