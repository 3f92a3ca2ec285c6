"""Families that the arch block does not tell all of: what is converted, shown and refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from django.core.management import CommandError, call_command

from engine.replies.profile import profile_for
from fleet import discovery, memory
from fleet.models import Vault
from fleet.shatter import ShatterError, keys, mxfp4
from fleet.shatter.checkpoint import Checkpoint
from fleet.shatter.convert import experts
from fleet.shatter.plan import plan
from fleet.vaultfile import config as model_config
from fleet.vaultfile import families, layout, reader, scout
from fleet.vaultfile.errors import VaultError
from fleet.vaultfile.records import decode_expert, encode_expert
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
        kept = {k: v for k, v in checkpoints.CONFIGS[name].items() if k not in changes}
        config = kept | {k: v for k, v in changes.items() if v is not None}
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
    """Else the golden results would not tell whether it is used. A softmax router has none."""
    name, _, model = made
    prompt = vaults.golden(name, 4)[1]["prompt_ids"]
    with_it = model.logits(prompt)
    monkeypatch.setattr(model, "_correction", lambda layer: np.zeros(1, np.float32))
    change = np.abs(model.logits(prompt) - with_it).max()
    assert change > 0.1 if families.of(model.a.model_type).sigmoid_router else change == 0


PARTS_OF_GPT_OSS = {
    "sinks": {"sinks": -np.inf},
    "a router's biases": {"router.bias": 0},
    "biases of gate and up": {"gate_up_proj_bias": 0},
    "biases of down": {"down_proj_bias": 0},
    "biases of the attention": {"q_proj.bias": 0, "o_proj.bias": 0},
    "sliding_window": {"sliding_window": 4096},
    "rope": {"rope_scaling": None, "rope_parameters": {"rope_type": "default"}},
    "swiglu_alpha": {"swiglu_alpha": 1.0},
}


@pytest.mark.parametrize("part", PARTS_OF_GPT_OSS)
def test_every_part_of_a_gpt_oss_changes_what_comes_out(made, monkeypatch, part):
    name, _, model = made
    if model.a.model_type != "gpt_oss":
        return
    prompt = vaults.golden(name, 4)[2]["prompt_ids"]
    with_it = model.logits(prompt)
    changes = PARTS_OF_GPT_OSS[part]
    for tensor, values in model._trunk.items():
        for ending, value in changes.items():
            if tensor.endswith(ending):
                monkeypatch.setitem(model._trunk, tensor, np.full_like(values, value))
    for field in changes.keys() & {"sliding_window", "rope_scaling", "rope_parameters", "swiglu_alpha"}:
        monkeypatch.setitem(model._config, field, changes[field])
    assert np.abs(model.logits(prompt) - with_it).max() > 0.05


def test_the_limit_of_a_swiglu_is_met(made, monkeypatch):
    name, _, model = made
    if name != "gpt_oss":
        return
    prompt = vaults.golden(name, 4)[2]["prompt_ids"]
    with_it = model.logits(prompt)
    monkeypatch.setitem(model._config, "swiglu_limit", 100)
    assert np.abs(model.logits(prompt) - with_it).max() > 0.05


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


@pytest.mark.parametrize("name", ["deepseek_v3", "deepseek_v3_fp8"])
def test_a_deepseek(source, shatter, name):
    smoe, scout_path = shatter(source(name))
    a = reader.identify(smoe, scout_path).architecture
    assert (a.model_type, a.renormalize_top_k, a.qk_norm, a.first_layer_dense) == ("deepseek_v3", True, False, True)
    assert (a.layers, a.heads, a.kv_heads, a.head_dim, a.top_k) == (4, 4, 4, 40, 3)
    assert (a.dense_ffn, a.moe_ffn, a.shared_ffn, a.rms_epsilon) == (96, 64, 64, pytest.approx(1e-2))
    assert a.latent == layout.LatentAttention(query_rank=40, rank=48, rope_dim=16, value_dim=20)
    assert sorted(read_structure(smoe).experts) == [2, 3]
    kept = scout.read_header(scout_path).tensors
    assert not [name for name in kept if name.startswith("model.layers.4.")]  # for multi-token prediction
    assert kept["model.layers.2.mlp.gate.e_score_correction_bias"].dtype == "F32"
    assert kept["model.layers.0.self_attn.kv_a_proj_with_mqa.weight"].dtype == "BF16"


def test_a_kimi(source, shatter):
    a = reader.identify(*shatter(source("kimi_k2"))).architecture
    assert (a.model_type, a.rope_theta, a.latent.query_rank, a.latent.rank) == ("kimi_k2", 5e4, 64, 64)


def test_what_a_deepseek_leaves_to_its_class():
    config = {"model_type": "deepseek_v3", "hidden_size": 7168, "num_attention_heads": 128, "num_hidden_layers": 61}
    config |= {"num_experts_per_tok": 8, "n_routed_experts": 256, "moe_intermediate_size": 2048}
    a = model_config.architecture(config)
    assert (a.head_dim, a.kv_heads, a.shared_ffn, a.renormalize_top_k, a.rms_epsilon) == (192, 128, 2048, True, 1e-6)
    assert a.latent == layout.LatentAttention(query_rank=1536, rank=512, rope_dim=64, value_dim=128)
    assert a.kept_width == 576
    family = families.FAMILIES["deepseek_v3"]
    assert model_config.dense_layers(config) == 3
    assert model_config.expert_groups(config, family) == (8, 4)
    assert model_config.routed_scale(config, family) == 2.5
    assert model_config.yarn(config, family) is None
    assert model_config.score_scale(config, family) == 1
    config["rope_scaling"] = {"type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0}
    assert model_config.score_scale(config, family) == pytest.approx(1.3688879454113936**2)
    assert model_config.yarn(config, family).attention_factor == 1


PARTS_OF_DEEPSEEK = {
    "routed_scaling_factor": {"routed_scaling_factor": 1.0},
    "the scale of scores": {"rope_scaling": {"mscale_all_dim": 1.0}},
    "yarn": {"rope_scaling": {"factor": 1.5}},
    "pairs of rope": {"rope_interleave": False},
    "the queries' norm": {"q_a_layernorm.weight": 1},
    "the latent's norm": {"kv_a_layernorm.weight": 1},
}


def test_the_groups_change_what_is_chosen(made, monkeypatch):
    name, _, model = made
    if (count := model._config.get("n_group", 1)) == 1:
        return
    prompt = vaults.golden(name, 4)[1]["prompt_ids"]
    with_them = model.logits(prompt)
    monkeypatch.setitem(model._config, "topk_group", count)
    assert np.abs(model.logits(prompt) - with_them).max() > 0.1


@pytest.mark.parametrize("part", PARTS_OF_DEEPSEEK)
def test_every_part_of_a_deepseek_changes_what_comes_out(made, monkeypatch, part):
    name, _, model = made
    if name != "deepseek_v3":
        return
    prompt = vaults.golden(name, 4)[2]["prompt_ids"]
    with_it = model.logits(prompt)
    for field, value in PARTS_OF_DEEPSEEK[part].items():
        if field == "rope_scaling":
            value = model._config[field] | value
        monkeypatch.setitem(model._config, field, value)
        for tensor, values in model._trunk.items():
            if tensor.endswith(field):
                monkeypatch.setitem(model._trunk, tensor, np.full_like(values, value))
    assert np.abs(model.logits(prompt) - with_it).max() > 0.05


def test_the_window_of_a_deepseek_is_latents_alone(source, shatter, fleet_dir):
    identity = reader.identify(*shatter(source("deepseek_v3")))
    assert identity.kept_width == 48 + 16
    row = Vault(kept_width=identity.kept_width, hidden_layers=4, top_k=3, record_bytes=1, vault_bytes=24, scout_bytes=0)
    assert memory.need(row, positions=100, form="stored").window == 4 * 100 * (48 + 16) * 4


def test_heads_of_another_width_than_the_config_says_are_not_served(source, shatter):
    smoe, scout_path = shatter(source("deepseek_v3"))
    rewrite_config(scout_path, {"qk_nope_head_dim": 26})
    with pytest.raises(VaultError, match="head_dim is 40, the scout's config says 42"):
        reader.identify(smoe, scout_path)


@pytest.mark.parametrize("name", ["gpt_oss", "gpt_oss_mxfp4"])
def test_a_gpt_oss(source, shatter, name):
    smoe, scout_path = shatter(source(name))
    a = reader.identify(smoe, scout_path).architecture
    assert (a.model_type, a.renormalize_top_k, a.qk_norm, a.first_layer_dense) == ("gpt_oss", True, False, False)
    assert (a.layers, a.heads, a.kv_heads, a.head_dim, a.moe_ffn, a.shared_ffn) == (4, 4, 2, 32, 320, 0)
    assert a.rope_theta == (1e4 if name == "gpt_oss" else 1.5e5)
    kept = scout.read_header(scout_path).tensors
    experts = {n.partition(".experts.")[2]: kept[n] for n in kept if ".layers.2.mlp.experts." in n}
    assert {n: info.shape for n, info in experts.items()} == {"gate_up_proj_bias": (8, 640), "down_proj_bias": (8, 192)}
    assert {kept[f"model.layers.0.{n}"].shape for n in ("self_attn.sinks", "self_attn.o_proj.bias")} == {(4,), (192,)}
    assert {info.dtype for info in kept.values()} == {"BF16"}


def test_interleaved_experts_are_taken_apart(source):
    folder = source("gpt_oss")
    checkpoint = Checkpoint(folder)
    gate_up, down = (checkpoint.read(f"model.layers.1.mlp.experts.{n}_proj") for n in ("gate_up", "down"))
    found = list(experts(checkpoint, plan(checkpoint, 4)))[8 + 5]
    expected = gate_up[5][:, 0::2].T, gate_up[5][:, 1::2].T, down[5].T
    assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


def test_mxfp4_is_what_transformers_makes_of_it():
    golden = json.loads(Path(vaults.__file__).with_name("mxfp4.json").read_text())
    blocks, scales = (np.array(golden[name], np.uint8) for name in ("blocks", "scales"))
    assert np.array_equal(mxfp4.decode(blocks, scales), np.array(golden["values"], np.float32))
    assert np.isnan(mxfp4.decode(blocks, np.full_like(scales, 255))).all()


def test_experts_in_mxfp4_are_taken_apart(source):
    checkpoint = Checkpoint(source("gpt_oss_mxfp4"))
    name = "model.layers.2.mlp.experts"
    rows, down = (
        mxfp4.decode(*(checkpoint.read_item(f"{name}.{part}_proj_{kind}", 7) for kind in ("blocks", "scales")))
        for part in ("gate_up", "down")
    )
    found = list(experts(checkpoint, plan(checkpoint, 4)))[2 * 8 + 7]
    assert all(np.array_equal(a, b) for a, b in zip(found, (rows[0::2], rows[1::2], down), strict=True))


@pytest.mark.parametrize(("bits", "error"), [(4, 0.12), (8, 0.005)])
def test_what_mxfp4_loses(source, bits, error):
    checkpoint = Checkpoint(source("gpt_oss_mxfp4"))
    conversion = plan(checkpoint, bits)
    for original in list(experts(checkpoint, conversion))[:4]:
        restored = decode_expert(encode_expert(original, bits), conversion.vault.shapes, bits)
        for a, b in zip(original, restored, strict=True):
            assert 0 < np.linalg.norm(b - a) < error * np.linalg.norm(a)


@pytest.mark.parametrize(
    ("name", "bits", "is_told"), [("gpt_oss_mxfp4", 4, True), ("gpt_oss_mxfp4", 8, False), ("gpt_oss", 4, False)]
)
def test_who_shatters_mxfp4_is_told_of_8_bits(source, shatter, capsys, name, bits, is_told):
    shatter(source(name), bits=bits, dry_run=True)
    assert ("--bits 8 keeps them" in capsys.readouterr().out) == is_told


def test_mxfp4_has_whole_blocks():
    with pytest.raises(ShatterError, match="down_proj_blocks: rows of 336 are not whole blocks"):
        list(keys.Mxfp4Experts().tensors(0, 8, [(336, 192), (336, 192), (192, 336)]))


def test_what_a_gpt_oss_leaves_to_its_class():
    family = families.FAMILIES["gpt_oss"]
    assert model_config.layer_windows({"num_hidden_layers": 3}, family) == [128, None, 128]
    yarn = model_config.yarn({}, family)
    assert (yarn.factor, yarn.beta_fast, yarn.beta_slow, yarn.original, yarn.truncate) == (32, 32, 1, 4096, False)
    assert yarn.attention_factor == pytest.approx(1.3465735902799727)
    assert model_config.yarn({"rope_parameters": {"rope_theta": 1e4}}, family) is None
    older = {"max_position_embeddings": 65536, "rope_scaling": {"type": "yarn", "mscale": 1.0, "mscale_all_dim": 0.5}}
    older["rope_scaling"] |= {"factor": 40.0, "beta_fast": 16}
    assert model_config.rope_theta(older, family) == 1.5e5
    older["rope_scaling"]["rope_theta"] = 5e5
    assert model_config.rope_theta(older | {"rope_theta": 1e4}, family) == 5e5
    yarn = model_config.yarn(older, family)
    assert (yarn.original, yarn.truncate, yarn.beta_fast) == (65536, True, 16)
    assert yarn.attention_factor == pytest.approx(1.1557219901962608)


def test_every_end_of_a_gpt_oss_is_kept(source, shatter):
    folder = source("gpt_oss_mxfp4", eos_token_id=200002)
    (folder / "generation_config.json").write_text('{"eos_token_id": [200002, 199999, 200012]}')
    _, scout_path = shatter(folder)
    assert json.loads(scout.read_header(scout_path).metadata["eos_token_ids"]) == [199999, 200002, 200012]


@pytest.mark.django_db
@pytest.mark.parametrize("name", vaults.NAMES)
def test_the_fleet_shows_it(source, shatter, fleet_dir, name):
    folder = source(name)
    smoe, scout_path = shatter(folder, validate=True)
    discovery.scan()
    row = Vault.objects.get(name="tiny")
    config = checkpoints.CONFIGS[name]
    dense = config.get("first_k_dense_replace", int("glm4_moe" in name))
    assert (row.state, row.reason, row.model_type) == ("servable", "", config["model_type"])
    assert (row.hidden_layers, row.moe_layers) == (config["num_hidden_layers"], config["num_hidden_layers"] - dense)
    ffn = 320 if config["model_type"] == "gpt_oss" else 64
    assert (row.experts_per_layer, row.top_k, row.ffn_dim, row.trained_context) == (8, 3, ffn, 4096)
    assert verify(smoe, scout_path, None, lambda *_: None) == []


@pytest.mark.parametrize(
    ("name", "mark", "family"),
    [
        ("glm4_moe", "<tool_call>{{ name }}<arg_key>", "glm"),
        ("minimax_m2", "<minimax:tool_call>", "minimax"),
        ("gpt_oss_mxfp4", "<|start|>assistant<|channel|>analysis<|message|>", "harmony"),
        ("deepseek_v3", "<｜tool▁calls▁begin｜>", "deepseek"),
        ("kimi_k2", "<|tool_calls_section_begin|>", "kimi"),
    ],
)
def test_its_chat_template_is_kept(source, shatter, settings, name, mark, family):
    folder = source(name)
    (folder / "chat_template.jinja").write_text(mark)
    shatter(folder)
    kept = (settings.SMOE.checkpoints_dir / "tiny" / "chat_template.jinja").read_text()
    assert kept == mark
    assert profile_for(kept).family == family


REFUSED = [
    ("glm4_moe", {"n_group": 8}, "n_group is 8, topk_group 1: not with 8 experts and 3 of them used"),
    ("glm4_moe", {"n_group": 4}, "n_group is 4, topk_group 1: not with 8 experts and 3 of them used"),
    ("glm4_moe", {"n_group": 3}, "n_group is 3, topk_group 1: not with 8 experts and 3 of them used"),
    ("glm4_moe", {"topk_group": 4}, "topk_group is 4, of n_group 1"),
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
    ("minimax_m2", {"n_group": 2}, "n_group is 2: only 1 is supported"),
    ("olmoe", {"clip_qkv": 8.0}, "clip_qkv is 8.0: only None is supported"),
    ("olmoe", {"partial_rotary_factor": 2}, "partial_rotary_factor is 2"),
    ("gpt_oss", {"layer_types": ["full_attention"] * 3}, "layer_types is not a list of 4"),
    ("gpt_oss", {"layer_types": ["chunked_attention"] * 4}, "layer_types is not a list of 4"),
    ("gpt_oss", {"sliding_window": 0}, "sliding_window is 0"),
    ("gpt_oss", {"swiglu_limit": -1}, "swiglu_limit is -1"),
    ("gpt_oss", {"swiglu_alpha": "x"}, "swiglu_alpha is 'x'"),
    ("gpt_oss", {"rope_parameters": {"rope_type": "longrope"}}, "'longrope': only default and yarn can be read"),
    ("gpt_oss", {"rope_parameters": {"rope_type": "yarn", "factor": 0}}, "factor is 0"),
    ("gpt_oss", {"rope_parameters": {"rope_type": "yarn", "truncate": 1}}, "truncate is 1"),
    ("gpt_oss", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1}}, "rope_theta is 1.0, not above 1"),
    ("gpt_oss", {"attention_bias": False}, "attention_bias is False, but"),
    ("gpt_oss", {"num_local_experts": 7}, "gate_up_proj is [8, 192, 640], the config asks for [7, 192, 640]"),
    ("gpt_oss", {"intermediate_size": 640}, "the config asks for [8, 192, 1280]"),
    ("gpt_oss_mxfp4", {"quantization_config": {"quant_method": "gptq"}}, "quantization_config"),
    ("glm4_moe", {"quantization_config": {"quant_method": "mxfp4"}}, "quantization_config"),
    ("deepseek_v3", {"model_type": "deepseek_v32"}, "model_type 'deepseek_v32' is not supported"),
    ("deepseek_v3", {"index_topk": 2048}, "index_topk is 2048: only None is supported"),
    ("deepseek_v3", {"topk_method": "greedy"}, "topk_method is 'greedy': only noaux_tc is supported"),
    ("deepseek_v3", {"moe_layer_freq": 2}, "moe_layer_freq is 2: only 1 is supported"),
    ("deepseek_v3", {"n_group": None, "topk_group": None}, "n_group is 8, topk_group 4: not with 8 experts"),
    ("deepseek_v3", {"kv_lora_rank": 40}, "kv_lora_rank is 40: only multiples of 16"),
    ("deepseek_v3", {"kv_lora_rank": 64}, "kv_a_proj_with_mqa.weight is [64, 64], the config asks for [80, 64]"),
    ("deepseek_v3", {"q_lora_rank": None}, "q_a_proj.weight is [40, 64], the config asks for [1536, 64]"),
    ("deepseek_v3", {"q_lora_rank": 0}, "q_lora_rank is 0, not a positive whole number"),
    ("deepseek_v3", {"qk_nope_head_dim": 23}, "qk_nope_head_dim and qk_rope_head_dim are 39 together, not even"),
    ("deepseek_v3", {"qk_nope_head_dim": 25, "qk_rope_head_dim": 15}, "RoPE over 15 of a head's 40 elements"),
    ("deepseek_v3", {"v_head_dim": 24}, "kv_b_proj.weight is [176, 48], the config asks for [192, 48]"),
    ("deepseek_v3", {"v_head_dim": 5000}, "v_head_dim is 5000, more than 4096"),
    ("deepseek_v3", {"num_key_value_heads": 2}, "num_key_value_heads is 2, of 4 heads"),
    ("deepseek_v3", {"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5: RoPE turns all of qk_rope_head_dim"),
    ("deepseek_v3", {"rope_interleave": 1}, "rope_interleave is 1, not true or false"),
    ("deepseek_v3", {"rope_scaling": {"type": "yarn", "factor": 4, "mscale_all_dim": 0}}, "mscale_all_dim is 0"),
    ("deepseek_v3", {"rope_scaling": {"type": "dynamic"}}, "'dynamic': only default and yarn can be read"),
    ("deepseek_v3", {"attention_bias": True}, "attention_bias is True, but"),
    ("deepseek_v2", {"norm_topk_prob": True}, "norm_topk_prob is True: only False is supported"),
    ("deepseek_v2", {"topk_method": "noaux_tc"}, "topk_method is 'noaux_tc': only greedy and group_limited_greedy are"),
    ("deepseek_v2", {"topk_group": 1}, "n_group is 4, topk_group 1: not with 8 experts and 3 of them used"),
    ("deepseek_v2", {"scoring_func": "sigmoid"}, "scoring_func is 'sigmoid'"),
    ("glm4_moe_lite", {"mlp_layer_types": ["sparse", "dense", "sparse"]}, "mlp_layer_types is not a list of dense"),
    ("glm4_moe_lite", {"mlp_layer_types": ["dense", "sparse"]}, "mlp_layer_types is not a list of dense"),
    ("glm4_moe_lite", {"mlp_layer_types": ["dense", "dense", "sparse"]}, "layers.1.mlp.gate_proj.weight is missing"),
    ("deepseek_v3_direct", {"attention_bias": False}, "attention_bias is False, but there are biases"),
    ("deepseek_v3_direct", {"q_lora_rank": 16}, "q_a_proj.weight is missing"),
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
        ({"n_group": 3}, "n_group is 3"),
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
