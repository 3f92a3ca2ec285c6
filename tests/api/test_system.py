import asyncio
import os

import psutil
import pytest
from engine_script import snapshot

from api import system


@pytest.mark.parametrize("state", ["up", "booting", "down"])
def test_health_tells_the_truth_about_the_engine(http, engine, state):
    engine.shot = snapshot(state=state, last_error="exit code 9" if state == "down" else "")
    told = http.get("/health").json()

    assert (told["status"], told["engine"], told["model"]) == ("ok", state, "alpha")
    assert told["last_error"] == ("exit code 9" if state == "down" else None)


def test_health_names_no_folder(http, engine):
    engine.shot = snapshot(state="down", last_error="There is no engine at /opt/s-moe/build/smoe-engine: build it.")
    assert http.get("/health").json()["last_error"] == "There is no engine at smoe-engine: build it."


def test_sysmem_adds_up(http, engine):
    engine.shot = snapshot(pid=os.getpid())
    engine.status_answer = lambda: {"ring": 120, "ring_used": 3, "rss": 1}
    told = http.get("/sysmem").json()

    assert told["installed"] == psutil.virtual_memory().total >= told["limit"] > 0
    assert told["used"] + told["free"] == told["installed"]
    assert told["pressure"]["level"] in ("normal", "warning", "critical")
    assert told["engine"]["rss"] > 1_000_000  # this process's own, as the system sees it
    assert told["engine"]["ring"] == 120


def test_sysmem_does_not_wait_for_a_busy_engine(http, engine):
    engine.status_answer = lambda: asyncio.sleep(3600)
    assert http.get("/sysmem").json()["engine"] == {"rss": 0}


def test_pressure_is_read_as_the_kernel_writes_it(tmp_path):
    file = tmp_path / "memory"
    file.write_text(
        "some avg10=12.50 avg60=3.10 avg300=0.70 total=123456\nfull avg10=1.00 avg60=0.00 avg300=0.00 total=9\n"
    )
    assert system._stalled_percent(file) == 12.5
    assert system._stalled_percent(tmp_path / "none") is None
