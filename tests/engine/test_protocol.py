"""The line protocol: the words of docs/serve-protocol.md, however they are cut."""

import itertools
import random

import pytest

from engine.messages import Sampling
from engine.protocol import (
    Done,
    Gen,
    Heat,
    Hello,
    Parser,
    Progress,
    PromptToken,
    ProtocolError,
    Refused,
    Status,
    Token,
    cancel_line,
    gen_line,
    mask_line,
    unsupported_by_v1,
    warm_line,
)

# As docs/serve-protocol.md shows them.
V2 = b"""<<HELLO version=2 engine=smoe-engine/0.1.0 ctx=4096 vocab=49152 vault=smollm2 features=cancel,seed>>
<<PREFILL done=0 total=1200 cached=300>>
<<PREFILL done=1200 total=1200 cached=300>>
1234
<<STATUS state=decode rss=312344576 uptime_ms=81231.5>>
1234 lp=-0.103 top=1234:-0.103;77:-2.5
<<PROMPT 3>>
<<PROMPT 1234 lp=-0.103 top=1234:-0.103;77:-2.5>>
prompt=1200 cached=300 generated=57 prefill_ms=812.4 fin=stop <<DONE>>
<<ERR bad_request field=max_tokens>>
<<HEAT layers=2 experts=3 first=1 counts=12,0,3;9,9,1>>
<<DONE>>
<<SOMETHING of=version3>>
7
"""
V2_MESSAGES = [
    Hello(2, "smoe-engine/0.1.0", 4096, 49152, "smollm2", frozenset({"cancel", "seed"})),
    Progress(0, 1200, 300),
    Progress(1200, 1200, 300),
    Token(1234),
    Status({"state": "decode", "rss": 312344576, "uptime_ms": 81231.5}),
    Token(1234, -0.103, ((1234, -0.103), (77, -2.5))),
    PromptToken(Token(3)),
    PromptToken(Token(1234, -0.103, ((1234, -0.103), (77, -2.5)))),
    Done("stop", {"prompt": "1200", "cached": "300", "generated": "57", "prefill_ms": "812.4"}),
    Refused("bad_request", "field=max_tokens"),
    Heat(1, [[12, 0, 3], [9, 9, 1]]),
    Done(""),
    Token(7),
]
V1 = b"12 34\n5 fin=length <<DONE>>\n<<ERR suffix_too_long>>\n6\n7\nt_s=3.5 fin=stop <<DONE>>\n<<DONE>>\n"
V1_MESSAGES = [
    *(Token(12), Token(34), Token(5), Done("length"), Refused("suffix_too_long")),
    *(Token(6), Token(7), Done("stop"), Done("")),
]


@pytest.mark.parametrize(("version", "text", "messages"), [(2, V2, V2_MESSAGES), (1, V1, V1_MESSAGES)])
def test_messages_do_not_depend_on_the_pieces(version, text, messages):
    chance = random.Random(1)
    for pieces in (1, 2, 5, 20, len(text)):
        parser = Parser()
        parser.version = version
        cuts = [0, *sorted(chance.sample(range(1, len(text)), pieces - 1)), len(text)]
        got = [message for a, b in itertools.pairwise(cuts) for message in parser.feed(text[a:b])]
        assert got == messages


def test_a_version_1_token_is_told_when_it_is_whole():
    parser = Parser()
    parser.version = 1
    assert parser.feed(b"12") == []
    assert parser.feed(b"3 ") == [Token(123)]


@pytest.mark.parametrize(
    "text", [b"hello\n", b"12a\n", b"-5\n", b"1 lp=x\n", b"<<PREFILL done=x total=1>>\n", b"\xff\xfe\n"]
)
def test_what_is_no_line_is_an_error(text):
    with pytest.raises(ProtocolError):
        Parser().feed(text)


@pytest.mark.parametrize("text", [b"hello ", b"-5 ", b"<<HELLO ", b"\xff "])
def test_what_is_no_word_is_an_error(text):
    parser = Parser()
    parser.version = 1
    with pytest.raises(ProtocolError):
        parser.feed(text)


def test_random_bytes_give_messages_or_the_one_error():
    chance = random.Random(2)
    for version in (1, 2):
        for _ in range(500):
            parser = Parser()
            parser.version = version
            data = bytes(chance.choices(b"<>0123456789 =\nERRDONEfin;:,PREFILLlp\xf0-.", k=60))
            try:
                parser.feed(data)
            except ProtocolError:
                continue


def test_a_request_in_both_versions():
    sampling = Sampling(0.00004, 0.0, 5000, 0.05, 1.1, 0.5, -2.0, 7, {3: -100.0, 4: 1.5})
    asked = {"logprobs": 5, "prompt_logprobs": 0, "mask": True, "ignore_eos": True}
    gen = Gen([1, 2, 3], 10, sampling, tag=4, stop_ids=(8, 9), **asked)
    assert gen_line(gen, 1) == b"GEN 10 t=0.00004 p=0.01 k=1024 r=1.1 1,2,3\n"
    assert gen_line(gen, 2) == (
        b"GEN 10 t=0.00004 p=0.01 k=1024 r=1.1 id=4 seed=7 m=0.05 pp=0.5 fp=-2 lb=3:-100;4:1.5 stop=8;9 ignore_eos=1 "
        b"lp=6 plp=1 mask=1 slide=1 1,2,3\n"
    )
    assert cancel_line(4) == b"CANCEL 4\n"
    assert mask_line(4, "only:1;2") == b"MASK 4 only:1;2\n"


def test_nothing_is_sent_that_was_not_asked():
    assert gen_line(Gen([1], 10, slide=False), 2) == b"GEN 10 1\n"


def test_what_version_1_cannot_honour_is_named():
    assert unsupported_by_v1(Gen([1], 1, Sampling(0.5, 0.5, 5, 0.0, 1.1, 0.0, 0.0, seed=4))) == []
    asked = Gen([1], 1, Sampling(min_p=0.1, presence_penalty=1.0, logit_bias={1: 2.0}), logprobs=0, mask=True)
    assert unsupported_by_v1(asked) == ["min_p", "presence_penalty", "logit_bias", "logprobs", "constrained output"]
    assert unsupported_by_v1(Gen([1], 0, prompt_logprobs=1)) == ["echo with logprobs", "max_tokens of 0"]


def test_a_warm_line():
    assert warm_line([]) == b"WARM\n"
    assert warm_line([[1, 0], [2**40, 3]]) == b"WARM 1,0;4294967295,3\n"
