"""What version 2 adds, one test a promise of docs/serve-protocol.md."""

import base64
import time

import native_engine
import numpy as np
import pytest
from native_engine import gen_line

pytestmark = pytest.mark.native
LONG = {"t": 0, "ignore_eos": 1}


@pytest.fixture
def prompt(golden):
    return golden("q4").cases[0]["prompt_ids"]


@pytest.fixture
def greedy(golden):
    return golden("q4").cases[0]["greedy_ids"]


def log_softmax(logits):
    x = logits.astype(np.float64)
    return x - x.max() - np.log(np.exp(x - x.max()).sum())


def test_hello_tells_what_may_be_used(tiny):
    assert tiny.hello == (
        "<<HELLO version=2 engine=smoe-engine/0.1.0 ctx=4096 vocab=512 vault=tiny-qwen3moe "
        "features=cancel,seed,progress,logprobs,prompt_logprobs,mask,status,heat,warm>>"
    )


def test_errors_carry_words_after_the_hello(tiny):
    tiny.send("GEN -1 1", "GEN 1 t=x 1", "NONSENSE")
    assert [tiny.line() for _ in range(3)] == [
        "<<ERR bad_request field=max_tokens>>",
        "<<ERR bad_request field=t>>",
        "<<ERR bad_request field=request>>",
    ]


def test_progress_counts_cached_ids(start, golden, prompt):
    engine = start(golden("q4").vault, "--chunk", 8)
    assert engine.generate(1, prompt).progress == [(0, 17, 0), (8, 17, 0), (16, 17, 0), (17, 17, 0)]
    assert engine.generate(1, prompt).progress == [(16, 17, 16), (17, 17, 16)]


def test_the_trailer_is_exact(tiny, prompt, greedy):
    first = tiny.generate(10, prompt, t=0).figures
    assert (first["prompt"], first["cached"], first["generated"], first["fin"]) == ("17", "0", "10", "length")
    assert int(first["misses"]) > 0
    records, part = divmod(int(first["bytes"]), 13056)  # raw_size of a record of this vault
    assert part == 0
    assert int(first["misses"]) <= records <= 24  # what was read ahead is a hit
    again = tiny.generate(20, prompt + greedy[:10], t=0).figures
    # The tenth id was never processed.
    assert (again["prompt"], again["cached"], again["generated"], again["slid"]) == ("27", "26", "20", "0")
    assert {"prefill_ms", "decode_ms", "stall_ms", "hits"} <= again.keys()


def test_one_seed_gives_one_reply(tiny, prompt):
    def reply(seed):
        return tiny.generate(30, prompt, seed=seed, t=1.5, p=1, k=0).ids

    assert reply(1) == reply(1)
    assert len({tuple(reply(seed)) for seed in range(5)}) == 5
    assert reply(2**64 - 1) == reply(2**64 - 1)


def test_cancel_ends_within_a_token(tiny, prompt):
    tiny.send(gen_line(8192, prompt, id=7, **LONG))
    while not tiny.line().isdigit():
        pass
    tiny.send("CANCEL 7")
    answer = tiny.answer()
    assert answer.finish == "cancel"
    assert int(answer.figures["generated"]) == len(answer.ids) + 1 < 8192


def test_cancel_ends_a_prefill(start, golden):
    engine = start(golden("q4").vault, "--chunk", 1)
    engine.send(gen_line(5, [7] * 4000, id=7, t=0))
    assert [engine.line() for _ in range(2)] == [f"<<PREFILL done={done} total=4000 cached=0>>" for done in (0, 1)]
    engine.send("CANCEL 7")
    answer = engine.answer()
    assert (answer.finish, answer.ids) == ("cancel", [])
    done = answer.progress[-1][0] if answer.progress else 1
    assert done < 4000
    # What was prefilled stays.
    assert int(engine.generate(1, [7] * (done + 1), t=0).figures["cached"]) == done


def test_a_dozen_conversations_in_turns_each_keep_their_prefix(tiny, prompt):
    """As of agents side by side: the longest unused one goes first, which in turns is always the next."""
    begun = [[first, *prompt] for first in range(12)]
    for ids in begun:
        assert tiny.generate(1, ids, t=0).figures["cached"] == "0"
    for ids in begun:
        assert tiny.generate(1, [*ids, 5], t=0).figures["cached"] == str(len(ids))


def test_cancel_of_a_waiting_and_of_an_ended_generation(tiny, prompt, greedy):
    tiny.send(gen_line(200, prompt, id=1, **LONG), gen_line(5, prompt, id=2, t=0), "CANCEL 2")
    assert tiny.answer().finish == "length"
    waiting = tiny.answer()
    assert (waiting.finish, waiting.ids, waiting.figures["prompt"]) == ("cancel", [], "17")
    tiny.send("CANCEL 1", "CANCEL 2")
    assert tiny.generate(5, prompt, id=2, t=0).ids == greedy[:5]


def test_an_id_names_one_generation(tiny, prompt):
    tiny.send(gen_line(100, prompt, id=1, **LONG), gen_line(5, prompt, id=1, t=0))
    assert tiny.answer().finish == "length"
    assert tiny.answer().error == "bad_request field=id"


