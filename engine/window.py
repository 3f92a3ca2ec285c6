"""What still fits the window, where `--context-overflow error` forbids it to slide."""

from __future__ import annotations

from django.conf import settings

from .errors import ContextOverflow
from .worker import get_worker

MAX_TOKENS_CAP = 4096


def reply_budget(prompt: int, asked: int | None) -> int:
    """Ids that the reply may have. prompt: ids; asked: the request's max_tokens. Raises ContextOverflow.

    A client means a length up to the cap: it gets that or an error. A larger one, or none, takes what is left.
    """
    budget = settings.SMOE.max_tokens if asked is None else min(asked, MAX_TOKENS_CAP)
    window = get_worker().snapshot().context
    left = window - prompt
    if settings.SMOE.context_overflow == "slide" or left >= budget:
        return budget
    if left < 1 or (asked is not None and asked <= MAX_TOKENS_CAP):
        message = f"{prompt} tokens of prompt and {budget} of reply do not fit the window of {window}."
        raise ContextOverflow(message, prompt, budget, window)
    return left
