"""The harness: comparing, taking turns, and what happens to a side that fails."""

import doctest
from typing import ClassVar

import numpy as np
import pytest

from benchmarks import harness, peers, report, workload
from benchmarks.harness import Column, Run, SideFailed, ratios
from benchmarks.peers import PEERS, peer_of
from benchmarks.workload import OURS, Workload, largest_difference, training_results
from benchmarks.workloads import MODULES, WORKLOADS


class FakeWorker:
    """Answers like the process of a side, without one. `fails` is the command it fails at."""

    log: ClassVar[list] = []

    def __init__(self, side, value=1.0, nanoseconds=1000, fails=None):
        self.side, self.value, self.nanoseconds, self.fails = side, value, nanoseconds, fails
        self.stopped = False

    def ask(self, do, **parameters):
        self.log.append((self.side, do))
        if do == self.fails:
            raise SideFailed(f"{do}: RuntimeError: broken")
        if do == "read":
            np.savez(parameters["path"], y=np.array([self.value, 2.0]))
        if do == "burst":
            return {"times": [self.nanoseconds] * parameters["count"]}
        return {"import": 0.5, "first": 0.25} if do == "first" else {}

    def stop(self):
        self.stopped = True


@pytest.fixture
def compare(monkeypatch):
    """Runs a workload whose sides are fakes; gives the result and the fakes that were made."""
    monkeypatch.setattr(peers.Peer, "missing", lambda self: False)

    def run(quick=True, **settings):
        made = []

        def worker(self, workload, side, caches):
            made.append(FakeWorker(side, **settings.get(peer_of(side), {})))
            return made[-1]

        monkeypatch.setattr(Run, "worker", worker)
        monkeypatch.setattr(Run, "_executor", lambda self: self.folder / "caches-none")
        monkeypatch.setattr(Run, "caches", lambda self, executor=True: self.folder)
        monkeypatch.setattr(FakeWorker, "log", [])
        names = [OURS, *(name for name in PEERS if name != OURS and name in settings), "numpy"]
        workload = Workload("fake", "kernel", dict, dict.fromkeys(names))
        with Run(threads=1, seconds=1e-5, rounds=2, quick=quick) as this:
            return this.workload(workload, PEERS), made

    return run


@pytest.mark.parametrize("module", [harness, report, workload])
def test_examples(module):
    results = doctest.testmod(module)
    assert results.attempted > 0
    assert results.failed == 0


def test_difference_is_relative_to_the_largest_element():
    reference = {"a": np.array([0.0, 10.0]), "b": np.zeros(3)}
    assert largest_difference({"a": np.array([1.0, 10.0]), "b": np.zeros(3)}, reference) == 0.1
    assert largest_difference({"a": np.array([0.0, 10.0]), "b": np.array([0, 0.5, 0])}, reference) == 0.5
    assert largest_difference({"a": np.array([np.nan, 10.0]), "b": np.zeros(3)}, reference) == np.inf


def test_training_is_compared_by_its_changes():
    data = {"params": {"w": np.full(3, 100, np.float32)}}
    one = training_results(0.5, {"w": np.array([100, 100, 101], np.float32)}, data)
    other = training_results(0.5, {"w": np.array([100, 100, 99], np.float32)}, data)
    assert one["w"].tolist() == [0, 0, 1]
    assert largest_difference(other, one) == 2


@pytest.mark.parametrize(
    ("found", "reference"),
    [
        ({"a": np.zeros(2)}, {"b": np.zeros(2)}),
        ({"a": np.zeros(2)}, {"a": np.zeros(3)}),
        ({"a": np.zeros(2)}, {"a": np.array([0, np.inf])}),
    ],
)
def test_what_cannot_be_compared_raises(found, reference):
    with pytest.raises(ValueError, match="reference"):
        largest_difference(found, reference)


def test_ratio_is_of_medians_and_its_spread_of_rounds():
    ours = Column(times=[[10, 20, 30], [40, 40, 40]])
    other = Column(times=[[40, 40, 40], [40, 50, 60]])
    found = ratios(ours, other)
    assert found["ratio"] == 35 / 40
    assert (found["low"], found["high"]) == (np.percentile([0.5, 0.8], 25), np.percentile([0.5, 0.8], 75))


