"""What /metrics says of an engine that says nothing, and of what it never got."""

import pytest

from engine.records import Record
from engine.worker import EngineSnapshot
from fleet.metrics import Metrics


@pytest.mark.parametrize(
    ("state", "status", "told"),
    [("up", {"rss": 5}, "5.0"), ("up", {}, "NaN"), ("booting", {}, "NaN"), ("down", {}, "0.0")],
)
def test_memory_that_is_not_known_is_not_told_as_none(state, status, told):
    snapshot = EngineSnapshot(state, "tiny", 1, 0.0, "", 0, False, 0, 2, 1)
    assert f"smoe_engine_rss {told}" in Metrics().render(snapshot, status).decode().splitlines()


def test_requests_that_are_turned_away_are_counted():
    metrics = Metrics()
    metrics.finished(Record("r", "alice", None, error="The queue is full.", turned_away=True))
    told = metrics.render(EngineSnapshot("down", None, None, 0.0, "", 0, False, 0, None, 0), {}).decode()
    assert 'smoe_requests_total{outcome="refused",protocol="",vault=""} 1.0' in told
