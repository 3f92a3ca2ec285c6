"""`manage.py serve` as a process: its words, its signals, and what it leaves behind."""

import json
import os
import resource
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import httpx
import psutil
import pytest

from engine.server import ECHO
from fleet.keys import READ_EVERY

ROOT = Path(__file__).parents[2]
ENGINE = ROOT / "tests" / "doubles" / "engine_v2.py"
CHAT = {"model": "s-moe", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4000, "stream": True}


def with_default_signals():
    """What these tests are run by (nohup, a shell's background job) may ignore them, and children inherit that."""
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def manage(environment, *arguments, **how):
    return subprocess.Popen(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env=environment,
        text=True,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "preexec_fn": with_default_signals} | how,
    )


def outcome(process):
    """(exit code, stdout, stderr)"""
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, out, err


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    directory = tmp_path_factory.mktemp("migrated")
    code, _, err = outcome(manage(os.environ | {"SMOE_DATA_DIR": str(directory)}, "migrate", "-v", "0"))
    assert code == 0, err
    return directory / "db.sqlite3"


@pytest.fixture
def environment(tmp_path, interop_dir, database):
    """One vault with its tokenizer, a migrated database, and a slow double."""
    data, vaults, checkpoints = tmp_path / "data", tmp_path / "vault", tmp_path / "checkpoints"
    data.mkdir()
    shutil.copy(database, data)
    shutil.copytree(interop_dir / "tiny-qwen3moe-q4", vaults)
    shutil.copytree(interop_dir / "tiny-qwen3moe-checkpoint", checkpoints / "tiny-qwen3moe")
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"token_delay": 0.02, "log": str(tmp_path / "log")}))
    return os.environ | {
        "SMOE_DATA_DIR": str(data),
        "SMOE_VAULT_DIR": str(vaults),
        "SMOE_CHECKPOINTS_DIR": str(checkpoints),
        "SMOE_ENGINE": str(ENGINE),
        "SMOE_DOUBLE_SCRIPT": str(script),
    }


@pytest.fixture
def serve(environment, tmp_path):
    """Starts a server on a free port; gives it with the content of its server file once it is ready."""
    started = []

    def serve():
        server = manage(environment, "serve", "--port", "0")
        started.append(server)
        for line in server.stdout:
            if line.startswith("Ctrl-C"):
                return server, json.loads((tmp_path / "data" / "server.json").read_text())
        raise AssertionError(outcome(server))

    yield serve
    for server in started:
        if server.poll() is None:
            server.kill()
            server.communicate()


def engines(tmp_path):
    """Processes of engines that were started and are still there."""
    lines = (tmp_path / "log").read_text().splitlines()
    pids = [event["pid"] for line in lines if (event := json.loads(line))["event"] == "start"]
    assert pids
    return [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]


def stream(url, until):
    """The lines of a streamed reply; `until` is called with each and ends the reading where it is true."""
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=CHAT, timeout=60) as response:
        for line in response.iter_lines():
            yield line
            if until(line):
                return


