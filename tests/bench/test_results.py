"""A run that is interrupted anywhere goes on with exactly what is missing."""

import pytest

from bench.files import BenchError
from bench.results import Key, Results, Sample, mended, read, spread

KEY = Key("limits", "4 GiB", "smoe --activations 8", 0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results" / "run.csv"


@pytest.fixture
def results(path):
    return Results(path, "run")


def add(results, key=KEY, failure="", **metrics):
    results.add(key, Sample("smoe-engine --serve, with a comma", metrics, failure), load=0.5)


def test_what_was_measured_is_read_again(results, path):
    add(results, decode_tok_s=2.5, hit_rate=0.25)
    again = Results(path, "run")
    assert again.rows == results.rows
    assert again.values("limits", "4 GiB", "smoe --activations 8", "decode_tok_s") == [2.5]
    assert again.has(KEY)
    assert not again.has(KEY._replace(repeat=1))


def test_a_failure_is_an_answer_too(results, path):
    add(results, failure="killed: out of memory")
    again = Results(path, "run")
    assert again.has(KEY)
    assert [(row.metric, row.value, row.note) for row in again.rows] == [("done", 0.0, "killed: out of memory")]


def test_every_cut_leaves_whole_samples_only(results, path):
    add(results, decode_tok_s=2.5)
    first = len(path.read_bytes())
    add(results, KEY._replace(repeat=1), decode_tok_s=3.5)
    whole = path.read_bytes()
    for cut in range(first, len(whole)):
        path.write_bytes(whole[:cut])
        assert {row.repeat for row in mended(path)} == {0}


def test_after_a_cut_the_sample_is_measured_again(results, path):
    add(results, decode_tok_s=2.5, hit_rate=0.5)
    path.write_bytes(path.read_bytes()[:-30])
    again = Results(path, "run")
    assert not again.has(KEY)
    add(again, decode_tok_s=4.5, hit_rate=0.75)
    values = Results(path, "run").values("limits", "4 GiB", "smoe --activations 8", "decode_tok_s")
    assert values == [4.5]


def test_the_repeats_of_a_place_are_gathered(results):
    for repeat, speed in enumerate((3.0, 1.0, 2.0)):
        add(results, KEY._replace(repeat=repeat), decode_tok_s=speed)
    assert spread(results.values("limits", "4 GiB", "smoe --activations 8", "decode_tok_s")) == (2.0, 1.0, 3.0, 3)


def test_another_file_is_refused(path):
    path.parent.mkdir()
    path.write_text("a,b\n1,2\n")
    with pytest.raises(BenchError, match=r"run\.csv: line 2"):
        read(path)


def test_nothing_is_known_of_a_new_run(path):
    assert read(path) == []
