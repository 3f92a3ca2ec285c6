"""Families that the arch block does not tell all of, against the models' own classes and the reference in numpy."""

import json
import subprocess
from itertools import product

import native_engine
import numpy as np
import pytest

from fleet.vaultfile import scout
from fleet.vaultfile.layout import LatentAttention
from fleet.vaultfile.writer import scout_path_of
from tests import synthetic
from tests.families import checkpoints, vaults
from tests.reference import ReferenceModel

pytestmark = pytest.mark.native
IDS = [int(i) for i in np.random.default_rng(3).integers(0, 128, 40)]


@pytest.fixture(scope="module")
def vault(tmp_path_factory):
    """vault(name, bits): of a tiny checkpoint, made once."""
    made = {}

    def get(name, bits=4):
        if (name, bits) not in made:
            made[name, bits] = vaults.make(tmp_path_factory.mktemp(name), name, bits)
        return made[name, bits]

    return get


@pytest.fixture(scope="module")
def kernel_sets(program, vault):
    """Those that this machine runs."""

    def runs(kernels):
        command = [program, "--vault", vault("olmoe"), "--kernels", kernels, "--tokens-in", "1", "--tokens", "0"]
        run = subprocess.run(command, capture_output=True, text=True, timeout=native_engine.TIMEOUT)
        assert run.returncode == 0 or "this machine does not run" in run.stderr
        return run.returncode == 0

    assert runs("scalar")
    return [kernels for kernels in ("scalar", "avx2", "avx512", "amx", "neon") if runs(kernels)]


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("name", vaults.NAMES)
@pytest.mark.parametrize(
    "flags",
    [(), ("--exact",), ("--ring", 1, "--threads", 1, "--chunk", 7), ("--ring", 5, "--chunk", 1, "--threads", 3)],
    ids=["default", "exact", "ring of one", "tokens one by one"],
)
def test_every_greedy_id(start, vault, name, bits, flags):
    engine = start(vault(name, bits), *flags)
    for case in vaults.golden(name, bits):
        answer = engine.generate(max(1, len(case["greedy_ids"])), case["prompt_ids"], t=0, ignore_eos=1)
        assert answer.ids[: len(case["greedy_ids"])] == case["greedy_ids"]


@pytest.mark.parametrize("name", vaults.NAMES)
def test_every_kernel_set(start, vault, name, kernel_sets):
    for kernels, exact in product(kernel_sets, ((), ("--exact",))):
        engine = start(vault(name), "--kernels", kernels, *exact)
        for case in vaults.golden(name, 4):
            answer = engine.generate(max(1, len(case["greedy_ids"])), case["prompt_ids"], t=0, ignore_eos=1)
            assert answer.ids[: len(case["greedy_ids"])] == case["greedy_ids"]


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("name", vaults.NAMES)
def test_first_logits(program, vault, tmp_path, name, bits):
    for case in vaults.golden(name, bits):
        got = native_engine.logits(program, vault(name, bits), case["prompt_ids"], tmp_path / "logits", "--exact")[-1]
        expected = np.array(case["first_logits"])
        assert abs(got - expected).max() <= 1e-4 * abs(expected).max()


# RoPE's turned part and the rest of a head must wrap together. A layer's own window is between 8 and 24.
@pytest.mark.parametrize("window", [8, 24])
@pytest.mark.parametrize("chunk", [1, 5, 512])
@pytest.mark.parametrize("name", vaults.NAMES)
def test_the_window_slides_exactly(program, vault, tmp_path, name, chunk, window):
    smoe = vault(name)
    flags = ("--exact", "--ctx", window, "--chunk", chunk, "--ring", 3)
    got = native_engine.logits(program, smoe, IDS, tmp_path / "logits", *flags)
    expected = ReferenceModel(smoe, scout_path_of(smoe)).logits(IDS, window=window)
    assert abs(got - expected).max() <= 1e-3 * abs(expected).max()