def wait_for(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_ctrl_c_while_streaming(serve, tmp_path):
    server, file = serve()
    assert file["pid"] == server.pid
    assert stat.S_IMODE((tmp_path / "data" / "server.json").stat().st_mode) == 0o600
    lines = []
    for line in stream(file["url"], lambda line: False):
        lines.append(line)
        if len(lines) == 20:
            server.send_signal(signal.SIGINT)
    assert len(lines) > 20, lines
    code, _, err = outcome(server)
    assert code == 0, err
    assert "Traceback" not in err
    assert any("shutting down" in line for line in lines)
    assert engines(tmp_path) == []
    assert not (tmp_path / "data" / "server.json").exists()


def test_sigterm_while_idle_and_again(serve, tmp_path):
    for _ in range(2):
        server, file = serve()
        wait_for(lambda url=file["url"]: httpx.get(f"{url}/health").json()["engine"] == "up")
        server.terminate()
        code, _, err = outcome(server)
        assert (code, "Traceback" in err) == (0, False)
    assert engines(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_comes_by_two_ways_is_one(serve, tmp_path, number):
    """make passes a SIGTERM of its whole group on to its child, which had it already; timeout any signal."""
    server, file = serve()
    lines = []
    for line in stream(file["url"], lambda line: False):
        lines.append(line)
        if len(lines) == 20:
            server.send_signal(number)
            time.sleep(0.05)
            server.send_signal(number)
    assert lines[-2:] == ["data: [DONE]", ""]
    code, _, err = outcome(server)
    assert (code, "Traceback" in err) == (0, False)
    assert engines(tmp_path) == []


def finish_reasons_and_errors(tmp_path):
    with sqlite3.connect(tmp_path / "data" / "db.sqlite3") as database:
        return database.execute("select finish_reason, error from fleet_generation").fetchall()


def test_a_terminal_that_is_closed(serve, tmp_path):
    """Its shell and the kernel send a hangup each; the reply ends in its form, and is written down."""
    server, file = serve()
    lines = []
    for line in stream(file["url"], lambda line: False):
        lines.append(line)
        if len(lines) in (20, 21):
            server.send_signal(signal.SIGHUP)
    assert lines[-2:] == ["data: [DONE]", ""]
    code, _, err = outcome(server)
    assert (code, "Traceback" in err) == (0, False)
    assert finish_reasons_and_errors(tmp_path) == [("", "The server is shutting down.")]
    assert not (tmp_path / "data" / "server.json").exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_an_output_that_cannot_be_written_stops_nothing(environment, tmp_path):
    """The engine was not booted then, and the log began with a traceback."""
    with open("/dev/full", "w") as full:
        server = manage(environment, "serve", "--port", "0", stdout=full)
        try:
            wait_for(lambda: (tmp_path / "log").exists() and engines(tmp_path))
        finally:
            server.terminate()
            _, err = server.communicate(timeout=30)
    assert "that could not be written to stdout: No space left on device" in err
    assert "Traceback" not in err.partition("stopping")[0]


def test_nohup_outlives_its_terminal(environment, tmp_path):
    def as_nohup_does():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    server = manage(environment, "serve", "--port", "0", preexec_fn=as_nohup_does)
    try:
        next(line for line in server.stdout if line.startswith("Ctrl-C"))
        server.send_signal(signal.SIGHUP)
        url = json.loads((tmp_path / "data" / "server.json").read_text())["url"]
        wait_for(lambda: httpx.get(f"{url}/health").json()["engine"] == "up")
    finally:
        server.send_signal(signal.SIGINT)
    assert outcome(server)[0] == 0


def test_a_second_signal_ends_an_engine_that_does_not_look(serve, tmp_path):
    server, file = serve()
    wait_for(lambda: httpx.get(f"{file['url']}/health").json()["engine"] == "up")
    (engine,) = engines(tmp_path)
    os.kill(engine, signal.SIGSTOP)
    server.send_signal(signal.SIGINT)
    next(line for line in server.stderr if "stopping" in line)
    time.sleep(ECHO + 0.2)
    server.send_signal(signal.SIGINT)
    assert server.wait(20) == 1
    wait_for(lambda: not engines(tmp_path))


def test_a_killed_server_leaves_no_engine(serve, tmp_path):
    server, file = serve()
    for line in stream(file["url"], lambda line: '"content":"u"' in line):
        last = line
    assert last
    server.kill()
    server.communicate()
    wait_for(lambda: engines(tmp_path) == [])


def test_a_client_that_hangs_up_stops_the_engine(serve, tmp_path):
    server, file = serve()
    for _ in stream(file["url"], lambda line: '"content":"u"' in line):
        pass
    wait_for(lambda: '"CANCEL 1"' in (tmp_path / "log").read_text())
    assert httpx.get(f"{file['url']}/health").json()["engine"] == "up"
    assert server.poll() is None


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="a running process is kept from writing on Linux only")
def test_a_full_disk_does_not_stop_answers(serve, tmp_path):
    """To write nothing any more is what a full disk does to a server; keys and vaults are looked at all the same."""
    server, file = serve()
    answers = []

    def ask():
        body = CHAT | {"max_tokens": 1, "stream": False}
        answers.append(httpx.post(f"{file['url']}/v1/chat/completions", json=body, timeout=60).status_code)

    def names():
        with sqlite3.connect(tmp_path / "data" / "db.sqlite3") as database:
            return {name for (name,) in database.execute("select name from fleet_vault")}

    ask()
    _, most = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (0, most))
    for path in (tmp_path / "vault").glob("tiny-qwen3moe.*"):
        shutil.copy(path, path.with_name(path.name.replace("tiny-qwen3moe", "new")))
    for _ in range(2):
        time.sleep(READ_EVERY)
        ask()
    assert names() == {"tiny-qwen3moe"}
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (most, most))
    wait_for(lambda: ask() or names() == {"tiny-qwen3moe", "new"})
    assert set(answers) == {200}


