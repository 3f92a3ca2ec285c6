"""What the machine itself allows in the same run: bytes a second from memory and from the disk."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from django.conf import settings

from . import disk
from .files import BenchError, drop_from_cache
from .geometry import plan as geometry_plan
from .plan import Plan
from .results import Sample

SOURCE = Path(__file__).parent / "probes" / "memory_read.c"
SECONDS = 3.0
BUFFER_MIB = 1024  # far beyond every cache
DEPTHS = (1, 4)


def run(plan: Plan) -> None:
    plan.alternate("machine", "bandwidth", {"machine": lambda: _measure(plan)})


def _measure(plan: Plan) -> Sample:
    program = _built(plan.options.data)
    record = geometry_plan(plan.options.layers).padded_size
    drop_from_cache(plan.vault)
    metrics = {
        f"memory_{threads}_threads_gb_s": _memory_rate(program, threads) / 1e9
        for threads in sorted({1, plan.options.threads})
    }
    for depth in DEPTHS:
        metrics[f"disk_depth_{depth}_gb_s"] = disk.random_rate(plan.vault, record, depth, SECONDS) / 1e9
    return Sample(f"{SOURCE.stem}; direct reads of {record} bytes", metrics)


def _built(data: Path) -> Path:
    program = data / SOURCE.stem
    if program.exists() and program.stat().st_mtime > SOURCE.stat().st_mtime:
        return program
    data.mkdir(parents=True, exist_ok=True)
    flags = ["-O3", "-march=native", "-pthread", "-o", str(program), str(SOURCE)]
    done = subprocess.run([os.environ.get("CC", "cc"), *flags], capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"{SOURCE.relative_to(settings.BASE_DIR)} could not be compiled: {done.stderr.strip()[-300:]}")
    return program


def _memory_rate(program: Path, threads: int) -> float:
    command = [program, str(threads), str(BUFFER_MIB), str(SECONDS)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0])
