"""Django's own part of the site; the protocols' routes stand in api/routing.py."""

from django.contrib import admin
from django.urls import path
from django.views.generic import TemplateView

urlpatterns = [
    path("admin/", admin.site.urls),
    path("", TemplateView.as_view(template_name="console.html"), name="console"),
]
