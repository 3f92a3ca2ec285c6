"""One generation's way: catalog, prompt, worker, text. The only thing that api/ calls.

    async for event in stream(request): ...      # engine.messages.Event, ending with Finished
    await count_tokens(request) -> int           # the same templating, no engine
    await active_model() -> str | None           # the vault that an unknown or missing name runs on

Both raise engine.errors. `stream` raises before its first event where the request cannot run at all; leaving the
iterator (break, aclose, cancelling the task) ends the generation in the engine.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from .messages import Event, GenerationRequest

MAX_TOKENS_CAP = 4096


async def stream(request: GenerationRequest) -> AsyncIterator[Event]:
    """[Queued..] [Booting..] Prefill [text, reasoning and tool call deltas..] Finished."""
    raise NotImplementedError
    yield


async def count_tokens(request: GenerationRequest) -> int:
    raise NotImplementedError


async def active_model() -> str | None:
    raise NotImplementedError
