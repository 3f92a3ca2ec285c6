"""Families that the arch block does not tell all of: what is converted, shown and refused."""

import json

import numpy as np
import pytest
from django.core.management import CommandError, call_command

from engine.replies.profile import profile_for
from fleet import discovery
from fleet.models import Vault
from fleet.vaultfile import reader, scout
from fleet.vaultfile.errors import VaultError
from fleet.vaultfile.structure import read_structure
from fleet.vaultfile.upgrade import upgrade
from fleet.vaultfile.verify import verify
from fleet.vaultfile.writer import scout_path_of
from tests.families import checkpoints, vaults
from tests.reference import ReferenceModel


@pytest.fixture
def source(tmp_path):
    """source(name, **changes of its config): a tiny checkpoint; None takes a field away."""

    def write(name, **changes):
        folder = checkpoints.write(tmp_path / "tiny", name)
        config = {k: v for k, v in (checkpoints.CONFIGS[name] | changes).items() if v is not None}
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    return write


@pytest.fixture
def shatter(fleet_dir):
    def run(folder, **options):
        call_command("shatter", folder, fleet_dir, **options)
        return fleet_dir / "tiny.smoe", fleet_dir / "tiny.scout.safetensors"

    return run


@pytest.fixture(scope="module", params=vaults.NAMES)
def made(request, tmp_path_factory):
    smoe = vaults.make(tmp_path_factory.mktemp(request.param), request.param, 4)
    return request.param, smoe, ReferenceModel(smoe, scout_path_of(smoe))


def test_the_reference_reproduces_what_the_models_own_classes_say(made):
    name, _, model = made
    for case in vaults.golden(name, 4):
        prompt, greedy = case["prompt_ids"], case["greedy_ids"]
        logits = model.logits(prompt + greedy)[len(prompt) - 1 :]
        assert logits.argmax(axis=1).tolist()[: len(greedy)] == greedy
        first = np.array(case["first_logits"])
        assert np.abs(logits[0] - first).max() <= 1e-4 * np.abs(first).max()


def test_the_correction_changes_what_is_chosen(made, monkeypatch):
    """Else the golden results would not tell whether it is used. OLMoE's router has none."""
    name, _, model = made
    prompt = vaults.golden(name, 4)[1]["prompt_ids"]
    with_it = model.logits(prompt)
    monkeypatch.setattr(model, "_correction", lambda layer: np.zeros(1, np.float32))
    change = np.abs(model.logits(prompt) - with_it).max()
    assert change == 0 if name == "olmoe" else change > 0.1


def test_a_glm(source, shatter):
    smoe, scout_path = shatter(source("glm4_moe"))
    a = reader.identify(smoe, scout_path).architecture
    assert (a.model_type, a.renormalize_top_k, a.qk_norm, a.first_layer_dense) == ("glm4_moe", True, True, True)
    assert (a.layers, a.heads, a.kv_heads, a.head_dim, a.top_k) == (4, 4, 2, 32, 3)
    assert (a.dense_ffn, a.moe_ffn, a.shared_ffn) == (96, 64, 64)
    assert sorted(read_structure(smoe).experts) == [2, 3]
    kept = scout.read_header(scout_path).tensors
    assert not [name for name in kept if name.startswith("model.layers.4.")]  # for multi-token prediction
    assert kept["model.layers.2.mlp.gate.e_score_correction_bias"].dtype == "F32"
    assert kept["model.layers.1.self_attn.k_proj.bias"].shape == (64,)


def test_a_glm_that_leaves_its_class_the_defaults(source, shatter):
    a = reader.identify(*shatter(source("glm4_moe_air", rope_theta=None, rms_norm_eps=None))).architecture
    assert (a.renormalize_top_k, a.qk_norm, a.first_layer_dense, a.shared_ffn) == (True, False, True, 64)
    assert (a.rope_theta, a.rms_epsilon) == (10_000, pytest.approx(1e-5))


def test_a_glm_without_renormalisation(source, shatter):
    assert not reader.identify(*shatter(source("glm4_moe", norm_topk_prob=False))).architecture.renormalize_top_k


