"""The console and its files go over the wire compressed; pages that may hold secrets (the admin) never do: BREACH."""

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware


class CompressPublic(GZipMiddleware):
    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if request.path == "/" or request.path.startswith(settings.STATIC_URL):
            return super().process_response(request, response)
        return response
