"""A client that was written for version 1, and has never heard of anything else, drives our engine."""

import pytest

pytestmark = pytest.mark.native


class OldClient:
    """Reads words, drops `key=value` ones that it does not know, stops at <<DONE>> or <<ERR."""

    def __init__(self, engine):
        self.engine = engine

    def ask(self, request):
        self.engine.send(request)
        ids, finish, seen = [], None, b""
        while True:
            byte = self.engine.process.stdout.read(1)
            assert byte, "the engine ended"
            seen += byte
            if not byte.isspace():
                continue
            word, seen = seen.strip().decode(), b""
            if word == "<<DONE>>":
                return ids, finish
            if word == "<<ERR":
                raise RuntimeError(self.engine.line().removesuffix(">>"))
            if word.startswith("fin="):
                finish = word[4:]
            elif "=" not in word:
                ids.append(int(word))


@pytest.fixture
def client(start, golden):
    return OldClient(start(golden("q4").vault, "--eos-ids", "511", "--raw-ids", "--slot-mb", 0, hello=False))


def gen(case, keys="t=0"):
    return f"GEN {len(case['greedy_ids'])} {keys} {','.join(map(str, case['prompt_ids']))}"


def test_golden(client, golden):
    for case in golden("q4").cases:
        assert client.ask(gen(case)) == (case["greedy_ids"], "length")


def test_reset_forgets(client, golden):
    case = golden("q4").cases[0]
    client.ask(gen(case))
    assert client.ask("RESET") == ([], None)
    assert client.ask(gen(case)) == (case["greedy_ids"], "length")


def test_the_same_prompt_again_is_no_error(client, golden):
    case = golden("q4").cases[1]
    assert client.ask(gen(case)) == client.ask(gen(case))


def test_it_reads_nothing_that_it_does_not_know(client, golden):
    case = golden("q4").cases[0]
    client.engine.send(gen(case, "t=0 mask=1 lp=5 id=9 whatever=x"))
    lines = [client.engine.line() for _ in range(len(case["greedy_ids"]) + 1)]
    assert lines == [*map(str, case["greedy_ids"]), "fin=length <<DONE>>"]


NO_REQUESTS = ["", "HELO", "STATUS", "HEAT", "CANCEL 1", "MASK 1 all", "\x00\x01\x7f GEN 5 1"]
NO_GENERATIONS = [
    "GEN",
    "GEN 5",
    "GEN 0 1",
    "GEN 8193 1",
    "GEN x 1",
    "GEN 5 1,,2",
    "GEN 5 512",
    "GEN 5 -1",
    "GEN 5 1 2",
]
BAD_VALUES = ["GEN 5 t=hot 1", "GEN 5 r=0 1", "GEN 5 k=1025 1"]


@pytest.mark.parametrize("line", NO_REQUESTS + NO_GENERATIONS + BAD_VALUES)
def test_a_line_that_is_none_is_refused_at_a_boundary(client, golden, line):
    client.engine.send(line)
    assert client.engine.line() == "<<ERR bad_request>>"
    case = golden("q4").cases[1]
    assert client.ask(gen(case)) == (case["greedy_ids"], "length")


def test_bytes_that_are_no_text(client, golden):
    client.engine.send_bytes(bytes(range(1, 10)) + bytes(range(11, 256)) * 40 + b"\n")
    assert client.engine.line() == "<<ERR bad_request>>"
    case = golden("q4").cases[1]
    assert client.ask(gen(case)) == (case["greedy_ids"], "length")


def test_limits(start, golden):
    client = OldClient(start(golden("q4").vault, "--ctx", 64, hello=False))
    client.engine.send("GEN 1 t=0 " + ",".join(["7"] * 65))
    assert client.engine.line() == "<<ERR suffix_too_long>>"
    client.engine.send("GEN 1 t=0 " + ",".join(["7"] * ((1 << 20) + 1)))
    assert client.engine.line() == "<<ERR ctx_overflow>>"
    client.engine.send("GEN 1 t=0 " + "1,22,333," * (2 << 20))  # 18 MB: longer than any line
    assert client.engine.line() == "<<ERR ctx_overflow>>"
    ids, finish = client.ask("GEN 3 t=0 " + ",".join(["7"] * 64))
    assert (len(ids), finish) == (3, "length")
    # A conversation longer than the window goes on as long as its news fit.
    history = ["7"] * 64 + [str(i) for i in ids]
    assert len(client.ask("GEN 5 t=0 " + ",".join([*history, *["9"] * 60]))[0]) == 5


def test_sampling_keys_are_accepted(client, golden):
    prompt = ",".join(map(str, golden("q4").cases[0]["prompt_ids"]))
    ids, finish = client.ask(f"GEN 64 t=1.5 p=0.01 k=1 r=1.0 {prompt}")  # k=1 is greedy
    assert (ids, finish) == (golden("q4").cases[0]["greedy_ids"], "length")
