"""Groups in a copy of what the kernel shows: which files are written, in either version."""

from pathlib import Path

import pytest

from bench import limits
from bench.files import BenchError


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "ROOT", tmp_path)
    monkeypatch.setattr(limits, "_own", lambda controller: "mine")
    return tmp_path


def test_version_1_makes_a_group_in_its_own(root):
    (root / "memory" / "mine").mkdir(parents=True)
    group = limits._make(4 << 30)
    assert group.path.parent == root / "memory" / "mine"
    assert (group.path / "memory.limit_in_bytes").read_text() == str(4 << 30)


def test_version_2_makes_a_group_beside_its_own(root):
    (root / "mine").mkdir()
    (root / "cgroup.subtree_control").write_text("cpu")
    group = limits._make(4 << 30)
    assert group.path.parent == root
    assert (root / "cgroup.subtree_control").read_text() == "+memory"
    assert (group.path / "memory.max").read_text() == str(4 << 30)


def test_swap_is_off_where_it_is_counted(root, monkeypatch):
    (root / "mine").mkdir()
    (root / "cgroup.subtree_control").write_text("cpu memory")
    made = Path.mkdir

    def with_files(path, **options):
        made(path, **options)
        (path / "memory.swap.max").write_text("max")

    monkeypatch.setattr(Path, "mkdir", with_files)
    assert (limits._make(1 << 30).path / "memory.swap.max").read_text() == "0"


def test_what_the_group_tells(tmp_path):
    (tmp_path / "memory.events").write_text("low 0\nmax 31\noom 2\noom_kill 1\n")
    (tmp_path / "memory.peak").write_text("4096\n")
    assert limits.Group([], tmp_path).figures() == {"oom_kills": 1, "group_peak_bytes": 4096}


def test_without_rights_it_says_what_to_do(root):
    with pytest.raises(BenchError, match=r"run this as root, or with `systemd-run"):
        limits._make(1)


def test_no_limit_is_no_group():
    with limits.limited(None) as group:
        assert (group.prefix, group.figures()) == ([], {})


def test_read_ahead_is_put_back(tmp_path, monkeypatch):
    file = tmp_path / "read_ahead_kb"
    file.write_text("8192\n")
    monkeypatch.setattr(limits, "read_ahead_file", lambda path: file)

    def interrupted():
        with limits.read_ahead(tmp_path, 128):
            assert file.read_text() == "128"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert file.read_text() == "8192\n"
