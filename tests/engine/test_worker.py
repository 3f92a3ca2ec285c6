"""The worker on a version-2 double: boundaries, cancel and death in every phase, switching, the one process."""

import asyncio
import contextlib
import dataclasses
import os
import signal
import subprocess
import threading

import psutil
import pytest

from engine.errors import EngineFailed, InvalidRequest, ModelUnavailable, QueueFull, ShuttingDown
from engine.job import Ended, Job, Tokens
from engine.messages import Booting, Prefill, Queued, Sampling


def echo(ids, count):
    """What a double answers: the prompt over and over."""
    return [ids[n % len(ids)] for n in range(count)]


async def until(condition):
    async with asyncio.timeout(10):
        while True:
            if condition():
                return
            await asyncio.sleep(0.005)


async def leave_at(worker, job, kind):
    """Reads up to the first event of `kind`, then goes away as a client does: its task is cancelled."""
    reached = asyncio.Event()

    async def client():
        async for event in worker.stream(job):
            if isinstance(event, kind):
                reached.set()

    task = asyncio.create_task(client())
    await reached.wait()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_a_reply_and_its_figures(make_worker, ask):
    told, ended = await ask(make_worker(), [5, 6, 7], 8)
    assert told == echo([5, 6, 7], 8)
    assert (ended.reason, ended.prompt, ended.cached, ended.generated) == ("length", 3, 0, 8)
    assert (ended.timings.prefill_ms, ended.timings.decode_ms) == (12.5, 34.5)
    assert (ended.timings.expert_hits, ended.timings.expert_misses, ended.timings.bytes_read) == (7, 3, 4096)


async def test_the_order_of_events(make_worker, double, card):
    double.play(prefill_chunks=2)
    worker = make_worker()
    events = [event async for event in worker.stream(Job(card, [1, 2, 3, 4], 2))]
    kinds = [type(event) for event in events]
    assert kinds[0] is Booting
    assert kinds[-1] is Ended
    assert [(e.done, e.total, e.cached) for e in events if isinstance(e, Prefill)] == [(0, 4, 0), (2, 4, 0), (4, 4, 0)]
    again = [event async for event in worker.stream(Job(card, [1, 2, 3, 9], 2))]
    assert (again[0].done, again[0].cached) == (3, 3)


async def test_only_what_the_request_set_goes_to_the_engine(make_worker, double, ask):
    worker = make_worker(temperature=0.25, ring=7)
    await ask(worker, [1], 2, sampling=Sampling(temperature=0.0, seed=-1, logit_bias={3: -100.0}), stop_ids=(4, 5))
    await ask(worker, [1, 2], 2)
    assert double.lines("GEN") == [
        "GEN 2 t=0 id=1 seed=18446744073709551615 lb=3:-100 stop=4;5 slide=1 1",
        "GEN 2 id=2 slide=1 1,2",
    ]
    (start,) = double.events("start")
    flags = dict(zip(start["arguments"], start["arguments"][1:], strict=False))
    assert (flags["--temperature"], flags["--ring"], flags["--eos-ids"]) == ("0.25", "7", "511")


async def test_interleaved_requests_stay_apart(make_worker, double, ask):
    double.play(token_delay=0.001)
    worker = make_worker()
    prompts = [[10 * n + 1, 10 * n + 2] for n in range(1, 7)]
    replies = await asyncio.gather(*(ask(worker, ids, 20) for ids in prompts))
    assert [told for told, _ in replies] == [echo(ids, 20) for ids in prompts]
    assert len(double.events("start")) == 1


async def test_positions_in_the_queue_are_told_as_they_change(make_worker, double, card, ask):
    double.play(token_delay=0.005)
    worker = make_worker()
    first = asyncio.create_task(ask(worker, [1], 10))
    await until(lambda: worker.snapshot().running)
    second = asyncio.create_task(ask(worker, [2], 2))
    await until(lambda: worker.snapshot().waiting == 1)
    third = [event async for event in worker.stream(Job(card, [3], 2))]
    assert [event.position for event in third if isinstance(event, Queued)] == [2, 1]
    await asyncio.gather(first, second)