@pytest.mark.parametrize("name", ["gpt_oss", "gpt_oss_mxfp4", "deepseek_v3", "kimi_k2"])
def test_no_bit_depends_on_chunks_or_threads(program, vault, tmp_path, name, kernel_sets):
    forms = [(), ("--chunk", 1, "--threads", 3), ("--chunk", 7, "--ring", 1), ("--chunk", 19, "--threads", 2)]
    for kernels, exact in product(kernel_sets, ((), ("--exact",))):
        got = [
            native_engine.logits(program, vault(name), IDS, tmp_path / "logits", "--kernels", kernels, *exact, *form)
            for form in forms
        ]
        assert all(np.array_equal(logits, got[0]) for logits in got)


@pytest.mark.parametrize("name", ["gpt_oss", "gpt_oss_mxfp4", "deepseek_v3", "kimi_k2"])
def test_a_kept_prefix_changes_nothing(start, vault, name):
    engine = start(vault(name))
    whole = engine.generate(24, IDS, t=0, ignore_eos=1).ids
    assert engine.generate(14, IDS + whole[:10], t=0, ignore_eos=1).ids == whole[10:]
    assert engine.generate(24, IDS[:33] + IDS[:5], t=0, ignore_eos=1).ids != whole
    assert engine.generate(24, IDS, t=0, ignore_eos=1).ids == whole


@pytest.mark.parametrize("trunk", ["stored", "q8"])
@pytest.mark.parametrize("name", vaults.NAMES)
def test_the_router_is_never_rounded(program, vault, tmp_path, name, trunk):
    smoe = vault(name)
    got = native_engine.logits(program, smoe, IDS, tmp_path / "logits", "--exact", "--trunk", trunk)
    expected = ReferenceModel(smoe, scout_path_of(smoe), trunk_bits={"stored": None, "q8": 8}[trunk]).logits(IDS)
    assert abs(got - expected).max() <= 1e-3 * abs(expected).max()


def changed_scout(smoe, folder, config, left_out=""):
    """The scout of `smoe` with another config, or with none; without the tensor `left_out`."""
    header = scout.read_header(scout_path_of(smoe))
    metadata = {k: v for k, v in header.metadata.items() if k != "config"}
    metadata |= {} if config is None else {"config": config}
    kept = {name: info for name, info in header.tensors.items() if name != left_out}
    specs = [scout.TensorSpec(name, info.dtype, info.shape) for name, info in kept.items()]
    path = folder / "changed.scout.safetensors"
    with open(scout_path_of(smoe), "rb") as source, open(path, "wb") as target:
        scout.write(target, specs, (header.read_raw(source, spec.name) for spec in specs), metadata)
    return path


def refusal(program, *flags):
    command = [str(word) for word in (program, *flags, "--tokens-in", 1)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=native_engine.TIMEOUT)
    assert (run.returncode, run.stdout) == (1, "")
    return run.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize("config", [None, "{", "[]"])
@pytest.mark.parametrize("name", vaults.NAMES)
def test_without_its_config_it_is_refused(program, vault, tmp_path, name, config):
    line = refusal(program, "--vault", vault(name), "--scout", changed_scout(vault(name), tmp_path, config))
    family = checkpoints.CONFIGS[name]["model_type"]
    assert f"model_type {family}: the arch block cannot say all of it" in line
    assert "--config" in line


