"""Who gets into the admin: the newcomer's link, guessing passwords, making and revoking keys, exports."""

import csv
import io
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.contrib.admin.forms import AdminAuthenticationForm
from django.contrib.auth.models import User
from django.core.cache import cache
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.utils import timezone

from engine.messages import Usage as Counts
from engine.records import Record
from fleet import journal, keys, signin
from fleet.admin import records
from fleet.keys import keyring
from fleet.login_throttle import ThrottledLoginForm
from fleet.models import ApiKey, Event, Generation, Vault

pytestmark = pytest.mark.django_db
NEWCOMER = {"username": "op", "password1": "correct horse battery", "password2": "correct horse battery"}


@pytest.fixture(autouse=True)
def _fresh():
    cache.clear()
    keyring.forget()
    yield
    keyring.forget()


def test_the_link_makes_the_operator_once(client, worker, fleet_dir):
    link = signin.offer()
    page = client.get(link)
    assert page.status_code == 200
    assert page["Referrer-Policy"] == "same-origin"
    assert client.post(link, {**NEWCOMER, "password2": "other"}).status_code == 200
    assert client.post(link, NEWCOMER).url == "/admin/"
    assert client.get("/admin/").status_code == 200
    user = User.objects.get()
    assert (user.username, user.is_superuser, user.is_staff) == ("op", True, True)
    assert client.get(link).status_code == 404
    assert signin.offer() is None


def test_the_link_is_void_once_there_is_a_user(client):
    link = signin.offer()
    User.objects.create_user("first")
    assert client.post(link, NEWCOMER).url == "/admin/login/"
    assert User.objects.count() == 1


@pytest.mark.parametrize("token", ["x", "%00", "a" * 5000])
def test_a_guessed_link_is_not_there(client, token):
    signin.offer()
    assert client.get(f"/admin/welcome/{token}/").status_code == 404


def log_in(client, name, password, **extra):
    return client.post("/admin/login/?next=/admin/", {"username": name, "password": password}, **extra)


def test_guessing_passwords_is_throttled_and_tells_nothing(client, admin_user):
    for _ in range(5):
        assert "Too many" not in log_in(client, "admin", "wrong").content.decode()
    assert "Too many" in log_in(client, "admin", "password").content.decode()
    assert "_auth_user_id" not in client.session
    assert log_in(client, "admin", "password", REMOTE_ADDR="10.0.0.9").status_code == 302


def test_an_address_that_tries_many_names_is_throttled(client, admin_user):
    for number in range(20):
        log_in(client, f"user{number}", "wrong")
    assert "Too many" in log_in(client, "admin", "password").content.decode()


def test_guesses_that_come_together_pass_no_limit(monkeypatch, rf):
    """Of 60 at once 28 were tried."""
    tried = []

    def wrong(form):
        tried.append(form)
        time.sleep(0.2)  # as a password's digest takes
        raise ValidationError("wrong")

    def guess(number):
        return ThrottledLoginForm(rf.post("/"), {"username": "admin", "password": str(number)}).is_valid()

    monkeypatch.setattr(AdminAuthenticationForm, "clean", wrong)
    with ThreadPoolExecutor(20) as threads:
        assert not any(threads.map(guess, range(20)))
    assert len(tried) == 5


@pytest.mark.parametrize("following", ["", "//evil.example", "https://evil.example/admin/", "javascript:alert(1)"])
def test_a_sign_in_leads_nowhere_else(client, admin_user, following):
    sent = {"username": "admin", "password": "password", "next": following}
    assert client.post("/admin/login/", sent).url == "/admin/"


def test_a_right_password_clears_the_count(client, admin_user):
    for _ in range(3):
        for _ in range(4):
            log_in(client, "admin", "wrong")
        assert log_in(client, "admin", "password").status_code == 302
        client.logout()


def add_key(admin_client, **given):
    fields = {"name": "alice", "requests_at_once": "2"} | dict.fromkeys(
        ("tokens_a_day", "expires_0", "expires_1", "owner"), ""
    )
    return admin_client.post("/admin/fleet/apikey/add/", fields | given)


def test_a_key_is_shown_once(admin_client):
    answer = add_key(admin_client)
    secret = answer.context["secret"]
    assert secret in answer.content.decode()
    assert "no-store" in answer["Cache-Control"]
    row = ApiKey.objects.get()
    assert row.digest == keys.digest(secret)
    for page in (
        "/admin/fleet/apikey/",
        f"/admin/fleet/apikey/{row.pk}/change/",
        f"/admin/fleet/apikey/{row.pk}/history/",
    ):
        assert secret not in admin_client.get(page).content.decode()
    assert "made by admin" in Event.objects.get(kind="key").message


