"""Django's admin as the operator's cockpit: its first page is live."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest, JsonResponse
from django.urls import path


class FleetAdminSite(admin.AdminSite):
    site_header = "S-MoE"
    site_title = "S-MoE"
    index_title = "Fleet"
    index_template = "admin/cockpit.html"

    def get_urls(self):
        return [path("live.json", self.admin_view(self.live), name="live"), *super().get_urls()]

    def live(self, request: HttpRequest) -> JsonResponse:
        from . import live  # models are not loaded yet when the site is made

        return JsonResponse(live.figures(), headers={"Cache-Control": "no-store"})
