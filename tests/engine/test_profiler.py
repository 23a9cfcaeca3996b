"""Profiles: events of native and Python tasks, their order, the trace file."""

import json
import threading

import pytest

from tests.engine.programs import pack, task
from tracejit import engine
from tracejit.engine import WRITE, Program, Variable
from tracejit.engine.profiler import CAPACITY
from tracejit.errors import EngineError


@pytest.mark.parametrize("cost", [0, 1 << 30])
def test_every_task_gives_an_event(cost, tmp_path):
    variable = Variable()
    tasks = [
        task("nothing", uses=(0,), after=range(i), cost=cost, name=f"step {i}", location=f"user.py:{i}")
        for i in range(5)
    ]
    program = Program(tasks, arguments=[WRITE])
    with engine.profile() as profile:
        program.launch(pack((0, variable)), variable)
        engine.push(lambda: None, writes=[variable], name="python step")
    names = [event.name for event in profile.events]
    assert names == [f"step {i}" for i in range(5)] + ["python step"]
    assert [event.location for event in profile.events[:5]] == [f"user.py:{i}" for i in range(5)]
    assert "test_profiler.py" in profile.events[5].location
    times = [time for event in profile.events for time in (event.start, event.end)]
    assert times == sorted(times)
    profile.save(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    spans = [row for row in trace if row["ph"] == "X"]
    assert [row["name"] for row in spans] == names
    assert all(row["dur"] >= 0 for row in spans)
    named = {row["args"]["name"] for row in trace if row["ph"] == "M"}
    assert named == {event.thread for event in profile.events}


def test_nothing_is_recorded_outside():
    program, variable = Program([task("nothing", uses=(0,))], arguments=[WRITE]), Variable()
    program.launch(pack((0, variable)), variable)
    with engine.profile() as profile:
        pass
    program.launch(pack((0, variable)), variable)
    assert profile.events == []
    assert threading.current_thread().name


def test_profiles_do_not_nest_and_survive_errors():
    with engine.profile(), pytest.raises(EngineError, match="nest"), engine.profile():
        pass
    with pytest.raises(KeyError), engine.profile():
        raise KeyError
    with engine.profile() as profile:
        engine.push(lambda: None)
    assert len(profile.events) == 1


def test_the_ring_drops_the_oldest():
    program = Program([task("nothing", uses=(0,), cost=0)] * 1000, arguments=[WRITE])
    variable = Variable()
    with engine.profile() as profile:
        for _ in range(CAPACITY // 1000 + 1):
            program.launch(pack((0, variable)), variable)
    assert len(profile.events) == CAPACITY
    assert profile.dropped == (CAPACITY // 1000 + 1) * 1000 - CAPACITY
