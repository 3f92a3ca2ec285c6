"""What /metrics says of an engine that says nothing."""

import pytest

from engine.worker import EngineSnapshot
from fleet.metrics import Metrics


@pytest.mark.parametrize(
    ("state", "status", "told"),
    [("up", {"rss": 5}, "5.0"), ("up", {}, "NaN"), ("booting", {}, "NaN"), ("down", {}, "0.0")],
)
def test_memory_that_is_not_known_is_not_told_as_none(state, status, told):
    snapshot = EngineSnapshot(state, "tiny", 1, 0.0, "", 0, False, 0, 2, 1)
    assert f"smoe_engine_rss {told}" in Metrics().render(snapshot, status).decode().splitlines()
