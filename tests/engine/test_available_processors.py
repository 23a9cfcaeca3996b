"""Processor counts from affinity and cgroup files."""

import concurrent.futures
import os
import sys

import pytest

from tracejit.engine import available_processors


@pytest.fixture
def cgroup(tmp_path, monkeypatch):
    monkeypatch.setattr(available_processors, "_CGROUP", tmp_path)
    monkeypatch.setattr(available_processors, "_lines", lambda path: ["0::/outer/inner"])
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)), raising=False)
    (tmp_path / "outer" / "inner").mkdir(parents=True)
    return tmp_path


def test_without_a_bound_affinity_counts(cgroup):
    assert available_processors.processors() == 16
    assert available_processors.spare_processors() == 15


@pytest.mark.parametrize(
    ("text", "count"), [("300000 100000", 3), ("150000 100000", 2), ("max 100000", 16), ("1 100000", 1)]
)
def test_the_tightest_group_on_the_way_counts(cgroup, text, count):
    (cgroup / "outer" / "cpu.max").write_text(text)
    (cgroup / "outer" / "inner" / "cpu.max").write_text("max 100000")
    assert available_processors.processors() == count


@pytest.mark.parametrize(("quota", "count"), [("400000", 4), ("-1", 16)])
def test_version_1(cgroup, quota, count):
    (cgroup / "cpu").mkdir()
    (cgroup / "cpu" / "cpu.cfs_quota_us").write_text(quota)
    (cgroup / "cpu" / "cpu.cfs_period_us").write_text("100000")
    assert available_processors.processors() == count


def test_threads_beyond_the_processors_do_not_spin(cgroup, monkeypatch):
    assert available_processors.spin_time(15) == available_processors.SPIN
    assert available_processors.spin_time(16) == 0
    monkeypatch.setattr(available_processors, "_sharing", [4])
    assert available_processors.spin_time(3) == available_processors.SPIN
    assert available_processors.spin_time(4) == 0


def test_ranks_that_share_processors_leave_those_of_others_alone(cgroup, monkeypatch):
    assert not available_processors.crowded(16)
    monkeypatch.setattr(available_processors, "_sharing", [4])
    assert not available_processors.crowded(3)
    assert available_processors.crowded(4)


@pytest.mark.skipif(sys.platform != "linux", reason="a setting of Linux")
def test_short_turns_leave_a_thread_what_it_was():
    def turns():
        policy = os.sched_getscheduler(0)
        available_processors.request_short_time_slices()
        return policy, os.sched_getscheduler(0)

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        before, after = pool.submit(turns).result()
    assert before == after
