"""Vaults of every form that the arch block can express, and the sliding window, against a reference in numpy."""

import dataclasses
import subprocess

import native_engine
import numpy as np
import pytest

from tests import synthetic
from tests.reference import ReferenceModel

pytestmark = pytest.mark.native
IDS = [int(i) for i in np.random.default_rng(3).integers(0, 128, 40)]

FORMS = {
    "plain": {},
    "q2": {"bits": 2},
    "q8": {"bits": 8},
    "tied head": {"tied": True},
    "biases": {"biases": True},
    "no qk norm": {"qk_norm": False},
    "no renorm": {"renormalize_top_k": False, "top_k": 3},
    "shared expert": {"shared_ffn": 96},
    "gated shared expert": {"shared_ffn": 96, "shared_gate": True},
    "dense first layer": {"first_layer_dense": True, "dense_ffn": 160, "layers": 3},
    "wide heads": {"head_dim": 40, "heads": 6, "kv_heads": 3},
    "one head": {"heads": 1, "kv_heads": 1, "head_dim": 64},
    "all experts": {"experts": 5, "top_k": 5},
    "odd widths": {"d_model": 72, "moe_ffn": 56, "vocab_size": 131},
    "float32 trunk": {"dtype": "F32"},
    "float16 trunk": {"dtype": "F16"},
    "theta and epsilon": {"rope_theta": 1e6, "rms_epsilon": 1e-2},
}


def check(program, pair, path, *flags, window=None):
    got = native_engine.logits(program, pair[0], IDS, path, *flags)
    expected = ReferenceModel(*pair).logits(IDS, window)
    assert abs(got - expected).max() <= 1e-3 * abs(expected).max()
    return got


