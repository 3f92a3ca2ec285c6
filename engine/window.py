"""What still fits the window, where `--context-overflow error` forbids it to slide."""

from __future__ import annotations

from django.conf import settings

from smoe_site.words import counted

from .errors import ContextOverflow

MAX_TOKENS_CAP = 4096


def slides(may_slide: bool = True) -> bool:
    """may_slide: what the request has to say to it."""
    return may_slide and settings.SMOE.context_overflow == "slide"


def exceeds(prompt: int, asked: int | None, window: int, may_slide: bool = True) -> bool:
    """Whether so long a prompt would be refused where nothing may slide, or its reply be cut."""
    return not slides(may_slide) and prompt + _wanted(asked) > window


def _wanted(asked: int | None) -> int:
    return settings.SMOE.max_tokens if asked is None else min(asked, MAX_TOKENS_CAP)


def reply_budget(prompt: int, asked: int | None, window: int | None, may_slide: bool = True) -> int:
    """Ids that the reply may have. prompt: ids; asked: the request's max_tokens. Raises ContextOverflow.

    window: positions; None where the engine has yet to boot and will choose them: then nothing is refused.
    A client means a length up to the cap: it gets that or an error. A larger one, or none, takes what is left.
    """
    budget = _wanted(asked)
    if slides(may_slide) or window is None:
        return budget
    left = window - prompt
    if left >= budget:
        return budget
    if left < 1 or (asked is not None and asked <= MAX_TOKENS_CAP):
        message = f"{counted(prompt, 'token')} of prompt and {budget} of reply do not fit the window of {window}."
        raise ContextOverflow(message, prompt, budget, window)
    return left
