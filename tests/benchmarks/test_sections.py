"""The sections beside the workloads measure something, in processes of their own."""

import pytest

import tracejit as tj
from benchmarks import exchange, memory, prediction, recording
from benchmarks.harness import Run, SideFailed
from benchmarks.marks import judge
from benchmarks.workload import OURS
from tests.distributed import jobs
from tests.thorough import thorough


@pytest.fixture(scope="module")
def run():
    with Run(threads=1, seconds=0.01, rounds=1, quick=True) as this:
        yield this


def test_engine(run):
    found = run.module("engine", 1)
    assert set(found) == {"chain", "branches", "push", "replay", "python"}
    assert all(value > 0 for value in found.values())


def test_recording(run):
    found = run.module("recording", 1, 1)
    assert set(found) == set(recording.BODIES)
    for stages in found.values():
        assert set(stages) == {"record", "passes", "assembly"}
        assert all(value > 0 for value in stages.values())


@pytest.mark.parametrize("name", recording.BODIES)
def test_bodies_do_as_many_operations_as_they_say(name, monkeypatch):
    monkeypatch.setattr(recording, "DEEP", 3)
    monkeypatch.setattr(recording, "WIDE", 4)
    monkeypatch.setattr(recording, "ROUNDS", 5)
    body = recording.BODIES[name]()
    nodes = tj.jit(body.function).graph(*body.arguments).nodes
    assert sum(not node.output.type.on_host for node in nodes) == body.operations


def test_memory_of_a_forward_pass(run, monkeypatch):
    monkeypatch.setattr(memory, "TRAINING", ())
    monkeypatch.setattr(memory, "WHOLE", ())
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
    monkeypatch.setattr(memory, "WHOLE", ())
    monkeypatch.setattr(memory, "FORWARD", ())
    monkeypatch.setattr(memory, "NETS", ("AlexNet",))
    found = memory.measure(run, peers=[])
    assert set(found) == {"AlexNet", "AlexNet-forward"}
    for net in found.values():
        assert 0 < net[OURS]["planned"] < net[OURS]["naive"]


def test_a_section_that_crashes_says_why(run):
    with pytest.raises(SideFailed, match="ValueError: invalid literal"):
        run.module("engine", "many")


@thorough
def test_exchange(run, monkeypatch):
    jobs.need_mpi()
    monkeypatch.setattr(exchange, "RANKS", (2,))
    found = exchange.measure(run)["2"]["1"]
    assert {"exchange", "mpi", "step"} <= set(found)
    assert all(value > 0 for value in found.values())


@thorough
def test_prediction(run, monkeypatch):
    jobs.need_mpi()
    monkeypatch.setattr(prediction, "RANKS", (2,))
    monkeypatch.setattr(prediction, "LINKS", {"fast": "1e-4,1e9"})
    found = prediction.measure(run)["fast"]["2"]
    assert found["predicted"] > 0
    assert found["measured"] > 0
    assert found["error"] == pytest.approx(found["predicted"] / found["measured"] - 1)
    marks = {row.text: row for row in judge({"prediction": {"fast": {"2": {**found, "error": -0.12}}}})}
    assert marks["error of a predicted step, 2 ranks"].met is False


@thorough
def test_devices(run):
    found = run.module("devices", 2)
    assert set(found) == {"eager", "replay", "one rank", "two devices"}
    assert all(value > 0 for name, value in found.items() if name != "replay")
