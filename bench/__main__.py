"""`python -m bench [suite ...]`: measures, or goes on measuring, one run, and tells what it found."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "smoe_site.settings")

from django.conf import settings

from fleet.demo.wheel import DemoError

from . import ceilings, geometry, machine, plot, quality, report, ring_replay, server, speed
from .files import BenchError
from .plan import Plan
from .results import Results

FOLDER = settings.BASE_DIR / "bench"
SUITES = {
    "machine": ceilings.run,
    "decode": speed.decode,
    "prefill": speed.prefill,
    "depth": speed.depth,
    "demo": speed.demo,
    "boot": speed.boot,
    "limits": speed.limits,
    "quality": quality.run,
    "server": server.run,
    "ring": ring_replay.run,
    "plot": plot.run,
    "report": report.run,
}


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser("python -m bench", description=__doc__)
    p.add_argument("suites", nargs="*", default=["all"], metavar="suite", help=f"all, {', '.join(SUITES)}")
    run = p.add_argument_group("the run")
    run.add_argument("--run", default="", help="name of the run, and of its files (the commit)")
    run.add_argument("--minutes", type=float, default=240, help="begin no measurement after (%(default)s)")
    run.add_argument("--repeats", type=int, default=3, help="times that each is measured, in turns (%(default)s)")
    run.add_argument("--timeout", type=float, default=1200, help="seconds for one measurement (%(default)s)")
    run.add_argument("--results", type=Path, default=FOLDER / "results", help="where results are kept")
    run.add_argument("--data", type=Path, default=FOLDER / "data", help="where large files are made (38 GB)")
    us = p.add_argument_group("our engine")
    us.add_argument("--layers", type=int, default=geometry.LAYERS, help="layers of the random model (%(default)s)")
    us.add_argument("--vault", type=Path, help="another vault to measure")
    us.add_argument("--smoe", action="append", metavar="FLAGS", help="flags to measure with; again for another set")
    us.add_argument("--threads", type=int, default=machine.cores(), help="threads, of the peer too (%(default)s)")
    us.add_argument("--port", type=int, default=8220, help="port of the server under test (%(default)s)")
    us.add_argument("--variant", action="append", metavar="FLAGS", help="quality: flags, beside those found in --help")
    peer = p.add_argument_group("the peer")
    peer.add_argument("--llama-bench", type=Path, help="a llama-bench (built in --data)")
    peer.add_argument("--gguf", type=Path, help="its model (written into --data)")
    peer.add_argument("--tuned-only", action="store_true", help="under a limit, leave out its slow default read-ahead")
    sizes = p.add_argument_group("sizes")
    sizes.add_argument("--tokens", type=int, default=64, help="tokens that are decoded (%(default)s)")
    sizes.add_argument("--limited-tokens", type=int, default=16, help="the same under a memory limit (%(default)s)")
    sizes.add_argument("--limited-prompts", type=_list(int), default="512", help="of prompts there (%(default)s)")
    sizes.add_argument("--prompts", type=_list(int), default="128,512,2048", help="tokens of prompts (%(default)s)")
    sizes.add_argument("--depths", type=_list(int), default="8192", help="depth: tokens of context (%(default)s)")
    sizes.add_argument("--limits", type=_list(float), default="2,4,6,8,12,16,20", help="GiB (%(default)s)")
    ring = p.add_argument_group("ring")
    ring.add_argument("--routing", type=Path, help="int32 [tokens, layers, top k] (the one kept in bench/)")
    ring.add_argument("--routing-shape", type=_list(int), help="layers,top-k of --routing")
    return p


def _run_name(layers: int) -> str:
    return machine.commit() + ("" if layers == geometry.LAYERS else f"-{layers}-layers")


def _list(kind: type):
    return lambda text: tuple(kind(word) for word in text.split(","))


def main(arguments: list[str]) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was changed of the system is put back
    p = parser()
    options = p.parse_args(arguments)
    if unknown := set(options.suites) - {"all", *SUITES}:
        p.error(f"no such suite: {', '.join(sorted(unknown))}")
    options.smoe = options.smoe or [""]
    options.run = options.run or _run_name(options.layers)
    chosen = list(SUITES) if "all" in options.suites else options.suites
    try:
        plan = Plan(options, Results(options.results / f"{options.run}.csv", options.run), time.monotonic())
        for suite in chosen:
            SUITES[suite](plan)
        if not set(chosen) & {"plot", "report"}:
            report.run(plan)
    except (BenchError, DemoError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nbench: interrupted; the same command goes on where it ended.", file=sys.stderr)
        return 130
    if plan.out_of_time():
        print(f"bench: {options.minutes:g} minutes are over; the same command goes on where it ended.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
