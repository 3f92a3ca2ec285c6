"""Management commands, with and without a running server."""

import json
import os
import socket
import time

import pytest
import vault_pairs as pairs
from django.core.management import CommandError, call_command
from django.test import Client

from fleet import catalog, server_client, server_file
from fleet.tables import human_bytes, table

pytestmark = pytest.mark.django_db


@pytest.fixture
def token(fleet_dir, settings):
    """server.json of this very process."""
    settings.SMOE.data_dir.mkdir(exist_ok=True)
    content = {"pid": os.getpid(), "url": "http://127.0.0.1:1", "token": "secret-token"}
    server_file.path().write_text(json.dumps(content))
    return "secret-token"


def test_scan_and_list_as_table_and_json(fleet_dir, capsys):
    pairs.make(fleet_dir, "whole")
    pairs.make_truncated(fleet_dir, "cut")
    call_command("scan_vaults")
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["VAULT", "STATE", "QUANT"]
    assert [line.split()[:2] for line in lines] == [["cut", "incomplete"], ["whole", "servable"]]
    call_command("vaults", "--json", "--state", "servable")
    listed = json.loads(capsys.readouterr().out)
    assert [(v["id"], v["quant"], v["experts_per_layer"]) for v in listed] == [("whole", "Q4", 2)]


def test_an_empty_fleet_is_said_so(fleet_dir, capsys):
    call_command("vaults")
    assert capsys.readouterr().out == "The fleet is empty.\n"


def test_a_fleet_without_vaults_of_a_state_is_not_empty(fleet_dir, capsys):
    pairs.make(fleet_dir, "whole")
    call_command("vaults", "--state", "missing")
    assert capsys.readouterr().out == "No vault is missing.\n"


@pytest.mark.parametrize("command", [["switch_vault", "whole"], ["unload"]])
def test_without_a_server_the_command_says_so(fleet_dir, command):
    with pytest.raises(CommandError, match="No server is running"):
        call_command(*command)


def test_a_file_that_a_killed_server_left_is_no_server(token, monkeypatch):
    assert server_file.read() is not None
    monkeypatch.setattr("psutil.pid_exists", lambda pid: False)
    assert server_file.read() is None


def test_a_server_that_does_not_answer_is_named(token):
    with pytest.raises(CommandError, match=f"process {os.getpid()}"):
        call_command("unload")


@pytest.mark.parametrize("command", ["vaults", "scan_vaults"])
def test_where_nobody_listens_a_command_looks_itself(token, fleet_dir, capsys, command):
    pairs.make(fleet_dir, "whole")
    call_command(command)
    assert "whole" in capsys.readouterr().out


@pytest.fixture
def silent(token, fleet_dir, monkeypatch):
    """A server that takes connections and says nothing. It has looked once."""
    pairs.make(fleet_dir, "whole")
    catalog.rescan()
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        content = {"pid": os.getpid(), "url": "http://127.0.0.1:%d" % server.getsockname()[1], "token": token}
        server_file.path().write_text(json.dumps(content))
        yield


def test_a_list_does_not_wait_for_a_silent_server(silent, capsys):
    began = time.monotonic()
    call_command("vaults", "--json")
    out, err = capsys.readouterr()
    assert time.monotonic() - began < 10
    assert [vault["id"] for vault in json.loads(out)] == ["whole"]
    assert f"(process {os.getpid()}) does not answer: it was silent for 5 s." in err


def post(action: str, token: str | None, **fields):
    headers = {} if token is None else {server_file.TOKEN_HEADER: token}
    return Client(enforce_csrf_checks=True).post(f"/control/{action}", fields, headers=headers)


def test_the_control_endpoint_steers(token, fleet_dir, worker):
    pairs.make(fleet_dir, "whole")
    assert post("switch", token, name="whole").json() == {"message": "The engine runs whole."}
    assert post("unload", token).status_code == 200
    assert "1 vault seen" in post("rescan", token).json()["message"]
    assert worker.asked == ["switch whole", "unload"]


def test_the_control_endpoint_refuses_with_a_sentence(token, fleet_dir, worker):
    answer = post("switch", token, name="nothing")
    assert answer.status_code == 409
    assert "no vault 'nothing'" in answer.json()["error"]


@pytest.mark.parametrize("wrong", [None, "", "secret-tokem", "secret-token2"])
def test_the_control_endpoint_needs_the_token(token, worker, wrong):
    assert post("unload", wrong).status_code == 403
    assert worker.asked == []


def test_the_control_endpoint_is_closed_without_a_server_file(fleet_dir, worker):
    assert post("unload", "").status_code == 403


@pytest.mark.parametrize("path", ["/control/other", "/control/switch/", "/control/"])
def test_other_control_paths_are_not_there(client, path):
    assert client.post(path).status_code == 404


def test_command_and_endpoint_together(token, fleet_dir, worker, live_server):
    content = {"pid": os.getpid(), "url": live_server.url, "token": token}
    server_file.path().write_text(json.dumps(content))
    assert server_client.ask("unload").startswith("The engine is unloaded")
    with pytest.raises(CommandError, match="no vault 'nothing'"):
        call_command("switch_vault", "nothing")


def test_tables_align_wide_characters_and_hide_control_ones():
    lines = table(("A", "B"), [("日本", 1), ("x\ny", None)]).splitlines()
    assert lines == ["A     B", "日本  1", "x\\ny  -"]


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (123_456, "123 kB"), (99_960_000_000, "100 GB")]
)
def test_human_bytes(count, text):
    assert human_bytes(count) == text
