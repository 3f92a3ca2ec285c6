"""Django's own part of the site; the protocols' routes stand in api/routing.py."""

from django.contrib import admin
from django.urls import path, re_path
from django.views.generic import TemplateView

from fleet import control_views

urlpatterns = [
    path("admin/", admin.site.urls),
    re_path(r"^control/(?P<action>switch|unload|rescan)$", control_views.command, name="control"),
    path("", TemplateView.as_view(template_name="console.html"), name="console"),
]
