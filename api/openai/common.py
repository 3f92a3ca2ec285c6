"""What OpenAI's endpoints share: stops, finish reasons, usage, timings, log probabilities."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine.generation import MAX_STOPS
from engine.messages import Finished, GenerationRequest, TokenLogprob, Usage
from engine.window import MAX_TOKENS_CAP

from ..fields import Fields

MAX_CHOICES = 16
NO_LIMIT = -1  # of max_tokens, as llama.cpp and LM Studio have it and agents send it for a model that they do not know
# Of chat and completions, in the spelling of llama.cpp, vLLM and Ollama.
UNHONOURED = (
    "grammar",
    "guided_grammar",
    "structured_outputs.grammar",
    "structured_outputs.json_object",
    "structured_outputs.structural_tag",
    "format",
    "min_tokens",
    "ignore_eos",
    "stop_token_ids",
    "n_predict",
)
FINISH_REASONS = {
    "stop": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "cancel": "length",  # the reply was cut short: of the protocol's words the true one
}
# After an error in a stream: some clients repeat a request for ever when a stream ends without a finish_reason.
CUT_SHORT = "length"


def max_tokens(fields: Fields, name: str, least: int = 1) -> int | None:
    """No limit is more than the cap: what the window has left."""
    return MAX_TOKENS_CAP + 1 if fields.raw(name) == NO_LIMIT else fields.integer(name, least)


def stops(fields: Fields) -> tuple[str, ...]:
    texts = fields.strings("stop", MAX_STOPS)
    if "" in texts:
        raise fields.fail("stop", "holds an empty string; every stop sequence needs at least one character.")
    return texts


def choices(generation: GenerationRequest, count: int) -> list[GenerationRequest]:
    """The same request `count` times; with a seed, each choice has its own."""
    seed = generation.sampling.seed
    if seed is None:
        return [generation] * count
    seeds = [(seed + index) % 2**64 for index in range(count)]
    return [replace(generation, sampling=replace(generation.sampling, seed=one)) for one in seeds]


def usage(counts: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": counts.prompt,
        "completion_tokens": counts.generated,
        "total_tokens": counts.prompt + counts.generated,
        "prompt_tokens_details": {"cached_tokens": counts.cached},
        "completion_tokens_details": {"reasoning_tokens": counts.reasoning},
    }


def total_usage(finished: list[Finished]) -> Usage:
    """Several choices of one prompt: the prompt counts once, as OpenAI counts it; its cached part as first met."""
    first = finished[0].usage
    return Usage(
        first.prompt,
        first.cached,
        sum(one.usage.generated for one in finished),
        sum(one.usage.reasoning for one in finished),
    )


def _rate(count: int, milliseconds: float) -> float:
    return round(count / milliseconds * 1000, 3) if milliseconds > 0 else 0.0


def timings(finished: Finished) -> dict[str, Any]:
    """As llama.cpp's server names them (tools/server/README.md of that project)."""
    counts, times = finished.usage, finished.timings
    fresh = counts.prompt - counts.cached
    return {
        "cache_n": counts.cached,
        "prompt_n": fresh,
        "prompt_ms": round(times.prefill_ms, 3),
        "prompt_per_token_ms": round(times.prefill_ms / fresh, 3) if fresh else 0.0,
        "prompt_per_second": _rate(fresh, times.prefill_ms),
        "predicted_n": counts.generated,
        "predicted_ms": round(times.decode_ms, 3),
        "predicted_per_token_ms": round(times.decode_ms / counts.generated, 3) if counts.generated else 0.0,
        "predicted_per_second": _rate(counts.generated, times.decode_ms),
    }


def token_logprob(token: TokenLogprob) -> dict[str, Any]:
    return {
        "token": token.text,
        "logprob": token.logprob,
        "bytes": list(token.raw),
        "top_logprobs": [
            {"token": text, "logprob": logprob, "bytes": list(raw)} for _, text, raw, logprob in token.top
        ],
    }
