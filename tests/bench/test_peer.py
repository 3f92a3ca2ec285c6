"""llama-bench's words: its JSON as it wrote it (build 11434, shortened), and the flags of its versions."""

import json

import pytest

from bench import peer
from bench.results import Sample

OUTPUT = """[
  {"build_number": 0, "cpu_info": "AMD EPYC", "model_type": "qwen3moe ?B Q4_0", "n_threads": 2, "load_mode": "mmap",
   "n_prompt": 64, "n_gen": 0, "n_depth": 0, "avg_ns": 2755999024, "avg_ts": 23.222069, "samples_ts": [ 23.2221 ]},
  {"build_number": 0, "cpu_info": "AMD EPYC", "model_type": "qwen3moe ?B Q4_0", "n_threads": 2, "load_mode": "mmap",
   "n_prompt": 512, "n_gen": 0, "n_depth": 0, "avg_ns": 1, "avg_ts": 17.5, "samples_ts": [ 17.5 ]},
  {"build_number": 0, "cpu_info": "AMD EPYC", "model_type": "qwen3moe ?B Q4_0", "n_threads": 2, "load_mode": "mmap",
   "n_prompt": 0, "n_gen": 8, "n_depth": 0, "avg_ns": 1, "avg_ts": 2.25, "samples_ts": [ 2.25 ]}
]"""


def test_each_test_gets_the_name_of_our_own_figure():
    assert peer.parse(OUTPUT) == {"prefill_64_tok_s": 23.222069, "prefill_512_tok_s": 17.5, "decode_tok_s": 2.25}


@pytest.mark.parametrize(
    ("help_text", "flags"),
    [
        ("  -lm, --load-mode <auto|none|mmap>\n  --repack <0|1>", ["--repack", "0", "--load-mode", "mmap"]),
        ("  -mmp, --mmap <0|1>\n  --no-host <0|1>", ["--mmap", "1"]),
        ("  -t, --threads <n>", []),
    ],
    ids=["now", "without repack", "neither"],
)
def test_the_mapped_file_is_asked_for_as_the_version_has_it(tmp_path, help_text, flags):
    program = tmp_path / "llama-bench"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{help_text}\nEND\n")
    program.chmod(0o755)
    subject = peer.Peer(program, tmp_path / "model.gguf", 2)
    default = subject.command([512], 8, mmap=False)
    assert subject.command([512], 8, mmap=True) == default + flags


def test_a_context_is_asked_for(tmp_path):
    subject = peer.Peer(tmp_path / "llama-bench", tmp_path / "model.gguf", 2)
    assert subject.command([512], 8, mmap=False, depth=4096) == [*subject.command([512], 8, mmap=False), "-d", "4096"]


def run(tmp_path, script, timeout=20.0) -> Sample:
    program = tmp_path / "llama-bench"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return peer.speed(peer.Peer(program, tmp_path / "model.gguf", 2), [64], 8, timeout, mmap=False)


def test_a_run_is_measured(tmp_path):
    (tmp_path / "out.json").write_text(OUTPUT)
    sample = run(tmp_path, f"cat {tmp_path}/out.json")
    assert sample.failure == ""
    assert sample.metrics["decode_tok_s"] == json.loads(OUTPUT)[2]["avg_ts"]
    assert sample.command == "llama-bench -m model.gguf -t 2 -p 64 -n 8 -r 1 -o json"


def test_a_run_that_fails_says_how(tmp_path):
    assert run(tmp_path, "echo loading >&2; echo no such model >&2; exit 3").failure == "ended with 3: no such model"


def test_a_run_that_takes_too_long_is_ended(tmp_path):
    assert run(tmp_path, "exec sleep 600", timeout=0.3).failure == "took more than 0 s"
