"""Fixtures that every part's tests share."""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.conf import settings

from fleet.keys import keyring

TESTS = Path(__file__).parent


def pytest_configure() -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # the default is slow on purpose


@pytest.fixture(scope="session")
def interop_dir() -> Path:
    """Vault pairs that another tool wrote, their checkpoint and golden results."""
    return TESTS / "interop"


@pytest.fixture(scope="session")
def demo_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory in which the command has made the demo vault (in vault/) and its tokenizer (in checkpoints/).

    Made once for all workers of pytest-xdist; the last one removes it.
    """
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, users = base / "demo", base / "demo-users"
    with _locked(users) as count:
        if not folder.exists():
            _make_demo(folder)
        count(1)
    yield folder
    with _locked(users) as count:
        if count(-1) == 0:
            shutil.rmtree(folder)  # pytest keeps its directories; this is 190 MB


def _make_demo(folder: Path) -> None:
    making = folder.with_name("demo-making")
    shutil.rmtree(making, ignore_errors=True)  # what one left that failed
    places = {f"SMOE_{name.upper()}_DIR": str(making / name) for name in ("data", "vault", "checkpoints")}
    command = [sys.executable, "manage.py", "make_demo_vault", "--if-empty"]
    subprocess.run(command, cwd=TESTS.parent, env=os.environ | places, check=True)
    making.rename(folder)


@contextmanager
def _locked(number: Path) -> Iterator[Callable[[int], int]]:
    """Alone among processes while it lasts: what adds to the number in that file and gives it back."""
    with number.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)

        def add(change: int) -> int:
            file.seek(0)
            now = int(file.read() or 0) + change
            file.truncate(0)
            file.write(str(now))
            file.flush()
            return now

        yield add


@pytest.fixture(autouse=True)
def _no_keys_without_a_database(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request asks for keys; a test that has no database has none."""
    keyring.forget()
    if request.node.get_closest_marker("django_db") is None:
        monkeypatch.setattr(keyring, "_keys", {})
        monkeypatch.setattr(keyring, "read", lambda: None)