def test_a_key_keeps_its_name_and_what_it_has_used(admin_client):
    """A new name would begin the day's tokens anew, and take its owner's sums from nobody."""
    add_key(admin_client)
    row = ApiKey.objects.get()
    fields = {"name": "malice", "requests_at_once": "3", "tokens_a_day": "", "expires_0": "", "expires_1": ""}
    assert admin_client.post(f"/admin/fleet/apikey/{row.pk}/change/", fields).status_code == 302
    row.refresh_from_db()
    assert (row.name, row.requests_at_once) == ("alice", 3)


def test_a_revoked_key_is_refused_at_once(admin_client):
    secret = add_key(admin_client).context["secret"]
    keyring.read()
    assert keyring._keys[keys.digest(secret)].revoked is False
    ids = list(ApiKey.objects.values_list("pk", flat=True))
    admin_client.post("/admin/fleet/apikey/", {"action": "revoke", "_selected_action": ids})
    assert keyring._read_at == float("-inf")
    keyring.read()
    assert keyring._keys[keys.digest(secret)].revoked is True
    assert "revoked" in admin_client.get("/admin/fleet/apikey/").content.decode()


def test_key_commands(capsys, fleet_dir):
    Vault.objects.create(name="tiny", state="servable", last_seen=timezone.now())
    call_command("create_api_key", "alice", "--days", "1", "--tokens-a-day", "100", "--vault", "tiny")
    secret = capsys.readouterr().out.strip()
    row = ApiKey.objects.get()
    assert (row.digest, row.tokens_a_day) == (keys.digest(secret), 100)
    assert [vault.name for vault in row.vaults.all()] == ["tiny"]
    with pytest.raises(CommandError, match="already exists"):
        call_command("create_api_key", "alice")
    with pytest.raises(CommandError, match="no vault other"):
        call_command("create_api_key", "bob", "--vault", "other")
    with pytest.raises(CommandError, match=r"^name: This field cannot be blank"):
        call_command("create_api_key", "")
    call_command("revoke_api_key", "alice")
    assert ApiKey.objects.get().revoked is not None
    with pytest.raises(CommandError, match="the keys are: alice"):
        call_command("revoke_api_key", "carol")


@pytest.mark.parametrize("limit", ["0", "-5"])
@pytest.mark.parametrize("option", ["--requests-at-once", "--tokens-a-day"])
def test_a_limit_below_1_is_none(option, limit):
    with pytest.raises(CommandError, match=rf"^{option[2:]}: A limit is at least 1"):
        call_command("create_api_key", "alice", option, limit)
    assert not ApiKey.objects.exists()


def test_the_admin_takes_no_limit_below_1(admin_client):
    answer = add_key(admin_client, requests_at_once="0")
    assert "A limit is at least 1" in answer.content.decode()
    assert not ApiKey.objects.exists()


@pytest.mark.parametrize("days", ["0", "-1", "nan", "inf", "1e12", "soon"])
@pytest.mark.parametrize("command", [("create_api_key", "alice"), ("usage",)])
def test_days_that_are_none(command, days):
    """A key that has expired before it is made would close the door of a server without keys."""
    with pytest.raises(CommandError, match="no number of days above 0"):
        call_command(*command, "--days", days)
    assert not ApiKey.objects.exists()


def test_usage_by_key_and_day(capsys):
    call_command("usage")
    assert capsys.readouterr().out == "Nothing has been used.\n"
    now = timezone.now().timestamp()
    journal.write([Record("r", "alice", None, vault, ended=now, usage=Counts(10, 4, 5)) for vault in ("a", "b")])
    call_command("usage", "--json")
    line = json.loads(capsys.readouterr().out)[0]
    assert (line["client"], line["requests"], line["prompt_tokens"], line["generated_tokens"]) == ("alice", 2, 20, 10)
    call_command("usage", "--client", "bob")
    assert capsys.readouterr().out == "Nothing has been used.\n"


@pytest.fixture
def downloaded(admin_client):
    """The text of an export, as a sync client has it: gathered."""

    def downloaded(path: str) -> str:
        answer = admin_client.get(path)
        assert (answer.streaming, answer.is_async) == (True, True)
        with pytest.warns(Warning, match="consume asynchronous iterators"):
            return b"".join(answer).decode()

    return downloaded


