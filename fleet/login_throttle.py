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
    """While an address pauses, a right password is refused too: it must not tell that it is right."""

    def clean(self):
        places = _places(self.request, self.cleaned_data.get("username", ""))
        if any(cache.get(place, 0) >= limit for place, limit in places.items()):
            raise ValidationError("Too many failed attempts: try again in a few minutes.", code="throttled")
        try:
            cleaned = super().clean()
        except ValidationError:
            for place in places:
                _count(place)
            raise
        for place in places:
            cache.delete(place)
        return cleaned


def _places(request: HttpRequest, username: str) -> dict[str, int]:
    address = request.META.get("REMOTE_ADDR", "")
    return {f"login:{address}:{hash(username.lower())}": FAILURES, f"login:{address}": FAILURES_OF_ADDRESS}


def _count(place: str) -> None:
    if not cache.add(place, 1, WINDOW):
        try:
            cache.incr(place)
        except ValueError:  # it ended between the two
            cache.set(place, 1, WINDOW)
