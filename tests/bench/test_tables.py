"""What is made of the measurements: ratios, ceilings, the plot; and which forms of computing are judged."""

import xml.etree.ElementTree as ElementTree

import pytest

from bench import plot, quality, report
from bench.http_client import _has_text
from bench.results import Key, Results, Sample

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def results(tmp_path):
    results = Results(tmp_path / "run.csv", "run")

    def add(suite, case, subject, repeat, **metrics):
        results.add(Key(suite, case, subject, repeat), Sample("command", metrics), 0.1)

    for limit, ours, tuned in ((4, (2.0, 2.4, 2.2), (0.8, 0.7, 0.9)), (8, (4.0, 4.0, 4.4), (1.1, 1.0, 1.0))):
        for repeat in range(3):
            figures = {"trunk_bytes": 3e9, "slot_bytes": 2.5e6, "decode_bytes_per_token": 8e8}
            add("limits", f"{limit} GiB", "smoe", repeat, decode_tok_s=ours[repeat], **figures)
            add("limits", f"{limit} GiB", "llama.cpp tuned", repeat, decode_tok_s=tuned[repeat])
    add(
        "machine",
        "bandwidth",
        "machine",
        0,
        memory_2_threads_gb_s=32.0,
        disk_depth_1_gb_s=2.4,
        disk_depth_1_processor_us_per_read=90.0,
    )
    return results


def test_the_ratio_of_the_medians(results):
    assert report.median_ratio(results, "limits", "4 GiB", "decode_tok_s", "smoe", "llama.cpp tuned") == 2.2 / 0.8
    assert report.median_ratio(results, "limits", "4 GiB", "decode_tok_s", "smoe", "llama.cpp") is None


def test_the_report(results):
    text = report.text(results, 48)
    assert "decode_tok_s: smoe is 2.75 x llama.cpp tuned" in text
    assert "2.2 (2 to 2.4, 3 times)" in text
    assert "limits 4 GiB, smoe: 2.20 of 3.00 tok/s (73%;" in text  # 0.8 GB a token at 2.4 GB/s


def test_a_ceiling_takes_the_bandwidths_that_were_measured_with_it(results):
    for repeat in range(3):
        figures = {"trunk_bytes": 3e9, "slot_bytes": 2.5e6, "decode_bytes_per_token": 8e8}
        now = {"memory_gb_s": 32.0, "disk_gb_s": 2.0}
        results.add(Key("limits", "6 GiB", "smoe", repeat), Sample("", {"decode_tok_s": 2.0, **figures, **now}), 0.1)
    assert "limits 6 GiB, smoe: 2.00 of 2.50 tok/s (80%; memory 32.0, disk 2.00 GB/s)" in report.text(results, 48)


def test_a_ceiling_needs_no_other_bandwidths_than_those(tmp_path):
    results = Results(tmp_path / "run.csv", "run")
    figures = {"trunk_bytes": 3e9, "slot_bytes": 2.5e6, "decode_bytes_per_token": 8e8, "decode_tok_s": 2.0}
    now = {"memory_gb_s": 32.0, "disk_gb_s": 2.0}
    results.add(Key("limits", "6 GiB", "smoe", 0), Sample("", figures | now), 0.1)
    results.add(Key("limits", "8 GiB", "smoe", 0), Sample("", figures), 0.1)
    text = report.text(results, 48)
    assert "limits 6 GiB, smoe: 2.00 of 2.50 tok/s" in text
    assert "limits 8 GiB, smoe: 2.00 of" not in text


def test_the_bytes_of_a_token():
    """By hand: attention 37.7 MB and router 0.5 MB a layer, head 622 MB, all bfloat16; eight experts a layer."""
    trunk = 2 * (151936 * 2048 + 48 * (2 * 2048 * 128 * 36 + 128 * 2048))
    assert report.bytes_computed(48, trunk, 2_506_752) == pytest.approx(trunk + 48 * 8 * 2_506_752)


def test_the_plot(results):
    drawn = ElementTree.fromstring(plot.svg(plot.series(results), "a machine & more"))
    lines = drawn.findall(f"{SVG}polyline")
    assert [len(line.get("points").split()) for line in lines] == [2, 2]
    words = [text.text for text in drawn.findall(f"{SVG}text")]
    assert {"smoe", "llama.cpp tuned", "4", "8", "0.5", "1", "5", "a machine & more"} <= set(words)
    ours, theirs = ([float(point.split(",")[1]) for point in line.get("points").split()] for line in lines)
    assert all(one < other for one, other in zip(ours, theirs, strict=True))  # faster is higher


@pytest.mark.parametrize(
    ("least", "most", "expected"), [(0.095, 14, (0.05, 20)), (1, 1, (0.5, 2)), (0.3, 0.4, (0.2, 0.5))]
)
def test_the_axis_ends_on_round_figures(least, most, expected):
    assert plot.decades(least, most) == pytest.approx(expected)


def test_the_forms_that_the_engine_offers():
    text = """smoe-engine --vault FILE

  --trunk FORM          the trunk's matrices stored, as in the file, or quantized to q8 or q4; auto: q8 beyond [auto]
  --kv TYPE             keys and values as f32 or f16 [f32]
  --activations FORM    f32, or integers of 16 or 8 bits (default: 16)
  --exact               the trunk as stored
  --threads N           threads that compute"""
    assert quality.variants(text) == [
        *("", "--exact", "--activations f32", "--activations 16", "--activations 8"),
        *("--trunk stored", "--trunk q8", "--trunk q4", "--kv f32", "--kv f16"),
    ]


@pytest.mark.parametrize(
    ("piece", "text"),
    [
        (b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}', False),
        (b'data: {"choices": [{"delta": {"content": "Hi"}}]}', True),
        (b'data: {"choices":[{"delta":{"content":"\\"quoted"}}]}', True),
        (b'data: {"choices":[],"usage":{}}', False),
    ],
    ids=["role", "spaced", "quoted", "usage"],
)
def test_which_pieces_carry_text(piece, text):
    assert _has_text(piece) == text
