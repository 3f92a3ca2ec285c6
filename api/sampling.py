"""Sampling fields, which both protocols spell alike. Absent ones leave the launch flags' defaults in force."""

from __future__ import annotations

from engine.messages import Sampling

from .fields import Fields


def parse_sampling(fields: Fields) -> Sampling:
    return Sampling(
        temperature=fields.number("temperature", 0, 2),
        top_p=fields.number("top_p", 0, 1),
        top_k=fields.integer("top_k", -1, 1_000_000),
        min_p=fields.number("min_p", 0, 1),
        repetition_penalty=_repetition_penalty(fields),
        presence_penalty=fields.number("presence_penalty", -2, 2),
        frequency_penalty=fields.number("frequency_penalty", -2, 2),
        seed=_seed(fields),
        logit_bias=_logit_bias(fields),
    )


def _repetition_penalty(fields: Fields) -> float | None:
    name = "repetition_penalty" if "repetition_penalty" in fields else "rep_penalty"
    value = fields.number(name, 0, 10)
    if value == 0:
        raise fields.fail(name, "must be greater than 0.")
    return value


def _seed(fields: Fields) -> int | None:
    """Any 64-bit number; a negative one as its two's complement, -1 (no seed, by custom) as none."""
    seed = fields.integer("seed", -(2**63), 2**64 - 1)
    return None if seed is None or seed == -1 else seed % 2**64


def _logit_bias(fields: Fields) -> dict[int, float]:
    biases: dict[int, float] = {}
    inner = Fields(fields.mapping("logit_bias"), fields.at("logit_bias"))
    for key in inner.values:
        if not key.isascii() or not key.isdigit():
            raise inner.fail(key, "is not a token id: keys of logit_bias are token ids as decimal text.")
        bias = inner.number(key, -100, 100)
        if bias is not None:
            biases[int(key)] = float(bias)
    return biases
