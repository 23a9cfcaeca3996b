"""Regions of a path that form a loop: from the first look in a state of the body to the last one, if the path
returns to that state.

    look 1: A, look 2: B, look 3: B, look 4: A, look 5: B, last part
            |------ transitions A-B, B-B, B-A, A-B ------|
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tracejit.frontend.recording.look_loops.state_graph import StateGraph
from tracejit.frontend.recording.origins import StorageRange
from tracejit.frontend.recording.segments import Cut
from tracejit.frontend.recording.sources import Computed, Source
from tracejit.frontend.recording.trace import Trace

Edge = tuple[int | None, int | None, int]
"""A transition: the states where it starts and ends, and the look at which it starts."""


class StateVariable(NamedTuple):
    """Array or number `k` of a state of the body."""

    state_id: int
    is_array: bool
    k: int


class LoopRegion(NamedTuple):
    """Looks `first` to `last` of a path, which form a loop.

    transitions: by state id, in order of the first visit: the looks at which distinct transitions start.
    arrays, numbers: the positions of each state's loop-carried arrays and numbers. All others have the same
                 value whenever the body is in that state.
    """

    first: int
    last: int
    transitions: dict[int, tuple[int, ...]]
    arrays: dict[int, tuple[int, ...]]
    numbers: dict[int, tuple[int, ...]]

    def variables(self, state_id: int) -> list[StateVariable]:
        """The loop-carried variables of a state, arrays first."""
        arrays = [StateVariable(state_id, True, k) for k in self.arrays[state_id]]
        return arrays + [StateVariable(state_id, False, k) for k in self.numbers[state_id]]

    def values_at(self, graph: StateGraph, index: int) -> dict[StateVariable, Any]:
        """The storages and sources that the loop-carried variables of the state at a look have there."""
        state = graph.state(index)
        return {
            variable: state.arrays[variable.k] if variable.is_array else state.numbers[variable.k]
            for variable in self.variables(graph.state_id(index))
        }


def regions_of(trace: Trace) -> list[LoopRegion]:
    """Return the loops of a path, in order."""
    graph = trace.looks.state_graph
    last_visits = {state_id: index for index, state_id in enumerate(graph.state_ids) if state_id is not None}
    regions, index = [], 0
    while index < len(graph.state_ids):
        first, last = index, _last_look(graph, index, last_visits)
        if last > first and _is_complete(trace, first, last):
            regions.append(_region(graph, first, last, range(first, last)))
            index = last
        index += 1
    return regions


def region_so_far(graph: StateGraph) -> LoopRegion | None:
    """Return the loop that contains the state of the last look of a path that is being recorded: all known
    transitions on ways from this state back to it. Its `first` and `last` look are in this state.
    """
    here = graph.state_ids[-1]
    edges: list[Edge] = [(a, b, i) for a, ends in graph.transitions.items() for (_, b), i in ends.items()]
    after, before = _reachable(here, edges), _reachable(here, [(b, a, i) for a, b, i in edges])
    indices = sorted(i for a, b, i in edges if {a, b} <= after & before)
    if here is None or not indices:
        return None
    looks = graph.state_ids.index(here), len(graph.state_ids) - 1
    return _region(graph, *looks, indices)


def _reachable(start: int | None, edges: list[Edge]) -> set[int | None]:
    """Return the states that are reachable from a state, and the state itself."""
    reached = {start}
    while found := {b for a, b, _ in edges if a in reached} - reached:
        reached |= found
    return reached


def _last_look(graph: StateGraph, first: int, last_visits: dict[int, int]) -> int:
    """Return the last look of the loop that starts at look `first`; `first` itself if there is no loop."""
    last = index = first
    while index <= last and index < len(graph.state_ids):
        state_id = graph.state_ids[index]
        if state_id is None or (index > first and graph.transition_keys[index - 1] is None):
            return first  # the transition to this look uses values that are in no state
        last = max(last, last_visits[state_id])
        index += 1
    return last


def _region(graph: StateGraph, first: int, last: int, indices: Sequence[int]) -> LoopRegion:
    """Return the region of the transitions that start at the looks `indices`."""
    transitions: dict[int, tuple[int, ...]] = {}
    known = set()
    for index in indices:
        state_id = graph.state_id(index)
        transitions.setdefault(state_id, ())
        transition = state_id, graph.state_ids[index + 1], graph.transition_keys[index]
        if transition not in known:
            known.add(transition)
            transitions[state_id] = (*transitions[state_id], index)
    transitions.setdefault(graph.state_id(last), ())
    invariant = _loop_invariant(graph, indices)
    arrays, numbers = {}, {}
    for state_id in transitions:
        state = graph.state(graph.state_ids.index(state_id))
        ks = range(len(state.arrays))
        arrays[state_id] = tuple(k for k in ks if StateVariable(state_id, True, k) not in invariant)
        ks = range(len(state.numbers))
        numbers[state_id] = tuple(k for k in ks if StateVariable(state_id, False, k) not in invariant)
    return LoopRegion(first, last, transitions, arrays, numbers)


def _loop_invariant(graph: StateGraph, indices: Sequence[int]) -> set[StateVariable]:
    """Return the variables of the states that keep their value from before the loop, whatever transitions are
    performed.
    """
    values: dict[StateVariable, set[Any]] = {}
    for index in dict.fromkeys(look for i in indices for look in (i, i + 1)):
        for variable, value in _all_values(graph, index).items():
            values.setdefault(variable, set()).add(value)
    inside = _produced_inside(graph, indices)
    invariant = {variable for variable, seen in values.items() if len(seen) == 1 and inside.isdisjoint(seen)}
    while True:
        changed = set()
        for index in indices:
            before = {value: variable for variable, value in _all_values(graph, index).items()}
            for variable, value in _all_values(graph, index + 1).items():
                if variable in invariant and value in before and before[value] not in invariant:
                    changed.add(variable)
        if not changed:
            return invariant
        invariant -= changed


def _all_values(graph: StateGraph, index: int) -> dict[StateVariable, Any]:
    """Return the storages and sources of all variables of the state at a look."""
    state, state_id = graph.state(index), graph.state_id(index)
    arrays: dict[StateVariable, Any] = {
        StateVariable(state_id, True, k): storage for k, storage in enumerate(state.arrays)
    }
    return arrays | {StateVariable(state_id, False, k): source for k, source in enumerate(state.numbers)}


def _produced_inside(graph: StateGraph, indices: Sequence[int]) -> set[Any]:
    """Return the storages and numbers that are produced by the transitions that start at these looks."""
    cuts = [graph.cuts[index + 1] for index in indices]
    produced: set[Any] = {storage for cut in cuts for storage in cut.results} | {cut.source for cut in cuts}
    for index in indices:
        produced.update(step for step in graph.steps_between(index) if isinstance(step, Computed))
    return produced


def _is_complete(trace: Trace, first: int, last: int) -> bool:
    """Whether the last state of the loop contains everything that the rest of the path uses."""
    graph = trace.looks.state_graph
    state = graph.state(last)
    lost = _produced_inside(graph, range(first, last)) - {*state.arrays, *state.numbers}
    for origin in (*trace.origins, *(b for cut in trace.looks.cuts[last + 1 :] for b in cut.origins)):
        if (origin.storage if isinstance(origin, StorageRange) else origin.source) in lost:
            return False
    steps = [step for step in graph.steps_since(last) if not isinstance(step, Cut)]
    return not any(isinstance(o, Computed | Source) and o in lost for step in steps for o in step.operands)