async def test_a_full_queue_refuses_with_a_time(make_worker, double, card, ask):
    double.play(token_delay=0.02)
    worker = make_worker(max_queue=1)
    tasks = [asyncio.create_task(ask(worker, [n], 5)) for n in (1, 2)]
    await until(lambda: worker.snapshot().waiting == 1)
    with pytest.raises(QueueFull) as refused:
        await ask(worker, [3], 5)
    assert refused.value.retry_after >= 1
    assert refused.value.message == "The queue is full: 1 request waiting (--max-queue 1). Try again later."
    await asyncio.gather(*tasks)


@pytest.mark.parametrize("phase", [Booting, Prefill, Tokens])
async def test_a_client_that_leaves(make_worker, double, card, ask, phase):
    double.play(boot_delay=0.1, prefill_chunks=50, prefill_delay=0.01, token_delay=0.01)
    worker = make_worker()
    await leave_at(worker, Job(card, [1, 2, 3], 500), phase)
    double.play()
    told, _ = await ask(worker, [7, 8], 4)
    assert told == echo([7, 8], 4)
    assert len(double.events("start")) == 1
    assert double.lines("CANCEL") == ([] if phase is Booting else ["CANCEL 1"])


async def test_a_client_that_leaves_the_queue_is_forgotten_at_once(make_worker, double, card, ask):
    double.play(token_delay=0.01)
    worker = make_worker()
    first = asyncio.create_task(ask(worker, [1], 10))
    await until(lambda: worker.snapshot().running)
    await leave_at(worker, Job(card, [2, 2], 5), Queued)
    assert worker.snapshot().waiting == 0
    await first
    assert len(double.lines("GEN")) == 1


async def test_an_engine_that_ignores_cancel_is_replaced(make_worker, double, card, ask):
    double.play(hang="decode:3", ignore_cancel=True, token_delay=0.001)
    worker = make_worker()
    await leave_at(worker, Job(card, [1], 500), Tokens)
    double.play()
    assert (await ask(worker, [4], 3))[0] == echo([4], 3)
    assert len(double.events("start")) == 2


async def test_a_reply_that_is_enough_ends_at_once(make_worker, double, card, ask):
    double.play(token_delay=0.01)
    worker, job, told = make_worker(), Job(card, [1, 2], 500), []
    async for event in worker.stream(job):
        if isinstance(event, Tokens):
            told += event.tokens
            job.finish()
        if isinstance(event, Ended):
            assert (event.reason, event.generated) == ("stop", len(told))
    assert (await ask(worker, [3], 2))[0] == [3, 3]


@pytest.mark.parametrize("place", ["boot", "hello", "prefill", "decode:0", "decode:64"])
async def test_a_killed_engine_fails_its_request_and_no_other(make_worker, double, ask, place):
    double.play(crash=place)
    worker = make_worker()
    with pytest.raises(EngineFailed, match="SIGKILL"):
        await ask(worker, [1], 100)
    assert worker.snapshot().state == "down"
    double.play()
    assert (await ask(worker, [2], 3))[0] == [2, 2, 2]
    assert worker.snapshot().state == "up"


async def test_an_engine_that_is_killed_while_idle_is_told_as_down(make_worker, ask):
    worker = make_worker()
    await ask(worker, [1], 1)
    os.kill(worker.snapshot().pid, signal.SIGKILL)
    await until(lambda: worker.snapshot().state == "down")
    await until(lambda: "SIGKILL" in worker.snapshot().last_error)
    assert (await ask(worker, [2], 1))[0] == [2]


async def test_a_vault_that_the_engine_refuses(make_worker, double, ask, other_card):
    double.play(fail_boot={"alpha": "smoe-engine: alpha: truncated at layer 3"})
    worker = make_worker()
    with pytest.raises(ModelUnavailable, match="exit code 3: smoe-engine: alpha: truncated at layer 3"):
        await ask(worker, [1], 1)
    assert (await ask(worker, [1], 1, card=other_card))[0] == [1]


