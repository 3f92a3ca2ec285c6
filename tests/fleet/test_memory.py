"""What a vault is estimated to need follows the form that its trunk will have."""

import dataclasses

import psutil
import pytest

from fleet import memory
from fleet.models import Vault
from fleet.vaultfile import reader
from smoe_site.options import OptionError, bytes_of, parse_value
from tests import synthetic

MIB = 1 << 20


def vault(matrix_mib):
    """100 MiB of scout that stays as it is, and matrices of 16 bits a weight."""
    return Vault(
        scout_bytes=(100 + matrix_mib) * MIB,
        matrix_bytes=matrix_mib * MIB,
        matrix_weights=matrix_mib * MIB // 2,
        top_k=2,
        record_bytes=MIB,
        vault_bytes=50 * MIB,
        kept_width=2 * 2 * 64,
        hidden_layers=4,
    )


@pytest.mark.parametrize(
    ("matrix_mib", "form", "trunk_mib"),
    [
        (1024, "stored", 1124),
        (1024, "auto", 1124),  # up to 1 GiB
        (1088, "auto", 100 + 544 + 17),  # beyond: a byte a weight and 2 bytes for 64
        (1024, "q8", 100 + 512 + 16),
        (1024, "q4", 100 + 256 + 16),
    ],
)
def test_the_trunk_in_each_form(matrix_mib, form, trunk_mib):
    needed = memory.need(vault(matrix_mib), positions=1024, form=form)
    assert needed.trunk == trunk_mib * MIB
    assert needed.window == 2 * 4 * 2 * 64 * 1024 * 4
    assert needed.whole == needed.trunk + needed.window + 50 * MIB


def test_an_embedding_that_stays_in_the_file_needs_no_memory():
    large = vault(1024)
    large.unloaded_bytes = 70 * MIB
    assert memory.need(large, positions=1024, form="stored").trunk == 1054 * MIB


@pytest.mark.parametrize(
    ("rows", "tied", "unloaded"),
    [(1 << 19, False, 0), ((1 << 19) + 1, False, (64 << 20) + 128), ((1 << 19) + 1, True, 0)],
)
def test_a_large_embedding_stays_in_the_file_unless_it_is_the_head(tmp_path, rows, tied, unloaded):
    pair = synthetic.write(tmp_path / "a.smoe", vocab_size=rows, tied=tied, layers=1)
    assert reader.identify(*pair).unloaded_bytes == unloaded


@pytest.mark.parametrize("tied", [False, True])
def test_what_of_a_scout_may_be_quantized(tmp_path, tied):
    """2 layers: q and o of 64 x 64, k and v of 32 x 64, and the head, own or tied, of 128 x 64. Not the routers."""
    identity = reader.identify(*synthetic.write(tmp_path / "a.smoe", tied=tied))
    weights = 2 * (2 * 64 * 64 + 2 * 32 * 64) + 128 * 64
    assert (identity.matrix_weights, identity.matrix_bytes) == (weights, 2 * weights)


def test_rows_of_another_width_than_a_multiple_of_64_stay(tmp_path):
    identity = reader.identify(*synthetic.write(tmp_path / "a.smoe", d_model=72))
    assert identity.matrix_weights == 2 * 72 * 64  # the o projections


@pytest.mark.parametrize(
    ("text", "amount"),
    [("6G", 6 << 30), ("800M", 800 << 20), ("1.5g", 3 << 29), ("2GiB", 2 << 30), ("1048576", 1 << 20), (".5K", 512)],
)
def test_amounts_are_read_as_the_engine_reads_them(text, amount):
    assert bytes_of(text) == amount


@pytest.mark.parametrize("text", ["much", "6GB", "G", "-1G", "0", "1e9", "6 G", "99999999T", "2gIB", "٢G"])
def test_what_is_no_amount_is_told_before_anything_starts(text):
    with pytest.raises(OptionError, match="expected an amount such as 6G"):
        parse_value("memory", text, "--memory")


@pytest.mark.parametrize(("asked", "share"), [("", 1.0), ("64M", 0.5), ("999T", 1.0)])
def test_the_experts_that_fit_are_those_within_the_memory_asked_for(settings, monkeypatch, asked, share):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Memory", (), {"total": 8 << 30}))
    monkeypatch.setattr("fleet.cgroups.memory_limit", lambda: None)
    settings.SMOE = dataclasses.replace(settings.SMOE, memory=asked)
    need = memory.Need(trunk=24 * MIB, window=8 * MIB, least=34 * MIB, whole=96 * MIB)
    assert need.share(memory.limit()) == share


def test_the_limit_of_a_container_counts(settings, monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Memory", (), {"total": 8 << 30}))
    monkeypatch.setattr("fleet.cgroups.memory_limit", lambda: 4 << 30)
    assert memory.limit() == 4 << 30
    settings.SMOE = dataclasses.replace(settings.SMOE, memory="2G")
    assert memory.limit() == 2 << 30
