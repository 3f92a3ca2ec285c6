"""One engine process, whatever else this process does meanwhile."""

import os
import threading

from engine.process import EngineProcess

SPAWNS = 60


async def test_variables_set_by_other_threads_do_not_disturb_a_start():
    """As libraries do when they are imported in a thread, which is what the first tokenizer's loading is."""
    ended = threading.Event()

    def disturb() -> None:
        names = [f"SMOE_TEST_{n}" for n in range(500)]
        while not ended.is_set():
            for name in names:
                os.environ[name] = "x" * 100
            for name in names:
                os.environ.pop(name, None)

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        for _ in range(SPAWNS):
            process = await EngineProcess.spawn(["true"])
            assert await process.wait() == 0
    finally:
        ended.set()
        thread.join()
