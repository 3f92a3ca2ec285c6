"""The launch options, declared once: flag, environment variable, type, default and help of each.

`manage.py serve` builds its command line from this table, `settings.SMOE` is read from the environment through it,
and the README's table is checked against it.
"""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

BASE_DIR = Path(__file__).resolve().parent.parent
LEAST_WINDOW, LARGEST_WINDOW = 16, 1 << 20
LEAST_OPEN_WINDOW = 4096


class OptionError(ValueError):
    """A value that cannot be used; the message names the option."""


def _path(text: str) -> Path:
    return Path(text).expanduser()


def _int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("expected a whole number") from None


def _float(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError("expected a number")
    return value


def _bool(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in {"1", "true", "yes", "on"}:
        return True
    if lowered in {"", "0", "false", "no", "off"}:
        return False
    raise ValueError("expected 1 or 0")


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _origins(text: str) -> tuple[str, ...]:
    """As browsers spell them: a scheme, a host, a port where it is not the scheme's own; no path. `null`: files."""
    origins = tuple(origin.rstrip("/").lower() for origin in _list(text))
    for origin in origins:
        if origin not in ("*", "null") and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/?#@\s]+", origin):
            raise ValueError(f"{origin!r} is no origin such as https://chat.example")
    return origins


def bytes_of(amount: str) -> int:
    """`6G` -> bytes, as the engine reads them: units of 1024, with or without iB. Raises ValueError."""
    told = re.fullmatch(r"([0-9]+\.?[0-9]*|\.[0-9]+)([KMGTkmgt]?)(?:iB)?", amount)
    number = float(told[1]) * 1024 ** " KMGT".index(told[2].upper() or " ") if told else 0
    if not 1 <= number <= 9e18:
        raise ValueError("expected an amount such as 6G or 800M")
    return int(number)


def _amount(text: str) -> str:
    if text:
        bytes_of(text)
    return text


def _engine_flags(text: str) -> tuple[str, ...]:
    """What the server itself decides would have two answers, and its estimates would follow the wrong one."""
    words = _list(text)
    own = {flag(f.name) for f in fields(Options)}
    for name in (word.partition("=")[0] for word in words):
        if name in own:
            raise ValueError(f"{name} is the server's own flag: give it beside --engine-args")
    return words


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"expected {' or '.join(words)}")
        return text

    return parse


def _window(text: str) -> int:
    value = _int(text)
    if value != 0 and not LEAST_WINDOW <= value <= LARGEST_WINDOW:
        raise ValueError(f"expected 0, or from {LEAST_WINDOW} to {LARGEST_WINDOW}")
    return value


def option(
    default: Any, parse: Callable[[str], Any], help: str, low: float | None = None, high: float | None = None
) -> Any:
    return field(default=default, metadata={"parse": parse, "help": help, "low": low, "high": high})


@dataclass(frozen=True, slots=True)
class Options:
    """Field `max_tokens` is the flag `--max-tokens` and the variable `SMOE_MAX_TOKENS`."""

    host: str = option("127.0.0.1", str, "address to listen on")
    port: int = option(8000, _int, "port to listen on", 0, 65535)
    engine: Path = option(BASE_DIR / "build" / "smoe-engine", _path, "the engine's program")
    vault_dir: Path = option(BASE_DIR / "vault", _path, "the fleet directory")
    vault: Path | None = option(None, _path, "a vault to boot first, in the fleet directory or elsewhere")
    scout: Path | None = option(None, _path, "the scout of --vault, where it is not beside it")
    tokenizer: str = option("", str, "tokenizer for vaults that have no checkpoints/<name>/")
    model_id: str = option("s-moe", str, "a name that always means the active vault")
    ring: int = option(0, _int, "expert cache slots; 0: as many as memory allows", 0)
    workers: int = option(4, _int, "threads that read experts", 1, 64)
    prewarm: bool = option(True, _bool, "0: read no experts ahead while nothing is asked")
    memory: str = option("", _amount, "memory for the engine in all, such as 6G; without: what is available")
    trunk: str = option(
        "auto",
        _one_of("auto", "stored", "q8", "q4"),
        "the trunk's matrices in memory: stored, as in the file, or quantized to q8 or q4; auto: q8 beyond 1 GiB",
    )
    ctx: int = option(0, _window, "window in positions; 0: from 4096 up to the trained length, as far as memory allows")
    temperature: float = option(0.6, _float, "default temperature; 0 is greedy", 0, 10)
    top_p: float = option(0.95, _float, "default top_p", 0.01, 1)
    top_k: int = option(50, _int, "default top_k", 1, 1024)
    rep_penalty: float = option(1.1, _float, "default repetition penalty", 0.01, 10)
    max_tokens: int = option(256, _int, "default reply length", 1, 4096)
    context_overflow: str = option(
        "slide", _one_of("slide", "error"), "past the window: slide drops the oldest positions, error refuses"
    )
    max_queue: int = option(64, _int, "requests that may wait", 1)
    min_stay: float = option(
        20.0, _float, "seconds on a vault before the engine switches for others, if it has work", 0
    )
    max_body_mb: int = option(32, _int, "largest request body, MiB", 1)
    allow_origin: tuple[str, ...] = option((), _origins, "web origins that may call the API, comma-separated")
    allow_anyone: bool = option(False, _bool, "1: serve other machines although there is no API key")
    log_days: int = option(90, _int, "days that the request log and events are kept; 0: for ever", 0, 36_500)
    log_text: bool = option(False, _bool, "1: keep the text of prompts and replies in the request log")
    checkpoints_dir: Path = option(BASE_DIR / "checkpoints", _path, "where <name>/ holds a vault's tokenizer")
    data_dir: Path = option(BASE_DIR / "data", _path, "database, secret key and run files")
    engine_args: tuple[str, ...] = option((), _engine_flags, "further flags for the engine, comma-separated")

    @property
    def trunk_form(self) -> str:
        """As `--trunk`: what the engine makes of it."""
        return "stored" if self.trunk == "auto" and "--exact" in self.engine_args else self.trunk

    @property
    def window(self) -> int:
        """Positions that an engine has at least, where it does not tell: those of version 1 have just these."""
        return self.ctx or LEAST_OPEN_WINDOW


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def variable(name: str) -> str:
    return "SMOE_" + name.upper()


def parse_value(name: str, text: str, source: str) -> Any:
    """One option's value from text. Raises OptionError that names `source`."""
    meta = next(f for f in fields(Options) if f.name == name).metadata
    try:
        value = meta["parse"](text)
    except ValueError as error:
        raise OptionError(f"{source}={text!r} is not usable: {error}") from None
    low, high = meta["low"], meta["high"]
    if (low is not None and value < low) or (high is not None and value > high):
        bounds = f"at least {low}" if high is None else f"from {low} to {high}"
        raise OptionError(f"{source}={text} is out of range: {bounds}")
    return value


def from_environment(environment: Mapping[str, str] = os.environ) -> Options:
    """Options with every `SMOE_*` variable that is set and not empty. Raises OptionError."""
    values = {
        f.name: parse_value(f.name, environment[variable(f.name)], variable(f.name))
        for f in fields(Options)
        if environment.get(variable(f.name), "") != ""
    }
    return Options(**values)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Every option as a flag that takes text; which were given is told apart from the defaults."""
    for f in fields(Options):
        default = f.default if f.default not in (None, "", ()) else "none"
        parser.add_argument(
            flag(f.name),
            dest=f.name,
            metavar=f.name.rpartition("_")[2].upper(),
            default=argparse.SUPPRESS,
            help=f"{f.metadata['help']} (default {default}; {variable(f.name)})".replace("%", "%%"),
        )


def export_flags(arguments: Sequence[str], environment: MutableMapping[str, str] = os.environ) -> None:
    """Flags become variables, so that the settings, which read those alone, are right from the start.

    What is no option is left to the command's own parser. Raises OptionError.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    add_flags(parser)
    try:
        given, _ = parser.parse_known_args(list(arguments))
    except argparse.ArgumentError as error:
        raise OptionError(str(error)) from None
    for name, text in vars(given).items():
        parse_value(name, text, flag(name))
        environment[variable(name)] = text
