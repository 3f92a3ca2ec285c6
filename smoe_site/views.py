"""The console's page, and what a page says that failed.

The console's policy lets nothing run, load or be sent but this server's own files and API.
"""

import sys

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.views import defaults
from django.views.decorators.http import require_safe

from fleet import outages

CONTENT_SECURITY_POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # No text can become markup: assigning to innerHTML and its like throws where the browser knows Trusted Types.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
)


@require_safe
def console(request: HttpRequest) -> HttpResponse:
    response = render(request, "console.html", {"defaults": settings.SMOE})
    response["Content-Security-Policy"] = CONTENT_SECURITY_POLICY
    response["Cache-Control"] = "no-cache"
    return response


def failed(request: HttpRequest) -> HttpResponse:
    """Django calls it while it handles the page's exception. Of an outage the reader hears what to do."""
    error = sys.exc_info()[1]
    if not isinstance(error, outages.OUTAGES):
        return defaults.server_error(request)
    page = render_to_string("503.html", {"sentence": outages.sentence(error)})  # without the request: its user is a row
    return HttpResponse(page, status=503, headers={"Retry-After": "10", "Cache-Control": "no-store"})
