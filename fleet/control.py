"""What an operator asks of the running server's engine, from the admin and from the control endpoint.

Blocking, for sync views: asgiref runs the worker's coroutines on the server's own event loop, which called the view.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from asgiref.sync import async_to_sync

from engine import generation
from engine.errors import GenerationError
from engine.messages import GenerationRequest
from engine.protocol import Heat
from engine.worker import EngineSnapshot, get_worker

from . import catalog
from .discovery import Scan
from .events import record
from .models import WARM_UP

PATIENCE = 3.0  # seconds that a person waits for an answer; the work goes on behind it

WARM_PROMPT = "Once upon a time, in a small town by the sea, there lived a man who counted ships. Every morning"
WARM_TOKENS = 32

log = logging.getLogger(__name__)
_under_way: set[asyncio.Task[None]] = set()


class ControlError(Exception):
    """A sentence for the operator."""


def switch(name: str) -> str:
    """Ends the running reply first, then boots the vault. Returns what to tell the operator. Raises ControlError."""
    card = catalog.find(name)
    if card is None:
        raise ControlError(catalog.unavailable(name) or f"There is no vault {name!r} in the fleet.")
    if _finish(lambda: get_worker().switch(card)):
        return f"The engine runs {name}."
    return f"Switching to {name}: the running reply ends first, then the vault boots."


def warm_up(name: str) -> str:
    """Boots the vault where it does not run, and lets it write a little: then the ring holds what replies use."""
    if catalog.find(name) is None:
        raise ControlError(catalog.unavailable(name) or f"There is no vault {name!r} in the fleet.")
    if _finish(lambda: _write_a_little(name)):
        return f"{name} is warm."
    return f"Warming up {name}: it waits for its turn, boots and writes {WARM_TOKENS} tokens."


def unload() -> str:
    if _finish(lambda: get_worker().unload()):
        return "The engine is unloaded; the next request boots it again."
    return "Unloading the engine: the running reply ends first."


def rescan() -> Scan:
    result = catalog.rescan()
    record("rescan", f"Rescan: {result}")
    return result


def snapshot() -> EngineSnapshot:
    return get_worker().snapshot()


@async_to_sync
async def figures() -> dict[str, Any]:
    """The engine's STATUS; empty while it is down."""
    return await get_worker().status()


@async_to_sync
async def heat() -> Heat | None:
    """Uses of each expert of the running vault since its boot."""
    return await get_worker().heat()


async def _write_a_little(name: str) -> None:
    request = GenerationRequest(
        name, text_prompt=WARM_PROMPT, max_tokens=WARM_TOKENS, client=WARM_UP, endpoint="warm-up"
    )
    async with contextlib.aclosing(generation.stream(request)) as events:
        async for _ in events:
            pass


@async_to_sync
async def _finish(work: Callable[[], Coroutine[Any, Any, None]]) -> bool:
    """True when `work` is done within PATIENCE; else it goes on, and its failure is logged."""
    task = asyncio.create_task(work())
    _under_way.add(task)
    task.add_done_callback(_under_way.discard)
    done, _ = await asyncio.wait({task}, timeout=PATIENCE)
    if not done:
        task.add_done_callback(_log_failure)
        return False
    try:
        task.result()
    except GenerationError as error:
        raise ControlError(error.message) from error
    return True


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("an operator's switch, warm-up or unload failed: %s", error)