@pytest.mark.parametrize("before", ["", " ", "\n", "\r\n", "\t", "\u00a0", "\ufeff", "\u200b"])
@pytest.mark.parametrize(
    "sign", "=+-@\uff1d\uff0b\uff0d\uff20"
)  # the last four are full-width, which some read as the first
def test_no_export_has_a_cell_that_runs(downloaded, before, sign):
    Generation.objects.create(time=timezone.now(), client_name=f"{before}{sign}cmd|' /C calc'!A0")
    text = downloaded("/admin/fleet/generation/export.csv")
    assert next(csv.DictReader(io.StringIO(text, newline="")))["client_name"] == f"'{before}{sign}cmd|' /C calc'!A0"


def test_any_number_of_rows_can_be_deleted_at_once(admin_client):
    """Of more than 1,000 the confirmation was a bare 400."""
    now = timezone.now()
    rows = [Generation(time=now, vault="a" if n else "b", finish_reason="stop") for n in range(1202)]
    Generation.objects.bulk_create(rows)
    first = Generation.objects.filter(vault="a").values_list("pk", flat=True)[:50]
    chosen = {"action": "delete_selected", "select_across": "1", "index": "0", "_selected_action": list(first)}
    page = admin_client.post("/admin/fleet/generation/?vault=a", chosen)
    fields = dict(re.findall(r'name="([^"]+)" value="([^"]+)"', page.content.decode().partition("<form method=")[2]))
    assert "1201" in page.content.decode()
    assert admin_client.post("/admin/fleet/generation/?vault=a", fields).status_code == 302
    assert [row.vault for row in Generation.objects.all()] == ["b"]


def test_only_the_rows_that_were_ticked_are_deleted(admin_client):
    now = timezone.now()
    Generation.objects.bulk_create([Generation(time=now, finish_reason="stop") for _ in range(3)])
    ticked = Generation.objects.first().pk
    chosen = {"action": "delete_selected", "select_across": "0", "_selected_action": [ticked], "post": "yes"}
    assert admin_client.post("/admin/fleet/generation/", chosen).status_code == 302
    assert ticked not in Generation.objects.values_list("pk", flat=True)
    assert Generation.objects.count() == 2


def test_an_exports_details_are_json(downloaded):
    Event.objects.create(time=timezone.now(), kind="crash", details={"tail": 'it\'s "over"\nü', "pid": None})
    text = downloaded("/admin/fleet/event/export.csv")
    row = next(csv.DictReader(io.StringIO(text, newline="")))
    assert json.loads(row["details"]) == {"tail": 'it\'s "over"\nü', "pid": None}


def test_the_log_is_exported_as_filtered_and_runs_no_formula(downloaded, client):
    now = timezone.now()
    Generation.objects.create(time=now, vault="a", client_name="=HYPERLINK(1)", finish_reason="stop")
    Generation.objects.create(time=now, vault="b", error="x")
    text = downloaded("/admin/fleet/generation/export.csv?vault=a")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["vault"], row["client_name"]) for row in rows] == [("a", "'=HYPERLINK(1)")]
    assert client.get("/admin/fleet/generation/export.csv").status_code == 302


def test_an_export_of_many_rows_is_whole(downloaded):
    count = 2 * records.EXPORTED_AT_ONCE + 1
    Generation.objects.bulk_create(Generation(time=timezone.now(), vault=f"v{n}") for n in range(count))
    rows = list(csv.DictReader(io.StringIO(downloaded("/admin/fleet/generation/export.csv"))))
    assert {row["vault"] for row in rows} == {f"v{n}" for n in range(count)}
    assert len(rows) == count


async def test_an_export_reads_no_further_than_it_is_sent():
    """100,000 rows in memory at once are what a small machine lacks."""
    read = 0

    def rows():
        nonlocal read
        for read in range(1, 100_000):
            yield (read,)

    parts = records._exported(["id"], rows())
    assert await anext(parts) == "id\r\n"
    assert (await anext(parts)).startswith("1\r\n2\r\n")
    assert read == records.EXPORTED_AT_ONCE
    await parts.aclose()


@pytest.mark.parametrize("query", ["time__gte=yesterday", "nothing=1", "vault__exact__x=1"])
def test_an_export_by_what_is_no_filter_leads_to_the_list(admin_client, query):
    """As the list itself answers such an address."""
    answer = admin_client.get(f"/admin/fleet/generation/export.csv?{query}")
    assert (answer.status_code, answer.headers["Location"]) == (302, "/admin/fleet/generation/?e=1")
    assert admin_client.get(f"/admin/fleet/generation/?{query}").headers["Location"].endswith("?e=1")


@pytest.mark.parametrize("page", ["apikey", "apikey/add", "usage", "event", "generation"])
def test_the_new_pages_open(admin_client, page):
    assert admin_client.get(f"/admin/fleet/{page}/").status_code == 200
