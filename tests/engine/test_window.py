"""`--context-overflow`: what is refused, what is clamped, and that the default refuses nothing."""

import dataclasses
from functools import partial

import pytest
from django.conf import settings as django_settings

from engine.errors import ContextOverflow
from engine.window import exceeds, reply_budget

WINDOW = 4096


@pytest.fixture(autouse=True)
def options(settings):
    def use(**changes):
        settings.SMOE = dataclasses.replace(django_settings.SMOE, max_tokens=256, **changes)

    use(context_overflow="error")
    return use


@pytest.mark.parametrize(
    ("prompt", "asked", "given"),
    [
        (100, None, 256),
        (100, 300, 300),
        (WINDOW - 300, 300, 300),
        (WINDOW - 100, None, 100),  # no length was asked for
        (1000, 32_000, WINDOW - 1000),  # no server grants what agents ask for: all that is left
        (WINDOW - 1, 128_000, 1),
    ],
)
def test_what_fits(prompt, asked, given):
    assert reply_budget(prompt, asked, WINDOW) == given


@pytest.mark.parametrize(
    ("prompt", "asked"), [(WINDOW - 299, 300), (WINDOW, None), (WINDOW, 32_000), (WINDOW + 1, 1), (20_000, None)]
)
def test_what_does_not(prompt, asked):
    with pytest.raises(ContextOverflow) as refused:
        reply_budget(prompt, asked, WINDOW)
    assert (refused.value.prompt_tokens, refused.value.window) == (prompt, WINDOW)
    assert refused.value.prompt_tokens + refused.value.max_tokens > WINDOW


def test_sliding_refuses_nothing(options):
    options(context_overflow="slide")
    assert reply_budget(20_000, None, WINDOW) == 256
    assert reply_budget(20_000, 128_000, WINDOW) == WINDOW


def test_a_request_may_refuse_to_slide(options):
    options(context_overflow="slide")
    with pytest.raises(ContextOverflow):
        reply_budget(20_000, None, WINDOW, may_slide=False)
    assert exceeds(WINDOW, None, WINDOW, may_slide=False)
    assert not exceeds(WINDOW, None, WINDOW)


def test_a_window_that_is_not_known_yet_refuses_nothing():
    assert reply_budget(20_000, 128_000, None) == WINDOW


async def test_the_engines_own_window_counts(make_worker, card, ask):
    """`--ctx 0`: the boot tells it, the job is fitted to it, and from then on it is known."""
    worker = make_worker(ctx=0)
    assert worker.window(card) is None
    fit = partial(reply_budget, 2, 128_000)
    told, ended = await ask(worker, [1, 2], 8, fit=lambda window: min(3, fit(window)))
    assert (len(told), ended.context) == (3, WINDOW)
    assert worker.window(card) == WINDOW
    with pytest.raises(ContextOverflow):
        await ask(worker, [1] * WINDOW, 8, fit=partial(reply_budget, WINDOW, 8))
    assert (await ask(worker, [1, 2], 2))[1].generated == 2
