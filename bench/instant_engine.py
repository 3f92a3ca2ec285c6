#!/usr/bin/env python3
"""An engine of serve protocol 2 that computes nothing: what is left is what the server costs.

It answers every GEN with ordinary ids, one write a token as the real one does, and adds to the file that
SMOE_BENCH_TIMES names when it wrote the first token and when it began to write the others (time.monotonic_ns). Between
the two it waits, so that the first token's way is not crowded by the next ones.
"""

from __future__ import annotations

import os
import sys
import time

PAUSE = 0.05  # seconds
WORDS = range(300, 340)  # of the interop tokenizer's 512: plain text, no end of sequence


def write(line: str) -> None:
    os.write(1, line.encode() + b"\n")


def generate(count: int, prompt: str) -> None:
    total = prompt.count(",") + 1
    write(f"<<PREFILL done=0 total={total} cached=0>>")
    write(f"<<PREFILL done={total} total={total} cached=0>>")
    lines = [f"{WORDS[n % len(WORDS)]}" for n in range(count)]
    first = time.monotonic_ns()
    write(lines[0])
    time.sleep(PAUSE)
    others = time.monotonic_ns()
    for line in lines[1:]:
        write(line)
    decoding = (time.monotonic_ns() - others) / 1e6
    with open(os.environ["SMOE_BENCH_TIMES"], "a") as file:
        file.write(f"{first} {others}\n")
    write(
        f"prompt={total} cached=0 generated={count} prefill_ms=0.0 decode_ms={decoding} hits=0 misses=0 "
        "bytes=0 stall_ms=0.0 slid=0 fin=length <<DONE>>"
    )


def main() -> None:
    for line in sys.stdin:
        words = line.split()
        if words[0] == "HELLO":
            features = "features=cancel,seed,progress,logprobs,mask,status,heat"
            write(f"<<HELLO version=2 engine=instant/1 ctx=8192 vocab=512 vault=tiny-qwen3moe {features}>>")
        elif words[0] == "STATUS":
            write("<<STATUS state=idle ctx=8192 rss=0>>")
        elif words[0] == "HEAT":
            write("<<HEAT layers=1 experts=1 first=0 counts=0>>")
        elif words[0] == "RESET":
            write("<<DONE>>")
        elif words[0] == "GEN":
            generate(int(words[1]), words[-1])


if __name__ == "__main__":
    main()
