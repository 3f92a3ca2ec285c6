"""What the figures belong to: this machine, and this state of the code."""

from __future__ import annotations

import mmap
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path

import psutil
from django.conf import settings

MEASURED = ("engine/native", "bench", "engine", "api")


def about() -> str:
    """One line: processor, cores, memory, system."""
    memory = psutil.virtual_memory().total / 2**30
    return f"{_processor()}, {cores()} cores, {memory:.1f} GiB, {platform.system()} {platform.release()}"


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _processor() -> str:
    if platform.system() == "Darwin":
        return _output("sysctl", "-n", "machdep.cpu.brand_string")
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    named = {name.strip(): value.strip() for name, value in fields.items()}
    kinds = [flag for flag in ("avx2", "avx512_vnni", "asimddp", "i8mm") if flag in _features(named)]
    return " ".join([named.get("model name", platform.machine()), *kinds])


def _features(named: dict[str, str]) -> list[str]:
    return named.get("flags", named.get("Features", "")).split()


def commit() -> str:
    """The commit; with a `+` where what is measured differs from it."""
    changed = _output("git", "status", "--porcelain", "--untracked-files=no", "--", *MEASURED)
    return _output("git", "rev-parse", "--short", "HEAD") + ("+" if changed else "")


def _output(*command: str) -> str:
    done = subprocess.run(command, cwd=settings.BASE_DIR, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def touch_memory(size: int) -> None:
    """Writes to so many bytes of memory and gives them back."""
    if size:
        with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
            if hasattr(mmap, "MADV_HUGEPAGE"):
                memory.madvise(mmap.MADV_HUGEPAGE)
            for offset in range(0, size, mmap.PAGESIZE):
                memory[offset] = 1


def shown(command: Sequence[object]) -> str:
    """A command line as the results keep it: without this machine's directories."""
    return " ".join(Path(word).name if "/" in word else word for word in map(str, command))
