#!/usr/bin/env python3
"""An engine of serve protocol version 2 that plays a script.

The file named by SMOE_DOUBLE_SCRIPT (JSON, read for each request) may say:
  reply        ids, or {last id of the prompt: ids}; else the prompt's own ids over and over
  replies      [[ids, reply]]: in place of `reply` where the prompt holds these ids in a row, the first that fits
  token_delay, prefill_delay (s a chunk), boot_delay (s); prefill_chunks
  crash, hang  boot, hello, prefill or decode:N: SIGKILL to itself, or nothing more, there
  refuse       the words of an <<ERR ...>>
  fail_boot    one line for stderr before exit code 3; {vault stem: line} for one vault
  ignore_cancel, batch (tokens a write), noise (lines on stderr a token), status_filler (bytes)
  log          a file that gets a line of JSON for everything that happens
"""

import argparse
import base64
import fcntl
import json
import os
import queue
import signal
import sys
import threading
import time
from pathlib import Path

VOCAB = 512


def script():
    path = os.environ.get("SMOE_DOUBLE_SCRIPT")
    return json.loads(Path(path).read_text()) if path else {}


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


def shared_prefix(one, other):
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def holds(ids, part):
    def text(ids):
        return "".join(f",{id}" for id in ids) + ","

    return text(part) in text(ids)


