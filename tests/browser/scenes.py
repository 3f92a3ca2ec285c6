"""What the stub's engine plays: chunks of a chat completion, in the shapes that docs/api.md states."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Chunk = dict[str, Any]

MODELS = [
    {
        "id": "smollm2-135m-moe8",
        "active": True,
        "quant": "Q8",
        "model_type": "llama",
        "moe_layers": 30,
        "experts_per_layer": 8,
        "vault_bytes": 88_000_000,
        "scout_bytes": 108_000_000,
        "memory_bytes": 385_000_000,
        "tokenizer_note": "",
        "description": "The demo: SmolLM2-135M-Instruct, a small dense model re-expressed as 30 layers of 8 experts to "
        "prove the plumbing. It answers simple questions and is often wrong.",
        "lineage": "From HuggingFaceTB/SmolLM2-135M-Instruct (Apache-2.0), by make_demo_vault.",
    },
    {
        "id": "qwen3-30b-a3b",
        "active": False,
        "quant": "Q4",
        "model_type": "qwen3_moe",
        "moe_layers": 48,
        "experts_per_layer": 128,
        "vault_bytes": 15_600_000_000,
        "scout_bytes": 1_900_000_000,
        "memory_bytes": 18_300_000_000,
        "tokenizer_note": "",
        "description": "",
        "lineage": "Shattered from Qwen/Qwen3-30B-A3B on 2026-11-12.",
    },
    {
        "id": "glm-4.6-air",
        "active": False,
        "quant": "Q2",
        "model_type": "glm4_moe",
        "moe_layers": 45,
        "experts_per_layer": 128,
        "vault_bytes": 31_000_000_000,
        "scout_bytes": 5_200_000_000,
        "memory_bytes": 37_000_000_000,
        "tokenizer_note": "",
        "description": "",
        "lineage": "",
    },
]

TEXT = """A mixture of experts keeps many small networks, the *experts*, and asks only a few of them for each token.

### Why it streams

1. The **router** names two experts of eight.
2. The ring holds those that were used lately.
3. The others are read from disk, page by page.

> What is not asked for is never read.

| Part | Where it lives | Size |
| --- | --- | ---: |
| Trunk | memory | 108 MB |
| Experts | disk | 88 MB |

```python
def route(scores, k=2):
    # The k best experts, best first.
    order = sorted(range(len(scores)), key=lambda e: -scores[e])
    return order[:k], "renormalised"
```

So `bytes` per token fall with every hit. See [the paper](https://arxiv.org/abs/1701.06538) for more."""

HOSTILE = """<script>document.title = 'owned'</script><img src=x onerror="document.title='owned'">

[run](javascript:document.title='owned') [data](data:text/html,<script>1</script>) [ok](https://example.org/a?b=1&c=2)

![picture](https://evil.example/track.png)

```html
<img src=x onerror="document.title='owned'">
```

<iframe src="javascript:document.title='owned'"></iframe> **bold *and it*** &lt;b&gt; \u202eevil\u202c

| <b>a</b> | b |
| --- | --- |
| <svg onload=alert(1)> | `<i>` |
"""


def delta(**fields: Any) -> Chunk:
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": fields, "finish_reason": None}]}


def state(name: str, **facts: Any) -> Chunk:
    return {"object": "chat.completion.chunk", "choices": [], "smoe": {"state": name, **facts}}


def progress(done: int, total: int, cached: int = 0) -> Chunk:
    return {"choices": [], "prompt_progress": {"total": total, "cache": cached, "processed": done, "time_ms": 0}}


def end(reason: str, prompt: int, generated: int, cached: int = 0, **facts: Any) -> Iterator[Chunk]:
    times = {"prompt_ms": 640.0, "predicted_ms": 1250.0, "predicted_per_second": generated / 1.25}
    figures = {"queue_ms": 12.0, "boot_ms": 0.0, "stall_ms": 210.0, "expert_hits": 2103, "expert_misses": 41}
    yield {
        "choices": [{"index": 0, "delta": {}, "finish_reason": reason}],
        "timings": {**times, "cache_n": cached, "prompt_n": prompt - cached, "predicted_n": generated},
        "smoe": {"bytes_read": 110_231_552, "context": {"window": 4096, "slid": 0}, **figures, **facts},
    }
    yield {
        "choices": [],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": generated,
            "prompt_tokens_details": {"cached_tokens": cached},
        },
    }


def words(text: str, pause: float = 0.008) -> Iterator[Chunk | float]:
    for n, word in enumerate(text.split(" ")):
        yield delta(content=(" " if n else "") + word)
        yield pause


def normal(prompt: int = 1240, cached: int = 300) -> Iterator[Chunk | float]:
    yield state("queued", position=1)
    yield progress(cached, prompt, cached)
    yield 0.05
    yield progress(prompt, prompt, cached)
    yield from words(TEXT)
    yield from end("stop", prompt, 211, cached)


