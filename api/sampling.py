"""Sampling fields, which both protocols spell alike. Absent ones leave the launch flags' defaults in force."""

from __future__ import annotations

from engine.messages import Sampling

from .fields import Fields

NUMBERS = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "min_p": (0, 1),
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
}
TOP_K = (-1, 1_000_000)
SEED = (-(2**63), 2**64 - 1)
REPETITION_PENALTIES = ("repetition_penalty", "rep_penalty", "repeat_penalty")  # the first that is there counts
LARGEST_REPETITION_PENALTY = 10
LARGEST_BIAS = 100
LONGEST_ID = 18  # digits


def parse_sampling(fields: Fields) -> Sampling:
    return Sampling(
        **{name: fields.number(name, low, high) for name, (low, high) in NUMBERS.items()},
        top_k=fields.integer("top_k", *TOP_K),
        repetition_penalty=_repetition_penalty(fields),
        seed=_seed(fields),
        logit_bias=_logit_bias(fields),
    )


def _repetition_penalty(fields: Fields) -> float | None:
    name = next((name for name in REPETITION_PENALTIES if name in fields), REPETITION_PENALTIES[0])
    value = fields.number(name, 0, LARGEST_REPETITION_PENALTY)
    if value == 0:
        raise fields.fail(name, "must be greater than 0.")
    return value


def _seed(fields: Fields) -> int | None:
    """Any 64-bit number; a negative one as its two's complement, -1 (no seed, by custom) as none."""
    seed = fields.integer("seed", *SEED)
    return None if seed is None or seed == -1 else seed % 2**64


def _logit_bias(fields: Fields) -> dict[int, float]:
    biases: dict[int, float] = {}
    inner = Fields(fields.mapping("logit_bias"), fields.at("logit_bias"))
    for key in inner.values:
        if not key.isascii() or not key.isdigit() or len(key) > LONGEST_ID:
            raise inner.fail(key, "is not a token id: keys of logit_bias are token ids as decimal text.")
        bias = inner.number(key, -LARGEST_BIAS, LARGEST_BIAS)
        if bias is not None:
            biases[int(key)] = float(bias)
    return biases
