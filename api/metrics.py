"""GET /metrics for Prometheus. Where keys are needed it needs one too."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe

from engine import worker
from fleet.metrics import CONTENT_TYPE, metrics

from .auth import authorize
from .errors import Unauthorized


@require_safe
async def view(request: HttpRequest) -> HttpResponse:
    headers = {name.lower(): value for name, value in request.headers.items()}
    try:
        await authorize(headers, request.META.get("REMOTE_ADDR", ""))
    except Unauthorized as error:
        return JsonResponse({"error": error.message}, status=error.status, headers=error.headers)
    engine = worker.get_worker()
    status = await engine.status()  # takes seconds where the engine does not answer
    return HttpResponse(metrics.render(engine.snapshot(), status), content_type=CONTENT_TYPE)
