"""Who may use the server, how much of it, and what is written down of it."""

import dataclasses
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.utils import timezone

from engine.errors import LimitReached
from engine.messages import Timings, Usage
from engine.records import Record
from fleet import journal, keys
from fleet.keys import KeyRefused, Keyring
from fleet.models import ApiKey, Event, Generation, Vault
from fleet.models import Usage as Sums

pytestmark = pytest.mark.django_db


def keyring() -> Keyring:
    ring = Keyring()
    ring.read()
    return ring


def record(client: str, prompt: int = 10, generated: int = 5, **fields) -> Record:
    timings = Timings(queue_ms=1.0, prefill_ms=100.0, decode_ms=400.0)
    return Record(
        "req_1",
        client,
        None,
        "tiny",
        ended=1_800_000_000.0,
        usage=Usage(prompt, 2, generated),
        timings=timings,
        **fields,
    )


def test_only_the_digest_is_kept():
    row, key = keys.create("alice")
    assert key.startswith("sk-smoe-")
    assert len(key) > 48
    stored = " ".join(map(str, ApiKey.objects.values_list().get()))
    assert key not in stored
    assert key[len(keys.PREFIX) + 4 :] not in stored
    assert row.hint == key[:12]
    assert Event.objects.get().message == "The key alice was made."


async def refusal(ring: Keyring, key: str) -> str:
    with pytest.raises(KeyRefused) as caught:
        await ring.identify(key)
    return str(caught.value)


async def test_without_keys_on_loopback_nobody_is_asked(settings):
    assert await keyring_of().identify("anything") is None


def keyring_of(**rows) -> Keyring:
    """A keyring that has been read a moment ago."""
    ring = Keyring()
    ring._keys = {row.digest: row for row in rows.values()}
    ring._by_name = {row.name: row for row in rows.values()}
    ring._read_at = float("inf")
    return ring


def key_row(name: str, secret: str, **fields) -> keys.Key:
    defaults = {"expires": None, "revoked": False, "requests_at_once": None, "tokens_a_day": None, "vaults": None}
    return keys.Key(name=name, digest=keys.digest(secret), **defaults | fields)


async def test_a_known_key_is_recognised_and_others_are_refused_with_the_reason():
    past = timezone.now() - timedelta(seconds=1)
    ring = keyring_of(
        a=key_row("alice", "s1"), b=key_row("bob", "s2", revoked=True), c=key_row("carol", "s3", expires=past)
    )
    assert (await ring.identify("s1")).name == "alice"
    assert "needs a key" in await refusal(ring, "")
    assert "not known" in await refusal(ring, "s4")
    assert "not known" in await refusal(ring, "s1 ")
    assert "revoked" in await refusal(ring, "s2")
    assert "expired" in await refusal(ring, "s3")


async def test_beyond_loopback_a_key_is_needed_even_where_there_is_none(settings):
    settings.SMOE = dataclasses.replace(settings.SMOE, host="0.0.0.0")
    assert "needs a key" in await refusal(keyring_of(), "")
    settings.SMOE = dataclasses.replace(settings.SMOE, allow_anyone=True)
    assert await keyring_of().identify("") is None


def test_revoking_the_last_key_does_not_open_the_server():
    row, _ = keys.create("alice")
    keys.revoke(row)
    assert keyring().needed
    assert Event.objects.first().message == "The key alice was revoked."


@pytest.mark.parametrize(
    ("host", "refused"), [("127.0.0.1", False), ("localhost", False), ("[::1]", False), ("0.0.0.0", True), ("::", True)]
)
def test_listening_beyond_loopback_needs_a_key_or_a_flag(settings, host, refused):
    assert bool(keys.refusal_to_listen(host)) == refused
    settings.SMOE = dataclasses.replace(settings.SMOE, allow_anyone=True)
    assert keys.refusal_to_listen(host) is None
    settings.SMOE = dataclasses.replace(settings.SMOE, allow_anyone=False)
    keys.create("alice")
    assert keys.refusal_to_listen(host) is None


def test_behind_a_proxy_a_key_is_needed_on_loopback_too(settings):
    settings.BEHIND_PROXY = True
    assert "SMOE_HTTPS=1" in keys.refusal_to_listen("127.0.0.1")
    assert keyring().needed
    settings.SMOE = dataclasses.replace(settings.SMOE, allow_anyone=True)
    assert keys.refusal_to_listen("127.0.0.1") is None
    assert not keyring().needed


def test_requests_at_once_are_counted_and_given_back():
    ring = keyring_of(a=key_row("alice", "s", requests_at_once=2))
    running = [record("alice"), record("alice")]
    for each in running:
        ring.enter(each)
    refused = record("alice")
    with pytest.raises(LimitReached, match="2 requests"):
        ring.enter(refused)
    ring.leave(refused)  # what was never let in gives nothing back
    with pytest.raises(LimitReached):
        ring.enter(record("alice"))
    ring.leave(running[0])
    ring.enter(record("alice"))


