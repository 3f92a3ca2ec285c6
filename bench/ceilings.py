"""What the machine itself allows in the same run: bytes a second from memory and from the disk."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from django.conf import settings

from .files import BenchError, drop_from_cache
from .geometry import plan as geometry_plan
from .plan import Plan
from .results import Measure, Sample

PROBES = Path(__file__).parent / "probes"
SECONDS = 3.0
BUFFER_MIB = 1024  # far beyond every cache
DEPTHS = (1, 4)
WAYS = {"pread": "disk", "io_uring": "disk_io_uring"}
NOT_OFFERED = 3  # what disk_read ends with where the kernel has no io_uring


def run(plan: Plan) -> None:
    plan.alternate("machine", "bandwidth", {"machine": lambda: _measure(plan)})


def _measure(plan: Plan) -> Sample:
    memory, disk = (_built(plan.options.data, name) for name in ("memory_read", "disk_read"))
    record = geometry_plan(plan.options.layers).padded_size
    drop_from_cache(plan.vault)
    metrics = {
        f"memory_{threads}_threads_gb_s": _memory_rate(memory, threads) / 1e9
        for threads in sorted({1, plan.options.threads})
    }
    for depth in DEPTHS:
        for way, name in WAYS.items():
            metrics |= _disk(disk, plan.vault, record, depth, way, f"{name}_depth_{depth}")
    return Sample(f"{memory.stem}; {disk.stem}: direct reads of {record} bytes", metrics)


def beside(plan: Plan, vault: Path, measure: Measure) -> Sample:
    """A measurement, with the bandwidths just before and just after it: neighbours come and go within minutes."""
    before, sample, after = _bandwidths(plan, vault), measure(), _bandwidths(plan, vault)
    sample.metrics |= {name: (before[name] + after[name]) / 2 for name in before}
    return sample


def _bandwidths(plan: Plan, vault: Path) -> dict[str, float]:
    """Of all threads from memory; of single experts from the disk, as many at a time as the engine reads."""
    memory, disk = (_built(plan.options.data, name) for name in ("memory_read", "disk_read"))
    record = geometry_plan(plan.options.layers).padded_size
    return {
        "memory_gb_s": _memory_rate(memory, plan.options.threads) / 1e9,
        "disk_gb_s": _disk(disk, vault, record, max(DEPTHS), "pread", "disk")["disk_gb_s"],
    }


def _built(data: Path, name: str) -> Path:
    source, program = PROBES / f"{name}.c", data / name
    if program.exists() and program.stat().st_mtime > source.stat().st_mtime:
        return program
    data.mkdir(parents=True, exist_ok=True)
    flags = ["-O3", "-march=native", "-pthread", "-o", str(program), str(source)]
    done = subprocess.run([os.environ.get("CC", "cc"), *flags], capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"{source.relative_to(settings.BASE_DIR)} could not be compiled: {done.stderr.strip()[-300:]}")
    return program


def _memory_rate(program: Path, threads: int) -> float:
    command = [program, str(threads), str(BUFFER_MIB), str(SECONDS)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0])


def _disk(program: Path, file: Path, record: int, depth: int, way: str, name: str) -> dict[str, float]:
    """Nothing where the machine does not know this way."""
    command = [program, file, str(record), str(depth), str(SECONDS), way]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == NOT_OFFERED:
        return {}
    if done.returncode:
        raise BenchError(f"{program.stem} could not read {file}: {done.stderr.strip()}")
    rate, processor = map(float, done.stdout.split())
    return {f"{name}_gb_s": rate / 1e9, f"{name}_processor_us_per_read": processor}
