"""POST /control/<action>: how management commands steer the running server. The token in server.json opens it."""

from __future__ import annotations

import os
from http import HTTPStatus

from django.http import HttpRequest, JsonResponse
from django.utils.crypto import constant_time_compare
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from . import control, outages, server_file


@csrf_exempt  # the token is no cookie: no browser sends it by itself
@require_POST
def command(request: HttpRequest, action: str) -> JsonResponse:
    """{"message": ...} or {"error": ...}. Form fields: `name` for switch and warm_up."""
    if not _may_steer(request):
        return _error("The control token is wrong: run the command as the server's user.", HTTPStatus.FORBIDDEN)
    try:
        return JsonResponse({"message": _run(action, request.POST.get("name", ""))})
    except control.ControlError as error:
        return _error(str(error), HTTPStatus.CONFLICT)
    except outages.OUTAGES as error:
        return _error(outages.sentence(error), HTTPStatus.SERVICE_UNAVAILABLE)


def _may_steer(request: HttpRequest) -> bool:
    server = server_file.read()
    given = request.headers.get(server_file.TOKEN_HEADER, "")
    return server is not None and server.pid == os.getpid() and constant_time_compare(given, server.token)


def _run(action: str, name: str) -> str:
    if action == "switch":
        return control.switch(name)
    if action == "warm_up":
        return control.warm_up(name)
    if action == "unload":
        return control.unload()
    return f"{control.rescan()}."


def _error(message: str, status: HTTPStatus) -> JsonResponse:
    return JsonResponse({"error": message}, status=status)
