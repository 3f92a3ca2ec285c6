"""deploy/: what an operator copies. The nginx site runs as it stands, but for ports and files, before a real server."""

import json
import os
import plistlib
import re
import shutil
import socket
import sqlite3
import ssl
import subprocess
import time
from http.client import HTTPSConnection
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from serving import ROOT, serving

from smoe_site import options, proxy

DEPLOY = ROOT / "deploy"
NAME = "models.example.org"
TOKENS, MANY, PAUSE = 8, 600, 0.1
PATIENCE = 30  # seconds: half of what MANY take, so that waiting cannot stand for stopping
NGINX, OPENSSL = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin"), shutil.which("openssl")
ANALYZE = shutil.which("systemd-analyze")
HELLO = {"model": "s-moe", "max_tokens": TOKENS, "messages": [{"role": "user", "content": "Hi"}]}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Behind:
    """nginx with the example before a server on a scripted engine."""

    def __init__(self, data: Path, port: int, direct: str):
        self.data, self.port, self.direct = data, port, direct
        self.host = f"{NAME}:{port}"
        self.key = ""

    def client(self, **headers: str) -> httpx.Client:
        given = {"Host": self.host, "x-api-key": self.key, **headers}
        return httpx.Client(base_url=f"https://127.0.0.1:{self.port}", verify=False, headers=given, timeout=120)

    def is_running(self) -> bool:
        return httpx.get(f"{self.direct}/health").json()["running"]

    def wait_until(self, running: bool) -> None:
        deadline = time.monotonic() + PATIENCE
        while self.is_running() != running:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def site(port: int, upstream: str, certificate: Path, key: Path) -> str:
    text = (DEPLOY / "nginx.conf").read_text()
    for ours, theirs in (
        ("listen 443", f"listen 127.0.0.1:{port}"),
        ("127.0.0.1:8000", upstream),
        (f"/etc/ssl/{NAME}.pem", str(certificate)),
        (f"/etc/ssl/{NAME}.key", str(key)),
    ):
        assert ours in text
        text = text.replace(ours, theirs)
    return text


