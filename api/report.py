"""The `smoe` object: what neither protocol has a field for (docs/api.md)."""

from __future__ import annotations

from typing import Any

from engine.messages import Booting, Event, Finished, Prefill, Queued


def report(finished: Finished, ignored: tuple[str, ...] = ()) -> dict[str, Any]:
    """The `smoe` object of an answer: the window, where the time went, what was not honoured (docs/api.md)."""
    times, counts = finished.timings, finished.usage
    told: dict[str, Any] = {
        "finish": finished.reason,
        "context": {
            "window": finished.context,
            "used": counts.prompt + counts.generated,
            "slid": finished.slid,
        },
        "queue_ms": round(times.queue_ms, 1),
        "boot_ms": round(times.boot_ms, 1),
        "stall_ms": times.stall_ms,
        "expert_hits": times.expert_hits,
        "expert_misses": times.expert_misses,
        "bytes_read": times.bytes_read,
    }
    if finished.stop_sequence is not None:
        told["stop_sequence"] = finished.stop_sequence
    if ignored:
        told["ignored"] = list(ignored)
    return told


def waiting_state(event: Event) -> dict[str, Any] | None:
    """What a client that waits is told; None once text comes."""
    match event:
        case Queued():
            return {"state": "queued", "position": event.position}
        case Booting():
            return {"state": "booting", "model": event.model, "seconds": round(event.seconds, 1)}
        case Prefill():
            return {"state": "prefill", "done": event.done, "total": event.total, "cached": event.cached}
    return None