def test_limits_of_one_are_told_in_the_singular():
    ring = keyring_of(a=key_row("alice", "s", requests_at_once=1), b=key_row("bob", "s2", tokens_a_day=1))
    for client, told in (("alice", "may have 1 request running"), ("bob", "its 1 token of today")):
        ring.enter(used := record(client))
        if client == "bob":
            ring.leave(used)
        with pytest.raises(LimitReached, match=told):
            ring.enter(record(client))


def test_tokens_of_a_day_end_with_a_time_to_come_back():
    ring = keyring_of(a=key_row("alice", "s", tokens_a_day=30))
    for _ in range(2):
        each = record("alice", prompt=10, generated=5)
        ring.enter(each)
        ring.leave(each)
    with pytest.raises(LimitReached, match="30 tokens") as caught:
        ring.enter(record("alice"))
    assert 0 < caught.value.retry_after <= 86_400
    ring.enter(record("127.0.0.1/other"))


def test_what_was_spent_before_a_restart_still_counts():
    keys.create("alice", tokens_a_day=10)
    Sums.objects.create(day=timezone.now().date(), client="alice", prompt_tokens=8, generated_tokens=2)
    with pytest.raises(LimitReached):
        keyring().enter(record("alice"))


def test_a_keys_vaults_are_names():
    row, key = keys.create("alice")
    row.vaults.add(Vault.objects.create(name="tiny", state="servable", last_seen=timezone.now()))
    assert keyring()._keys[keys.digest(key)].vaults == {"tiny"}


@pytest.mark.parametrize(
    "name", ["", "x" * 101, " ", " x", "a\nb", "a\x1b[31mb", "a\u202eb", "warm-up", "127.0.0.1", "::1", "2001:db8::7"]
)
def test_names_of_keys_are_checked(name):
    with pytest.raises(ValidationError):
        keys.create(name)


@pytest.mark.parametrize("name", ["Küche 2", "a-b_c/d@e", "10.0", "日本"])
def test_names_of_keys_are_free_otherwise(name):
    assert keys.create(name)[0].name == name


def test_a_key_of_another_time_with_such_a_name_can_be_changed(admin_client):
    row = ApiKey.objects.create(name="127.0.0.1", digest="d")
    fields = {"requests_at_once": "3", "tokens_a_day": "", "expires_0": "", "expires_1": "", "owner": ""}
    assert admin_client.post(f"/admin/fleet/apikey/{row.pk}/change/", fields).status_code == 302
    row.refresh_from_db()
    assert row.requests_at_once == 3


def test_the_journal_writes_what_the_records_say():
    Vault.objects.create(name="tiny", state="servable", last_seen=timezone.now())
    keys.create("alice")
    journal.write([record("alice", protocol="openai", endpoint="/v1/chat/completions"), record("alice", error="boom")])
    first = Generation.objects.order_by("id").first()
    assert (first.client, first.protocol, first.prompt_tokens, first.generated_tokens) == ("alice", "openai", 10, 5)
    assert first.tokens_per_second == 12.5
    usage = Sums.objects.get()
    assert (usage.client, usage.requests, usage.errors, usage.prompt_tokens) == ("alice", 2, 1, 20)
    assert (usage.cached_tokens, usage.generated_tokens, usage.seconds) == (4, 10, 1.0)
    vault = Vault.objects.get()
    assert vault.tokens_per_second == 12.5
    assert vault.last_used.timestamp() == ApiKey.objects.get().last_used.timestamp() == 1_800_000_000


def test_usage_adds_up_over_batches():
    for _ in range(3):
        journal.write([record("alice"), record("bob", prompt=1)])
    assert dict(Sums.objects.values_list("client", "prompt_tokens")) == {"alice": 30, "bob": 3}


def test_what_no_database_takes_does_not_lose_the_batch():
    journal.write([record("a\0b", client_name="x\ud800" * 500, error="\0"), record("c" * 500)])
    assert Generation.objects.count() == 2


def test_old_rows_are_forgotten_and_usage_stays(settings):
    journal.write([record("alice")])
    Generation.objects.update(time=timezone.now() - timedelta(days=91))
    Generation.objects.create(time=timezone.now())
    journal.forget_old()
    assert Generation.objects.count() == 1
    assert Sums.objects.count() == 1
    settings.SMOE = dataclasses.replace(settings.SMOE, log_days=0)
    Generation.objects.update(time=timezone.now() - timedelta(days=9999))
    journal.forget_old()
    assert Generation.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_requests_that_are_turned_away_leave_one_event_and_no_rows():
    """Else whoever sends enough of them fills the disk."""
    notes = journal.Journal()
    for client in range(50):
        notes.note(record(f"client {client}", error="The queue is full.", turned_away=True))
    notes.note(record("alice", error="Too many.", turned_away=True))
    notes.note(record("bob"))
    notes.close()
    assert [row.client for row in Generation.objects.all()] == ["bob"]
    assert [row.client for row in Sums.objects.all()] == ["bob"]
    event = Event.objects.get()
    assert (event.kind, event.message) == ("server", "51 requests turned away: The queue is full.")
    assert event.details == {"reasons": {"The queue is full.": 50, "Too many.": 1}}


def test_owners_may_go_without_their_keys():
    owner = User.objects.create_user("owner")
    keys.create("alice", owner=owner)
    owner.delete()
    assert ApiKey.objects.get().owner is None
