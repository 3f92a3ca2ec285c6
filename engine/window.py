"""What still fits the window, where `--context-overflow error` forbids it to slide."""

from __future__ import annotations

from django.conf import settings

from .errors import ContextOverflow

MAX_TOKENS_CAP = 4096


def exceeds(prompt: int, asked: int | None, window: int) -> bool:
    """Whether `--context-overflow error` would refuse so long a prompt, or cut its reply."""
    budget = settings.SMOE.max_tokens if asked is None else min(asked, MAX_TOKENS_CAP)
    return settings.SMOE.context_overflow == "error" and prompt + budget > window


def reply_budget(prompt: int, asked: int | None, window: int | None) -> int:
    """Ids that the reply may have. prompt: ids; asked: the request's max_tokens. Raises ContextOverflow.

    window: positions; None where the engine has yet to boot and will choose them: then nothing is refused.
    A client means a length up to the cap: it gets that or an error. A larger one, or none, takes what is left.
    """
    budget = settings.SMOE.max_tokens if asked is None else min(asked, MAX_TOKENS_CAP)
    if settings.SMOE.context_overflow == "slide" or window is None:
        return budget
    left = window - prompt
    if left >= budget:
        return budget
    if left < 1 or (asked is not None and asked <= MAX_TOKENS_CAP):
        message = f"{prompt} tokens of prompt and {budget} of reply do not fit the window of {window}."
        raise ContextOverflow(message, prompt, budget, window)
    return left
