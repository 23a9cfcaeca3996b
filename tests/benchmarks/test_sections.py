"""The sections beside the workloads measure something, in processes of their own."""

import pytest

from benchmarks import memory
from benchmarks.harness import Run, SideFailed
from benchmarks.workload import OURS


@pytest.fixture(scope="module")
def run():
    with Run(threads=1, seconds=0.01, rounds=1, quick=True) as this:
        yield this


def test_engine(run):
    found = run.module("engine", 1)
    assert set(found) == {"chain", "branches", "push", "replay", "python"}
    assert all(value > 0 for value in found.values())


def test_memory_of_a_forward_pass(run, monkeypatch):
    monkeypatch.setattr(memory, "TRAINING", ())
    monkeypatch.setattr(memory, "FORWARD", ("mlp-8-forward",))
    monkeypatch.setattr(memory, "NETS", ())
    found = memory.measure(run, peers=["numpy"])["mlp-8-forward"][OURS]
    activations = 7 * 4 * 256 * 512
    assert found["naive"] >= activations
    assert 0 < found["planned"] < found["naive"]
    assert found["allocations"] == 0
    assert found["step"] >= 4 * (7 * 512 * 512 + 512 * 10)  # the weights alone
    assert found["peak"] >= found["step"]


def test_memory_of_a_net(run, monkeypatch):
    monkeypatch.setattr(memory, "TRAINING", ())
    monkeypatch.setattr(memory, "FORWARD", ())
    monkeypatch.setattr(memory, "NETS", ("AlexNet",))
    found = memory.measure(run, peers=[])
    assert set(found) == {"AlexNet", "AlexNet-forward"}
    for net in found.values():
        assert 0 < net[OURS]["planned"] < net[OURS]["naive"]


def test_a_section_that_crashes_says_why(run):
    with pytest.raises(SideFailed, match="ValueError: invalid literal"):
        run.module("engine", "many")