# Keys and values of half precision are farther from the reference than that (test_native_golden.py).
@pytest.mark.parametrize("flags", [("--exact",), ("--kv", "f32")], ids=["exact", "16 bits"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_logits(program, tmp_path, form, flags):
    check(program, synthetic.write(tmp_path / "v.smoe", **form), tmp_path / "logits", *flags)


def test_a_large_embedding_is_read_row_by_row(program, tmp_path):
    vocab, width = (64 << 20) // (2 * 256) + 1, 256
    pair = synthetic.write(tmp_path / "v.smoe", vocab_size=vocab, d_model=width, layers=1)
    ids = [0, vocab - 1, 70_000, 70_000, 3]
    got = native_engine.logits(program, pair[0], ids, tmp_path / "logits", "--exact")
    expected = ReferenceModel(*pair).logits(ids)
    assert abs(got - expected).max() <= 1e-3 * abs(expected).max()
    with native_engine.Engine(program, pair[0], "--exact") as engine:
        assert engine.status()["trunk"] < pair[1].stat().st_size - 2 * vocab * width + (1 << 20)


@pytest.mark.parametrize("chunk", [1, 5, 512])
def test_the_window_slides_exactly(program, tmp_path, chunk):
    pair = synthetic.write(tmp_path / "v.smoe")
    check(program, pair, tmp_path / "logits", "--exact", "--ctx", 8, "--chunk", chunk, "--ring", 3, window=8)


# Chunks of 1,024 ids as far as no position is overwritten, then of 512.
def test_long_chunks_end_where_the_window_wraps(start, tmp_path):
    vault = synthetic.write(tmp_path / "v.smoe", heads=1, kv_heads=1)[0]
    ids = np.random.default_rng(1).integers(0, 64, 5000).tolist()
    short, long = (start(vault, "--ctx", 1100, "--ring", 5, *flags) for flags in (("--chunk", 512), ()))
    expected, got = (engine.generate(8, ids, t=0, slide=1) for engine in (short, long))
    assert got.ids == expected.ids
    uses = {name: int(a.figures["hits"]) + int(a.figures["misses"]) for name, a in (("short", expected), ("long", got))}
    assert uses["long"] < uses["short"]
    assert [done for done, _, _ in expected.progress] == [*range(0, 5000, 512), 5000]
    cut_back = ids[:4700]  # into what the ring still holds
    expected, got = (engine.generate(3, cut_back, t=0, slide=1) for engine in (short, long))
    assert got.ids == expected.ids


def test_the_window_is_the_same_whatever_was_cached(start, tmp_path):
    vault, _ = pair = synthetic.write(tmp_path / "v.smoe")
    engine = start(vault, "--ctx", 8, "--chunk", 4)
    ids, cached = list(IDS[:6]), []
    for _ in range(6):
        answer = engine.generate(5, ids, t=0, slide=1)
        cached.append(int(answer.figures["cached"]))
        assert answer.ids == ReferenceModel(*pair).greedy(ids, 5, window=8)
        ids += answer.ids
    assert all(cached[1:])
    # Cut back by 2 (still in the ring), then by 9 (overwritten: from the start).
    for cut, reused in ((2, len(ids) - 3 - 5), (9, 0)):
        answer = engine.generate(3, ids[: len(ids) - 5 - cut], t=0, slide=1)
        assert answer.ids == ReferenceModel(*pair).greedy(ids[: len(ids) - 5 - cut], 3, window=8)
        assert int(answer.figures["cached"]) in {reused, 0}


@pytest.mark.parametrize(("bits", "most"), [(16, 1e-4), (8, 0.03)])
@pytest.mark.parametrize("form", ["plain", "q2", "q8"])
def test_quantized_activations_stay_near(program, tmp_path, form, bits, most):
    pair = synthetic.write(tmp_path / "v.smoe", **FORMS[form])
    exact, quantized = (
        native_engine.logits(program, pair[0], IDS, tmp_path / "logits", "--kv", "f32", "--activations", numerics)
        for numerics in ("f32", bits)
    )
    change = abs(exact - quantized).max(axis=1) / abs(exact).max()  # by position
    assert 0 < np.median(change) < most  # a router's near-tie may fall the other way


@pytest.mark.parametrize("bits", [16, 8])
def test_activations_stay_float32_where_rows_are_no_whole_groups(program, tmp_path, bits):
    pair = synthetic.write(tmp_path / "v.smoe", **FORMS["odd widths"])
    exact, quantized = (
        native_engine.logits(program, pair[0], IDS, tmp_path / "logits", "--kv", "f32", "--activations", numerics)
        for numerics in ("f32", bits)
    )
    assert np.array_equal(exact, quantized)


def test_exact_is_short_for_float32_activations(program, tmp_path):
    pair = synthetic.write(tmp_path / "v.smoe")
    short, long = (
        native_engine.logits(program, pair[0], IDS, tmp_path / "logits", *flags)
        for flags in (("--exact",), ("--activations", "f32", "--kv", "f32"))
    )
    assert np.array_equal(short, long)


def refusal(program, *flags):
    run = subprocess.run(
        [str(word) for word in (program, *flags)], capture_output=True, text=True, timeout=native_engine.TIMEOUT
    )
    assert run.stdout == ""
    return run.returncode, run.stderr.strip().splitlines()[-1]


def test_a_version_1_vault_needs_its_config(program, tmp_path, monkeypatch):
    a = synthetic.ARCHITECTURE
    vault, scout = synthetic.write(tmp_path / "v.smoe", version=1)
    code, line = refusal(program, "--vault", vault, "--tokens-in", 1)
    assert code == 1
    assert "config" in line
    config = tmp_path / "config.json"
    config.write_text(
        f'{{"model_type": "qwen3_moe", "num_attention_heads": {a.heads}, "num_key_value_heads": {a.kv_heads}, '
        f'"head_dim": {a.head_dim}, "num_experts_per_tok": {a.top_k}, "num_hidden_layers": {a.layers}, '
        f'"rope_theta": {a.rope_theta}, "rms_norm_eps": {a.rms_epsilon}, "norm_topk_prob": true, "hidden_size": 64, '
        f'"moe_intermediate_size": {a.moe_ffn}, "vocab_size": 128, "num_experts": 4}}'
    )
    got = native_engine.logits(program, vault, IDS, tmp_path / "logits", "--exact", "--config", config)
    expected = ReferenceModel(vault, scout, config).logits(IDS)
    assert abs(got - expected).max() <= 1e-3 * abs(expected).max()
    monkeypatch.setenv("SMOE_ENGINE_CONFIG", str(config))
    assert np.array_equal(native_engine.logits(program, vault, IDS, tmp_path / "logits", "--exact"), got)


def test_end_ids_of_the_scout_are_used(start, tmp_path):
    vault, _ = pair = synthetic.write(tmp_path / "v.smoe")
    greedy = ReferenceModel(*pair).greedy(IDS, 3)
    vault, _ = synthetic.write(tmp_path / "w.smoe", metadata={"eos_token_ids": f"[{greedy[2]}, 1]"})
    answer = start(vault).generate(20, IDS, t=0)
    assert (answer.ids, answer.finish) == (greedy[: greedy.index(greedy[2])], "stop")


def test_a_tensor_of_an_unknown_feature_is_refused(program, tmp_path, monkeypatch):
    specs = synthetic._specs

    def with_sinks(*args):
        return [*specs(*args), synthetic.TensorSpec("model.layers.1.self_attn.sinks", "BF16", (4,))]

    monkeypatch.setattr(synthetic, "_specs", with_sinks)
    vault, _ = synthetic.write(tmp_path / "v.smoe")
    code, line = refusal(program, "--vault", vault, "--tokens-in", 1)
    assert code == 1
    assert "model.layers.1.self_attn.sinks" in line


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"heads": 3, "kv_heads": 2}, "heads"),
        ({"top_k": 9}, "top_k"),
        ({"metadata": {"config": '{"sliding_window": 16}'}}, "sliding_window"),
        ({"metadata": {"eos_token_ids": "[1"}}, "eos_token_ids"),
    ],
)
def test_what_cannot_run_is_refused_in_one_line(program, tmp_path, change, named):
    vault, _ = synthetic.write(tmp_path / "v.smoe", **change)
    code, line = refusal(program, "--vault", vault, "--tokens-in", 1)
    assert code == 1
    assert named in line