def test_a_locked_database_holds_no_answer_up(serve, tmp_path):
    """Another process writes for long, as a backup or a shell that is left open does."""
    _, file = serve()

    def seconds_to_answer():
        began = time.monotonic()
        body = CHAT | {"max_tokens": 1, "stream": False}
        assert httpx.post(f"{file['url']}/v1/chat/completions", json=body, timeout=60).status_code == 200
        return time.monotonic() - began

    def names():
        return [model["id"] for model in httpx.get(f"{file['url']}/v1/models").json()["data"]]

    seconds_to_answer()
    with closing(sqlite3.connect(tmp_path / "data" / "db.sqlite3", isolation_level=None)) as other:
        other.execute("begin immediate")
        for path in (tmp_path / "vault").glob("tiny-qwen3moe.*"):
            shutil.copy(path, path.with_name(path.name.replace("tiny-qwen3moe", "new")))
        time.sleep(READ_EVERY)
        assert max(seconds_to_answer() for _ in range(3)) < 10
    wait_for(lambda: sorted(names()) == ["new", "tiny-qwen3moe"])


def test_what_a_page_fails_on_stands_in_the_log(serve, tmp_path):
    server, file = serve()
    with sqlite3.connect(tmp_path / "data" / "db.sqlite3") as database:
        database.execute("alter table auth_user rename to elsewhere")
    assert httpx.get(f"{file['url']}/admin/login/").status_code == 503
    assert httpx.get(f"{file['url']}/admin/nothing/").status_code == 302
    server.terminate()
    _, _, err = outcome(server)
    assert "Service Unavailable: /admin/login/" in err
    assert "no such table: auth_user" in err
    assert "/admin/nothing/" not in err


def test_a_second_server_on_the_same_data(serve, environment):
    server, _ = serve()
    code, _, err = outcome(manage(environment, "serve", "--port", "0"))
    assert (code, len(err.splitlines())) == (1, 1)
    assert f"process {server.pid}" in err


def test_a_port_in_use_is_one_sentence(environment):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, _, err = outcome(manage(environment, "serve", "--port", str(port)))
    assert code == 1
    sentence = f"Port {port} of 127.0.0.1 cannot be used (Address already in use): choose another --port or --host."
    assert err.splitlines() == [f"CommandError: {sentence}"]


def test_the_command_that_a_refusal_names_makes_a_key_for_this_server(environment, tmp_path):
    data = (tmp_path / "data").rename(tmp_path / "its own data")
    environment = {name: value for name, value in environment.items() if name != "SMOE_DATA_DIR"}

    def refusal():
        with socket.socket() as taken:
            taken.bind(("0.0.0.0", 0))
            taken.listen()
            flags = ["--host", "0.0.0.0", "--port", str(taken.getsockname()[1]), "--data-dir", str(data)]
            return outcome(manage(environment, "serve", *flags))[2]

    command = refusal().split("`")[1]
    assert str(data) in command
    command = command.replace("manage.py", f"{sys.executable} manage.py").replace("NAME", "laptop")
    subprocess.run(command, shell=True, cwd=ROOT, env=environment, check=True, capture_output=True)
    assert "Address already in use" in refusal()


def test_missing_migrations_are_one_sentence(environment, tmp_path):
    (tmp_path / "data" / "db.sqlite3").unlink()
    code, _, err = outcome(manage(environment, "serve", "--port", "0"))
    assert (code, len(err.splitlines())) == (1, 1)
    assert "manage.py migrate" in err