def test_a_minimax(source, shatter):
    smoe, scout_path = shatter(source("minimax_m2", rope_theta=None))
    a = reader.identify(smoe, scout_path).architecture
    assert (a.model_type, a.renormalize_top_k, a.qk_norm, a.first_layer_dense) == ("minimax_m2", True, False, False)
    assert (a.layers, a.moe_ffn, a.shared_ffn, a.rope_theta) == (3, 64, 0, 5e6)
    kept = scout.read_header(scout_path).tensors
    assert kept["model.layers.0.self_attn.q_norm.weight"].shape == (128,)
    assert kept["model.layers.0.self_attn.k_norm.weight"].shape == (64,)
    assert kept["model.layers.0.block_sparse_moe.e_score_correction_bias"].dtype == "F32"


def test_an_olmoe(source, shatter):
    smoe, scout_path = shatter(source("olmoe", norm_topk_prob=None, rms_norm_eps=None))
    a = reader.identify(smoe, scout_path).architecture
    assert (a.model_type, a.renormalize_top_k, a.qk_norm) == ("olmoe", False, False)
    assert (a.kv_heads, a.moe_ffn, a.rms_epsilon) == (2, 64, pytest.approx(1e-5))
    assert scout.read_header(scout_path).tensors["model.layers.0.self_attn.k_norm.weight"].shape == (64,)


@pytest.mark.django_db
@pytest.mark.parametrize("name", vaults.NAMES)
def test_the_fleet_shows_it(source, shatter, fleet_dir, name):
    folder = source(name)
    smoe, scout_path = shatter(folder, validate=True)
    discovery.scan()
    row = Vault.objects.get(name="tiny")
    config = checkpoints.CONFIGS[name]
    dense = {"glm4_moe": 2, "glm4_moe_air": 1, "glm4_moe_air_fp8": 1}.get(name, 0)
    assert (row.state, row.reason, row.model_type) == ("servable", "", config["model_type"])
    assert (row.hidden_layers, row.moe_layers) == (config["num_hidden_layers"], config["num_hidden_layers"] - dense)
    assert (row.experts_per_layer, row.top_k, row.ffn_dim, row.trained_context) == (8, 3, 64, 4096)
    assert verify(smoe, scout_path, None, lambda *_: None) == []


@pytest.mark.parametrize(
    ("name", "mark", "family"),
    [("glm4_moe", "<tool_call>{{ name }}<arg_key>", "glm"), ("minimax_m2", "<minimax:tool_call>", "minimax")],
)
def test_its_chat_template_is_kept(source, shatter, settings, name, mark, family):
    folder = source(name)
    (folder / "chat_template.jinja").write_text(mark)
    shatter(folder)
    kept = (settings.SMOE.checkpoints_dir / "tiny" / "chat_template.jinja").read_text()
    assert kept == mark
    assert profile_for(kept).family == family


REFUSED = [
    ("glm4_moe", {"n_group": 8}, "n_group is 8: only 1 is supported"),
    ("glm4_moe", {"topk_group": 4}, "topk_group is 4: only 1 is supported"),
    ("glm4_moe", {"scoring_func": "softmax"}, "scoring_func is 'softmax': only sigmoid is supported"),
    ("glm4_moe", {"partial_rotary_factor": 0}, "partial_rotary_factor is 0, not above 0"),
    ("glm4_moe", {"partial_rotary_factor": 0.1}, "RoPE over 3 of a head's 32 elements"),
    ("glm4_moe", {"rope_parameters": {"rope_type": "yarn"}}, "rope_parameters.rope_type is 'yarn'"),
    ("glm4_moe", {"routed_scaling_factor": "x"}, "routed_scaling_factor is 'x'"),
    ("glm4_moe", {"first_k_dense_replace": 1}, "model.layers.1.mlp.experts.0"),
    ("glm4_moe", {"first_k_dense_replace": -1}, "first_k_dense_replace is -1"),
    ("glm4_moe", {"first_k_dense_replace": 4}, "0 layers"),
    ("glm4_moe", {"n_shared_experts": 2}, "shared_experts"),
    ("glm4_moe", {"num_nextn_predict_layers": 0}, "tensor model.layers.4."),
    ("glm4_moe", {"use_qk_norm": False}, "k_norm.weight: nothing of a supported architecture uses it"),
    ("glm4_moe", {"attention_bias": False}, "attention_bias is False, but"),
    ("glm4_moe_air", {"attention_bias": True}, "attention_bias is True, but"),
    ("glm4_moe_air", {"use_qk_norm": True}, "q_norm.weight is missing"),
    ("minimax_m2", {"rotary_dim": 48}, "RoPE over 48 of a head's 32 elements"),
    ("minimax_m2", {"rotary_dim": 15}, "RoPE over 15 of a head's 32 elements"),
    ("minimax_m2", {"scoring_func": "softmax"}, "scoring_func is 'softmax'"),
    ("olmoe", {"clip_qkv": 8.0}, "clip_qkv is 8.0: only None is supported"),
    ("olmoe", {"partial_rotary_factor": 2}, "partial_rotary_factor is 2"),
]