def test_a_scout_of_another_shape_is_refused(program, tmp_path):
    vault, _ = synthetic.write(tmp_path / "v.smoe")
    _, other = synthetic.write(tmp_path / "w.smoe", head_dim=32)
    code, line = refusal(program, "--vault", vault, "--scout", other, "--tokens-in", 1)
    assert code == 1
    assert "self_attn.q_proj.weight" in line or "q_proj" in line


@pytest.mark.parametrize(
    "mode", [("--tokens-in", "1,2"), ("bench", "--prompt", "1"), ("bench", "--prompt", "1", "--json"), ("--help",)]
)
def test_answers_that_cannot_be_written_are_a_failure(program, tmp_path, mode):
    vault, _ = synthetic.write(tmp_path / "v.smoe")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [program, *mode, "--vault", vault, "--tokens", "2"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "smoe-engine: stdout: cannot be written"


def test_flags_of_another_mode_are_refused(program):
    bench = refusal(program, "bench", "--vault", "v", "--logits", "x")
    assert bench == (2, "smoe-engine: --logits: goes with --tokens-in")
    once = refusal(program, "--vault", "v", "--tokens-in", 1, "--json")
    assert once == (2, "smoe-engine: --json: goes with bench")


def test_flags(program, golden):
    unknown = refusal(program, "--vault", "v", "--speed", "9", "--serve")
    assert unknown == (2, "smoe-engine: --speed: unknown flag (see --help)")
    assert refusal(program, "--vault", "v", "--serve", "--ring", "many")[0] == 2
    assert "--vault" in refusal(program, "--serve")[1]
    assert refusal(program, "--vault", "/nowhere/v.smoe", "--serve")[0] == 1
    assert "--activations: f32, 16 or 8, not 4" in refusal(program, "--vault", "v", "--serve", "--activations", 4)[1]
    both = refusal(program, "--vault", "v", "--serve", "--exact", "--activations", 8)
    assert both == (2, "smoe-engine: --exact and --activations 8 exclude each other")
    assert "--kernels" in refusal(program, "--vault", golden("q4").vault, "--serve", "--kernels", "abacus")[1]
    help_text = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
    for flag in ("--vault", "--ring", "--eos-ids", "--temperature", "--ctx", "--seed"):
        assert flag in help_text


def test_ids_are_printed_without_a_server(program, golden):
    case = golden("q4").cases[0]
    csv = ",".join(map(str, case["prompt_ids"]))
    flags = [
        "--temperature",
        "0",
        "--top-p",
        "0.9",
        "--top-k",
        "40",
        "--rep-penalty",
        "1.0",
        "--workers",
        "2",
        "--tokens",
        "12",
        "--instrument",
    ]
    command = [program, "--vault", golden("q4").vault, "--tokens-in", csv, *flags]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert list(map(int, run.stdout.split())) == case["greedy_ids"][:12]


def test_every_form_is_of_the_arch_block():
    """The list above must not fall behind the format."""
    fields = {field.name for field in dataclasses.fields(synthetic.ARCHITECTURE)}
    varied = {name for form in FORMS.values() for name in form} & fields
    assert fields - varied <= {"model_type", "activation", "latent"}  # of families, and not in the block
