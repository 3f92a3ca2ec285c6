"""Owns the one engine process: queue, switch, cancel, respawn.

The interface that generation.py, api/ and the admin use (all coroutines of the server's event loop):

    worker = get_worker()                         # one for the process
    async for event in worker.stream(job): ...    # Queued, Booting, Prefill, Token, Ended
    await worker.switch(card); await worker.unload(); await worker.reset(); await worker.close()
    await worker.status() -> dict                 # the engine's STATUS figures, {} when it is down
    worker.snapshot() -> EngineSnapshot           # no I/O: for /health, /v1/models, the console
"""
