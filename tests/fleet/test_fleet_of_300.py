"""300 pairs of 8 kinds: the right state and reason for each, twice in a row, and again after files change."""

import dataclasses
import json
import os

import pytest
import vault_pairs as pairs

from fleet import discovery
from fleet.models import Vault

pytestmark = pytest.mark.django_db
CONFIG = {
    "model_type": "qwen3_moe",
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "hidden_size": 64,
    "vocab_size": 96,
    "num_experts": 2,
    "num_experts_per_tok": 1,
    "moe_intermediate_size": 64,
    "intermediate_size": 64,
    "norm_topk_prob": True,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-6,
}


def make_growing(directory, name):
    vault = pairs.make(directory, name)
    os.truncate(vault, 20_000)
    return vault


KINDS = {
    "valid": (pairs.make, "servable", ""),
    "truncated": (pairs.make_truncated, "incomplete", "40,000 of 49,152 bytes"),
    "foreign": (pairs.make_foreign, "invalid", "does not begin as a vault"),
    "v1": (lambda d, n: pairs.make(d, n, version=1, config=json.dumps(CONFIG)), "servable", ""),
    "growing": (make_growing, "incomplete", "bytes are there"),
    "unreadable": (pairs.make_unreadable, "invalid", "Permission denied"),
    "loop": (pairs.make_link_loop, "invalid", "leads back to itself"),
    "odd": (lambda d, n: pairs.make(d, f"{n} Ünïcode 日本 'x' <&>"), "servable", ""),
}


@pytest.fixture
def kinds(fleet_dir, open_dir, settings):
    """name -> kind of every vault in a directory that other users may enter."""
    settings.SMOE = dataclasses.replace(settings.SMOE, vault_dir=open_dir)
    made = {}
    for number in range(300):
        kind = list(KINDS)[number % len(KINDS)]
        vault = KINDS[kind][0](open_dir, f"{kind}-{number:03}")
        made[vault.name.removesuffix(".smoe")] = kind
    return made


def look():
    with pairs.ordinary_user():
        return discovery.scan()


def wrong(kinds: dict[str, str], expected=KINDS) -> list[str]:
    rows = Vault.objects.in_bulk(field_name="name")
    assert set(rows) == set(kinds)
    return [
        f"{name}: {rows[name].state}, {rows[name].reason}"
        for name, kind in kinds.items()
        if rows[name].state != expected[kind][1] or expected[kind][2] not in rows[name].reason
    ]


def test_states_and_reasons_twice_and_after_changes(kinds, open_dir):
    for _ in range(2):
        look()
        assert wrong(kinds) == []
    assert set(Vault.objects.filter(name__startswith="v1-").values_list("format_version", flat=True)) == {1}

    for name, kind in kinds.items():
        vault = open_dir / f"{name}.smoe"
        if kind in ("truncated", "growing"):
            vault.write_bytes(pairs.vault_bytes())
        elif kind == "unreadable":
            vault.chmod(0o644)
        elif kind == "valid":
            vault.unlink()
        elif kind == "loop":
            vault.unlink()
            pairs.make(open_dir, name)
    changed = dict.fromkeys(KINDS, (None, "servable", "")) | {
        "valid": (None, "missing", "no longer"),
        "foreign": KINDS["foreign"],
    }
    for _ in range(2):
        look()
        assert wrong(kinds, changed) == []
