#!/usr/bin/env python3
"""An engine of serve protocol version 1, and nothing else: it has never heard of a hello, a cancel or an id=.

The reply to a prompt is the prompt's own ids over and over, so that a token of another request shows. The file
named by SMOE_DOUBLE_SCRIPT (JSON, read for each request) may say: token_delay (s), boot_delay (s), window (ids), reply
(ids), refuse ({reason: times}), and log, a file that gets a line of JSON for everything that happens.
"""

import argparse
import fcntl
import json
import os
import sys
import time

VOCAB = 512


def script():
    path = os.environ.get("SMOE_DOUBLE_SCRIPT")
    if not path:
        return {}
    with open(path) as file:
        return json.load(file)


def note(event, **what):
    if path := script().get("log"):
        with open(path, "a") as file:
            file.write(json.dumps({"pid": os.getpid(), "event": event, **what}) + "\n")


def alone():
    """Another engine at the same time is what must never be."""
    if path := script().get("log"):
        file = open(path + ".alive", "w")  # noqa: SIM115 - held until the process ends
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            note("second engine")
        return file
    return None


def write(text):
    sys.stdout.write(text)
    sys.stdout.flush()


def parse(words):
    """max_tokens and ids of a GEN; ValueError for what version 1 does not allow."""
    budget = int(words[1])
    ids = [int(word) for word in next(word for word in words[2:] if "=" not in word).split(",")]
    if not 1 <= budget <= 8192 or not all(0 <= id < VOCAB for id in ids):
        raise ValueError
    return budget, ids


def shared_prefix(one, other):
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


class Engine:
    def __init__(self):
        self.refused = {}
        self.cached = []

    def refusal(self, ids):
        for reason, times in script().get("refuse", {}).items():
            if self.refused.get(reason, 0) < times:
                self.refused[reason] = self.refused.get(reason, 0) + 1
                return reason
        common = shared_prefix(ids, self.cached)
        if common == len(ids):
            return "empty_suffix"
        if len(ids) - common > script().get("window", 4096):
            return "suffix_too_long"
        return None

    def answer(self, line):
        words = line.split()
        if words == ["RESET"]:
            self.cached = []
            return write("<<DONE>>\n")
        try:
            if words[0] != "GEN":
                raise ValueError
            budget, ids = parse(words)
        except (ValueError, IndexError, StopIteration):
            return write("<<ERR bad_request>>\n")
        if reason := self.refusal(ids):
            return write(f"<<ERR {reason}>>\n")
        return self.generate(budget, ids)

    def generate(self, budget, ids):
        told = script()
        reply = told.get("reply")
        tokens = [ids[n % len(ids)] for n in range(budget)] if reply is None else reply[:budget]
        for token in tokens:
            time.sleep(told.get("token_delay", 0))
            write(f"{token} ")
        self.cached = ids + tokens[:-1]
        write(f"\nfin={'stop' if reply is not None and len(reply) < budget else 'length'} <<DONE>>\n")


def main():
    flags = argparse.ArgumentParser()
    for name in (
        "vault",
        "scout",
        "ring",
        "workers",
        "slot-mb",
        "temperature",
        "top-p",
        "top-k",
        "rep-penalty",
        "eos-ids",
    ):
        flags.add_argument(f"--{name}")
    for name in ("serve", "raw-ids", "instrument", "debug"):
        flags.add_argument(f"--{name}", action="store_true")
    options = flags.parse_args()  # exits with 2 at a flag that version 1 does not have
    held = alone()
    note("start", vault=options.vault, arguments=sys.argv[1:])
    sys.stderr.write(f"double: {options.vault} is loaded\n")
    time.sleep(script().get("boot_delay", 0))
    engine = Engine()
    for line in sys.stdin:
        note("line", line=line.strip())
        engine.answer(line)
    note("end")
    del held


if __name__ == "__main__":
    main()