async def test_boots_that_keep_failing_do_not_spin(make_worker, double, ask):
    double.play(fail_boot="no")
    worker = make_worker()
    for _ in range(10):
        with pytest.raises(ModelUnavailable):
            await ask(worker, [1], 1)
    assert len(double.events("start")) == 2


async def test_a_missing_engine_names_the_remedy(make_worker, ask):
    worker = make_worker(version=0)
    with pytest.raises(EngineFailed, match="make engine"):
        await ask(worker, [1], 1)


async def test_a_silent_boot_is_given_up(make_worker, double, ask):
    double.play(hang="hello")
    worker = make_worker()
    worker.limits = type(worker.limits)(boot=0.3, stop=0.5)
    with pytest.raises(EngineFailed, match="silent"):
        await ask(worker, [1], 1)


async def test_two_vaults_at_once_never_run_two_engines(make_worker, double, ask, card, other_card):
    double.play(token_delay=0.002)
    worker = make_worker()
    jobs = [ask(worker, [n, n + 1], 5, card=card if n % 2 else other_card) for n in range(1, 5)]
    replies = await asyncio.gather(*jobs)
    assert [told for told, _ in replies] == [echo([n, n + 1], 5) for n in range(1, 5)]
    assert [event["vault"][-10:-5] for event in double.events("start")] == ["alpha", "/beta"]  # a switch is batched


async def test_the_old_models_process_is_gone_when_the_new_one_serves(make_worker, ask, card, other_card):
    """What it held is the system's again: nothing of a vault lives outside its engine's process."""
    worker = make_worker()
    pids = []
    for served in (card, other_card, card):
        await ask(worker, [1], 1, card=served)
        pids.append(worker.snapshot().pid)
        assert [child.pid for child in psutil.Process().children() if child.pid in pids] == pids[-1:]


async def test_a_vault_without_more_work_gives_way_before_its_stay_is_over(
    make_worker, ask, card, other_card, monkeypatch
):
    monkeypatch.setattr("engine.queue_order.LINGER", 0.01)
    worker = make_worker(min_stay=3600.0)
    for served in (card, other_card, card):
        assert (await ask(worker, [1, 2], 3, card=served))[0] == echo([1, 2], 3)


async def test_new_contents_under_the_same_names_need_another_engine(make_worker, ask, card):
    worker = make_worker()
    boots = []
    for served in (card, card, dataclasses.replace(card, fingerprint="other"), dataclasses.replace(card, eos_ids=(1,))):
        await ask(worker, [1], 1, card=served)
        boots.append(worker.snapshot().boots)
    assert boots == [1, 1, 2, 3]


async def test_switch_waits_for_the_running_reply(make_worker, double, ask, other_card):
    double.play(token_delay=0.005)
    worker = make_worker()
    running = asyncio.create_task(ask(worker, [1, 2], 20))
    await double.sees("GEN")
    await worker.switch(other_card)
    assert (await running)[0] == echo([1, 2], 20)
    assert worker.snapshot().model == "beta"
    await worker.unload()
    assert worker.snapshot().state == "down"
    assert worker.snapshot().pid is None


async def test_reset_drops_what_is_cached(make_worker, double, ask):
    worker = make_worker()
    await worker.reset()
    await ask(worker, [1, 2, 3], 1)
    assert (await ask(worker, [1, 2, 4], 1))[1].cached == 2
    await worker.reset()
    assert (await ask(worker, [1, 2, 4], 1))[1].cached == 0


async def test_a_boot_in_the_background_is_joined(make_worker, double, card, ask):
    double.play(boot_delay=0.1)
    worker = make_worker()
    worker.start(card)
    assert (worker.snapshot().state, worker.snapshot().model) == ("booting", "alpha")
    assert (await ask(worker, [1], 1))[0] == [1]
    assert len(double.events("start")) == 1


async def test_status_answers_beside_a_generation(make_worker, double, ask):
    double.play(token_delay=0.01, status_filler=300_000)
    worker = make_worker()
    assert await worker.status() == {}
    running = asyncio.create_task(ask(worker, [1, 2], 30))
    await double.sees("GEN")
    figures = await asyncio.gather(worker.status(), worker.status())
    assert figures[0]["rss"] == 1000
    assert len(figures[1]["filler"]) == 300_000
    assert (await running)[0] == echo([1, 2], 30)


