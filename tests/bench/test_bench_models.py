"""The random models are what other readers take them for, with weights of the intended size."""

import dataclasses

import numpy as np
import pytest
from gguf import GGMLQuantizationType, dequantize

from bench import geometry, random_gguf, synthetic
from bench.files import BenchError, need_room
from fleet.vaultfile import reader
from fleet.vaultfile.writer import scout_path_of
from tests.reference import ReferenceModel


def small_plan():
    plan = geometry.plan(2)
    architecture = dataclasses.replace(plan.architecture, heads=4, kv_heads=2, head_dim=32, moe_ffn=192)
    return dataclasses.replace(plan, architecture=architecture, d_model=256, vocab_size=300, experts=16)


@pytest.fixture(scope="module")
def smoe(tmp_path_factory):
    path = tmp_path_factory.mktemp("vault") / "random.smoe"
    synthetic.write(path, small_plan())
    return path


def test_the_vault_is_a_vault(smoe):
    identity = reader.identify(smoe, scout_path_of(smoe))
    assert (identity.quant, identity.moe_layers, identity.experts_per_layer, identity.top_k) == ("Q4", 2, 16, 8)


def test_the_experts_have_the_deviation_of_their_width(smoe):
    model = ReferenceModel(smoe, scout_path_of(smoe))
    for matrix in model.expert(1, 3):
        assert matrix.std() == pytest.approx(matrix.shape[1] ** -0.5, rel=0.02)
        assert abs(matrix.mean()) < 0.02 * matrix.std()
    assert not np.array_equal(model.expert(0, 0)[0], model.expert(0, 1)[0])


def test_what_it_computes_is_finite(smoe):
    logits = ReferenceModel(smoe, scout_path_of(smoe)).logits(list(range(20)))
    assert np.isfinite(logits).all()
    assert 0.5 < logits.std() < 2


@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0"])
def test_the_peers_blocks(kind):
    tensor = random_gguf.Tensor("t", (64, 256), kind, 0.05)
    values = random_gguf._values(tensor, np.random.Generator(np.random.SFC64(1)))
    assert values.nbytes == tensor.size
    weights = dequantize(values, GGMLQuantizationType[kind])
    assert weights.shape == (64, 256)
    assert weights.std() == pytest.approx(0.05, rel=0.02)
    assert abs(weights.mean()) < 0.002


def test_the_peer_has_the_same_experts():
    """Of the whole model, as the format's own counts of weights tell: 30.5 billion, of them 29.0 in experts."""
    tensors = list(random_gguf._tensors(48))
    experts = sum(np.prod(t.shape) for t in tensors if t.name.endswith("exps.weight"))
    plan = geometry.plan()
    assert experts == plan.total_experts * sum(rows * cols for rows, cols in plan.shapes) == 28_991_029_248
    assert sum(np.prod(t.shape) for t in tensors) == pytest.approx(30.5e9, rel=0.01)


def test_a_disk_without_room(tmp_path):
    with pytest.raises(BenchError, match="GB are needed"):
        need_room(tmp_path, 1 << 60)
