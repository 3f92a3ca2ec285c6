"""A real `manage.py serve` on a scripted engine: what clients got is what log, usage, events and metrics tell."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest

ROOT = Path(__file__).parents[2]
ENGINE = ROOT / "tests" / "doubles" / "engine_v2.py"
REQUESTS = 50


class Running:
    def __init__(self, directory: Path, environment: dict[str, str]):
        self.directory, self.environment = directory, environment
        self.keys: dict[str, str] = {}
        self.words: list[str] = []

    def manage(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess:
        command, environment = [sys.executable, "manage.py", *arguments], self.environment | variables
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)

    def printed(self, *arguments: str, **variables: str) -> str:
        done = self.manage(*arguments, **variables)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def start(self) -> None:
        command = [sys.executable, "manage.py", "serve", "--port", "0"]
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        for line in self.process.stdout:
            self.words.append(line)
            if line.startswith("Ctrl-C"):
                break
        self.file = json.loads((self.directory / "data" / "server.json").read_text())
        self.url = self.file["url"]

    def stop(self) -> None:
        self.process.terminate()
        rest, _ = self.process.communicate(timeout=30)
        self.words.append(rest)

    def ask(self, key: str, model: str = "s-moe", **fields) -> httpx.Response:
        body = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, **fields}
        headers = {"Authorization": f"Bearer {self.keys.get(key, key)}"}
        return httpx.post(f"{self.url}/v1/chat/completions", json=body, headers=headers, timeout=60)

    def metrics(self) -> dict[str, float]:
        text = httpx.get(f"{self.url}/metrics", headers={"x-api-key": self.keys["alice"]}).text
        lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, _, value in lines}

    def rows(self, query: str) -> list[tuple]:
        with sqlite3.connect(self.directory / "data" / "db.sqlite3") as database:
            return database.execute(query).fetchall()

    def wait_for(self, condition) -> None:
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.fixture(scope="module")
def server(tmp_path_factory, interop_dir):
    directory = tmp_path_factory.mktemp("fleet")
    vaults, checkpoints = directory / "vault", directory / "checkpoints"
    shutil.copytree(interop_dir / "tiny-qwen3moe-q4", vaults)
    for suffix in (".smoe", ".scout.safetensors"):
        shutil.copy(vaults / f"tiny-qwen3moe{suffix}", vaults / f"other{suffix}")
    for name in ("tiny-qwen3moe", "other"):
        shutil.copytree(interop_dir / "tiny-qwen3moe-checkpoint", checkpoints / name)
    script = directory / "script.json"
    script.write_text(json.dumps({"log": str(directory / "log")}))
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"} | {
        "SMOE_DATA_DIR": str(directory / "data"),
        "SMOE_VAULT_DIR": str(vaults),
        "SMOE_CHECKPOINTS_DIR": str(checkpoints),
        "SMOE_ENGINE": str(ENGINE),
        "SMOE_DOUBLE_SCRIPT": str(script),
    }
    running = Running(directory, environment)
    running.printed("migrate", "-v", "0")
    running.printed("scan_vaults")
    limits = {
        "alice": [],
        "bob": ["--vault", "tiny-qwen3moe"],
        "carol": ["--tokens-a-day", "100000"],
        "dave": ["--tokens-a-day", "1"],
    }
    for name, flags in limits.items():
        running.keys[name] = running.printed("create_api_key", name, *flags)
    running.start()
    yield running
    running.stop()


def test_what_clients_got_is_what_is_written_down(server):
    names = [("alice", "bob", "carol")[n % 3] for n in range(REQUESTS)]
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda name: server.ask(name, "tiny-qwen3moe"), names))
    assert {answer.status_code for answer in answers} == {200}
    got = Counter()
    for name, answer in zip(names, answers, strict=True):
        usage = answer.json()["usage"]
        got.update({(name, "requests"): 1, (name, "generated"): usage["completion_tokens"]})
        got.update({(name, "prompt"): usage["prompt_tokens"]})
    server.wait_for(lambda: server.rows("select count(*) from fleet_generation")[0][0] >= REQUESTS)
    told = Counter()
    for client, count, prompt, generated in server.rows(
        "select client, count(*), sum(prompt_tokens), sum(generated_tokens) from fleet_generation group by client"
    ):
        told.update({(client, "requests"): count, (client, "prompt"): prompt, (client, "generated"): generated})
    assert told == got
    usage = {line["client"]: line for line in json.loads(server.printed("usage", "--json"))}
    assert {name: usage[name]["requests"] for name in usage} == Counter(names)
    assert sum(line["generated_tokens"] for line in usage.values()) == sum(
        value for (_, what), value in got.items() if what == "generated"
    )
    metrics = server.metrics()
    assert metrics['smoe_requests_total{outcome="length",protocol="openai",vault="tiny-qwen3moe"}'] == REQUESTS
    assert metrics['smoe_generated_tokens_total{vault="tiny-qwen3moe"}'] == sum(
        value for (_, what), value in got.items() if what == "generated"
    )
    assert metrics["smoe_engine_up"] == 1
    identities = {answer.headers["x-request-id"] for answer in answers}
    assert identities == {row[0] for row in server.rows("select request_id from fleet_generation")}


@pytest.mark.parametrize("command", ["vaults", "scan_vaults"])
def test_a_command_that_knows_another_directory_tells_no_vault_missing(server, tmp_path, command):
    """The server was started with --vault-dir; the command, without, knows the default."""
    listed = json.loads(server.printed(command, "--json", SMOE_VAULT_DIR=str(tmp_path)))
    assert {row["id"]: row["state"] for row in listed} == {"other": "servable", "tiny-qwen3moe": "servable"}
    assert server.rows("select message from fleet_event where kind = 'missing'") == []


def test_the_uses_of_experts_are_taken_in_behind_the_replies(server):
    """The double tells one use of the first expert a generation."""
    server.wait_for(
        lambda: server.rows("select vault, counts from fleet_expertuse") == [("tiny-qwen3moe", f"[[{REQUESTS}, 0]]")]
    )


def test_a_new_engine_is_told_what_the_ones_before_used(server):
    log = server.directory / "log"

    def heard() -> list[str]:
        events = map(json.loads, log.read_text().splitlines())
        return [event["line"] for event in events if event.get("line", "").startswith("WARM")]

    before = heard()
    assert set(before) == {"WARM"}  # nothing had been used
    server.printed("unload")
    server.printed("switch_vault", "tiny-qwen3moe")
    server.wait_for(lambda: len(heard()) > len(before))
    assert heard()[-1] == f"WARM {REQUESTS},0"


def test_a_switch_and_a_crash_are_events(server):
    assert "runs other" in server.printed("switch_vault", "other")
    health = httpx.get(f"{server.url}/health").json()
    assert (health["engine"], health["model"]) == ("up", "other")
    log = [json.loads(line) for line in (server.directory / "log").read_text().splitlines()]
    os.kill([event["pid"] for event in log if event["event"] == "start"][-1], signal.SIGKILL)
    server.wait_for(lambda: server.ask("alice", "other").status_code == 200)
    server.wait_for(lambda: server.rows("select 1 from fleet_event where kind = 'respawn'"))
    kinds = "('switch', 'crash', 'respawn')"
    events = server.rows(f"select kind, vault, details from fleet_event where kind in {kinds} order by id")[-3:]
    assert [event[:2] for event in events] == [("switch", "other"), ("crash", "other"), ("respawn", "other")]
    assert json.loads(events[1][2])["exit_code"] == -signal.SIGKILL
    assert server.metrics()['smoe_engine_happenings_total{kind="crash"}'] == 1


def test_unload_and_what_comes_after(server):
    assert "unloaded" in server.printed("unload")
    assert httpx.get(f"{server.url}/health").json()["engine"] == "down"
    assert server.ask("alice").status_code == 200


def test_files_that_are_replaced_while_they_are_loaded_run_next(server, interop_dir):
    def boots() -> int:
        log = (server.directory / "log").read_text().splitlines()
        return sum(json.loads(line)["event"] == "start" for line in log)

    assert server.ask("alice", "other").status_code == 200
    before = boots()
    for suffix in (".smoe", ".scout.safetensors"):
        new = server.directory / f"new{suffix}"
        shutil.copyfile(interop_dir / "tiny-qwen3moe-q2" / f"tiny-qwen3moe{suffix}", new)
        os.utime(new, (1e9, 1e9))  # old enough to be whole
        new.replace(server.directory / "vault" / f"other{suffix}")
    server.wait_for(lambda: server.ask("alice", "other").status_code == 200 and boots() == before + 1)
    changes = server.rows("select message from fleet_event where kind = 'changed' and vault = 'other'")
    assert changes == [("other has other contents than before",)]
    assert server.ask("alice", "tiny-qwen3moe").status_code == 200


def test_a_form_is_a_body_like_others(server):
    """Not parsed on the event loop before a key is asked for."""
    body = json.dumps({"model": "s-moe", "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}]})
    for kind in ("multipart/form-data; boundary=x", "application/x-www-form-urlencoded"):
        headers = {"x-api-key": server.keys["alice"], "Content-Type": kind}
        assert httpx.post(f"{server.url}/v1/messages", content=body, headers=headers).status_code == 200


@pytest.mark.parametrize("path", ["admin/login/", "metrics", "control/unload"])
def test_a_client_does_not_say_where_the_site_begins(server, path):
    """A proxy that denies /admin and /control would let these pass."""
    headers = {"Daphne-Root-Path": "/static", "x-api-key": server.keys["alice"]}
    assert httpx.get(f"{server.url}/static/{path}", headers=headers).status_code == 404


@pytest.mark.parametrize("key", ["", "wrong", "sk-smoe-" + "x" * 43, "sk-smoe-\xe9", "x" * 5000])
def test_without_a_known_key_nothing_is_answered(server, key):
    headers = {"x-api-key": key.encode("latin-1")}
    for path in ("/v1/models", "/metrics", "/sysmem"):
        assert httpx.get(f"{server.url}{path}", headers=headers).status_code == 401
    answer = httpx.post(f"{server.url}/v1/messages", json={}, headers=headers)
    assert answer.json()["error"]["type"] == "authentication_error"


def test_a_key_is_held_to_its_vaults_and_its_quota(server):
    refused = server.ask("bob", "other")
    assert refused.status_code == 404
    assert "may not use other" in refused.json()["error"]["message"]
    assert server.ask("dave", "tiny-qwen3moe").status_code == 200
    over = server.ask("dave", "tiny-qwen3moe")
    assert (over.status_code, over.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert int(over.headers["retry-after"]) > 0


def test_a_revoked_key_is_refused_within_seconds(server):
    server.keys["eve"] = server.printed("create_api_key", "eve")
    server.wait_for(lambda: server.ask("eve").status_code == 200)
    server.printed("revoke_api_key", "eve")
    server.wait_for(lambda: server.ask("eve").status_code == 401)
    assert "revoked" in server.ask("eve").json()["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/models", "/admin/", "/metrics", "/control/unload"])
def test_another_name_for_this_address_is_refused(server, path):
    headers = {"Host": "rebound.example", "x-api-key": server.keys["alice"]}
    assert httpx.get(f"{server.url}{path}", headers=headers).status_code == 403


def test_another_sites_page_can_do_nothing(server):
    headers = {"Origin": "https://evil.example", "Authorization": f"Bearer {server.keys['alice']}"}
    body = {"model": "s-moe", "messages": [{"role": "user", "content": "Hi"}]}
    answer = httpx.post(f"{server.url}/v1/chat/completions", json=body, headers=headers)
    assert answer.status_code == 403
    assert "access-control-allow-origin" not in answer.headers
    assert httpx.post(f"{server.url}/control/unload", headers=headers).status_code == 403
    assert httpx.post(f"{server.url}/admin/fleet/vault/unload/", headers=headers).status_code == 403


@pytest.mark.parametrize("model", ["../../etc/passwd", "other\r\nX-Evil: 1", "\u0000", "%2e%2e/other", "x" * 100_000])
def test_tricks_in_the_model_name_run_the_active_vault_and_inject_nothing(server, model):
    answer = server.ask("alice", model)
    assert answer.status_code == 200
    assert answer.json()["model"] in ("tiny-qwen3moe", "other")
    assert "x-evil" not in answer.headers


def test_the_printed_link_makes_the_operator_once(server):
    link = next(word for line in server.words for word in line.split() if "/admin/welcome/" in word)
    assert link.startswith(server.url)
    with httpx.Client(follow_redirects=True) as newcomer:
        newcomer.get(link)
        form = {"username": "op", "password1": "correct horse battery", "password2": "correct horse battery"}
        token = {"csrfmiddlewaretoken": newcomer.cookies["csrftoken"]}
        page = newcomer.post(link, data=form | token)
        assert (page.status_code, page.url.path) == (200, "/admin/")
        assert newcomer.get(f"{server.url}/admin/live.json").json()["engine"]
    assert httpx.get(link).status_code == 404


def test_pages_leave_no_database_connections_behind(server):
    """Each page has a thread of its own; a connection, which has the write-ahead log open once, ends with it."""
    log, process = str(server.directory / "data" / "db.sqlite3-wal"), psutil.Process(server.process.pid)
    with ThreadPoolExecutor(60) as pool:
        pages = list(pool.map(lambda _: httpx.get(f"{server.url}/admin/login/", timeout=60), range(60)))
    assert {page.status_code for page in pages} == {200}
    of_the_pool = min(32, os.cpu_count() + 4) + 2  # its threads stay
    server.wait_for(lambda: sum(file.path == log for file in process.open_files()) <= of_the_pool)