async def test_noise_on_stderr_never_blocks_the_engine(make_worker, double, ask):
    double.play(noise=30)  # 6 kB a token: a pipe holds 64
    assert len((await ask(make_worker(), [1], 100))[0]) == 100


async def test_log_probabilities(make_worker, card):
    events = [event async for event in make_worker().stream(Job(card, [9], 1, logprobs=2))]
    (token,) = next(event.tokens for event in events if isinstance(event, Tokens))
    assert (token.id, token.logprob, token.top) == (9, -0.5, ((9, -0.5), (10, -1.5)))


async def test_a_mask_for_each_token(make_worker, double, ask):
    asked = []

    def mask(new_ids):
        asked.append(list(new_ids))
        return f"only:{5 + len(asked)};100" if len(asked) < 4 else "none"

    double.play(reply=[6, 7, 8, 9])
    told, ended = await ask(make_worker(), [1], 10, mask=mask)
    assert (told, ended.reason) == ([6, 7, 8], "stop")
    assert asked == [[], [6], [7], [8]]


async def test_no_mask_after_the_last_token(make_worker, double, ask):
    await ask(make_worker(), [1], 2, mask=lambda new_ids: "all")
    assert len(double.lines("MASK")) == 2


async def test_a_slow_mask_does_not_stop_others(make_worker, double, ask):
    others = threading.Event()

    def mask(new_ids):
        return "none" if others.wait(10) else "all"

    asking = asyncio.create_task(ask(make_worker(), [1], 10, mask=mask))
    await double.sees("GEN")
    others.set()
    assert (await asking)[0] == []


async def test_close_ends_everything(make_worker, double, ask):
    double.play(token_delay=0.01, boot_delay=0.01)
    worker = make_worker()
    tasks = [asyncio.create_task(ask(worker, [n], 1000)) for n in (1, 2)]
    await double.sees("GEN")
    pid = worker.snapshot().pid
    await worker.close()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [ShuttingDown, ShuttingDown]
    assert not psutil.pid_exists(pid)
    with pytest.raises(ShuttingDown):
        await ask(worker, [3], 1)


async def test_a_second_server_on_the_same_data_is_told_who_owns_the_engine(make_worker, ask):
    first, second = make_worker(), make_worker()
    await ask(first, [1], 1)
    with pytest.raises(EngineFailed, match=str(os.getpid())):
        await ask(second, [1], 1)
    await first.close()
    assert (await ask(second, [2], 1))[0] == [2]


async def test_the_lock_is_held_until_the_engine_of_a_killed_server_has_ended(make_worker, ask):
    first, second = make_worker(), make_worker()
    await ask(first, [1], 1)
    first.lock.release()  # as the kernel does for a killed server; its engine lives on
    assert second.lock.try_acquire() is False
    await first.unload()
    assert second.lock.try_acquire() is True


@pytest.fixture
def zombie():
    """The pid of a process that has ended, which nobody has asked about."""
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        yield process.pid


async def test_a_zombie_is_not_told_as_the_server_that_owns_the_engine(make_worker, ask, zombie):
    first, second = make_worker(), make_worker()
    await ask(first, [1], 1)
    engine = first.snapshot().pid
    first.lock.path.write_text(f"{zombie} {engine}\n")
    with pytest.raises(EngineFailed, match=f"whose server has ended.*`kill {engine}`"):
        await ask(second, [1], 1)


async def test_a_refused_line_names_the_field(make_worker, double, ask):
    double.play(refuse="bad_request field=p")
    with pytest.raises(InvalidRequest) as refused:
        await ask(make_worker(), [1], 1)
    assert refused.value.param == "top_p"


async def test_an_expert_that_cannot_be_read_names_the_vault_and_what_to_do(make_worker, double, ask):
    double.play(refuse="read_failed /srv/vaults/alpha.smoe: it ends early")
    with pytest.raises(EngineFailed, match=r"alpha could not be read \(/srv/vaults/alpha.smoe: .* its disk"):
        await ask(make_worker(), [1, 2], max_tokens=2)