def test_a_config_that_is_given_serves_as_well(program, vault, tmp_path):
    smoe = vault("glm4_moe")
    bare = changed_scout(smoe, tmp_path, None)
    config = smoe.parent / "checkpoint" / "config.json"
    expected = native_engine.logits(program, smoe, IDS, tmp_path / "a")
    got = native_engine.logits(program, smoe, IDS, tmp_path / "b", "--scout", bare, "--config", config)
    assert np.array_equal(got, expected)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model_type": "qwen3_moe"}, 'model_type: "qwen3_moe", but the vault is of "glm4_moe"'),
        ({"n_group": 8, "topk_group": 4}, "n_group"),
        ({"n_group": 4}, "n_group: 4, of which topk_group 1, do not fit the 8 experts of layer 2 and top 3"),
        ({"topk_group": 2}, "topk_group"),
        ({"scoring_func": "softmax"}, "scoring_func"),
        ({"partial_rotary_factor": 1.5}, "partial_rotary_factor"),
        ({"partial_rotary_factor": 0.1}, "rotary dimension: 3 is odd"),
        ({"partial_rotary_factor": 0.01}, "rotary dimension"),
        ({"routed_scaling_factor": -1}, "routed_scaling_factor"),
        ({"routed_scaling_factor": "1"}, "routed_scaling_factor: not a number"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_parameters"),
        ({"clip_qkv": 8.0}, "clip_qkv"),
        ({"kv_lora_rank": 512}, "kv_lora_rank"),
        ({"index_topk": 2048}, "index_topk"),
        ({"topk_method": "greedy"}, 'topk_method: "greedy" cannot be run'),
    ],
)
def test_what_cannot_run_is_refused_in_one_line(program, vault, tmp_path, change, named):
    smoe = vault("glm4_moe")
    config = json.loads((smoe.parent / "checkpoint" / "config.json").read_text()) | change
    line = refusal(program, "--vault", smoe, "--scout", changed_scout(smoe, tmp_path, json.dumps(config)))
    assert named in line


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"layer_types": ["full_attention"] * 3}, "layer_types: not one for each of 4 layers"),
        ({"layer_types": "full_attention"}, "layer_types: not one for each of 4 layers"),
        ({"layer_types": [1, 2, 3, 4]}, 'layer_types: "" cannot be run'),
        ({"layer_types": ["chunked_attention"] * 4}, 'layer_types: "chunked_attention" cannot be run'),
        ({"sliding_window": 0}, "sliding_window: not above 0"),
        ({"sliding_window": 1.5}, "sliding_window: not a count"),
        ({"swiglu_limit": 0}, "swiglu_limit: not a positive number"),
        ({"swiglu_alpha": float("inf")}, "swiglu_alpha: not a positive number"),
        ({"rope_scaling": {"rope_type": "longrope"}}, 'RoPE kind "longrope" cannot be run'),
        ({"rope_scaling": {"rope_type": 3}}, 'RoPE kind "" cannot be run'),
        ({"rope_scaling": {"rope_type": "yarn", "factor": -4}}, "factor: not a positive number"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": "4"}}, "factor: not a number"),
        ({"rope_scaling": {"type": "yarn", "factor": 4, "truncate": 1}}, "truncate: not true or false"),
        ({"rope_scaling": {"type": "yarn", "beta_slow": 0}}, "beta_slow: not a positive number"),
        ({"rope_scaling": {"type": "yarn", "mscale": 0, "mscale_all_dim": 1}}, "mscale: not a positive number"),
        ({"hidden_act": "gelu"}, "hidden_act"),
    ],
)
def test_what_cannot_run_of_a_gpt_oss_is_refused_in_one_line(program, vault, tmp_path, change, named):
    smoe = vault("gpt_oss_mxfp4")
    config = checkpoints.CONFIGS["gpt_oss_mxfp4"] | change
    line = refusal(program, "--vault", smoe, "--scout", changed_scout(smoe, tmp_path, json.dumps(config)))
    assert named in line


@pytest.mark.parametrize(
    "name",
    ["self_attn.sinks", "mlp.router.bias", "mlp.experts.gate_up_proj_bias", "mlp.experts.down_proj_bias"],
)
def test_a_part_of_a_gpt_oss_that_is_missing_is_named(program, vault, tmp_path, name):
    smoe = vault("gpt_oss")
    config = scout.read_header(scout_path_of(smoe)).metadata["config"]
    without = changed_scout(smoe, tmp_path, config, left_out=f"model.layers.1.{name}")
    assert f"model.layers.1.{name}: missing" in refusal(program, "--vault", smoe, "--scout", without)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model_type": "kimi_k2"}, 'model_type: "kimi_k2", but the vault is of "deepseek_v3"'),
        ({"qk_nope_head_dim": 26}, "qk_nope_head_dim: 26, with qk_rope_head_dim 16, but the vault has head_dim 40"),
        ({"kv_lora_rank": 64}, "kv_a_proj_with_mqa.weight: shape [64, 64], expected [80, 64]"),
        ({"v_head_dim": 24}, "kv_b_proj.weight: shape [176, 48], expected [192, 48]"),
        ({"q_lora_rank": None}, "q_proj.weight: missing"),
        ({"index_topk": 2048}, "index_topk"),
        ({"scoring_func": "softmax"}, "scoring_func"),
        (
            {"rope_scaling": {"type": "yarn", "factor": 40, "mscale_all_dim": 0}},
            "mscale_all_dim: not a positive number",
        ),
        ({"rope_scaling": {"type": "longrope"}}, 'RoPE kind "longrope" cannot be run'),
    ],
)
def test_what_cannot_run_of_a_deepseek_is_refused_in_one_line(program, vault, tmp_path, change, named):
    smoe = vault("deepseek_v3")
    config = checkpoints.CONFIGS["deepseek_v3"] | change
    line = refusal(program, "--vault", smoe, "--scout", changed_scout(smoe, tmp_path, json.dumps(config)))
    assert named in line


