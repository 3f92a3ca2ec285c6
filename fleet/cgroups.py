"""How much memory the control groups above this process allow: the engine, which starts in the same, looks there too
(`engine/native/memory.cpp`). Version 1 and 2; nothing where there are none, as on macOS.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

LIMITS = {1: ("memory.limit_in_bytes",), 2: ("memory.max", "memory.high")}


def memory_limit(root: Path = Path("/")) -> int | None:
    """Bytes, of the tightest group; None without a limit. `root` stands before /proc and /sys, for tests."""
    groups = ((directory, LIMITS[version]) for version in (2, 1) for directory in _groups(root, version))
    limits = (_number(directory / name) for directory, names in groups for name in names)
    return min((limit for limit in limits if limit is not None), default=None)


def _groups(root: Path, version: int) -> Iterator[Path]:
    """This process's group and those above it, up to the mount point."""
    mounted, group = _mount(root, version), _own_group(root, version)
    if mounted is None or group is None:
        return
    shown, point = mounted
    # In a container the mount may show a part of the hierarchy only: its root is then the container's own group.
    inside = group.removeprefix(shown) if shown == "/" or group.startswith(shown) else ""
    parts = [] if ".." in inside else [part for part in inside.split("/") if part]
    for depth in range(len(parts), -1, -1):
        yield root.joinpath(point.lstrip("/"), *parts[:depth])


def _mount(root: Path, version: int) -> tuple[str, str] | None:
    """(the group that is mounted, where), from /proc/self/mountinfo (man 5 proc)."""
    for line in _lines(root / "proc/self/mountinfo"):
        before, dash, after = line.partition(" - ")
        places, kinds = before.split(), after.split()
        if not dash or len(places) < 5 or len(kinds) < 3:
            continue
        kind, _, options = kinds[:3]
        if kind == "cgroup2" if version == 2 else kind == "cgroup" and "memory" in options.split(","):
            return places[3], places[4]
    return None


def _own_group(root: Path, version: int) -> str | None:
    """From /proc/self/cgroup: `0::/path` (version 2) or `9:cpu,memory:/path`."""
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if not controllers if version == 2 else "memory" in controllers.split(","):
            return path
    return None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(errors="replace").splitlines()
    except OSError:
        return []


def _number(file: Path) -> int | None:
    """None for `max`, and where there is no such file."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None