def start_nginx(folder: Path, port: int, upstream: str) -> subprocess.Popen:
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    make = [OPENSSL, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={NAME}"]
    subprocess.run([*make, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    (folder / "site.conf").write_text(site(port, upstream, certificate, key))
    places = "".join(f"{part}_temp_path {part};" for part in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    owner = "user root;" if os.geteuid() == 0 else ""  # the folder is its maker's alone
    (folder / "nginx.conf").write_text(
        f"{owner} daemon off; pid {folder}/pid; error_log {folder}/error.log; events {{}}\n"
        f"http {{ access_log off; {places} include {folder}/site.conf; }}\n"
    )
    command = [NGINX, "-p", folder, "-c", folder / "nginx.conf", "-e", folder / "error.log"]
    tested = subprocess.run([*command, "-t"], capture_output=True, text=True)
    assert tested.returncode == 0, tested.stderr
    return subprocess.Popen(command)


def stop(process: subprocess.Popen) -> None:
    process.terminate()
    process.wait(timeout=30)


@pytest.fixture(scope="module")
def behind(tmp_path_factory, interop_dir):
    if not NGINX or not OPENSSL:
        pytest.skip("nginx and openssl are not installed")
    folder = tmp_path_factory.mktemp("behind")
    data, checkpoints, port = folder / "data", folder / "checkpoints", free_port()
    data.mkdir()
    shutil.copytree(interop_dir / "tiny-qwen3moe-checkpoint", checkpoints / "tiny-qwen3moe")
    (folder / "script.json").write_text(json.dumps({"token_delay": PAUSE}))
    environment = {
        "DATABASE_URL": "",
        "SMOE_HTTPS": "1",
        "SMOE_ALLOW_ORIGIN": f"https://{NAME}:{port}",
        "SMOE_ALLOW_ANYONE": "1",
        "SMOE_MAX_BODY_MB": "1",
        "SMOE_VAULT_DIR": str(interop_dir / "tiny-qwen3moe-q4"),
        "SMOE_CHECKPOINTS_DIR": str(checkpoints),
        "SMOE_ENGINE": str(ROOT / "tests" / "doubles" / "engine_v2.py"),
        "SMOE_DOUBLE_SCRIPT": str(folder / "script.json"),
    }
    with serving(data, **environment) as url:
        nginx = start_nginx(folder, port, urlsplit(url).netloc)
        try:
            running = Behind(data, port, url)
            running.wait_until(running=False)
            yield running
        finally:
            stop(nginx)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_tokens_come_as_they_are_made(behind, path):
    """The first is here while the engine has a minute to go."""
    body = HELLO | {"stream": True, "max_tokens": MANY}
    with behind.client() as client, client.stream("POST", path, json=body) as answer:
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        lines = answer.iter_lines()  # closes the connection when nothing refers to it any more
        assert any(re.search(r'"delta":{.*"(content|text)":"[^"]', line) for line in lines)
        assert behind.is_running()
    behind.wait_until(running=False)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_stops_its_generation(behind, stream):
    client = HTTPSConnection("127.0.0.1", behind.port, context=ssl._create_unverified_context())
    body = json.dumps(HELLO | {"max_tokens": MANY, "stream": stream})
    client.request("POST", "/v1/chat/completions", body, {"Host": behind.host})
    behind.wait_until(running=True)
    client.close()
    behind.wait_until(running=False)


def test_what_is_too_large_is_told_in_the_callers_protocol(behind):
    with behind.client() as client:
        for path in ("/v1/chat/completions", "/v1/messages"):
            answer = client.post(path, json=HELLO | {"system": "x" * (2 << 20)})
            assert answer.status_code == 413
            assert "--max-body-mb" in answer.json()["error"]["message"]


def test_what_the_proxy_refuses_by_itself_is_json_too(behind):
    client = HTTPSConnection("127.0.0.1", behind.port, context=ssl._create_unverified_context())
    client.putrequest("POST", "/v1/messages", skip_host=True)
    client.putheader("Host", behind.host)
    client.putheader("Content-Length", str(65 << 20))
    client.endheaders()
    answer = client.getresponse()
    error = json.load(answer)
    client.close()
    assert (answer.status, answer.headers["content-type"]) == (413, "application/json")
    assert (error["type"], error["error"]["type"]) == ("error", "request_too_large")


@pytest.mark.skipif(not NGINX or not OPENSSL, reason="nginx and openssl are not installed")
def test_a_server_that_is_away_is_told_in_json(tmp_path):
    port = free_port()
    nginx = start_nginx(tmp_path, port, f"127.0.0.1:{free_port()}")
    try:
        transport = httpx.HTTPTransport(verify=False, retries=5)  # until it listens
        with httpx.Client(transport=transport) as client:
            answer = client.get(f"https://127.0.0.1:{port}/v1/models")
    finally:
        stop(nginx)
    assert (answer.status_code, answer.json()["error"]["type"]) == (503, "overloaded_error")


@pytest.mark.parametrize("path", ["/metrics", "/control/unload", "//metrics", "/v1/../%6detrics"])
def test_what_is_for_this_machine_does_not_go_out(behind, path):
    client = HTTPSConnection("127.0.0.1", behind.port, context=ssl._create_unverified_context())
    client.request("GET", path, headers={"Host": behind.host})
    assert client.getresponse().status == 403
    client.close()


def test_the_first_operator_gets_in_by_the_printed_link(behind):
    link = re.search(r"https://\S+/admin/welcome/\S+", (behind.data / "said").read_text())[0]
    assert urlsplit(link).netloc == behind.host
    path, form = urlsplit(link).path, {"username": "op"} | dict.fromkeys(("password1", "password2"), "a b c d e f g")
    with behind.client(Origin=f"https://{behind.host}") as browser:
        browser.get(path)
        form["csrfmiddlewaretoken"] = browser.cookies["csrftoken"]
        assert browser.post(path, data=form, headers={"Origin": "https://evil.example"}).status_code == 403
        assert browser.post(path, data=form).headers["location"] == "/admin/"
        assert browser.get("/admin/").status_code == 200


def test_a_request_has_its_clients_address_and_not_the_proxys(behind):
    """Two addresses of the loopback network are two clients."""
    context = ssl._create_unverified_context()
    client = HTTPSConnection("127.0.0.1", behind.port, context=context, source_address=("127.0.0.2", 0))
    client.request("POST", "/v1/messages", json.dumps(HELLO), {"Host": behind.host, "X-Forwarded-For": "10.0.0.1"})
    assert client.getresponse().status == 200
    client.close()
    deadline = time.monotonic() + 30
    with sqlite3.connect(behind.data / "db.sqlite3") as database:
        while not database.execute("select 1 from fleet_generation where client = '127.0.0.2'").fetchall():
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_the_plist_names_what_launchd_knows():
    """Keys of launchd.plist(5)."""
    plist = plistlib.loads((DEPLOY / "org.s-moe.server.plist").read_bytes())
    known = {"Label", "WorkingDirectory", "ProgramArguments", "EnvironmentVariables", "RunAtLoad", "KeepAlive"}
    known |= {"ExitTimeOut", "StandardOutPath", "StandardErrorPath", "ProcessType", "Umask"}
    assert set(plist) <= known
    assert plist["KeepAlive"] == {"SuccessfulExit": False}
    assert plist["ProcessType"] == "Interactive"
    assert (DEPLOY / f"{plist['Label']}.plist").exists()
    subprocess.run(["/bin/sh", "-n", "-c", plist["ProgramArguments"][2]], check=True)


@pytest.mark.parametrize("name", ["s-moe.service", "org.s-moe.server.plist", "nginx.conf"])
def test_the_variables_named_are_read(name):
    others = {"SMOE_HTTPS", "SMOE_LOG", "SMOE_SECRET_KEY"}
    known = {options.variable(field) for field in options.Options.__dataclass_fields__} | others
    assert set(re.findall(r"SMOE_[A-Z_]+", (DEPLOY / name).read_text())) <= known


@pytest.mark.skipif(not ANALYZE, reason="systemd-analyze is not installed")
def test_systemd_understands_the_unit(tmp_path):
    """It does not know this machine's paths: any program stands for Python."""
    text = (DEPLOY / "s-moe.service").read_text()
    assert "/opt/s-moe/.venv/bin/python" in text
    unit = tmp_path / "s-moe.service"
    unit.write_text(text.replace("/opt/s-moe/.venv/bin/python", "/bin/true"))
    done = subprocess.run([ANALYZE, "verify", "--man=no", unit], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("peer", "headers", "client"),
    [
        ("127.0.0.1", [b"192.0.2.7"], "192.0.2.7"),
        ("::1", [b"2001:db8::7"], "2001:db8::7"),
        ("127.0.0.1", [b"10.0.0.1, 192.0.2.7"], "192.0.2.7"),
        ("127.0.0.1", [b"10.0.0.1", b"192.0.2.7"], "192.0.2.7"),
        ("127.0.0.1", [b"unknown"], "127.0.0.1"),
        ("127.0.0.1", [], "127.0.0.1"),
        ("192.0.2.9", [b"10.0.0.1"], "192.0.2.9"),
    ],
)
def test_whose_address_a_request_has(peer, headers, client):
    scope = {"client": (peer, 4000), "headers": [(b"x-forwarded-for", value) for value in headers]}
    assert proxy.client(scope)[0] == client
