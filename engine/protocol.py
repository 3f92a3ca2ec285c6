"""The serve protocol's lines <-> messages, versions 1 and 2 (docs/serve-protocol.md). Pure: bytes in, bytes out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .messages import Sampling

HELLO = b"HELLO 2\n"
STATUS = b"STATUS\n"
HEAT = b"HEAT\n"
RESET = b"RESET\n"
MAX_LINE = 64 << 20  # bytes; a longer line is no line of this protocol
MAX_LOGPROBS = 20
MAX_COUNT = (1 << 32) - 1


class ProtocolError(Exception):
    """The engine wrote what the protocol does not know: its answers can no longer be told apart."""


# --- what the server writes -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Gen:
    """One generation as the engine is asked for it. `tag` is the `id=` that CANCEL and MASK name."""

    ids: Sequence[int]
    max_tokens: int
    sampling: Sampling = field(default_factory=Sampling)
    tag: int = 0
    stop_ids: tuple[int, ...] = ()
    logprobs: int | None = None  # None: not asked; N: the chosen token's and N alternatives'
    prompt_logprobs: int | None = None  # the same, of the prompt's ids
    mask: bool = False
    slide: bool = True
    ignore_eos: bool = False


def gen_line(gen: Gen, version: int) -> bytes:
    keys = _v1_keys(gen.sampling)
    if version >= 2:
        keys += _v2_keys(gen)
    words = ["GEN", str(gen.max_tokens), *keys, ",".join(map(str, gen.ids))]
    return (" ".join(words) + "\n").encode()


def cancel_line(tag: int) -> bytes:
    return b"CANCEL %d\n" % tag


def warm_line(uses: Sequence[Sequence[int]]) -> bytes:
    """`uses`: of each expert in earlier runs, one list a MoE layer; empty where there were none."""
    counts = ";".join(",".join(str(min(count, MAX_COUNT)) for count in layer) for layer in uses)
    return f"WARM {counts}".encode().rstrip() + b"\n"


def mask_line(tag: int, allowed: str) -> bytes:
    """`allowed` is a `<set>` of docs/serve-protocol.md, Masks."""
    return f"MASK {tag} {allowed}\n".encode()


def unsupported_by_v1(gen: Gen) -> list[str]:
    """The fields that would change the answer and that version 1 has no words for. `seed` is best effort."""
    s = gen.sampling
    asked = {
        "min_p": bool(s.min_p),
        "presence_penalty": bool(s.presence_penalty),
        "frequency_penalty": bool(s.frequency_penalty),
        "logit_bias": bool(s.logit_bias),
        "logprobs": gen.logprobs is not None,
        "echo with logprobs": gen.prompt_logprobs is not None,
        "max_tokens of 0": gen.max_tokens == 0,
        "constrained output": gen.mask,
        "ignore_eos": gen.ignore_eos,
    }
    return [name for name, is_asked in asked.items() if is_asked]


def _v1_keys(s: Sampling) -> list[str]:
    # 0 and -1 mean "no limit" to many clients: the protocol's largest k says that.
    top_k = None if s.top_k is None else (min(s.top_k, 1024) if s.top_k > 0 else 1024)
    values = {
        "t": s.temperature,
        "p": None if s.top_p is None else min(max(s.top_p, 0.01), 1.0),
        "k": top_k,
        "r": s.repetition_penalty,
    }
    return _pairs(values)


def _v2_keys(gen: Gen) -> list[str]:
    s = gen.sampling
    values = {
        "id": gen.tag or None,
        "seed": None if s.seed is None else s.seed & (2**64 - 1),
        "m": s.min_p,
        "pp": s.presence_penalty,
        "fp": s.frequency_penalty,
        "lb": ";".join(f"{token}:{_number(bias)}" for token, bias in s.logit_bias.items()) or None,
        "stop": ";".join(map(str, gen.stop_ids)) or None,
        "ignore_eos": 1 if gen.ignore_eos else None,
        "lp": _asked(gen.logprobs),
        "plp": _asked(gen.prompt_logprobs),
        "mask": 1 if gen.mask else None,
        "slide": 1 if gen.slide else None,
    }
    return _pairs(values)


def _asked(logprobs: int | None) -> int | None:
    return None if logprobs is None else 1 + min(logprobs, MAX_LOGPROBS)


def _pairs(values: dict[str, float | int | str | None]) -> list[str]:
    return [f"{key}={_number(value)}" for key, value in values.items() if value is not None]


def _number(value: float | int | str) -> str:
    """Never in exponent notation, which not every engine reads."""
    if isinstance(value, float):
        return f"{value:.6f}".rstrip("0").rstrip(".")
    return str(value)


# --- what the engine writes -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hello:
    """What the engine says of itself. Version 1 says nothing but that it is one."""

    version: int = 1
    engine: str = ""
    context: int | None = None
    vocab: int | None = None
    vault: str = ""
    features: frozenset[str] = frozenset()


class Token(NamedTuple):
    id: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


class PromptToken(NamedTuple):
    """An id of the prompt, without a logprob where it is the first."""

    token: Token


@dataclass(frozen=True, slots=True)
class Progress:
    done: int
    total: int
    cached: int


@dataclass(frozen=True, slots=True)
class Done:
    """An answer's end. `figures` are the trailer's words as they stand; `reason` is empty for RESET's answer."""

    reason: str
    figures: dict[str, str] = field(default_factory=dict)

    def number(self, name: str) -> float | None:
        try:
            return float(self.figures[name])
        except (KeyError, ValueError):
            return None