class Engine:
    def __init__(self, options):
        self.options = options
        self.context = options.ctx
        self.writing = threading.Lock()
        self.requests = queue.Queue()
        self.cancelled = set()
        self.masks = {}
        self.state = "idle"
        self.generations = 0  # told as the uses of one expert
        self.cached = []
        self.told = script()  # as it was when the request came

    # --- what comes in ---

    def listen(self):
        for line in sys.stdin:
            note("line", line=line.strip())
            self.hear(line.split())
        os._exit(0)  # end of input ends the engine, whatever it is doing

    def hear(self, words):
        if words[0] == "CANCEL":
            self.cancelled.add(int(words[1]))
        elif words[0] == "MASK":
            self.masks.setdefault(int(words[1]), queue.Queue()).put(words[2])
        elif words[0] == "STATUS":
            filler = "x" * script().get("status_filler", 0)
            self.write(
                f"<<STATUS state={self.state} ctx={self.context} cached={len(self.cached)} rss=1000 filler={filler}>>"
            )
        elif words[0] == "WARM":
            pass  # noted with every line
        elif words[0] == "HEAT":
            self.write(f"<<HEAT layers=1 experts=2 first=0 counts={self.generations},0>>")
        else:
            self.requests.put(words)

    # --- what goes out ---

    def write(self, *lines):
        with self.writing:
            sys.stdout.write("".join(line + "\n" for line in lines))
            sys.stdout.flush()

    def reach(self, place):
        if self.told.get("crash") == place:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.told.get("hang") == place:
            time.sleep(3600)

    def serve(self):
        while True:
            words = self.requests.get()
            self.told = script()
            if words == ["HELLO", "2"]:
                self.reach("hello")
                stem = Path(self.options.vault).stem
                self.write(
                    f"<<HELLO version=2 engine=double/1 ctx={self.context} vocab={VOCAB} vault={stem} "
                    "features=cancel,seed,progress,logprobs,prompt_logprobs,mask,status,heat,warm>>"
                )
            elif words == ["RESET"]:
                self.cached = []
                self.write("<<DONE>>")
            elif "refuse" in self.told:
                self.write(f"<<ERR {self.told['refuse']}>>")
            elif words[0] == "GEN":
                self.generate(int(words[1]), *self.parse(words[2:]))
            else:
                self.write("<<ERR bad_request field=command>>")

    @staticmethod
    def parse(words):
        fields = dict(word.split("=", 1) for word in words[:-1])
        return fields, [int(id) for id in words[-1].split(",")]

    def generate(self, budget, fields, ids):
        tag = int(fields["id"])
        self.generations += 1
        note("gen", tag=tag, fields=fields, prompt=len(ids))
        cached = min(shared_prefix(ids, self.cached), len(ids) - 1)
        self.cached = ids
        fin = "length"
        self.state = "prefill"
        generated = 0
        if self.prefill(tag, len(ids), cached):
            self.state = "decode"
            asked = {"lp": fields["plp"]} if "plp" in fields else None
            for place, id in enumerate(ids if asked else ()):
                self.write(f"<<PROMPT {self.token_line(id, asked if place else {})}>>")
            fin, generated = self.decode(tag, budget, fields, ids)
        else:
            fin = "cancel"
        self.state = "idle"
        slid = max(0, len(ids) + generated - self.context)
        self.write(
            f"prompt={len(ids)} cached={cached} generated={generated} prefill_ms=12.5 decode_ms=34.5 hits=7 misses=3 "
            f"bytes=4096 stall_ms=1.5 slid={slid} fin={fin} <<DONE>>"
        )

    def is_cancelled(self, tag):
        return tag in self.cancelled and not self.told.get("ignore_cancel")

    def prefill(self, tag, total, cached):
        told = self.told
        chunks = told.get("prefill_chunks", 1)
        for chunk in range(chunks + 1):
            done = cached + (total - cached) * chunk // chunks
            self.write(f"<<PREFILL done={done} total={total} cached={cached}>>")
            self.reach("prefill")
            if self.is_cancelled(tag):
                return False
            if chunk < chunks:
                time.sleep(told.get("prefill_delay", 0))
        return True

    def reply_to(self, ids):
        for part, reply in self.told.get("replies", ()):
            if holds(ids, part):
                return reply
        reply = self.told.get("reply")
        return reply.get(str(ids[-1])) if isinstance(reply, dict) else reply

    def decode(self, tag, budget, fields, ids):
        told = self.told
        reply = self.reply_to(ids)
        tokens = [ids[n % len(ids)] for n in range(budget)] if reply is None else reply[:budget]
        ends = {int(id) for id in fields.get("stop", "").split(";") if id}
        lines, delay, batch = [], told.get("token_delay", 0), told.get("batch", 1)
        for count, token in enumerate(tokens):
            if delay:
                time.sleep(delay)
            if count % 64 == 0 or delay:
                self.reach(f"decode:{count}")
                if self.is_cancelled(tag):
                    self.write(*lines)
                    return "cancel", count
            if token in ends:
                self.write(*lines)
                return "stop", count
            if fields.get("mask") == "1" and not self.allows(tag, token):
                self.write(*lines)
                return "stop", count
            for number in range(told.get("noise", 0)):
                sys.stderr.write(f"noise {number} " + "." * 200 + "\n")
            lines.append(self.token_line(token, fields))
            if len(lines) >= batch:
                self.write(*lines)
                lines = []
        self.write(*lines)
        return ("stop" if reply is not None and len(reply) < budget else "length"), len(tokens)

    def allows(self, tag, token):
        allowed = self.masks.setdefault(tag, queue.Queue()).get()
        note("mask", tag=tag, allowed=allowed)
        kind, _, ids = allowed.partition(":")
        if kind == "bits":
            return bool(base64.b64decode(ids)[token // 8] >> token % 8 & 1)
        inside = str(token) in ids.split(";")
        return kind == "all" or (kind == "only" and inside) or (kind == "not" and not inside)

    @staticmethod
    def token_line(token, fields):
        alternatives = int(fields.get("lp", 0)) - 1
        if alternatives < 0:
            return str(token)
        top = ";".join(f"{token + n}:{-0.5 - n}" for n in range(alternatives))
        return f"{token} lp=-0.5" + (f" top={top}" if top else "")


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
    flags.add_argument("--ctx", type=int, default=4096)
    flags.add_argument("--serve", action="store_true")
    options, _ = flags.parse_known_args()
    held = alone()
    note("start", vault=options.vault, arguments=sys.argv[1:])
    told = script()
    failure = told.get("fail_boot")
    if isinstance(failure, dict):
        failure = failure.get(Path(options.vault).stem)
    if failure:
        sys.exit(sys.stderr.write(failure + "\n") and 3)
    engine = Engine(options)
    threading.Thread(target=engine.listen, daemon=True).start()
    time.sleep(told.get("boot_delay", 0))
    engine.reach("boot")
    engine.serve()
    del held


if __name__ == "__main__":
    main()
