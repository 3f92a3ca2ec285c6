"""Fixtures that every part's tests share."""

from pathlib import Path

import pytest

from fleet.keys import keyring

TESTS = Path(__file__).parent


@pytest.fixture(scope="session")
def interop_dir() -> Path:
    """Vault pairs that another tool wrote, their checkpoint and golden results."""
    return TESTS / "interop"


@pytest.fixture(autouse=True)
def _no_keys_without_a_database(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request asks for keys; a test that has no database has none."""
    keyring.forget()
    if request.node.get_closest_marker("django_db") is None:
        monkeypatch.setattr(keyring, "_keys", {})
        monkeypatch.setattr(keyring, "read", lambda: None)
