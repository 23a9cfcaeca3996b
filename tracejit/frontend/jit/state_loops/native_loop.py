"""Iterations between looks as a native loop, where the graph can compute whether to continue.

A replay executes equal iterations in a Python loop (`loop_steps`): it evaluates the body's questions,
launches a segment, and waits for the number that is looked at. If the questions are comparisons, and numbers
are computed only in ways that the graph supports (`native_numbers`), the graph evaluates the questions
itself. One launch then runs many iterations, up to the one after which an answer differs:

    while True:
        if not (err > tol): break            evaluated in Python once, before the launch
        x, err = launch(x, err, tol)         iterates while err > tol

Iterations may have branches and look at several values: there are several *transitions* between the states of
the body, with different answers. If iterations compute single elements, a native one performs a transition by
a branch (`branching`), and the loop is one kernel. Otherwise it performs a cycle of transitions without
branches (`cycles`), or computes all transitions and selects the results of one (`selecting`).

The Python loop around the launch evaluates the questions again, so the graph may end a loop too early. It
does where a number leaves the range in which int64 and float64 compute as Python does, or where a denominator
is zero.
"""

from __future__ import annotations

from collections.abc import Sequence

from tracejit.frontend.jit.state_loops.branching import BranchingLoop
from tracejit.frontend.jit.state_loops.cycles import CycleLoop
from tracejit.frontend.jit.state_loops.loop_builder import NativeLoop
from tracejit.frontend.jit.state_loops.native_numbers import Unsupported
from tracejit.frontend.jit.state_loops.regions import LoopRegion
from tracejit.frontend.jit.state_loops.selecting import SelectingLoop
from tracejit.frontend.recording.look_loops.state_graph import Transition
from tracejit.frontend.recording.trace import Trace
from tracejit.passes.rolling.wiring import NotRollable


def native_loop(
    trace: Trace, region: LoopRegion, transitions: Sequence[Transition], head: Transition
) -> NativeLoop | str:
    """Return the native loop whose iterations perform these transitions, or the reason why there is none. The
    first iteration starts in the state where `head` starts.
    """
    try:
        return BranchingLoop(region, transitions, head).loop(trace)
    except (Unsupported, NotRollable):
        pass
    try:
        return CycleLoop(region, transitions).loop(trace)
    except (Unsupported, NotRollable):
        pass
    try:
        return SelectingLoop(region, transitions, head).loop(trace)
    except (Unsupported, NotRollable) as error:
        return str(error)
