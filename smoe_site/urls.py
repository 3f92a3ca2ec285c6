"""Django's own part of the site; the protocols' routes stand in api/routing.py."""

from django.contrib import admin
from django.urls import path, re_path

from api import metrics
from fleet import control_views

from .views import console

handler500 = "smoe_site.views.failed"

urlpatterns = [
    path("admin/", admin.site.urls),
    re_path(r"^control/(?P<action>switch|warm_up|unload|rescan)$", control_views.command, name="control"),
    path("metrics", metrics.view, name="metrics"),
    path("", console, name="console"),
]
