"""GET /health and /sysmem: for supervisors, the console and people. Always answered at once."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import psutil

from engine import worker
from fleet import memory as fleet_memory

from .exchange import JsonAnswer, Request
from .folders import without_folders

STATUS_TIMEOUT = 0.5  # seconds that a busy engine may take to tell its figures
PRESSURE_FILE = Path("/proc/pressure/memory")
# Pressure is told as a word too: where a share of time is known, by it; elsewhere by the share of memory in use.
STALL_PERCENT = {"critical": 20.0, "warning": 5.0}
USED_PERCENT = {"critical": 97.0, "warning": 90.0}


async def health(request: Request) -> JsonAnswer:
    del request
    engine = worker.get_worker().snapshot()
    return JsonAnswer(
        {
            "status": "ok",
            "engine": engine.state,
            "model": engine.model,
            "context": engine.context,
            "waiting": engine.waiting,
            "running": engine.running,
            "since": engine.since,
            "last_error": without_folders(engine.last_error) or None,
        }
    )


async def sysmem(request: Request) -> JsonAnswer:
    """Bytes, but for pressure: `some_avg10` is the percentage of the last 10 s in which a process waited for memory.

    limit: what the engine may take at most.
    """
    del request
    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    return JsonAnswer(
        {
            "installed": memory.total,
            "limit": fleet_memory.limit(),
            "used": memory.total - memory.available,
            "free": memory.available,
            "swap_used": swap.used,
            "pressure": _pressure(memory.percent),
            "engine": await _engine_memory(),
        }
    )


def _pressure(used_percent: float) -> dict[str, Any]:
    stalled = _stalled_percent()
    value, limits = (used_percent, USED_PERCENT) if stalled is None else (stalled, STALL_PERCENT)
    level = next((word for word, limit in limits.items() if value >= limit), "normal")
    return {"level": level, "some_avg10": stalled, "used_percent": used_percent}


def _stalled_percent(file: Path = PRESSURE_FILE) -> float | None:
    """Linux's pressure stall information (Documentation/accounting/psi.rst); None where the kernel has none."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        some = file.read_text().splitlines()[0]
        return float(some.split("avg10=")[1].split()[0])
    except (OSError, IndexError, ValueError):
        return None


async def _engine_memory() -> dict[str, Any]:
    """The resident set as the system sees it, and the engine's own account of it."""
    pid = worker.get_worker().snapshot().pid
    return {"rss": _resident(pid), **await _status()}


def _resident(pid: int | None) -> int:
    try:
        return psutil.Process(pid).memory_info().rss if pid else 0
    except psutil.Error:
        return 0


async def _status() -> dict[str, Any]:
    try:
        figures = await asyncio.wait_for(worker.get_worker().status(), STATUS_TIMEOUT)
    except TimeoutError:
        return {}
    return {name: value for name, value in figures.items() if name != "rss"}
