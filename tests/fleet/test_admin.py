"""The admin through Django's test client: pages, rights and operations."""

import dataclasses
import io
import json
import threading

import pytest
import vault_pairs as pairs
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.urls import reverse
from django.utils import timezone

from engine.errors import EngineFailed
from engine.protocol import Heat
from fleet import catalog, heats
from fleet.models import ApiKey, Event, Generation, Usage, Vault

pytestmark = pytest.mark.django_db

LIST = "/admin/fleet/vault/"


@pytest.fixture
def fleet(fleet_dir):
    pairs.make(fleet_dir, "whole")
    pairs.make(fleet_dir, "<b>bold & 'quoted'")
    pairs.make_truncated(fleet_dir, "cut")
    catalog.rescan()
    return fleet_dir


def messages(response) -> str:
    return " ".join(str(message) for message in response.context["messages"])


def test_the_list_tells_state_and_reason_and_escapes_names(admin_client, fleet, worker):
    worker.model = "whole"
    page = admin_client.get(LIST).content.decode()
    assert "40,000 of 49,152 bytes are there" in page
    assert "&lt;b&gt;bold &amp; &#x27;quoted&#x27;" in page
    assert "<b>bold" not in page
    assert "The engine runs it now." in page


@pytest.mark.parametrize(
    "query", ["?q=whole", "?state__exact=incomplete", "?quant__exact=Q4", "?o=4.-6", "?tokenizer_fit__exact=misfit"]
)
def test_filters_search_and_order(admin_client, fleet, worker, query):
    assert admin_client.get(LIST + query).status_code == 200


def test_a_vault_copied_in_appears_in_the_list(admin_client, fleet, worker):
    pairs.make(fleet, "late")
    catalog.forget_look()
    assert "late" in admin_client.get(LIST).content.decode()


def test_one_vaults_page_is_read_only(admin_client, fleet, worker):
    for vault in Vault.objects.all():
        url = reverse("admin:fleet_vault_change", args=[vault.pk])
        page = admin_client.get(url).content.decode()
        assert vault.vault_path.replace("&", "&amp;")[:20] in page
        assert 'name="_save"' not in page
        assert admin_client.post(url, {"name": "x"}).status_code == 403


def test_switch_from_the_page_and_by_action(admin_client, fleet, worker):
    vault = Vault.objects.get(name="whole")
    answer = admin_client.post(reverse("admin:fleet_vault_switch", args=[vault.pk]), follow=True)
    assert "The engine runs whole." in messages(answer)
    admin_client.post(LIST, {"action": "switch_to", "_selected_action": [vault.pk]})
    assert worker.asked == ["switch whole", "switch whole"]


def test_switch_to_what_cannot_be_served_says_why(admin_client, fleet, worker):
    vault = Vault.objects.get(name="cut")
    answer = admin_client.post(reverse("admin:fleet_vault_switch", args=[vault.pk]), follow=True)
    assert "cannot be served (incomplete)" in messages(answer)
    assert worker.asked == []


def test_a_failed_boot_is_told(admin_client, fleet, worker):
    worker.error = EngineFailed("The engine ended with code 3.")
    vault = Vault.objects.get(name="whole")
    answer = admin_client.post(reverse("admin:fleet_vault_switch", args=[vault.pk]), follow=True)
    assert "ended with code 3" in messages(answer)


def test_rescan_and_unload(admin_client, fleet, worker):
    assert "3 vaults seen" in messages(admin_client.post(LIST + "rescan/", follow=True))
    assert "unloaded" in messages(admin_client.post(LIST + "unload/", follow=True))
    assert worker.asked == ["unload"]
    assert Event.objects.filter(kind="rescan").count() == 1


