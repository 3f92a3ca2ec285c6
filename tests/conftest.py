"""Fixtures that every part's tests share."""

from pathlib import Path

import pytest

TESTS = Path(__file__).parent


@pytest.fixture(scope="session")
def interop_dir() -> Path:
    """Vault pairs that another tool wrote, their checkpoint and golden results."""
    return TESTS / "interop"