@pytest.mark.parametrize(("name", "change", "reason"), REFUSED, ids=[reason for *_, reason in REFUSED])
def test_what_cannot_be_run_is_refused_by_name(source, shatter, fleet_dir, name, change, reason):
    folder = source(name, **change)
    with pytest.raises(CommandError) as caught:
        shatter(folder)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(fleet_dir.iterdir())


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (None, "the config in its scout's metadata is missing; shatter its checkpoint again"),
        ({"model_type": "qwen3_moe"}, "is of 'qwen3_moe'"),
        ({"n_group": 2}, "n_group is 2"),
        ({"layer_types": 3}, "a field is of another type"),
        ({"rope_parameters": "x"}, "rope_parameters is not an object"),
        ({"model_type": ["glm4_moe"]}, "the config in its scout's metadata is of"),
    ],
)
def test_a_vault_whose_scout_does_not_tell_the_rest_is_not_served(source, shatter, change, word):
    smoe, scout_path = shatter(source("glm4_moe"))
    rewrite_config(scout_path, change)
    with pytest.raises(VaultError, match=word):
        reader.identify(smoe, scout_path)
    assert word in verify(smoe, scout_path, None, lambda *_: None)[0]


def test_such_a_config_beside_another_vault_is_not_served(interop_dir, tmp_path):
    theirs = tmp_path / "theirs.scout.safetensors"
    theirs.write_bytes((interop_dir / "tiny-qwen3moe-q4" / "tiny-qwen3moe.scout.safetensors").read_bytes())
    rewrite_config(theirs, checkpoints.CONFIGS["glm4_moe"])
    with pytest.raises(VaultError, match="the vault is of 'qwen3_moe', the config in its scout's metadata is of"):
        reader.identify(interop_dir / "tiny-qwen3moe-q4" / "tiny-qwen3moe.smoe", theirs)


def test_version_1_is_upgraded_only_beside_a_scout_that_tells_the_rest(source, shatter):
    smoe, scout_path = shatter(source("glm4_moe"))
    whole = smoe.read_bytes()
    with open(smoe, "r+b") as file:  # back to version 1
        file.seek(8)
        file.write((1).to_bytes(4, "little"))
    assert upgrade(smoe, scout_path, None) == "version 1: architecture from the scout's metadata"
    assert smoe.read_bytes() == whole
    rewrite_config(scout_path, None)
    with open(smoe, "r+b") as file:
        file.seek(8)
        file.write((1).to_bytes(4, "little"))
    with pytest.raises(VaultError, match="the config in its scout's metadata is missing"):
        upgrade(smoe, scout_path, smoe.parents[1] / "tiny" / "config.json")


def rewrite_config(scout_path, change):
    """None: without a config."""
    header = scout.read_header(scout_path)
    with open(scout_path, "rb") as file:
        tensors = {name: header.read_raw(file, name) for name in header.tensors}
    metadata = dict(header.metadata)
    config = json.loads(metadata.pop("config", "{}"))
    metadata |= {} if change is None else {"config": json.dumps(config | change)}
    specs = [scout.TensorSpec(name, info.dtype, info.shape) for name, info in header.tensors.items()]
    with open(scout_path, "wb") as file:
        scout.write(file, specs, tensors.values(), metadata)
