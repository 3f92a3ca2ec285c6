"""Slows down whoever guesses passwords: a few failures an address and name, then a pause."""

from __future__ import annotations

from django.contrib.admin.forms import AdminAuthenticationForm
from django.core.cache import cache
from django.core.exceptions import ValidationError
from django.http import HttpRequest

WINDOW = 300  # seconds from the first failure
FAILURES = 5  # of one address for one name
FAILURES_OF_ADDRESS = 20


class ThrottledLoginForm(AdminAuthenticationForm):
    """While an address pauses, a right password is refused too: it must not tell that it is right.

    An attempt counts before its password is looked at, which takes a quarter of a second: guesses that come together
    would all pass a limit that only failures count towards.
    """

    def clean(self):
        places = _places(self.request, self.cleaned_data.get("username", ""))
        if any(_count(place) > limit for place, limit in places.items()):
            raise ValidationError("Too many failed attempts: try again in a few minutes.", code="throttled")
        cleaned = super().clean()
        for place in places:
            cache.delete(place)
        return cleaned


def _places(request: HttpRequest, username: str) -> dict[str, int]:
    address = request.META.get("REMOTE_ADDR", "")
    return {f"login:{address}:{hash(username.lower())}": FAILURES, f"login:{address}": FAILURES_OF_ADDRESS}


def _count(place: str) -> int:
    """Attempts there within WINDOW, this one too."""
    if cache.add(place, 1, WINDOW):
        return 1
    try:
        return cache.incr(place)
    except ValueError:  # it ended between the two
        cache.set(place, 1, WINDOW)
        return 1
