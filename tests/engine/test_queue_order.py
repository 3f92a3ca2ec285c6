"""The order of turns by property: a simulated engine and clients, no clock."""

import heapq
import itertools
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.queue_order import LINGER, QueueOrder
from engine.turns import Turns

STAY = 20.0
BOOT = 5.0


@dataclass(order=True)
class Arrival:
    at: float
    client: str = field(compare=False)
    model: str = field(compare=False)
    length: float = field(compare=False, default=1.0)


@dataclass
class Run:
    client: str
    model: str
    arrived: float
    began: float
    ended: float


def simulate(arrivals, stay=STAY, again=None):
    """Every arrival's run, in order. again(run) -> the client's next Arrival or None."""
    order, now, model = QueueOrder(stay), 0.0, ""
    coming, waiting, runs = list(arrivals), {}, []
    heapq.heapify(coming)
    while coming or waiting:
        while coming and coming[0].at <= now:
            arrival = heapq.heappop(coming)
            waiting[order.place(arrival.client, arrival.model)] = arrival
        if not waiting:
            now = coming[0].at
            continue
        first = order.sorted(waiting, now)[0]
        if pause := order.pause(first, now):
            now = min(now + pause, coming[0].at if coming else now + pause) + 1e-9
            continue
        arrival = waiting.pop(first)
        order.grant(first, waiting)
        ended = now + arrival.length + (BOOT if arrival.model != model else 0)
        model = arrival.model
        runs.append(Run(arrival.client, model, arrival.at, now, ended))
        now = ended
        order.leave(now)
        if again and (following := again(runs[-1])):
            heapq.heappush(coming, following)
    return runs


def switches(runs):
    return sum(one.model != other.model for one, other in itertools.pairwise(runs))


arrivals = st.lists(
    st.builds(
        Arrival,
        at=st.floats(0, 60),
        client=st.sampled_from("abcd"),
        model=st.sampled_from("XYZ"),
        length=st.floats(0.1, 5),
    ),
    min_size=1,
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(arrivals)
def test_everyone_runs_once_and_a_clients_turns_on_one_vault_in_order(arrivals):
    runs = simulate(arrivals)
    assert sorted((r.client, r.model, r.arrived) for r in runs) == sorted((a.client, a.model, a.at) for a in arrivals)
    for key in {(r.client, r.model) for r in runs}:
        came = [r.arrived for r in runs if (r.client, r.model) == key]
        assert came == sorted(came)


@settings(max_examples=200, deadline=None)
@given(arrivals)
def test_the_engine_is_idle_only_to_stay(arrivals):
    runs = simulate(arrivals)
    for before, after in itertools.pairwise(runs):
        idle = after.began - max(before.ended, after.arrived)
        assert idle <= (LINGER + 1e-6 if after.model != before.model else 1e-6)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 40),
    st.floats(0, 30),
)
def test_who_asks_once_waits_for_one_turn_of_a_greedy_client(queued, at):
    greedy = [Arrival(0, "greedy", "X") for _ in range(queued)]
    runs = simulate([*greedy, Arrival(at, "guest", "X")])
    guest = next(r for r in runs if r.client == "guest")
    between = [r for r in runs if r.client == "greedy" and at < r.began < guest.began]
    assert len(between) <= 1


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 5), st.integers(5, 12))
def test_clients_with_full_queues_get_equal_shares(clients, queued):
    runs = simulate([Arrival(0, f"c{n}", "X") for n in range(clients) for _ in range(queued)])
    for count in range(len(runs)):
        served = [sum(r.client == f"c{n}" for r in runs[:count]) for n in range(clients)]
        assert max(served) - min(served) <= 1


def agents(until, think):
    """Each client asks again `think` seconds after its answer, on its own vault."""

    def again(run):
        return Arrival(run.ended + think, run.client, run.model) if run.ended < until else None

    return again


@settings(max_examples=50, deadline=None)
@given(st.floats(0, LINGER - 0.5))
def test_two_agents_on_two_vaults_do_not_thrash(think):
    until = 600
    runs = simulate([Arrival(0, "a", "X"), Arrival(0.5, "b", "Y")], again=agents(until, think))
    assert switches(runs) <= until / STAY + 1
    waits = [r.began - r.arrived for r in runs]
    assert max(waits) <= STAY + LINGER + 2 * BOOT


def test_without_a_stay_they_do():
    runs = simulate([Arrival(0, "a", "X"), Arrival(0.5, "b", "Y")], stay=0.0, again=agents(60, 0.5))
    assert switches(runs) == len(runs) - 1


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 6), st.floats(0, 3), st.booleans())
def test_nobody_starves_behind_a_stream_of_others(others, think, strangers):
    """Others that never stop asking for the engine's vault, as the same clients or as ever new ones."""

    def again(run):
        if run.client == "guest" or run.ended > 1000:
            return None
        return Arrival(run.ended + think, f"{run.client}'" if strangers else run.client, "X")

    crowd = [Arrival(0, f"c{n}", "X") for n in range(others)]
    runs = simulate([*crowd, Arrival(30, "guest", "Y")], again=again)
    guest = next(r for r in runs if r.client == "guest")
    assert guest.began - guest.arrived <= STAY + LINGER + 2 * others + BOOT


@settings(max_examples=100, deadline=None)
@given(arrivals)
def test_a_wait_is_bounded_by_the_turns_that_came_before_or_in_a_round(arrivals):
    """At each end of a stay the first of all runs: so at most as many stays as turns pass before any turn."""
    runs = simulate(arrivals)
    turn = STAY + LINGER + BOOT + 5
    assert all(r.began - r.arrived <= turn * len(arrivals) for r in runs)


async def test_who_gives_up_and_asks_again_is_not_put_behind_for_it():
    """As an editor does with every key that is pressed."""
    turns = Turns(64, STAY)
    for _ in range(5):
        turns.join("busy", "X")
    for _ in range(20):
        turns.leave(turns.join("editor", "X"))
    assert turns.join("editor", "X").position <= 2


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=20), st.integers(0, 5), st.randoms())
def test_turns_that_were_given_up_leave_no_trace(turns, granted, random):
    order, stayed, waiting = QueueOrder(0.0), [], {}
    for client, stays in turns:
        place = order.place(client, "X")
        waiting[place] = client
        if stays:
            stayed.append(place)
    leaving = [place for place in waiting if place not in stayed]
    random.shuffle(leaving)
    for place in leaving:
        del waiting[place]
        order.give_up(place, waiting)
    fresh, others = QueueOrder(0.0), {}
    for place in stayed:
        others[fresh.place(place.client, "X")] = place.client

    def run(order, waiting):
        clients = []
        while waiting:
            first = order.sorted(waiting, 0.0)[0]
            clients.append(waiting.pop(first))
            order.grant(first, waiting)
            if len(clients) == granted:  # newcomers in between find the same
                for client in "abc":
                    waiting[order.place(client, "X")] = client
        return clients

    assert run(order, waiting) == run(fresh, others)
