"""A database that cannot be used: what operators are told, and what works without it."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import vault_pairs as pairs
from django.db import IntegrityError, InterfaceError, OperationalError

from engine.protocol import Heat
from fleet import catalog, discovery, heats, outages
from fleet.models import ExpertUse, Vault

pytestmark = pytest.mark.django_db
ROOT = Path(__file__).parents[2]
FULL = OperationalError("database or disk is full")


def full(*arguments, **fields):
    raise FULL


@pytest.fixture
def fleet(fleet_dir):
    pairs.make(fleet_dir, "whole")
    catalog.rescan()
    return fleet_dir


@pytest.fixture
def browser(admin_client):
    admin_client.raise_request_exception = False
    return admin_client


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (OperationalError("database or disk is full"), "make room on its disk"),
        (OperationalError("database is locked"), "another program holds it"),
        (OperationalError("attempt to write a readonly database"), "let the server's user write it"),
        (OperationalError("unable to open database file"), "let the server's user write it"),
        (OperationalError("no such table: fleet_vault"), "`manage.py migrate` prepares a new one"),
        (OperationalError("connection failed: Connection refused\n\tIs the server running?"), "(connection failed: "),
        (InterfaceError("connection already closed"), "(connection already closed)"),
    ],
)
def test_the_sentence_says_what_to_do(error, advice):
    told = outages.sentence(error)
    assert advice in told
    assert told.startswith("The database cannot be used (")
    assert "\n" not in told
    assert "/" not in told.replace("manage.py", "")


def test_a_database_server_that_does_not_answer_is_an_error_after_seconds():
    """Every request waited with it, without end."""
    pytest.importorskip("psycopg")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgres://smoe@127.0.0.1:{silent.getsockname()[1]}/smoe"
        command = [sys.executable, "manage.py", "usage"]
        done = subprocess.run(
            command, cwd=ROOT, env=os.environ | {"DATABASE_URL": url}, capture_output=True, text=True, timeout=60
        )
    assert done.returncode == 1
    assert "The database of DATABASE_URL cannot be used (" in done.stderr
    assert "timeout expired" in done.stderr


def test_a_rescan_of_the_admins_is_told_why_not(browser, fleet, worker, monkeypatch):
    monkeypatch.setattr(discovery, "_record", full)
    (fleet / "whole.smoe").unlink()
    page = browser.post("/admin/fleet/vault/rescan/", follow=True)
    told = [str(message) for message in page.context["messages"]]
    assert told == ["The database cannot be used (database or disk is full): make room on its disk."]


def test_a_vaults_live_figures_go_on(browser, fleet, worker, monkeypatch):
    ExpertUse.objects.create(vault="whole", first=0, counts=[[1, 2]])
    worker.model, worker.pid, worker.counts = "whole", 7, Heat(0, [[5, 5]])
    monkeypatch.setattr(heats, "take_in", full)
    answer = browser.get(f"/admin/fleet/vault/{Vault.objects.get(name='whole').pk}/live.json")
    assert answer.status_code == 200
    assert answer.json()["heat"]["counts"] == [[1, 2]]


def test_commands_are_told_why_not(client, fleet, worker, monkeypatch):
    monkeypatch.setattr("fleet.control_views._may_steer", lambda request: True)
    monkeypatch.setattr(discovery, "_record", full)
    (fleet / "whole.smoe").unlink()
    answer = client.post("/control/rescan")
    assert answer.status_code == 503
    assert "make room on its disk" in answer.json()["error"]


@pytest.mark.parametrize(
    ("error", "status"), [(FULL, 503), (InterfaceError("closed"), 503), (IntegrityError("x"), 500)]
)
def test_a_page_that_needs_the_database_says_so(browser, worker, monkeypatch, error, status):
    """Signing in and out, for one: a session is a row."""

    def fail(*arguments, **fields):
        raise error

    monkeypatch.setattr("django.contrib.sessions.backends.db.SessionStore.delete", fail)
    answer = browser.post("/admin/logout/")
    assert answer.status_code == status
    assert ("The database cannot be used" in answer.content.decode()) == (status == 503)
