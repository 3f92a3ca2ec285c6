"""What the file system tells of a fleet directory without opening a vault: names, sizes, times, obstacles."""

from __future__ import annotations

import errno
import os
import stat
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from smoe_site.options import Options

from . import tokenizers
from .models import Vault

VAULT_SUFFIX = ".smoe"
SCOUT_SUFFIX = ".scout.safetensors"
READER_VERSION = 3  # raise it when discovery reads more from the same files: every row is then read again


@dataclass(frozen=True, slots=True)
class Candidate:
    """A name and the two files that would be its vault."""

    name: str
    vault: Path
    scout: Path


@dataclass(frozen=True, slots=True)
class Sighting:
    """A candidate as stat shows it. `state` is empty where nothing speaks against reading it."""

    candidate: Candidate
    tokenizer: tokenizers.Tokenizer
    signature: str
    vault_bytes: int = 0
    scout_bytes: int = 0
    modified_ns: int = 0
    inodes: tuple[int, int] = (0, 0)
    state: str = ""
    reason: str = ""


class _Obstacle(Exception):
    def __init__(self, state: str, reason: str):
        super().__init__(reason)
        self.state = state
        self.reason = reason


def look(options: Options) -> dict[str, Sighting]:
    """Every candidate by name; `--vault` comes before a file of the same name in the fleet directory."""
    return {c.name: _see(c, options) for c in candidates(options).values()}


def candidates(options: Options) -> dict[str, Candidate]:
    found = {c.name: c for c in _in_directory(options.vault_dir)}
    if options.vault is not None:
        vault = Path(os.path.abspath(options.vault))
        beside = found.get(vault_name(vault))
        scout = options.scout or sibling_scout(beside.vault if beside and _same(beside.vault, vault) else vault)
        found[vault_name(vault)] = Candidate(vault_name(vault), vault, Path(os.path.abspath(scout)))
    return found


def vault_name(vault: Path) -> str:
    """The API id: the file's stem. Bytes that are not UTF-8 show as \\xNN."""
    return printable(vault.name.removesuffix(VAULT_SUFFIX))


def sibling_scout(vault: Path) -> Path:
    return vault.with_name(vault.name.removesuffix(VAULT_SUFFIX) + SCOUT_SUFFIX)


def printable(text: str) -> str:
    """`text` with file-name bytes that are not UTF-8 written as \\xNN: what databases and JSON can hold."""
    return os.fsencode(text).decode("utf-8", "backslashreplace")


def _in_directory(directory: Path) -> Iterator[Candidate]:
    try:
        names = os.listdir(directory)
    except OSError:
        return  # checks.py tells the operator; a fleet without its directory is an empty one
    root = Path(os.path.abspath(directory))
    for name in sorted(names):
        if name.endswith(VAULT_SUFFIX) and not name.startswith("."):
            yield Candidate(vault_name(root / name), root / name, sibling_scout(root / name))


def _same(left: Path, right: Path) -> bool:
    return os.path.realpath(left) == os.path.realpath(right)


def _see(candidate: Candidate, options: Options) -> Sighting:
    tokenizer = tokenizers.locate(candidate.name, options.checkpoints_dir, options.tokenizer)
    try:
        _check_name(candidate)
        vault, scout = _stat_vault(candidate.vault), _stat_scout(candidate.scout)
    except _Obstacle as obstacle:
        signature = f"{READER_VERSION}|{obstacle.state}|{obstacle.reason}"
        return Sighting(candidate, tokenizer, signature, state=obstacle.state, reason=obstacle.reason)
    parts = (READER_VERSION, candidate.vault, _figures(vault), candidate.scout, _figures(scout), tokenizer.signature)
    return Sighting(
        candidate,
        tokenizer,
        "|".join(map(str, parts)),
        vault.st_size,
        scout.st_size,
        max(vault.st_mtime_ns, scout.st_mtime_ns),
        (vault.st_ino, scout.st_ino),
    )


def _figures(status: os.stat_result) -> str:
    """ctime is in it because a change of permissions, or a copy that keeps the time, moves nothing else."""
    return f"{status.st_ino}.{status.st_size}.{status.st_mtime_ns}.{status.st_ctime_ns}"


def _check_name(candidate: Candidate) -> None:
    try:
        str(candidate.vault).encode()
        str(candidate.scout).encode()
    except UnicodeEncodeError:
        raise _Obstacle(Vault.State.INVALID, "Its path is not valid UTF-8: rename the file.") from None
    if any(unicodedata.category(c) == "Cc" for c in candidate.name):
        raise _Obstacle(
            Vault.State.INVALID, "Its name has a control character (such as a line break): rename the file."
        )
    if not candidate.name or candidate.name != candidate.name.strip():
        raise _Obstacle(Vault.State.INVALID, "Its name is empty, or begins or ends with a space: rename the file.")


def _stat_vault(path: Path) -> os.stat_result:
    try:
        return _regular(path)
    except FileNotFoundError:
        if path.is_symlink():
            raise _Obstacle(
                Vault.State.INVALID, f"The link {path.name} leads to nothing: {_target(path)} does not exist."
            ) from None
        raise _Obstacle(Vault.State.MISSING, f"The file {path} does not exist.") from None


def _stat_scout(path: Path) -> os.stat_result:
    try:
        return _regular(path)
    except FileNotFoundError:
        raise _Obstacle(
            Vault.State.INCOMPLETE,
            f"Its scout is missing: put {path.name} beside the vault (it holds everything but the experts).",
        ) from None


def _regular(path: Path) -> os.stat_result:
    """stat of a regular file. Raises FileNotFoundError and _Obstacle."""
    try:
        status = path.stat()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _Obstacle(Vault.State.INVALID, _why_not(path, error)) from None
    if not stat.S_ISREG(status.st_mode):
        kind = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise _Obstacle(Vault.State.INVALID, f"{path.name} is {kind}; a vault is a file.")
    return status


def _why_not(path: Path, error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return f"The link {path.name} leads back to itself."
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{path.name} may not be read: give the server's user read permission."
    return f"{path.name} cannot be read: {error.strerror}."


def _target(path: Path) -> str:
    try:
        return printable(os.readlink(path))
    except OSError:
        return "its target"