@dataclass(frozen=True, slots=True)
class Refused:
    """An `<<ERR reason words>>` in place of an answer."""

    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Status:
    figures: dict[str, int | float | str]


@dataclass(frozen=True, slots=True)
class Heat:
    """Uses of each expert since the boot: one list a MoE layer, the first being layer `first`."""

    first: int
    counts: list[list[int]]


Message = Hello | Token | PromptToken | Progress | Done | Refused | Status | Heat


class Parser:
    """Cuts what the engine writes into messages, whatever the pieces it comes in.

    Until `version` is set to 1 the text is read by lines. A version-1 answer is read by words, since all its tokens
    may stand on one line and each must be seen when it comes.
    """

    def __init__(self) -> None:
        self.version = 2
        self._rest = b""
        self._error: list[bytes] = []  # of version 1: the words so far of an error,
        self._fin = ""  # and of an answer's end

    def feed(self, data: bytes) -> list[Message]:
        """The messages that `data` completes. Raises ProtocolError."""
        data = self._rest + data
        if len(data) > MAX_LINE:
            raise ProtocolError(f"a line of more than {MAX_LINE} bytes")
        return self._by_lines(data) if self.version >= 2 else self._by_words(data)

    def _by_lines(self, data: bytes) -> list[Message]:
        lines = data.split(b"\n")
        self._rest = lines.pop()
        return [message for line in lines if (message := _read_line(line)) is not None]

    def _by_words(self, data: bytes) -> list[Message]:
        words = data.split()
        self._rest = words.pop() if words and not data[-1:].isspace() else b""
        return list(self._read_words(words))

    def _read_words(self, words: Iterable[bytes]) -> Iterator[Message]:
        for word in words:
            if word.isdigit() and not self._error:
                yield Token(int(word))
            elif self._error or word.startswith(b"<<ERR"):
                self._error.append(word)
                if word.endswith(b">>"):
                    yield _refused(b" ".join(self._error)[2:-2].split()[1:])
                    self._error = []
            elif word.startswith(b"fin="):
                self._fin = word[4:].decode("ascii", "replace")
            elif word == b"<<DONE>>":
                yield Done(self._fin)
                self._fin = ""
            elif b"=" not in word:
                raise ProtocolError(f"unexpected word {word[:80]!r}")


def _read_line(line: bytes) -> Message | None:
    line = line.strip()
    if line.isdigit():
        return Token(int(line))
    if line.endswith(b"<<DONE>>"):
        figures = _fields(line[:-8].split())
        return Done(figures.pop("fin", ""), figures)
    if line.startswith(b"<<") and line.endswith(b">>"):
        return _read_tag(line[2:-2].split())
    if line[:1].isdigit():
        return _read_token(line)
    if line:
        raise ProtocolError(f"unexpected line {line[:80]!r}")
    return None


def _read_tag(words: list[bytes]) -> Message | None:
    """A tag of a later version is no error: nothing of an answer stands in one."""
    reader = _TAGS.get(words[0]) if words else None
    try:
        return reader(words[1:]) if reader else None
    except (KeyError, ValueError):
        raise ProtocolError(f"unreadable <<{words[0].decode('ascii', 'replace')} ...>>") from None


def _read_token(line: bytes) -> Token:
    """`1234 lp=-0.103 top=1234:-0.103;77:-2.5`"""
    words = line.split()
    try:
        fields = _fields(words[1:])
        pairs = (pair.partition(":") for pair in fields.get("top", "").split(";") if pair)
        top = tuple((int(token), float(logprob)) for token, _, logprob in pairs)
        return Token(int(words[0]), float(fields["lp"]) if "lp" in fields else None, top)
    except ValueError:
        raise ProtocolError(f"unexpected line {line[:80]!r}") from None


def _fields(words: Iterable[bytes]) -> dict[str, str]:
    pairs = (word.decode("utf-8", "replace").partition("=") for word in words)
    return {key: value for key, equals, value in pairs if equals}


def _hello(words: list[bytes]) -> Hello:
    fields = _fields(words)
    return Hello(
        version=int(fields["version"]),
        engine=fields.get("engine", ""),
        context=int(fields["ctx"]) if "ctx" in fields else None,
        vocab=int(fields["vocab"]) if "vocab" in fields else None,
        vault=fields.get("vault", ""),
        features=frozenset(filter(None, fields.get("features", "").split(","))),
    )


def _progress(words: list[bytes]) -> Progress:
    fields = _fields(words)
    return Progress(int(fields["done"]), int(fields["total"]), int(fields.get("cached", "0")))


def _prompt_token(words: list[bytes]) -> PromptToken:
    return PromptToken(_read_token(b" ".join(words)))


def _refused(words: list[bytes]) -> Refused:
    reason, *detail = (word.decode("utf-8", "replace") for word in words or [b"unknown"])
    return Refused(reason, " ".join(detail))


def _status(words: list[bytes]) -> Status:
    return Status({key: _figure(value) for key, value in _fields(words).items()})


def _figure(text: str) -> int | float | str:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def _heat(words: list[bytes]) -> Heat:
    fields = _fields(words)
    layers = filter(None, fields["counts"].split(";"))
    return Heat(int(fields.get("first", "0")), [[int(count) for count in layer.split(",")] for layer in layers])


_TAGS: dict[bytes, Callable[[list[bytes]], Message]] = {
    b"HELLO": _hello,
    b"PREFILL": _progress,
    b"PROMPT": _prompt_token,
    b"ERR": _refused,
    b"STATUS": _status,
    b"HEAT": _heat,
}
