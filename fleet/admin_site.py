"""Django's admin as the operator's cockpit: its first page is live."""

from __future__ import annotations

from django.conf import settings
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.http import HttpRequest, JsonResponse
from django.urls import path

from .login_throttle import ThrottledLoginForm

_ORDER = {"Vault": 0, "Generation": 1, "Event": 2, "ApiKey": 3, "Usage": 4}


class FleetAdminSite(admin.AdminSite):
    site_header = "S-MoE"
    site_title = "S-MoE"
    index_title = "Fleet"
    site_url = None  # the console's link stands beside the user's name
    login_form = ThrottledLoginForm
    index_template = "admin/cockpit.html"
    enable_nav_sidebar = False  # the lists need the width; the header leads to each

    def get_urls(self):
        from . import signin  # its form needs the loaded models

        return [
            path("live.json", self.admin_view(self.live), name="live"),
            path("welcome/<str:token>/", signin.welcome, name="welcome"),
            *super().get_urls(),
        ]

    def login(self, request, extra_context=None):
        """While there is no user, it says where the first one's link is."""
        newcomer = not get_user_model().objects.exists()
        return super().login(request, {"newcomer": newcomer, **(extra_context or {})})

    def each_context(self, request):
        return {**super().each_context(request), "keeps_text": settings.SMOE.log_text}

    def get_app_list(self, request, app_label=None):
        """The fleet comes first, in the order in which an operator needs its lists."""
        apps = sorted(super().get_app_list(request, app_label), key=lambda app: app["app_label"] != "fleet")
        for app in apps:
            app["models"].sort(key=lambda model: _ORDER.get(model["object_name"], len(_ORDER)))
        return apps

    def index(self, request, extra_context=None):
        return super().index(request, {"visible": self._visible(request), **(extra_context or {})})

    def live(self, request: HttpRequest) -> JsonResponse:
        from . import live  # models are not loaded yet when the site is made

        return JsonResponse(live.figures(self._visible(request)), headers={"Cache-Control": "no-store"})

    def _visible(self, request: HttpRequest) -> set[str]:
        """Names of the models whose rows this user may see."""
        return {model._meta.model_name for model, pages in self._registry.items() if pages.has_view_permission(request)}
