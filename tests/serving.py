"""`manage.py serve` as a process of its own, for tests that need the whole of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]


@contextlib.contextmanager
def serving(data: Path, *flags: str, **environment: str) -> Iterator[str]:
    """The URL of a `manage.py serve` of its own."""
    environ = {**os.environ, "SMOE_DATA_DIR": str(data), **environment}
    manage = [sys.executable, "manage.py"]
    subprocess.run([*manage, "migrate", "-v", "0"], cwd=ROOT, env=environ, check=True)
    with (data / "server.log").open("w") as log:
        server = subprocess.Popen(
            [*manage, "serve", "--port", "0", *flags],
            cwd=ROOT,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            with (data / "said").open("w") as said:
                for line in server.stdout:
                    said.write(line)
                    if line.startswith("Ctrl-C"):
                        break
                else:
                    raise AssertionError((data / "server.log").read_text())
            yield json.loads((data / "server.json").read_text())["url"]
        finally:
            server.send_signal(signal.SIGINT)
            server.communicate(timeout=30)
