"""`--context-overflow`: what is refused, what is clamped, and that the default refuses nothing."""

import dataclasses

import pytest
from django.conf import settings as django_settings

from engine.errors import ContextOverflow
from engine.window import reply_budget

WINDOW = 4096


@pytest.fixture(autouse=True)
def options(settings, monkeypatch, make_worker):
    def use(**changes):
        settings.SMOE = dataclasses.replace(django_settings.SMOE, ctx=WINDOW, max_tokens=256, **changes)

    monkeypatch.setattr("engine.worker._worker", make_worker())
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
    assert reply_budget(prompt, asked) == given


@pytest.mark.parametrize(
    ("prompt", "asked"), [(WINDOW - 299, 300), (WINDOW, None), (WINDOW, 32_000), (WINDOW + 1, 1), (20_000, None)]
)
def test_what_does_not(prompt, asked):
    with pytest.raises(ContextOverflow) as refused:
        reply_budget(prompt, asked)
    assert (refused.value.prompt_tokens, refused.value.window) == (prompt, WINDOW)
    assert refused.value.prompt_tokens + refused.value.max_tokens > WINDOW


def test_sliding_refuses_nothing(options):
    options(context_overflow="slide")
    assert reply_budget(20_000, None) == 256
    assert reply_budget(20_000, 128_000) == WINDOW
