import dataclasses
from types import SimpleNamespace

import anthropic
import openai
import pytest
from engine_script import snapshot

from engine import generation

ANTHROPIC = {"anthropic-version": "2023-06-01"}


@pytest.fixture(autouse=True)
def _server(fleet, engine):
    engine.shot = snapshot(model="beta")


def test_the_active_vault_comes_first(http):
    listed = http.get("/v1/models").json()

    assert listed["object"] == "list"
    assert [(entry["id"], entry["active"]) for entry in listed["data"]] == [
        ("beta", True),
        ("alpha", False),
        ("org/gamma", False),
    ]
    facts = listed["data"][1]
    assert (facts["quant"], facts["model_type"], facts["moe_layers"], facts["experts_per_layer"]) == (
        "Q4",
        "qwen3_moe",
        48,
        128,
    )
    assert (facts["description"], facts["lineage"]) == ("a model", "org/alpha")


@pytest.mark.parametrize("path", ["/v1/models", "/models", "/v1/models/", "/v1/models?limit=1000"])
def test_every_spelling_of_the_path(http, path):
    assert len(http.get(path).json()["data"]) == 3


def test_anthropics_shape(http):
    listed = http.get("/v1/models", headers=ANTHROPIC).json()

    assert (listed["first_id"], listed["last_id"], listed["has_more"]) == ("beta", "org/gamma", False)
    assert {entry["type"] for entry in listed["data"]} == {"model"}
    assert listed["data"][0]["display_name"] == "beta (Q2)"


def test_an_empty_fleet(http, fleet):
    fleet.clear()
    assert http.get("/v1/models").json() == {"object": "list", "data": []}
    assert http.get("/v1/models", headers=ANTHROPIC).json()["first_id"] is None


def test_the_name_that_means_the_active_vault_is_one(http, base_url, monkeypatch, fleet):
    async def resolve(name, allowed):
        return fleet[1]

    monkeypatch.setattr(generation, "resolve", resolve)
    model = openai.OpenAI(base_url=f"{base_url}/v1", api_key="x").models.retrieve("s-moe")
    assert (model.id, model.active, model.quant) == ("s-moe", True, "Q2")


@pytest.mark.parametrize("name", ["alpha", "org/gamma", "org%2Fgamma"])
def test_one_model(http, name):
    assert http.get(f"/v1/models/{name}").json()["id"] == name.replace("%2F", "/")
    assert http.get(f"/v1/models/{name}/", headers=ANTHROPIC).json()["type"] == "model"


def test_an_unknown_model(http):
    plain = http.get("/v1/models/nope")
    assert (plain.status_code, plain.json()["error"]["code"]) == (404, "model_not_found")
    spoken = http.get("/v1/models/nope", headers=ANTHROPIC)
    assert (spoken.status_code, spoken.json()["error"]["type"]) == (404, "not_found_error")


def test_a_model_that_cannot_be_served_says_why(http):
    assert "truncated" in http.get("/v1/models/broken").json()["error"]["message"]


def test_both_sdks_read_the_list(base_url):
    plain = openai.OpenAI(base_url=f"{base_url}/v1", api_key="x")
    assert [model.id for model in plain.models.list()] == ["beta", "alpha", "org/gamma"]
    assert plain.models.retrieve("org/gamma").id == "org/gamma"
    spoken = anthropic.Anthropic(base_url=base_url, api_key="x")
    assert [model.id for model in spoken.models.list()] == ["beta", "alpha", "org/gamma"]
    assert spoken.models.retrieve("alpha").display_name == "alpha (Q4)"


def test_a_file_from_a_time_that_no_calendar_has(http, fleet):
    far = SimpleNamespace(stat=lambda: SimpleNamespace(st_mtime=1e12))  # as btrfs and tmpfs can tell
    fleet[0] = dataclasses.replace(fleet[0], vault_path=far)
    assert http.get("/v1/models/alpha", headers=ANTHROPIC).json()["created_at"] == "9999-12-31T23:59:59Z"
