"""The console's page. Its policy lets nothing run, load or be sent but this server's own files and API."""

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

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
