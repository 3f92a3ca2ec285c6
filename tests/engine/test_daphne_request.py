"""What of a request's body is kept before anyone has looked at who is asking."""

import errno
import os
from types import SimpleNamespace

import pytest

from engine import daphne_request
from engine.daphne_request import Request


def request(largest: int, length: int | None = None) -> Request:
    made = Request.__new__(Request)
    made.channel = SimpleNamespace(factory=SimpleNamespace(largest_body=largest))
    made.gotLength(length)
    return made


def received(body: Request) -> bytes:
    """What `requestReceived` leaves to be read."""
    body.content.truncate()
    body.content.seek(0)
    return body.content.read()


def test_of_an_endless_body_one_byte_too_many_is_kept():
    body = request(largest=10)
    for _ in range(1000):
        body.handleContentChunk(b"abc")
    assert received(body) == b"abcabcabcab"


def test_a_body_of_the_largest_size_is_whole():
    body = request(largest=6)
    body.handleContentChunk(b"abc")
    body.handleContentChunk(b"def")
    assert received(body) == b"abcdef"


CHUNK = os.urandom(1 << 16)


@pytest.mark.parametrize("length", [None, 40 << 16])
@pytest.mark.parametrize("chunks", [1, 16, 17, 40])
def test_a_long_body_is_whole_on_the_disk(length, chunks):
    body = request(32 << 20, length)
    for _ in range(chunks):
        body.handleContentChunk(CHUNK)
    assert isinstance(body.content, daphne_request.BytesIO) == (chunks <= 16)  # 1 MiB
    assert received(body) == CHUNK * chunks


def test_a_full_disk_drops_no_body(monkeypatch):
    """The connection was closed without an answer, and without a line in the log."""

    def reserve(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", reserve, raising=False)
    body = request(32 << 20)
    for _ in range(40):
        body.handleContentChunk(CHUNK)
    assert received(body) == CHUNK * 40


def test_room_for_a_body_is_taken_before_it_comes():
    body = request(32 << 20, length=2 << 20)
    for _ in range(17):
        body.handleContentChunk(CHUNK)
    assert os.fstat(body.content.fileno()).st_size == 2 << 20
