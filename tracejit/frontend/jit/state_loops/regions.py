"""Regions of a path: runs of looks in known states, with all transitions that a call may perform there.

    look 1: A, look 2: B, look 3: C, look 4: B, look 5: D, last part
            |------ transitions A-B, B-C, C-B, B-D ------|

A path in whose states no transitions form a loop has no region: its looks are steps of its replay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple, Protocol

from tracejit.frontend.recording.look_loops.state_graph import StateGraph, Transition
from tracejit.frontend.recording.look_loops.states import State
from tracejit.frontend.recording.origins import StorageRange
from tracejit.frontend.recording.segments import Cut
from tracejit.frontend.recording.sources import Computed, Source
from tracejit.frontend.recording.trace import Trace

VARYING = object()
"""Stands for the value of a variable that transitions change."""


class StateVariable(NamedTuple):
    """Array or number `k` of a state of the body."""

    state_id: int
    is_array: bool
    k: int


class LoopRegion(NamedTuple):
    """Looks `first` to `last` of a path.

    start, end:      ids of the states at the first and at the last look.
    transitions:     by state id: the distinct transitions that start there. The first state is that of the
                     first look.
    states:          each state, with the arrays and numbers of one of its visits.
    arrays, numbers: the positions of each state's variable arrays and numbers. All others have the same value
                     whenever the body is in that state.
    """

    first: int
    last: int
    start: int
    end: int
    transitions: dict[int, tuple[Transition, ...]]
    states: dict[int, State]
    arrays: dict[int, tuple[int, ...]]
    numbers: dict[int, tuple[int, ...]]

    def variables(self, state_id: int) -> list[StateVariable]:
        """The variables of a state, arrays first."""
        arrays = [StateVariable(state_id, True, k) for k in self.arrays[state_id]]
        return arrays + [StateVariable(state_id, False, k) for k in self.numbers[state_id]]

    def values(self, state_id: int, state: State) -> dict[StateVariable, Any]:
        """The storages and sources that the variables of a state have at one of its visits."""
        return {
            variable: state.arrays[variable.k] if variable.is_array else state.numbers[variable.k]
            for variable in self.variables(state_id)
        }

    @property
    def all_transitions(self) -> list[Transition]:
        """The transitions from all states."""
        return [transition for transitions in self.transitions.values() for transition in transitions]


class Adoptable(Protocol):
    """A transition of another path (`adoption.AdoptedTransition`)."""

    start: int
    end: int
    n_arrays: int
    ends: tuple[Any, ...]

    def transition(self, values: Mapping[StateVariable, Any]) -> Transition:
        """Return the transition, given the values of variables of its first state, or `VARYING`."""


AnyTransition = Transition | Adoptable


def regions_of(trace: Trace, adopted: Sequence[Adoptable]) -> list[LoopRegion]:
    """Return the regions of a path with its own transitions and the adopted ones, in order."""
    graph = trace.looks.state_graph
    known = [*_known_in(graph), *adopted]
    looping = {state_id for component in loops_of(known) for state_id in component}
    regions: list[LoopRegion] = []
    index = 0 if looping else len(graph.state_ids)
    while index < len(graph.state_ids):
        found = _region_from(trace, index, known, looping)
        if found is not None:
            regions.append(found)
            index = found.last
        index += 1
    return regions


def region_so_far(graph: StateGraph) -> LoopRegion | None:
    """Return the loop that contains the state of the last look of a path that is being recorded: all known
    transitions on ways from this state back to it. Its `first` and `last` look are in this state.
    """
    here, known = graph.state_ids[-1], _known_in(graph)
    loop = next((each for each in loops_of(known) if here in each), None)
    if loop is None:
        return None
    inside = [each for each in known if {each.start, each.end} <= loop]
    return _region(graph, graph.state_ids.index(here), len(graph.state_ids) - 1, inside)


def _known_in(graph: StateGraph) -> list[AnyTransition]:
    """Return the transitions of a path."""
    return [each for transitions in graph.transitions.values() for each in transitions.values()]


def reachable(starts: Iterable[Any], edges: Iterable[tuple[Any, Any]]) -> set[Any]:
    """Return the states that are reachable from some states, and these states."""
    successors: dict[Any, list[Any]] = {}
    for a, b in edges:
        successors.setdefault(a, []).append(b)
    reached, new = {*starts}, [*starts]
    while new:
        found = {b for b in successors.get(new.pop(), ()) if b not in reached}
        reached |= found
        new += found
    return reached


def loops_of(transitions: Iterable[AnyTransition]) -> list[set[int]]:
    """Return the loops of a graph: sets of states between any two of which ways lead in both directions
    (strongly connected components), if they contain a transition.

    Method: Kosaraju and Sharir, see Aho, Hopcroft and Ullman, Data Structures and Algorithms (1983), 6.7.
    """
    after: dict[int, list[int]] = {}
    before: dict[int, list[int]] = {}
    for each in transitions:
        for here, there, edges in (each.start, each.end, after), (each.end, each.start, before):
            edges.setdefault(here, []).append(there)
            edges.setdefault(there, [])
    left: dict[int, None] = {}  # in the order in which a depth-first search leaves the states
    visited: set[int] = set()
    for root in after:
        stack = [] if root in visited else [(root, iter(after[root]))]
        visited.add(root)
        while stack:
            state_id, ends = stack[-1]
            new = next((end for end in ends if end not in visited), None)
            if new is None:
                left[state_id] = None
                stack.pop()
            else:
                visited.add(new)
                stack.append((new, iter(after[new])))
    loops = []
    while left:
        root, _ = left.popitem()
        loop = {root}
        stack_of_states = [root]
        while stack_of_states:
            for state_id in before[stack_of_states.pop()]:
                if state_id in left:
                    del left[state_id]
                    loop.add(state_id)
                    stack_of_states.append(state_id)
        if len(loop) > 1 or root in after[root]:
            loops.append(loop)
    return loops


def _region_from(
    trace: Trace, first: int, known: Sequence[AnyTransition], looping: Set[int]
) -> LoopRegion | None:
    """Return the region that starts at look `first`, or None. It is as long as possible."""
    graph = trace.looks.state_graph
    if graph.state_ids[first] is None:
        return None
    last = first
    while graph.is_known(last):
        last += 1
    run_end = last
    while not _is_complete(trace, first, last):
        last -= 1
    following = {id(graph.transition_from(index)) for index in range(last, run_end)}
    if any(id(graph.transition_from(index)) in following for index in range(first, last)):
        return None  # the path performs what follows in steps of its own
    known = [each for each in known if id(each) not in following]
    states = reachable([graph.state_id(first)], [(each.start, each.end) for each in known])
    inside = [each for each in known if each.start in states]
    if not looping.isdisjoint(states.intersection(graph.state_ids[last + 1 :])):
        return None  # the path leaves the loop, and returns to it
    is_loop = not looping.isdisjoint(graph.state_ids[first : last + 1])
    if looping.isdisjoint(states) or (not is_loop and all(isinstance(each, Transition) for each in inside)):
        return None
    return _region(graph, first, last, inside)


def _region(graph: StateGraph, first: int, last: int, inside: Sequence[AnyTransition]) -> LoopRegion:
    """Return the region of looks `first` to `last`, with these transitions."""
    start = graph.state_id(first)
    states = {start: graph.state(first)}
    transitions: dict[int, list[Transition]] = {start: []}
    values = _values_in(start, states[start], inside)
    for known in inside:
        each = known if isinstance(known, Transition) else known.transition(values)
        transitions.setdefault(each.start, []).append(each)
        for state_id, state in (each.start, each.before), (each.end, each.after):
            states.setdefault(state_id, state)
            transitions.setdefault(state_id, [])
    variable = {name for name, value in values.items() if value is VARYING}
    arrays, numbers = {}, {}
    for state_id, state in states.items():
        ks = range(len(state.arrays))
        arrays[state_id] = tuple(k for k in ks if StateVariable(state_id, True, k) in variable)
        ks = range(len(state.numbers))
        numbers[state_id] = tuple(k for k in ks if StateVariable(state_id, False, k) in variable)
    ordered = {state_id: tuple(each) for state_id, each in transitions.items()}
    return LoopRegion(first, last, start, graph.state_id(last), ordered, states, arrays, numbers)


def _values_in(start: int, state: State, transitions: Sequence[AnyTransition]) -> dict[StateVariable, Any]:
    """Return, for each variable of the states of a loop, the value that it has from before the loop whatever
    transitions are performed, or `VARYING`. The loop starts in state `start`, with this visit of it.
    """
    known = _variables(start, (*state.arrays, *state.numbers), len(state.arrays))
    while True:
        before = dict(known)
        for each in transitions:
            for variable, name in _variables(each.end, each.ends, each.n_arrays).items():
                value = _value_of(name, each.start, known)
                if value is not None and known.setdefault(variable, value) is not value:
                    known[variable] = VARYING
        if known == before:
            return known


def _variables(state_id: int, values: Sequence[Any], n_arrays: int) -> dict[StateVariable, Any]:
    """Return the variables of a state with these values, arrays first."""
    arrays: dict[StateVariable, Any] = {
        StateVariable(state_id, True, k): value for k, value in enumerate(values[:n_arrays])
    }
    return arrays | {StateVariable(state_id, False, k): value for k, value in enumerate(values[n_arrays:])}


def _value_of(name: Any, start: int, known: Mapping[StateVariable, Any]) -> Any:
    """Return the value that a transition from state `start` gives to a variable, whose origin is `name` (see
    `state_graph.transition_key`); None if it is not known yet.
    """
    if isinstance(name, tuple) and name[0] in ("state", "number"):
        return known.get(StateVariable(start, name[0] == "state", name[1]))
    return VARYING if isinstance(name, tuple | str) else name


def _is_complete(trace: Trace, first: int, last: int) -> bool:
    """Whether the last state of the region contains everything that the rest of the path uses."""
    graph = trace.looks.state_graph
    state, cuts = graph.state(last), graph.cuts[first + 1 : last + 1]
    lost: set[Any] = {storage for cut in cuts for storage in cut.results} | {cut.source for cut in cuts}
    lost.update(
        step for i in range(first, last) for step in graph.steps_between(i) if isinstance(step, Computed)
    )
    lost -= {*state.arrays, *state.numbers}
    following = next((each for each in graph.states[last + 1 :] if each is not None), None)
    if following is not None and not lost.isdisjoint((*following.arrays, *following.numbers)):
        return False
    for origin in (*trace.origins, *(b for cut in graph.cuts[last + 1 :] for b in cut.origins)):
        if (origin.storage if isinstance(origin, StorageRange) else origin.source) in lost:
            return False
    steps = [step for step in graph.steps_since(last) if not isinstance(step, Cut)]
    return not any(isinstance(o, Computed | Source) and o in lost for step in steps for o in step.operands)
