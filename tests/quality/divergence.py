"""How far one set of logits is from another."""

from __future__ import annotations

import numpy as np


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """[positions, vocabulary], each row for itself."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def divergence(expected: np.ndarray, found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """KL(expected || found) in nats, and whether the best token agrees; of each position."""
    p, q = log_softmax(expected), log_softmax(found)
    return (np.exp(p) * (p - q)).sum(axis=1), p.argmax(axis=1) == q.argmax(axis=1)
