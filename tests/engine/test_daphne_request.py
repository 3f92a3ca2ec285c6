"""What of a request's body is kept before anyone has looked at who is asking."""

import io
from types import SimpleNamespace

from engine.daphne_request import Request


def request(largest: int) -> Request:
    made = Request.__new__(Request)
    made.content = io.BytesIO()
    made.channel = SimpleNamespace(factory=SimpleNamespace(largest_body=largest))
    return made


def test_of_an_endless_body_one_byte_too_many_is_kept():
    body = request(largest=10)
    for _ in range(1000):
        body.handleContentChunk(b"abc")
    assert body.content.getvalue() == b"abcabcabcab"


def test_a_body_of_the_largest_size_is_whole():
    body = request(largest=6)
    body.handleContentChunk(b"abc")
    body.handleContentChunk(b"def")
    assert body.content.getvalue() == b"abcdef"
