"""Commands with less memory: a control group with a hard limit and no swap. And what a disk reads ahead.

The page cache counts. Needs a memory controller that this process may make groups in: root, or a delegated
version-2 group.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from .files import BenchError

GIB = 1 << 30
ROOT = Path("/sys/fs/cgroup")
EMPTYING = 10  # seconds that the kernel may take to let a group go


@dataclass(frozen=True, slots=True)
class Names:
    """What the files of a group are called."""

    limit: str
    swap: tuple[str, str | None]  # file, and what to write; None: the limit, for it counts memory and swap
    peak: str
    events: str
    empty: str | None


VERSION1 = Names(
    "memory.limit_in_bytes",
    ("memory.memsw.limit_in_bytes", None),
    "memory.max_usage_in_bytes",
    "memory.oom_control",
    "memory.force_empty",
)
VERSION2 = Names("memory.max", ("memory.swap.max", "0"), "memory.peak", "memory.events", None)


@dataclass(slots=True)
class Group:
    """A place to run one command in. `prefix` goes before the command's words."""

    prefix: list[str] = field(default_factory=list)
    path: Path | None = None
    names: Names = VERSION2

    def figures(self) -> dict[str, float]:
        """`group_peak_bytes` counts page cache too. Nothing without a limit."""
        if self.path is None:
            return {}
        figures = {"oom_kills": float(_keyed(self.path / self.names.events, "oom_kill"))}
        with suppress(OSError):  # memory.peak: from Linux 5.19
            figures["group_peak_bytes"] = float((self.path / self.names.peak).read_text())
        return figures


@contextmanager
def limited(gib: float | None) -> Iterator[Group]:
    """A group with so much memory; None: as much as there is. Raises BenchError."""
    if gib is None:
        yield Group()
        return
    group = _make(int(gib * GIB))
    try:
        yield group
    finally:
        _remove(group)


def _make(limit: int) -> Group:
    try:
        parent, names = _parent()
        path = parent / f"smoe-bench-{os.getpid()}"
        path.mkdir(exist_ok=True)
        (path / names.limit).write_text(str(limit))
        swap, value = names.swap
        if (path / swap).exists():  # not where the kernel does not account for swap
            (path / swap).write_text(value or str(limit))
    except OSError as error:
        raise BenchError(
            f"A memory limit cannot be set ({error.strerror}: {error.filename}): run this as root, or with "
            "`systemd-run --user --scope -p Delegate=yes`."
        ) from None
    # The shell moves itself into the group, then becomes the command: nothing of it is charged elsewhere.
    prefix = ["/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', str(path / "cgroup.procs")]
    return Group(prefix, path, names)


def _parent() -> tuple[Path, Names]:
    """The group under which to make one."""
    if (ROOT / "memory").is_dir():
        return ROOT / "memory" / _own("memory"), VERSION1
    # Version 2 wants groups with processes to have no children with controllers: beside our own, then.
    own = ROOT / _own("")
    parent = own.parent if own != ROOT else ROOT
    if "memory" not in (parent / "cgroup.subtree_control").read_text().split():
        (parent / "cgroup.subtree_control").write_text("+memory")
    return parent, VERSION2


def _own(controller: str) -> str:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path.lstrip("/")
    return ""


def _remove(group: Group) -> None:
    assert group.path is not None
    deadline = time.monotonic() + EMPTYING
    while group.path.exists() and time.monotonic() < deadline:
        with suppress(OSError):
            if group.names.empty:
                (group.path / group.names.empty).write_text("0")
            group.path.rmdir()
            return
        time.sleep(0.1)


def _keyed(path: Path, key: str) -> int:
    lines = (line.split() for line in path.read_text().splitlines())
    return next((int(line[1]) for line in lines if line[:1] == [key]), 0)


class Watch:
    """Follows a process while it runs: its largest resident set, and what it had read from disks. Linux only."""

    INTERVAL = 0.2  # seconds

    def __init__(self, pid: int) -> None:
        self._folder = Path("/proc") / str(pid)
        self._figures: dict[str, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(self.INTERVAL):
            self.look()

    def look(self) -> None:
        with suppress(OSError, KeyError, IndexError):
            status, io = (_fields(self._folder / name) for name in ("status", "io"))
            found = {
                "peak_rss_bytes": float(status["VmHWM"].split()[0]) * 1024,
                "anonymous_bytes": float(status["RssAnon"].split()[0]) * 1024,
                "read_bytes": float(io["read_bytes"]),
            }
            self._figures = {name: max(value, self._figures.get(name, 0)) for name, value in found.items()}

    def end(self) -> dict[str, float]:
        self._ended.set()
        self._thread.join()
        return self._figures


def _fields(path: Path) -> dict[str, str]:
    lines = (line.partition(":") for line in path.read_text().splitlines())
    return {name: value.strip() for name, _, value in lines}


def read_ahead_file(path: Path) -> Path | None:
    """Where the read-ahead of the disk that holds `path` is told; None where it is not."""
    device = os.stat(path).st_dev
    block = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    candidates = [folder / "queue" / "read_ahead_kb" for folder in (block, block.resolve().parent)]
    return next((file for file in candidates if file.is_file()), None)


@contextmanager
def read_ahead(path: Path, kib: int | None) -> Iterator[None]:
    """The disk of `path` reads so much ahead, then again what it did before. None: as it is. Raises BenchError."""
    file = read_ahead_file(path) if kib is not None else None
    if kib is None:
        yield
        return
    if file is None or not os.access(file, os.W_OK):
        raise BenchError(f"The read-ahead of the disk that holds {path.name} cannot be set: run this as root.")
    before = file.read_text()
    file.write_text(str(kib))
    try:
        yield
    finally:
        file.write_text(before)
