"""The limits of control groups, in a /proc and /sys of our own: the cases of the engine's test_memory.cpp."""

import pytest

from fleet.cgroups import memory_limit

MIB = 1 << 20


@pytest.fixture
def system(tmp_path):
    def write(**files):
        """`a__b` is the path a/b."""
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")
        return memory_limit(tmp_path)

    return write


def version2(system, group, mounted="/"):
    mount = f"30 23 0:26 {mounted} /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
    system(proc__self__cgroup=f"0::{group}", proc__self__mountinfo=f"24 1 0:22 / /proc rw - proc proc rw\n{mount}")


def version1(system, group, mounted="/"):
    mount = f"37 31 0:33 {mounted} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"
    lines = (
        "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n36 31 0:32 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
    )
    system(proc__self__cgroup=f"9:cpu:/x\n4:memory:{group}\n0::/", proc__self__mountinfo=lines + mount)


def test_without_groups(system):
    assert system() is None


def test_a_group_without_a_limit(system):
    version2(system, "/a/b")
    assert system(**{"sys__fs__cgroup__a__b__memory.max": "max"}) is None


def test_the_tightest_group_above_counts(system):
    version2(system, "/a/b/c")
    system(**{"sys__fs__cgroup__a__b__c__memory.max": 700 * MIB, "sys__fs__cgroup__a__memory.max": 600 * MIB})
    assert system() == 600 * MIB


def test_a_throttling_limit_counts_too(system):
    version2(system, "/a")
    assert system(**{"sys__fs__cgroup__a__memory.max": "max", "sys__fs__cgroup__a__memory.high": 128}) == 128


@pytest.mark.parametrize("group", ["/docker/abc", "/", "/../other"])
def test_inside_a_container_the_mount_is_the_group(system, group):
    version2(system, group, mounted="/docker/abc")
    assert system(**{"sys__fs__cgroup__memory.max": 200 * MIB}) == 200 * MIB


def test_version_1(system):
    version1(system, "/a/b")
    system(**{"sys__fs__cgroup__memory__memory.limit_in_bytes": 9223372036854771712})
    assert system(**{"sys__fs__cgroup__memory__a__memory.limit_in_bytes": 300 * MIB}) == 300 * MIB


@pytest.mark.parametrize("text", ["", "nonsense", "1 2 3", "30 23 0:26 - cgroup2", ":", "0:"])
def test_files_of_another_form(system, text):
    assert system(proc__self__cgroup=text, proc__self__mountinfo=text) is None
