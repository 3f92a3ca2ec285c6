"""Runs a command with DATABASE_URL naming a PostgreSQL cluster of its own: `python tests/with_postgres.py pytest ...`.

Says so and does nothing where PostgreSQL's programs are not installed.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path


def program(name: str) -> str | None:
    """Debian keeps initdb and its kin out of PATH."""
    places = [os.environ["PATH"], *map(str, Path("/usr/lib/postgresql").glob("*/bin"))]
    return shutil.which(name, path=os.pathsep.join(places))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main(command: list[str]) -> int:
    initdb, pg_ctl = program("initdb"), program("pg_ctl")
    if not initdb or not pg_ctl:
        print("PostgreSQL is not installed: the tests ran on SQLite only.")
        return 0
    # PostgreSQL refuses to run as root.
    user = {"user": pwd.getpwnam("nobody").pw_uid} if os.geteuid() == 0 else {}
    with tempfile.TemporaryDirectory() as directory:
        if user:
            os.chown(directory, user["user"], -1)
        data, port = f"{directory}/data", free_port()
        quiet = {"cwd": directory, "stdout": subprocess.DEVNULL, "check": True, **user}
        subprocess.run([initdb, "-D", data, "-U", "smoe", "-A", "trust", "--no-sync"], **quiet)
        flags = f"-p {port} -k {directory} -c fsync=off -c listen_addresses=127.0.0.1"
        subprocess.run([pg_ctl, "-D", data, "-w", "-l", f"{directory}/log", "-o", flags, "start"], **quiet)
        try:
            url = f"postgres://smoe@127.0.0.1:{port}/postgres"
            return subprocess.run(command, env=os.environ | {"DATABASE_URL": url}).returncode
        finally:
            subprocess.run([pg_ctl, "-D", data, "-m", "immediate", "stop"], **quiet)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