@pytest.mark.parametrize("command", [["vaults"], ["scan_vaults"], ["usage"], ["create_api_key", "laptop"]])
def test_a_command_without_the_servers_database_is_one_sentence(environment, tmp_path, command):
    """As where the server has a --data-dir of its own, which commands know by its variable only."""
    code, out, err = outcome(manage(environment | {"SMOE_DATA_DIR": str(tmp_path / "other")}, *command))
    assert (code, out, len(err.splitlines())) == (1, "", 1)
    assert "no such table" in err
    assert "SMOE_DATA_DIR" in err


@pytest.mark.parametrize("prepare", [[], ["--prepare"]])
def test_a_data_directory_that_cannot_be_used_is_one_sentence(environment, tmp_path, prepare):
    (tmp_path / "file").touch()
    code, _, err = outcome(manage(environment, "serve", *prepare, "--data-dir", str(tmp_path / "file" / "data")))
    assert (code, len(err.splitlines())) == (1, 1)
    assert "Not a directory" in err
    assert "--data-dir" in err


@pytest.mark.parametrize("prepare", [[], ["--prepare"]])
def test_a_database_that_cannot_be_used_is_one_sentence(environment, tmp_path, prepare):
    (tmp_path / "data" / "db.sqlite3").write_bytes(b"no database" * 100)
    code, _, err = outcome(manage(environment, "serve", *prepare, "--port", "0"))
    assert (code, len(err.splitlines())) == (1, 1)
    assert f"{tmp_path / 'data' / 'db.sqlite3'} cannot be used (file is not a database): put a copy back" in err


@pytest.mark.parametrize("prepare", [[], ["--prepare"]])
def test_a_fleet_directory_that_does_not_exist_is_one_sentence(environment, tmp_path, prepare):
    """Made for whoever mistypes it, it would serve the demo in place of their vaults."""
    named = tmp_path / "valut"
    code, _, err = outcome(manage(environment, "serve", *prepare, "--port", "0", "--vault-dir", str(named)))
    assert (code, len(err.splitlines())) == (1, 1)
    assert f"{named} does not exist" in err
    assert "--vault-dir" in err
    assert not named.exists()


def test_it_prepares_what_its_flags_name(environment, tmp_path):
    other = tmp_path / "other"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = str(taken.getsockname()[1])
        code, _, err = outcome(manage(environment, "serve", "--prepare", "--port", port, "--data-dir", str(other)))
    assert (code, (other / "db.sqlite3").exists()) == (1, True)
    assert "cannot be used" in err


@pytest.mark.parametrize(
    ("arguments", "variables", "named"),
    [
        (["--port", "many"], {}, "--port='many'"),
        (["--temperature", "11"], {}, "--temperature=11"),
        (["--min-stay", "nan"], {}, "--min-stay='nan'"),
        (["--ctx", "100000000"], {}, "from 16 to 1048576"),
        ([], {"SMOE_RING": "-1"}, "SMOE_RING=-1"),
    ],
)
def test_a_value_that_cannot_be_used_is_one_sentence(environment, arguments, variables, named):
    code, _, err = outcome(manage(environment | variables, "serve", *arguments))
    assert (code, len(err.splitlines())) == (1, 1)
    assert named in err


def test_a_tokenizer_of_another_model_is_said_when_it_starts(environment, tmp_path):
    tokenizer = tmp_path / "checkpoints" / "tiny-qwen3moe" / "tokenizer.json"
    content = json.loads(tokenizer.read_text())
    content["added_tokens"].append({**content["added_tokens"][0], "id": 9000, "content": "<|far|>"})
    tokenizer.chmod(0o644)
    tokenizer.write_text(json.dumps(content))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        _, _, err = outcome(manage(environment, "serve", "--port", str(taken.getsockname()[1])))
    assert "tiny-qwen3moe: The tokenizer has 9001 ids and the vault only 512" in err


def test_help_names_flags_defaults_and_variables(environment):
    code, out, _ = outcome(manage(environment, "serve", "--help"))
    assert code == 0
    text = " ".join(out.split())
    assert "--rep-penalty PENALTY default repetition penalty (default 1.1; SMOE_REP_PENALTY)" in text