def test_sides_are_compared_before_any_is_timed_and_then_alternate(compare):
    result, made = compare(jax={"nanoseconds": 4000})
    assert {side: column["status"] for side, column in result["sides"].items()} == {
        OURS: "ok", "jax": "ok", "numpy": "ok",
    }  # fmt: skip
    commands = [do for _, do in FakeWorker.log]
    assert commands.index("burst") > max(i for i, do in enumerate(commands) if do == "read")
    turns = [side for side, do in FakeWorker.log if do == "burst"]
    assert turns == [OURS, "jax", "numpy"] * 2 + ["jax", "numpy", OURS]  # calibration, then two rounds
    assert result["best"] == "numpy"
    assert result["ratios"]["jax"]["ratio"] == 0.25
    assert all(worker.stopped for worker in made)


def test_the_first_process_of_a_side_is_only_for_its_cold_call(compare):
    result, made = compare(quick=False)
    assert [worker.side for worker in made] == [OURS, OURS, "numpy", "numpy"]
    assert result["sides"][OURS]["cold"] == result["sides"][OURS]["warm"] == {"import": 0.5, "first": 0.25}


@pytest.mark.parametrize("command", ["first", "step", "read", "burst"])
def test_a_side_that_fails_does_not_stop_the_others(compare, command):
    result, made = compare(jax={"fails": command}, torch={"nanoseconds": 500})
    assert result["sides"]["jax"]["status"] == f"failed: {command}: RuntimeError: broken"
    assert result["sides"][OURS]["status"] == "ok"
    assert set(result["ratios"]) == {"torch", "numpy"}
    assert result["best"] == "torch"
    assert all(worker.stopped for worker in made)


def test_a_side_with_another_result_is_not_timed(compare):
    result, _ = compare(jax={"value": 1.5})
    assert result["sides"]["jax"]["status"].startswith("differs: by 2.5e-01 from numpy")
    assert "jax" not in result["ratios"]
    assert ("jax", "burst") not in FakeWorker.log


def test_ours_failing_leaves_no_ratio(compare):
    result, _ = compare(tracejit={"fails": "first"})
    assert result["ratios"] == {}
    assert result["best"] == "numpy"


def test_a_peer_that_is_not_installed_is_reported(compare, monkeypatch):
    monkeypatch.setattr(peers.Peer, "missing", lambda self: self.name == "jax")
    result, _ = compare(jax={})
    assert result["sides"]["jax"]["status"] == "missing: not installed here"


def test_a_process_that_dies_says_why(tmp_path):
    worker = harness.Worker("no such workload", OURS, tmp_path, threads=1)
    with pytest.raises(SideFailed, match="KeyError: 'no such workload'"):
        worker.ask("first")
    worker.stop()


def test_a_process_that_takes_too_long_is_ended(tmp_path):
    worker = harness.Worker("transpose-add", "numpy", tmp_path, threads=1)
    worker.ask("first")
    with pytest.raises(SideFailed, match="no answer within 0 s"):
        worker.ask("burst", patience=0.2, count=10**8, warm=0)
    worker.stop()


def test_every_workload_has_our_side_and_known_peers():
    assert len(WORKLOADS) == sum(len(module.WORKLOADS) for module in MODULES)
    for each in WORKLOADS.values():
        assert OURS in each.sides
        assert {peer_of(side) for side in each.sides} <= set(PEERS)


def test_a_real_comparison():
    with Run(threads=1, seconds=0.02, rounds=2, quick=True) as run:
        result = run.workload(WORKLOADS["transpose-add"], ["numpy"])
    assert {side: column["status"] for side, column in result["sides"].items()} == {OURS: "ok", "numpy": "ok"}
    assert result["sides"][OURS]["difference"] == 0.0
    assert result["sides"][OURS]["cold"]["compiled"] + result["sides"][OURS]["cold"]["loaded"] >= 1
    assert result["best"] == "numpy"
    assert result["ratios"]["numpy"]["ratio"] > 0