def test_status_is_answered_while_busy(tiny, prompt):
    tiny.send("STATUS")
    assert tiny.line().startswith("<<STATUS state=idle vault=tiny-qwen3moe ctx=4096 cached=0 conversations=0 rss=")
    tiny.send(gen_line(8192, prompt, id=7, **LONG), "STATUS")
    while not (line := tiny.line()).startswith("<<STATUS"):
        assert "<<DONE>>" not in line
    while not tiny.line().isdigit():
        pass
    tiny.send("CANCEL 7")
    assert tiny.answer().finish == "cancel"
    tiny.send("STATUS")
    status = dict(word.split("=") for word in tiny.line()[2:-2].split(" ")[1:])
    assert status["state"] == "idle"
    assert int(status["cached"]) >= 17
    assert int(status["generated"]) > 0
    assert 0 < int(status["ring"]) <= int(status["ring_slots"]) * int(status["slot_bytes"])
    assert int(status["ring_used"]) <= int(status["ring_slots"])
    # of at most 4096 + 512 positions, 3 layers, keys and values of 64 floats, taken in huge pages of 2 MiB
    huge_page = 2 << 20
    assert 0 < int(status["kv"]) <= -(-(4096 + 512) * 3 * 2 * 64 * 4 // huge_page) * huge_page
    assert int(status["rss"]) > 1_000_000


def test_heat_counts_every_use(tiny, prompt):
    figures = tiny.generate(10, prompt, t=0).figures
    tiny.send("HEAT")
    line = tiny.line()
    assert line.startswith("<<HEAT layers=3 experts=8 first=0 counts=")
    layers = [list(map(int, layer.split(","))) for layer in line.removesuffix(">>").split("counts=")[1].split(";")]
    assert [len(layer) for layer in layers] == [8, 8, 8]
    assert sum(map(sum, layers)) == int(figures["hits"]) + int(figures["misses"])


def test_logprobs_are_those_of_the_logits(program, golden, tiny, tmp_path, prompt, greedy):
    answer = tiny.generate(5, prompt, t=0, r=1.3, lp=4)
    logits = native_engine.logits(program, golden("q4").vault, prompt + answer.ids, tmp_path / "logits")
    for i, (token, (logprob, top)) in enumerate(zip(answer.ids, answer.logprobs, strict=True)):
        expected = log_softmax(logits[len(prompt) - 1 + i])
        assert logprob == pytest.approx(expected[token], abs=1e-4)
        assert list(top) == list(np.argsort(-expected, kind="stable")[:3])
        assert list(top.values()) == pytest.approx(expected[list(top)], abs=1e-4)
    assert tiny.generate(1, prompt, t=0, lp=1).logprobs == [(answer.logprobs[0][0], {})]


@pytest.mark.parametrize("flags", [(), ("--chunk", 1), ("--chunk", 7)])
def test_a_prompts_logprobs_are_those_of_the_logits(program, golden, start, tmp_path, prompt, flags):
    engine = start(golden("q4").vault, *flags)
    engine.generate(3, prompt)  # of what is cached no logits are left
    answer = engine.generate(0, prompt, plp=4)
    logits = native_engine.logits(program, golden("q4").vault, prompt, tmp_path / "logits", *flags)
    assert [id for id, _, _ in answer.prompt] == prompt
    assert answer.prompt[0] == (prompt[0], None, {})
    for (id, logprob, top), after in zip(answer.prompt[1:], logits, strict=False):
        expected = log_softmax(after)
        assert logprob == pytest.approx(expected[id], abs=1e-4)
        assert list(top) == list(np.argsort(-expected, kind="stable")[:3])
        assert list(top.values()) == pytest.approx(expected[list(top)], abs=1e-4)
    assert (answer.ids, answer.finish, answer.figures["cached"]) == ([], "length", "0")
    assert engine.generate(1, prompt).figures["cached"] == str(len(prompt) - 1)


def test_a_prompts_logprobs_come_before_the_reply_and_end_at_a_cancel(tiny, prompt, greedy):
    answer = tiny.generate(2, prompt, t=0, r=1, plp=1)
    assert answer.ids == greedy[:2]
    assert all(top == {} for _, _, top in answer.prompt)
    tiny.send(native_engine.gen_line(1, prompt * 40, plp=21, id=9), "CANCEL 9")
    assert tiny.answer().finish == "cancel"
    assert tiny.generate(2, prompt, t=0, r=1).ids == greedy[:2]


def test_penalties_and_bias_move_the_choice(tiny, prompt, greedy):
    assert tiny.generate(1, prompt, t=0, lb=f"{greedy[0]}:-100").ids != greedy[:1]
    assert tiny.generate(3, prompt, t=0, lb="77:100").ids == [77, 77, 77]
    assert len(set(tiny.generate(20, prompt, t=0, lb="77:30;78:30;79:30", fp=2, pp=2).ids)) > 2


def test_masks_rule_every_token(tiny, prompt):
    allowed = np.zeros(512, np.uint8)
    allowed[[5, 300]] = 1
    bits = base64.b64encode(np.packbits(allowed, bitorder="little").tobytes()).decode()
    sets = ["only:9", f"bits:{bits}", "not:" + ";".join(str(i) for i in range(512) if i != 40), "all", "none"]
    tiny.send(gen_line(50, prompt, id=3, t=1, mask=1), *(f"MASK 3 {one}" for one in sets))
    answer = tiny.answer()
    assert answer.finish == "stop"
    assert answer.ids[0] == 9
    assert answer.ids[1] in {5, 300}
    assert answer.ids[2] == 40
    assert len(answer.ids) == 4


def test_a_mask_that_arrives_late_is_waited_for(tiny, prompt, greedy):
    tiny.send(gen_line(2, prompt, id=3, t=0, mask=1), "MASK 3 all")
    while not (line := tiny.line()).isdigit():
        pass
    assert int(line) == greedy[0]
    tiny.send("STATUS")
    assert tiny.line().startswith("<<STATUS state=decode ")
    tiny.send("MASK 3 all")
    assert tiny.answer().ids == greedy[1:2]


def test_a_mask_that_cannot_be_read_ends_its_generation(tiny, prompt, greedy):
    tiny.send(gen_line(2, prompt, id=3, t=0, mask=1), "MASK 3 only:512")
    assert tiny.answer().error == "bad_request field=mask"
    assert tiny.generate(2, prompt, t=0).ids == greedy[:2]
    tiny.send(gen_line(2, prompt, id=3, t=0, mask=1), "CANCEL 3")
    assert tiny.answer().finish == "cancel"


def test_more_new_ids_than_the_window_slide_where_asked(start, golden):
    engine = start(golden("q4").vault, "--ctx", 32)
    assert engine.generate(1, [7] * 40, t=0).error == "suffix_too_long new=40 ctx=32"
    assert engine.generate(1, [7] * 40, t=0, slide=1).figures["slid"] == "8"


def test_a_side_request_leaves_the_conversation_alone(tiny, prompt, greedy):
    tiny.generate(10, prompt, t=0)
    tiny.generate(3, [1, 2, 3], t=0)
    assert tiny.generate(3, prompt + greedy[:10], t=0).figures["cached"] == "26"


@pytest.mark.parametrize("moment", ["idle", "decoding", "waiting for a mask", "prefilling"])
def test_the_end_of_input_ends_the_engine(start, golden, prompt, moment):
    engine = start(golden("q4").vault, "--chunk", 1, "--ctx", 100000)
    if moment == "decoding":
        engine.send(gen_line(8192, prompt, **LONG))
        while not engine.line().isdigit():
            pass
    elif moment == "waiting for a mask":
        engine.send(gen_line(5, prompt, id=1, mask=1))
        engine.line()
    elif moment == "prefilling":
        engine.send(gen_line(5, [7] * 50000))
        engine.line()
    engine.process.stdin.close()
    assert engine.process.wait(native_engine.TIMEOUT) == 0


def test_a_client_that_reads_nothing_and_hangs_up(start, golden, prompt):
    engine = start(golden("q4").vault)
    for _ in range(4):
        engine.send(gen_line(8192, prompt, **LONG))  # more than a pipe holds
    engine.process.stdin.close()
    assert engine.process.wait(native_engine.TIMEOUT) == 0


def test_a_client_that_closes_its_reading_end(start, golden, prompt):
    engine = start(golden("q4").vault)
    engine.process.stdout.close()
    engine.send(gen_line(8192, prompt, **LONG))
    assert engine.process.wait(native_engine.TIMEOUT) == 0


def test_terminate_is_a_clean_end(tiny, prompt):
    tiny.send(gen_line(8192, prompt, **LONG))
    tiny.line()
    tiny.process.terminate()
    assert tiny.process.wait(native_engine.TIMEOUT) == 0


def experts_in_memory(engine):
    deadline = time.monotonic() + 30
    used = -1
    while (now := engine.status()["ring_used"]) != used and time.monotonic() < deadline:
        used = now
        time.sleep(0.2)
    return now


def test_what_is_warm_is_not_read_again(tiny, prompt, greedy):
    tiny.send("WARM")
    assert experts_in_memory(tiny) == tiny.status()["ring_slots"]
    reply = tiny.generate(len(greedy), prompt, t=0)
    assert reply.ids == greedy
    assert (reply.figures["misses"], reply.figures["bytes"]) == ("0", "0")


def test_counts_of_another_vault_do_no_harm(tiny, prompt, greedy):
    tiny.send("WARM 1,2;3,4", "WARM x")
    assert tiny.line() == "<<ERR bad_request field=counts>>"
    assert tiny.generate(len(greedy), prompt, t=0).ids == greedy


def test_warming_fills_no_more_than_the_ring(start, golden, prompt, greedy):
    engine = start(golden("q4").vault, "--ring", 5)
    engine.send("WARM")
    assert experts_in_memory(engine) == 5
    assert engine.generate(len(greedy), prompt, t=0).ids == greedy