def test_operations_need_post_a_token_and_the_right(client, admin_client, fleet, worker, django_user_model):
    assert admin_client.get(LIST + "unload/").status_code == 405
    viewer = django_user_model.objects.create_user("viewer", password="a long password", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_vault"))
    client.force_login(viewer)
    assert client.get(LIST).status_code == 200
    assert client.post(LIST + "unload/").status_code == 403
    strict = type(client)(enforce_csrf_checks=True)
    strict.force_login(User.objects.get(username="admin"))
    assert strict.post(LIST + "unload/").status_code == 403
    assert worker.asked == []


def test_only_missing_vaults_can_be_forgotten(admin_client, fleet, worker):
    for vault in fleet.glob("cut*"):
        vault.unlink()
    catalog.rescan()
    ids = list(Vault.objects.values_list("pk", flat=True))
    admin_client.post(LIST, {"action": "delete_selected", "_selected_action": ids, "post": "yes"})
    assert set(Vault.objects.values_list("name", flat=True)) == {"whole", "<b>bold & 'quoted'"}


def test_forgetting_a_vault_opens_no_key(admin_client, fleet, worker):
    """A key that names no vault may use every one."""
    keys = {name: ApiKey.objects.create(name=name, digest=name) for name in ("one", "both", "free")}
    whole, cut = (Vault.objects.get(name=name) for name in ("whole", "cut"))
    keys["one"].vaults.set([cut])
    keys["both"].vaults.set([cut, whole])

    def forget(*vaults):
        post = {"action": "delete_selected", "_selected_action": [vault.pk for vault in vaults], "post": "yes"}
        page = admin_client.post(LIST, post, follow=True).content.decode()
        admin_client.post(f"{LIST}{vaults[0].pk}/delete/", {"post": "yes"})
        return page, set(Vault.objects.values_list("name", flat=True)) & {"whole", "cut"}

    for path in fleet.iterdir():
        path.unlink()
    catalog.rescan()
    page, left = forget(cut)
    assert ("API key: one" in page, "API key: both" in page, "API key: free" in page) == (True, False, False)
    assert left == {"whole", "cut"}
    keys["one"].revoked = timezone.now()
    keys["one"].save()
    page, left = forget(cut, whole)
    assert ("API key: one" in page, "API key: both" in page) == (False, True)
    assert left == {"whole"}  # the other was then forgotten on a page of its own
    assert forget(whole)[1] == {"whole"}
    keys["both"].delete()
    assert forget(whole)[1] == set()


def test_the_live_view_tells_what_the_worker_says(admin_client, fleet, worker):
    worker.model, worker.figures = "whole", {"state": "decode", "hits": 30, "rss": 1000}
    Generation.objects.create(
        time=timezone.now(), vault="whole", generated_tokens=11, decode_ms=1000, finish_reason="stop"
    )
    live = admin_client.get("/admin/live.json").json()
    assert live["engine"]["model"] == "whole"
    assert live["engine"]["waiting"] == 2
    assert live["status"] == {"state": "decode", "hits": 30, "rss": 1000}
    assert live["generations"][0]["speed"] == 11.0
    assert live["machine"]["total"] > live["machine"]["available"] > 0


@pytest.mark.parametrize(
    ("right", "shown"),
    [(None, []), ("view_generation", ["generations"]), ("view_event", ["events"]), ("view_vault", [])],
)
def test_the_first_page_shows_no_rows_that_the_user_may_not_see(
    client, fleet_dir, worker, django_user_model, right, shown
):
    Generation.objects.create(time=timezone.now(), client="a colleague's key", vault="whole")
    Event.objects.create(time=timezone.now(), kind="key", message="The key of a colleague was made.")
    clerk = django_user_model.objects.create_user("clerk", password="a long password", is_staff=True)
    if right:
        clerk.user_permissions.add(Permission.objects.get(codename=right))
    client.force_login(clerk)
    live, page = client.get("/admin/live.json").json(), client.get("/admin/").content.decode()
    for rows in ("generations", "events"):
        assert (len(live[rows]), f'data-live="{rows}"' in page) == (int(rows in shown), rows in shown)
    assert (f'href="{LIST}"' in page) == (right == "view_vault")
    assert live["engine"]["state"]


def test_every_page_opens_without_and_with_rows(admin_client, fleet_dir, worker):
    pages = ["/admin/", "/admin/fleet/event/", "/admin/fleet/generation/", LIST]
    for _ in range(2):
        assert [admin_client.get(page).status_code for page in pages] == [200] * len(pages)
        pairs.make(fleet_dir, "one")
        catalog.rescan()
        Generation.objects.create(time=timezone.now(), vault="one", error="boom")


@pytest.mark.parametrize("page", ["/admin/live.json", LIST, LIST + "rescan/"])
def test_nothing_is_shown_to_strangers(client, page):
    assert client.get(page).status_code == 302


def test_a_vaults_page_shows_its_heat_while_it_runs(admin_client, fleet, worker):
    worker.hot = Heat(0, [[3, 0]])
    vault = Vault.objects.get(name="whole")
    live = f"/admin/fleet/vault/{vault.pk}/live.json"
    assert admin_client.get(live).json() == {"heat": None, "verification": None}
    worker.model = "whole"
    assert admin_client.get(live).json()["heat"]["counts"] == [[3, 0]]
    worker.hot = Heat(0, [[4, 2]])
    assert admin_client.get(live).json()["heat"]["counts"] == [[4, 2]]


def test_the_heat_outlasts_the_engine(admin_client, fleet, worker):
    heats.add("whole", 7, Heat(1, [[3, 0], [1, 1]]))
    heats.add("whole", 7, Heat(1, [[4, 0], [1, 2]]))
    heats.add("whole", 8, Heat(1, [[10, 0], [0, 0]]))  # another process counts from nothing
    live = f"/admin/fleet/vault/{Vault.objects.get(name='whole').pk}/live.json"
    heat = admin_client.get(live).json()["heat"]
    assert (heat["first"], heat["counts"]) == (1, [[14, 0], [1, 2]])
    heats.add("whole", 9, Heat(0, [[5]]))  # another vault under the same name
    assert admin_client.get(live).json()["heat"]["counts"] == [[5]]


def test_warm_up_lets_the_vault_write(admin_client, fleet, worker, monkeypatch):
    asked = []

    async def stream(request):
        asked.append((request.model, request.max_tokens))
        yield None

    monkeypatch.setattr("engine.generation.stream", stream)
    page = reverse("admin:fleet_vault_warm", args=[Vault.objects.get(name="whole").pk])
    assert "whole is warm." in messages(admin_client.post(page, follow=True))
    assert asked == [("whole", 32)]
    cut = reverse("admin:fleet_vault_warm", args=[Vault.objects.get(name="cut").pk])
    assert "cannot be served" in messages(admin_client.post(cut, follow=True))


def test_the_admin_says_that_text_is_kept_and_shows_it(admin_client, fleet, worker, settings):
    row = Generation.objects.create(time=timezone.now(), prompt="user: <b>hi</b>", reply="Hello.")
    words = "The text of prompts and replies is being kept"
    assert words not in admin_client.get("/admin/").content.decode()
    settings.SMOE = dataclasses.replace(settings.SMOE, log_text=True)
    page = admin_client.get(f"/admin/fleet/generation/{row.pk}/change/").content.decode()
    assert words in page
    assert "user: &lt;b&gt;hi&lt;/b&gt;" in page
    assert "Hello." in page


def test_usage_is_told_by_user(admin_client, worker):
    ann = User.objects.create_user("ann")
    ApiKey.objects.create(name="laptop", digest="1", owner=ann)
    ApiKey.objects.create(name="phone", digest="2", owner=ann)
    for client, tokens in (("laptop", 3), ("phone", 4000), ("127.0.0.1", 5)):
        Usage.objects.create(day=timezone.now().date(), client=client, generated_tokens=tokens)
    page = admin_client.get("/admin/fleet/usage/?user=ann").content.decode()
    assert "phone" in page
    assert "2 usage records" in page
    assert "0 in, 4,000 out" in page
    assert "127.0.0.1" not in page.split("result_list")[1]
    out = io.StringIO()
    call_command("usage", "--by", "user", "--json", stdout=out)
    assert {row["user"]: row["generated_tokens"] for row in json.loads(out.getvalue())} == {"ann": 4003, None: 5}


def join_verification():
    for thread in threading.enumerate():
        if thread.name == "verify":
            thread.join(30)


@pytest.mark.django_db(transaction=True)
def test_what_could_not_be_verified_is_not_called_sound(admin_client, fleet, worker, monkeypatch):
    def short_of_memory(*arguments):
        raise MemoryError

    monkeypatch.setattr("fleet.verification.verify", short_of_memory)
    vault = Vault.objects.get(name="whole")
    admin_client.post(f"/admin/fleet/vault/{vault.pk}/verify/")
    join_verification()
    told = admin_client.get(f"/admin/fleet/vault/{vault.pk}/live.json").json()["verification"]
    assert (told["finished"], len(told["problems"])) == (True, 1)
    assert "sound" not in Event.objects.get(kind="verify").message


@pytest.mark.django_db(transaction=True)
def test_verify_tells_its_progress_and_leaves_an_event(admin_client, fleet, worker):
    vault = Vault.objects.get(name="whole")
    with (fleet / "whole.smoe").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"x")  # in the padding behind the last record
    answer = admin_client.post(f"/admin/fleet/vault/{vault.pk}/verify/", follow=True)
    assert "Verifying whole" in messages(answer)
    join_verification()
    told = admin_client.get(f"/admin/fleet/vault/{vault.pk}/live.json").json()["verification"]
    assert told["finished"]
    assert told["done"] == told["total"] > 0
    assert len(told["problems"]) == 1
    assert Event.objects.get(kind="verify").details == {"problems": told["problems"]}
