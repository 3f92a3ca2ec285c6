"""What a browser downloads to show the console."""

from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse

CONSOLE = Path(settings.BASE_DIR) / "templates" / "static" / "console"


def sent(client: Client, path: str) -> tuple[bytes, dict[str, str]]:
    response = client.get(path, headers={"Accept-Encoding": "gzip"})
    assert response.status_code == 200
    return b"".join(response) if response.streaming else response.content, response.headers


def test_the_console_is_small(client):
    """On the wire, where issue and README count, and as it is read: what is added must be worth its place."""
    paths = ["/", *(f"/static/console/{file.name}" for file in CONSOLE.iterdir())]
    assert sum(len(sent(client, path)[0]) for path in paths) < 45_000
    files = [CONSOLE.parents[1] / "console.html", *CONSOLE.iterdir()]
    assert sum(file.stat().st_size for file in files) < 108_000


@pytest.mark.django_db
def test_only_public_pages_are_compressed(client):
    assert sent(client, "/")[1]["Content-Encoding"] == "gzip"
    assert "Content-Encoding" not in sent(client, reverse("admin:login"))[1]
