"""One generation's way: catalog, prompt, worker, text. The only thing that api/ calls.

    async for event in stream(request): ...      # engine.messages.Event, ending with Finished
    await count_tokens(request) -> int           # the same templating, no engine
"""
