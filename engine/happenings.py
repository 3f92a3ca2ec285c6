"""What an operator would ask about afterwards: boots, switches, crashes. Told to whoever listens, never waited for."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

log = logging.getLogger("smoe.worker")
Kind = Literal["boot", "switch", "respawn", "unload", "crash", "failed", "server"]


@dataclass(frozen=True, slots=True)
class Happening:
    """`details` is JSON: exit code, last lines of stderr, seconds. `time` is time.time()."""

    kind: Kind
    vault: str
    message: str
    details: dict[str, Any] = field(default_factory=dict)
    time: float = field(default_factory=time.time)


listeners: list[Callable[[Happening], None]] = []  # called on the event loop: must not block


def tell(kind: Kind, vault: str, message: str, **details: Any) -> None:
    happening = Happening(kind, vault, message, details)
    for listener in listeners:
        try:
            listener(happening)
        except Exception:
            log.exception("a listener of the engine's happenings failed")
