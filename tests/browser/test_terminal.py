"""`manage.py chat` against the stub: streaming, its one-line monitor, Ctrl-C, and what goes wrong."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.terminal.chat import Chat
from engine.terminal.client import ChatClient, ServerProblem
from engine.terminal.monitor import Monitor
from engine.terminal.screen import Screen
from engine.terminal.wrapping import Wrapper

MANAGE = Path(__file__).parent.parent.parent / "manage.py"


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def chat(stub, out) -> Chat:
    return Chat(ChatClient(stub.url), Screen(out, live=False))


def test_streams_and_resends_the_history(chat, stub, out):
    chat.handle("say short")
    chat.handle("say length")
    assert out.getvalue().startswith("The capital of France is Paris.\n7 tokens · 5.6 tok/s · first after ")
    assert "cut off at its length limit" in out.getvalue()
    assert [m["role"] for m in stub.requests[1]["messages"]] == ["user", "assistant", "user"]


def test_continue_sends_the_part_as_the_last_message(chat, stub):
    chat.handle("say length")
    chat.handle("/continue")
    assert stub.requests[1]["messages"][-1] == {"role": "assistant", "content": "Once there was a ring of slots that"}
    assert chat.messages[-1]["content"] == "Once there was a ring of slots that never filled."


def test_a_failure_keeps_what_came_and_retry_asks_again(chat, stub, out):
    chat.handle("say error")
    assert "The engine ended with signal 9" in out.getvalue()
    assert chat.messages[-1]["content"] == "This reply will not"
    chat.handle("/retry")
    assert stub.requests[1]["messages"] == [{"role": "user", "content": "say error"}]


def test_a_lost_connection_is_said(chat, out):
    chat.handle("say cut")
    assert "The reply broke off" in out.getvalue()


def test_models_are_listed_and_chosen_by_name(chat, stub, out):
    chat.handle("/model")
    assert "* smollm2-135m-moe8 Q8 (active)\n  qwen3-30b-a3b Q4\n" in out.getvalue()
    chat.handle("/model qwen3-30b-a3b")
    assert "pays the cold boot" in out.getvalue()
    chat.handle("say short")
    assert stub.requests[0]["model"] == "qwen3-30b-a3b"
    chat.handle("/model nothing")
    assert "There is no vault 'nothing'" in out.getvalue()


def test_a_refused_key_is_asked_for(stub, out):
    stub.key = "right"
    chat = Chat(ChatClient(stub.url, "wrong"), Screen(out, live=False), ask_key=lambda: "right")
    chat.handle("say short")
    assert "needs an API key" in out.getvalue()
    chat.handle("/retry")
    assert "Paris" in out.getvalue()


def test_a_server_that_is_not_there_is_said_with_what_to_do():
    with pytest.raises(ServerProblem, match=r"Start it with: manage\.py serve"):
        ChatClient("127.0.0.1:1").models()


def test_control_characters_of_a_model_do_not_reach_the_terminal(out):
    Screen(out, live=True).text("a\x1b]0;owned\x07\x9b2Jb\u202ec\n")
    assert out.getvalue() == "a]0;owned2Jbc\n"


def shown(written: str) -> list[str]:
    """The lines of a terminal of endless width after `written`, which moves the cursor as the wrapper does."""
    lines, column = [""], 0
    for part in re.findall(r"\x1b\[\d*[A-Za-z]|.|\n", written):
        if part == "\n":
            lines.append("")
            column = 0
        elif part.endswith("D") and part.startswith("\x1b"):
            column -= int(part[2:-1])
        elif part == "\x1b[K":
            lines[-1] = lines[-1][:column]
        elif not part.startswith("\x1b"):
            lines[-1] = lines[-1][:column] + part
            column += 1
    return lines


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("width", [16, 30, 79])
def test_lines_break_between_words_however_they_come(width, size):
    text = "It is a truth universally acknowledged, that a single man in possession of a fortune.\n\nA new paragraph"
    wrapper = Wrapper()
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    lines = shown("".join(wrapper.feed(piece, width) for piece in pieces))
    expected = [line for part in text.split("\n") for line in textwrap.wrap(part, width) or [""]]
    assert [line.rstrip() for line in lines] == expected


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("abcdefghijklmno", ["abcdefghij", "klmno"]),  # longer than a line
        ("x abcdefghijklm", ["x ", "abcdefghij", "klm"]),
        ("漢字漢字漢字漢字", ["漢字漢字漢", "字漢字"]),  # two columns each, and no spaces
        ("e\u0301" * 10 + " f", ["e\u0301" * 10, "f"]),  # a mark takes no column
    ],
)
def test_lines_break_where_there_is_no_space(text, lines):
    assert shown(Wrapper().feed(text, 10)) == lines


def test_a_word_in_pieces_is_taken_back():
    wrapper = Wrapper()
    assert [wrapper.feed(piece, 10) for piece in ("one two th", "ree")] == ["one two th", "\x1b[2D\x1b[K\nthree"]


def test_where_nobody_can_type_a_key_the_refusal_is_told(stub):
    stub.key = "right"
    asked = [sys.executable, MANAGE, "chat", "--url", stub.url]
    done = subprocess.run(asked, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("CommandError: This server needs an API key.")


def test_a_live_terminal_wraps_and_a_pipe_does_not(out, monkeypatch):
    monkeypatch.setenv("COLUMNS", "11")
    Screen(out, live=True).text("one two three")
    Screen(out, live=False).text("|one two three")
    assert out.getvalue() == "one two \nthree|one two three"


def test_the_monitor_tells_each_wait():
    now = iter([0.0, 1.0, 2.0, 3.0, 4.0])
    monitor = Monitor(lambda: next(now))
    monitor.take({"smoe": {"state": "queued", "position": 2}})
    assert monitor.line() == "queued, position 2 · 1.0 s"
    monitor.take({"smoe": {"state": "booting", "model": "demo", "seconds": 1.5}})
    assert monitor.line() == "booting demo · 2.0 s"
    monitor.take({"smoe": {"state": "prefill"}, "prompt_progress": {"processed": 812, "total": 1200, "cache": 300}})
    assert monitor.line() == "prefilling 812 of 1,200 · warm, 300 cached · 3.0 s"


def test_the_monitor_goes_on_while_text_comes():
    now = iter([0.0, 1.5, 3.5, 5.5])
    monitor = Monitor(lambda: next(now))
    for _ in range(2):
        monitor.take({"smoe": {"tokens": 3}})
        monitor.saw_text()
    assert monitor.line() == "6 tokens · 3.0 tok/s · first after 1.50 s"
    assert monitor.summary() == "6 tokens · 1.5 tok/s · first after 1.50 s"  # told by nobody: as seen from here


def test_a_status_below_the_text_leaves_the_text_alone(out):
    screen = Screen(out, live=True)
    screen.text("one")
    screen.status_below("1 token")
    screen.text("two")
    below = out.getvalue().removeprefix("one").removesuffix("two")
    assert below.startswith("\x1bD\x1bM\x1b7")  # room, then the place is remembered
    assert below.endswith("\x1b8\x1b[J")  # and gone back to, before the status is erased
    Screen(plain := io.StringIO(), live=False).status_below("1 token")
    assert plain.getvalue() == ""


@pytest.fixture
def terminal(stub) -> Iterator[tuple[subprocess.Popen, int]]:
    """The command in a terminal of its own, and the person's end of that terminal."""
    person, screen = pty.openpty()
    command = [sys.executable, str(MANAGE), "chat", "--url", stub.url]
    process = subprocess.Popen(
        command,
        stdin=screen,
        stdout=screen,
        stderr=screen,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),  # as a shell starts a background job
    )
    os.close(screen)
    yield process, person
    process.kill()
    process.wait()
    os.close(person)


def read_until(person: int, words: str) -> str:
    seen = ""
    deadline = time.monotonic() + 60
    while words not in seen:
        ready, _, _ = select.select([person], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"{words!r} did not come; what did: {seen!r}"
        seen += os.read(person, 4096).decode(errors="replace")
    return seen


def test_ctrl_c_stops_the_reply_and_not_the_program(terminal, stub):
    process, person = terminal
    read_until(person, "leaves.")
    os.write(person, b"say endless\n")
    read_until(person, "word5")
    read_until(person, "tok/s")
    # The terminal is not this session's controlling one: the signal that its Ctrl-C would send is sent by hand.
    process.send_signal(2)
    read_until(person, "stopped")
    os.write(person, b"say short\n")
    read_until(person, "Paris")
    os.write(person, b"/quit\n")
    assert process.wait(10) == 0
    assert stub.hangups.acquire(timeout=30)
