"""A newcomer's way in: with no user yet, the server prints a link that makes the first one. It works once."""

from __future__ import annotations

import secrets

from django.contrib.auth import get_user_model, login
from django.contrib.auth.forms import UserCreationForm
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.crypto import constant_time_compare
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters

_token: str | None = None


def offer() -> str | None:
    """The link's path; None where there is a user already. Blocking."""
    global _token
    if get_user_model().objects.exists():
        return None
    _token = secrets.token_urlsafe(24)
    return reverse("admin:welcome", args=[_token])


@never_cache
@sensitive_post_parameters()
def welcome(request: HttpRequest, token: str) -> HttpResponse:
    global _token
    if _token is None or not constant_time_compare(token, _token):
        raise Http404("This link has been used, or is another server's.")
    form = UserCreationForm(request.POST or None)
    with transaction.atomic():
        if get_user_model().objects.exists():
            _token = None
            return redirect("admin:login")
        if not form.is_valid():
            return _page(request, form)
        user = form.save(commit=False)
        user.is_staff = user.is_superuser = True
        user.save()
    _token = None
    login(request, user)
    return redirect("admin:index")


def _page(request: HttpRequest, form: UserCreationForm) -> HttpResponse:
    from django.contrib import admin

    context = {**admin.site.each_context(request), "form": form, "title": "Welcome"}
    response = render(request, "admin/welcome.html", context)
    response["Referrer-Policy"] = "same-origin"  # a secret address; without any, browsers send "Origin: null"
    return response
