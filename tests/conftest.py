"""Fixtures that every part's tests share."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings

from fleet.keys import keyring

TESTS = Path(__file__).parent


def pytest_configure() -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # the default is slow on purpose


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Workers of pytest-xdist share nothing: a file stays with one, and so do all that need the demo, made once."""
    demo = {item.path for item in items if "demo_dir" in getattr(item, "fixturenames", ())}
    for item in items:
        group = "demo" if item.path in demo else item.path.relative_to(TESTS).as_posix()
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(scope="session")
def interop_dir() -> Path:
    """Vault pairs that another tool wrote, their checkpoint and golden results."""
    return TESTS / "interop"


@pytest.fixture(scope="session")
def demo_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory in which the command has made the demo vault (in vault/) and its tokenizer (in checkpoints/)."""
    folder = tmp_path_factory.mktemp("demo")
    places = {f"SMOE_{name.upper()}_DIR": str(folder / name) for name in ("data", "vault", "checkpoints")}
    command = [sys.executable, "manage.py", "make_demo_vault", "--if-empty"]
    subprocess.run(command, cwd=TESTS.parent, env=os.environ | places, check=True)
    yield folder
    shutil.rmtree(folder / "vault")  # pytest keeps its directories; this is 190 MB


@pytest.fixture(autouse=True)
def _no_keys_without_a_database(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request asks for keys; a test that has no database has none."""
    keyring.forget()
    if request.node.get_closest_marker("django_db") is None:
        monkeypatch.setattr(keyring, "_keys", {})
        monkeypatch.setattr(keyring, "read", lambda: None)
