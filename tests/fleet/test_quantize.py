import numpy as np
import pytest

from fleet.vaultfile.quantize import dequantize, quantize

LEVELS = {  # the format's definition, code by code
    2: [(code - 1.5) / 1.5 for code in range(4)],
    4: [(code - 7.5) / 7.5 for code in range(16)],
    8: [(code - 128) / 127 for code in range(256)],
}


def unpacked(byte, bits):
    """Codes of a byte, the first weight's in the lowest bits."""
    return [byte >> place & (1 << bits) - 1 for place in range(0, 8, bits)]


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_every_byte_reads_as_the_format_defines(bits):
    packed = np.arange(256, dtype=np.uint8)
    count = 256 * 8 // bits
    scales = (np.arange(count // 64) + 1).astype(np.float16)
    expected = [LEVELS[bits][code] for byte in range(256) for code in unpacked(byte, bits)]
    expected = np.array(expected) * np.repeat(np.arange(count // 64) + 1, 64)
    found = dequantize(packed, scales, (count,), bits)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("shape", [(3, 64), (5, 77), (1, 1), (128, 192)])
def test_what_is_restored_is_near(bits, shape):
    weights = np.random.default_rng(7).uniform(-1, 1, shape).astype(np.float32)
    packed, scales = quantize(weights, bits)
    count = weights.size
    assert (packed.dtype, packed.size) == (np.uint8, -(-count * bits // 8))
    assert (scales.dtype, scales.size) == (np.float16, -(-count // 64))
    # Half a step between levels, of a scale that is at most 1.13 of the absmax (at 2 bits clipped weights are further).
    bound = {2: 1.0, 4: 1 / 15 * 1.01, 8: 1.13 / 254 * 1.01}[bits]
    assert np.abs(dequantize(packed, scales, shape, bits) - weights).max() <= bound


@pytest.mark.parametrize(("bits", "best"), [(4, 1.0), (8, 0.93)])
def test_the_error_is_that_of_an_even_grid_or_less(bits, best):
    """Rounding to steps of 2 * absmax / (levels - 1) leaves step / sqrt(12); the search at 8 bits less."""
    groups = np.random.default_rng(7).standard_normal((4000, 64)).astype(np.float32)
    restored = dequantize(*quantize(groups, bits), groups.shape, bits)
    step = 2 * np.abs(groups).max(axis=1) / (2**bits - 2 if bits == 8 else 2**bits - 1)
    found = np.sqrt(np.square(restored - groups).mean()) / np.sqrt(np.square(step).mean() / 12)
    assert found == pytest.approx(best, abs=0.02)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_a_group_of_zeros_stays_zero(bits):
    packed, scales = quantize(np.zeros((2, 64)), bits)
    assert not scales.any()
    assert not dequantize(packed, scales, (2, 64), bits).any()


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 7e4])
def test_weights_that_no_scale_can_hold_are_refused(bits, bad):
    weights = np.ones((2, 64), np.float32)
    weights[1, 5] = bad
    with pytest.raises(ValueError, match="largest weight"):
        quantize(weights, bits)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_a_scale_below_float16_reads_back_as_zero(bits):
    restored = dequantize(*quantize(np.full((1, 64), 1e-9), bits), (1, 64), bits)
    assert np.isfinite(restored).all()
    assert np.abs(restored).max() < 1e-7


def test_eight_bits_hold_a_grid_of_256_levels_exactly():
    weights = (np.arange(-63, 1) * 2 / 127).astype(np.float32)
    np.testing.assert_allclose(dequantize(*quantize(weights, 8), (64,), 8), weights, atol=2e-4)
