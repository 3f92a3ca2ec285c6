"""Routers only: the protocols' paths go to api/, `/`, `/admin/` and `/static/` to Django, the rest to a JSON 404."""

import os

from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import WebsocketDenier
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.urls import re_path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "smoe_site.settings")
django_application = get_asgi_application()

from api.consumers import guard_host  # noqa: E402 - needs the settings loaded
from api.routing import fallback, routes  # noqa: E402
from smoe_site.proxy import behind_proxy  # noqa: E402

http = URLRouter(
    [
        *routes,
        re_path(r"^(?:admin(?:/|$)|control/|metrics$|static/|$)", guard_host(django_application)),
        fallback,
    ]
)
application = ProtocolTypeRouter(
    {
        "http": behind_proxy(http) if settings.BEHIND_PROXY else http,
        "websocket": WebsocketDenier.as_asgi(),
    }
)
