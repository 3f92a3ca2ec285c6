"""One engine process: spawn, read, write, stop. Knows no queue and no protocol.

stderr is read all the time, so that the engine never blocks on it: the last lines are kept for error messages and
every line goes to the log `smoe.engine`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import signal
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Self

from .errors import EngineFailed

engine_log = logging.getLogger("smoe.engine")
READ_SIZE = 1 << 18  # bytes
KEPT_LINES = 50
LINE_LIMIT = 1000  # characters of a stderr line


class EngineProcess:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._loop = asyncio.get_running_loop()
        self.pid = process.pid
        self.last_output = self._loop.time()  # of either stream
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._stderr = asyncio.create_task(self._read_stderr())

    @classmethod
    async def spawn(
        cls, command: Sequence[str], inherit: Sequence[int] = (), environment: Mapping[str, str] | None = None
    ) -> Self:
        """A session of its own keeps the terminal's Ctrl-C from it: the server ends it in order.

        Raises EngineFailed where there is no such program.
        """
        pipe = asyncio.subprocess.PIPE
        # A copy of the environment: without one the child, which shares our memory until it is the engine, reads the
        # C library's own, which moves when a thread of ours sets a variable: EFAULT.
        whole = os.environ | (environment or {})
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                env=whole,
                pass_fds=tuple(inherit),
                start_new_session=True,
            )
        except FileNotFoundError:
            raise EngineFailed(
                f"There is no engine at {command[0]}: build it with `make engine`, or name it with --engine."
            ) from None
        except OSError as error:
            raise EngineFailed(f"The engine {command[0]} cannot be started: {error.strerror}.") from None
        return cls(process)

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    def write(self, data: bytes) -> None:
        """Never blocks and never raises: that the engine has gone is told by `read`."""
        if not self._process.stdin.is_closing():
            self._process.stdin.write(data)

    async def read(self) -> bytes:
        """What has come on stdout, at least a byte; b"" at its end."""
        data = await self._process.stdout.read(READ_SIZE)
        self.last_output = self._loop.time()
        return data

    async def wait(self) -> int:
        """Until it has ended, been reaped, and its last lines have been read."""
        code = await self._process.wait()
        # A process that the engine left behind could hold stderr open.
        await asyncio.wait({self._stderr}, timeout=0.5)
        self._stderr.cancel()
        return code

    async def stop(self, grace: float) -> int:
        """Closes stdin, which ends an engine; SIGTERM, then SIGKILL where `grace` seconds each do not help."""
        self._process.stdin.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    return await self.wait()
            engine_log.warning("the engine (process %d) does not end: %s", self.pid, number.name)
            self._send(number)
        return await self.wait()

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def end_in_words(self) -> str:
        """`exit code 3: no such vault`, `killed by SIGSEGV`."""
        code = self.returncode
        if code == -signal.SIGKILL:
            how = "killed by SIGKILL, as the system does where memory runs out"
        elif code is None:
            how = "still running"
        elif code < 0:
            how = f"killed by {_signal_name(-code)}"
        else:
            how = f"exit code {code}"
        return f"{how}: {self.last_line}" if self.last_line and self._has_told_why(code) else how

    @staticmethod
    def _has_told_why(code: int | None) -> bool:
        """Where it ended for a fault of its own. What ends it otherwise finds a last line about something else."""
        return code is not None and (code > 0 or code == -signal.SIGABRT)

    @property
    def last_line(self) -> str:
        return self._lines[-1] if self._lines else ""

    @property
    def last_lines(self) -> list[str]:
        return list(self._lines)

    def _send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def _read_stderr(self) -> None:
        rest = ""
        while data := await self._process.stderr.read(READ_SIZE):
            self.last_output = self._loop.time()
            *lines, rest = re.split(r"[\r\n]+", rest + data.decode("utf-8", "replace"))
            self._keep(lines)
            rest = rest[:LINE_LIMIT]
        self._keep([rest])

    def _keep(self, lines: list[str]) -> None:
        for line in lines:
            if text := line.strip()[:LINE_LIMIT]:
                self._lines.append(text)
                engine_log.info("%s", text)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
