import json
from dataclasses import dataclass
from pathlib import Path

import native_engine
import pytest
from django.conf import settings


@dataclass(frozen=True)
class Golden:
    vault: Path
    cases: list[dict]


@pytest.fixture(scope="session")
def program() -> Path:
    return settings.SMOE.engine


@pytest.fixture(scope="session")
def golden(interop_dir):
    """golden("q4"): the vault that another tool wrote, and what a float32 reference says of it."""

    def read(bits: str) -> Golden:
        folder = interop_dir / f"tiny-qwen3moe-{bits}"
        return Golden(folder / "tiny-qwen3moe.smoe", json.loads((folder / "golden.json").read_text())["cases"])

    return read


@pytest.fixture
def start(program):
    """start(vault, *flags, hello=True): an engine that ends with the test."""
    engines = []

    def begin(vault, *flags, **options):
        engines.append(native_engine.Engine(program, vault, *flags, **options))
        return engines[-1]

    yield begin
    for engine in engines:
        engine.__exit__()


@pytest.fixture
def tiny(start, golden):
    """An engine on the 4-bit interop vault, after its hello."""
    return start(golden("q4").vault, "--eos-ids", 511)
