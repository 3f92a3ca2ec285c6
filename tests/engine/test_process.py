"""One engine process, whatever else this process does meanwhile."""

import os
import threading

import pytest

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


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ("exit 3", "exit code 3: a line"),
        ("kill -ABRT $$", "killed by SIGABRT: a line"),  # by itself, as a failed assertion does
        ("exit 0", "exit code 0"),  # it was told to, or its input ended
        ("kill -SEGV $$", "killed by SIGSEGV"),
        ("kill -TERM $$", "killed by SIGTERM"),
        ("kill -KILL $$", "killed by SIGKILL, as the system does where memory runs out"),
    ],
)
async def test_the_last_line_is_told_where_the_engine_says_why_it_ends(end, words):
    process = await EngineProcess.spawn(["sh", "-c", f"echo a line >&2; {end}"])
    await process.wait()
    assert process.end_in_words() == words