def short() -> Iterator[Chunk | float]:
    yield progress(20, 20)
    yield from words("The capital of France is Paris.")
    yield from end("stop", 20, 7)


def slow() -> Iterator[Chunk | float]:
    """20 s of prefill, as a large prompt on a small machine takes."""
    for done in range(1200, 4097, 144):
        yield progress(done, 4096, 1200)
        yield 1.0
    yield from words("There you are.")
    yield from end("stop", 4096, 4, 1200)


def queued() -> Iterator[Chunk | float]:
    yield state("queued", position=3)
    yield 2.5  # longer than the tests' look-outs are apart, on a busy machine too
    yield state("queued", position=1)
    yield 2.5
    yield from short()


def boot() -> Iterator[Chunk | float]:
    for second in range(3):
        yield state("booting", model="qwen3-30b-a3b", seconds=float(second))
        yield 0.7
    yield progress(20, 20)
    yield from words("Warm now.")
    yield from end("stop", 20, 3, boot_ms=2100.0, model="qwen3-30b-a3b")


def length() -> Iterator[Chunk | float]:
    yield progress(30, 30)
    yield from words("Once there was a ring of slots that")
    yield from end("length", 30, 9)


def sliding() -> Iterator[Chunk | float]:
    yield progress(4096, 4096, 4000)
    yield from words("The window moves.")
    yield from end("stop", 4090, 60, 4000, context={"window": 4096, "slid": 54})


def error() -> Iterator[Chunk | float]:
    yield progress(30, 30)
    yield from words("This reply will not")
    yield 0.2
    message = "The engine ended with signal 9; the next request starts it again."
    yield {"error": {"message": message, "type": "server_error", "code": "engine_failed"}}


def cut() -> Iterator[Chunk | float | str]:
    yield from words("The line goes")
    yield "cut"


def late() -> Iterator[Chunk | float | str]:
    yield from words("The line stays a while")
    yield 2.0
    yield "cut"


def endless() -> Iterator[Chunk | float]:
    yield progress(30, 30)
    for n in range(3000):
        yield delta(content=f"word{n} ")
        yield 0.05


def clusters() -> Iterator[Chunk | float]:
    """Three tokens before the first whole character, then one more, then nothing for a long time."""
    yield progress(30, 30)
    yield {**delta(content="three "), "smoe": {"tokens": 3}}
    yield delta(content="four")
    yield 30.0


def think() -> Iterator[Chunk | float]:
    yield progress(30, 30)
    for word in ["The", "user", "asks", "for", "a", "sum.", "Two", "and", "two", "make", "four,", "as", "**always**."]:
        yield delta(reasoning_content=word + " ")
        yield 0.03
    yield from words("2 + 2 = **4**.")
    yield from end("stop", 30, 22)


def hostile() -> Iterator[Chunk | float]:
    yield from words(HOSTILE, 0.002)
    yield from end("stop", 30, 90)


def rtl() -> Iterator[Chunk | float]:
    yield from words("مرحبا بالعالم، هذا نص عربي.\n\nAnd an English line.\n\n- שלום")
    yield from end("stop", 30, 12)


LONG_PART = """Paragraph {n} says **something** about `code{n}` and [links](https://example.org/{n}), then goes on.

- first item {n}
- second item {n}

```python
for i in range({n}):
    print('line', i)  # a comment
```

"""


def long() -> Iterator[Chunk | float]:
    """4,000 tokens, about as fast as the page takes them."""
    text = "".join(LONG_PART.format(n=n) for n in range(100))
    size = len(text) // 4000 + 1
    for n, at in enumerate(range(0, len(text), size)):
        yield delta(content=text[at : at + size])
        if n % 8 == 0:
            yield 0.005
    yield from end("stop", 30, 4000)


SCENES: dict[str, Callable[[], Iterator[Any]]] = {
    scene.__name__: scene
    for scene in (
        short,
        slow,
        queued,
        boot,
        length,
        sliding,
        error,
        cut,
        late,
        endless,
        clusters,
        think,
        hostile,
        rtl,
        long,
    )
}


def play(body: Chunk, server: Any) -> Iterator[Any]:
    """The scene that the last user message names, or how a reply goes on that is continued."""
    if body["messages"][-1]["role"] == "assistant":
        return continued()
    name = body["messages"][-1]["content"].strip().removeprefix("say ").split(" ")[0]
    for model in server.models if "model" in body else ():
        model["active"] = model["id"] == body["model"]
    return SCENES.get(name, normal)()


def continued() -> Iterator[Chunk | float]:
    yield progress(39, 39, 38)
    yield from words(" never filled.")
    yield from end("stop", 39, 4, 38)
