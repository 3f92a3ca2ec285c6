"""Prometheus figures: counted as generations end, and asked from the worker when they are read."""

from __future__ import annotations

import math
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from engine.happenings import Happening
from engine.records import Record
from engine.worker import EngineSnapshot

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
SPEEDS = (0.5, 1, 2, 5, 10, 15, 20, 30, 50, 75, 100, 200)  # tokens per second
STATUS = {  # figures of the engine's STATUS that are told as they are
    "rss": "Resident memory of the engine, bytes.",
    "trunk": "Memory of the dense trunk, bytes.",
    "ring": "Memory of the expert cache, bytes.",
    "kv": "Memory of the key/value cache, bytes.",
    "ring_slots": "Slots of the expert cache.",
    "ring_used": "Slots of the expert cache that hold an expert.",
}


class Metrics:
    """One registry. `finished` and `happened` are listeners of the event loop; `render` is for /metrics."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()

        def counter(name: str, help: str, *labels: str) -> Counter:
            return Counter(f"smoe_{name}", help, labels, registry=registry)

        def histogram(name: str, help: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"smoe_{name}", help, labels, registry=registry, buckets=buckets)

        def gauge(name: str, help: str) -> Gauge:
            return Gauge(f"smoe_{name}", help, registry=registry)

        self.requests = counter("requests", "Generations that ended.", "vault", "protocol", "outcome")
        self.prompt = counter("prompt_tokens", "Tokens of prompts, cached ones included.", "vault")
        self.cached = counter("cached_tokens", "Tokens of prompts that were in the cache.", "vault")
        self.generated = counter("generated_tokens", "Tokens of replies.", "vault")
        self.hits = counter("expert_hits", "Experts that were in the ring when needed.", "vault")
        self.misses = counter("expert_misses", "Experts that had to be read.", "vault")
        self.bytes = counter("read_bytes", "Bytes read from the vault.", "vault")
        self.stall = counter("stall_seconds", "Time that computing waited for reads.", "vault")
        self.queue = histogram("queue_seconds", "Waiting for the engine, boots included.", SECONDS)
        self.first = histogram("first_token_seconds", "From the request to its first token.", SECONDS, "vault")
        self.speed = histogram("decode_tokens_per_second", "Of one reply.", SPEEDS, "vault")
        self.happenings = counter("engine_happenings", "Boots, switches, respawns, crashes ...", "kind")
        self.up = gauge("engine_up", "1 while the engine can serve.")
        self.waiting = gauge("queue_waiting", "Requests that wait behind the running one.")
        self.running = gauge("queue_running", "1 while a request has the engine.")
        self.boots = gauge("engine_boots", "Engine processes started since the server began.")
        self.status = {name: gauge(f"engine_{name}", help) for name, help in STATUS.items()}

    def finished(self, record: Record) -> None:
        vault, usage, timings = record.model or "", record.usage, record.timings
        outcome = "refused" if record.turned_away else "error" if record.error else record.reason or ""
        self.requests.labels(vault, record.protocol, outcome).inc()
        self.prompt.labels(vault).inc(usage.prompt)
        self.cached.labels(vault).inc(usage.cached)
        self.generated.labels(vault).inc(usage.generated)
        self.hits.labels(vault).inc(timings.expert_hits or 0)
        self.misses.labels(vault).inc(timings.expert_misses or 0)
        self.bytes.labels(vault).inc(timings.bytes_read or 0)
        self.stall.labels(vault).inc((timings.stall_ms or 0) / 1000)
        self.queue.observe((timings.queue_ms + timings.boot_ms) / 1000)
        if record.first_token is not None:
            self.first.labels(vault).observe(record.first_token - record.started)
        if record.is_whole and timings.decode_ms > 0 and usage.generated > 1:
            self.speed.labels(vault).observe(usage.generated * 1000 / timings.decode_ms)

    def happened(self, happening: Happening) -> None:
        self.happenings.labels(happening.kind).inc()

    def render(self, snapshot: EngineSnapshot, status: dict[str, Any]) -> bytes:
        self.up.set(snapshot.state == "up")
        self.waiting.set(snapshot.waiting)
        self.running.set(snapshot.running)
        self.boots.set(snapshot.boots)
        unknown = 0 if snapshot.state == "down" else math.nan  # an engine that does not answer has memory all the same
        for name, gauge in self.status.items():
            gauge.set(status.get(name, unknown))
        return generate_latest(self.registry)


metrics = Metrics()