@pytest.mark.parametrize("name", ["q_a_layernorm.weight", "kv_a_layernorm.weight", "kv_b_proj.weight"])
def test_a_part_of_a_deepseek_that_is_missing_is_named(program, vault, tmp_path, name):
    smoe = vault("deepseek_v3")
    config = scout.read_header(scout_path_of(smoe)).metadata["config"]
    without = changed_scout(smoe, tmp_path, config, left_out=f"model.layers.1.self_attn.{name}")
    assert f"model.layers.1.self_attn.{name}: missing" in refusal(program, "--vault", smoe, "--scout", without)


def test_the_config_of_such_a_family_beside_another_vault_is_refused(program, golden, vault):
    config = vault("glm4_moe").parent / "checkpoint" / "config.json"
    line = refusal(program, "--vault", golden("q4").vault, "--config", config)
    assert 'model_type: "glm4_moe", but the vault is of "qwen3_moe"' in line


@pytest.mark.parametrize(("kept", "mebibytes"), [("f32", 65), ("f16", 33)])
def test_a_window_of_a_deepseek_holds_latents_alone(program, vault, kept, mebibytes):
    """4 layers of 48 + 16 elements for each of 65,536 + 512 positions; 4 heads' keys and values would be 240."""
    flags = ("--ctx", 65536, "--chunk", 512, "--kv", kept, "--memory", "1M")
    line = refusal(program, "--vault", vault("deepseek_v3"), *flags)
    assert f"one window of 65536 positions {mebibytes} MiB" in line


RELEASED = {"DeepSeek-V3": (16, 1536, 128, 128), "GLM-4.7-Flash": (20, 768, 192, 256)}  # of 128 and 20 heads


@pytest.mark.parametrize("name", RELEASED)
def test_latent_attention_as_wide_as_released(program, tmp_path, name):
    heads, query_rank, plain, value_dim = RELEASED[name]
    latent = LatentAttention(query_rank=query_rank, rank=512, rope_dim=64, value_dim=value_dim)
    config = {"model_type": "deepseek_v3", "hidden_size": 256, "num_attention_heads": heads, "num_hidden_layers": 2}
    config |= {"q_lora_rank": query_rank, "qk_nope_head_dim": plain, "v_head_dim": value_dim, "n_group": 2}
    config |= {"topk_group": 1, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
    smoe, scout_path = synthetic.write(
        tmp_path / "wide.smoe",
        d_model=256,
        heads=heads,
        kv_heads=heads,
        head_dim=plain + 64,
        latent=latent,
        qk_norm=False,
        model_type="deepseek_v3",
        metadata={"config": json.dumps(config)},
    )
    ids = IDS + IDS
    for trunk, bits in (("stored", None), ("q8", 8)):
        flags = ("--exact", "--trunk", trunk)
        got = native_engine.logits(program, smoe, ids, tmp_path / "logits", *flags)
        expected = ReferenceModel(smoe, scout_path, trunk_bits=bits).logits(ids)
        assert abs(got - expected).max() <= 1e-4 * abs(expected).max()
        apart = native_engine.logits(program, smoe, ids, tmp_path / "logits", *flags, "--chunk", 33, "--threads", 3)
        assert np.array_equal(got, apart)
