"""A loop over looks as a step of the replay program.

The states of the loop, each with its variables, and the transitions between them become one `StateLoop`. A
replay performs, in each state, the transition whose checks are true: it launches the transition's segment, or
many iterations in one launch where the graph can evaluate the questions (`native_loop`).
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Hashable, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple

from tracejit.frontend.jit import launch_records, number_variables
from tracejit.frontend.jit.state_loops.native_loop import NativeLoop, native_loop
from tracejit.frontend.jit.state_loops.native_numbers import EXACT, INTEGER
from tracejit.frontend.jit.state_loops.regions import LoopRegion, loops_of
from tracejit.frontend.python.interned import Interned
from tracejit.frontend.recording.look_loops.state_graph import Transition
from tracejit.frontend.recording.look_loops.states import State
from tracejit.frontend.recording.segments import Segment, TreeNode
from tracejit.frontend.recording.sources import Question
from tracejit.frontend.recording.storage import Storage
from tracejit.frontend.recording.trace import Trace
from tracejit.frontend.signature.expressions import GetItem, Literal, Var
from tracejit.frontend.signature.meanings import Meanings
from tracejit.frontend.signature.program import (
    Launch,
    LoopState,
    LoopTransition,
    NumberBlock,
    ReplayProgram,
    Rule,
    RunLoop,
    StateLoop,
)
from tracejit.ir.types import ArrayType

ScopedArrays = ChainMap[Storage, Any]
ScopedNumbers = ChainMap[Any, Var]


class LoopReport(NamedTuple):
    """How iterations run, for `explain()`.

    path:    the look with which they end.
    segment: the iterations as one launch, if they are one.
    reason:  why they are not.
    """

    path: str
    segment: Segment | None
    reason: str


class LoopEmitter:
    """Emits the loop of a region.

    keys:  by state id: a key that equal states of all paths share.
    known: keys of all transitions that the path knows.
    vars:  the replay variables of each state, in the order of `LoopRegion.variables`.
    """

    def __init__(
        self, trace: Trace, region: LoopRegion, keys: Mapping[int, Interned], known: frozenset[Hashable]
    ) -> None:
        self.trace, self.region, self.keys, self.known = trace, region, keys, known
        self.graph = trace.looks.state_graph
        self.reports: list[LoopReport] = []
        self.vars: dict[int, tuple[Var, ...]] = {}
        self._numbering = {state_id: number for number, state_id in enumerate(region.transitions)}
        self._loop_of = {
            state_id: frozenset(loop) for loop in loops_of(region.all_transitions) for state_id in loop
        }
        self._native_loops: dict[frozenset[int], NativeLoop | str] = {}

    def introduce(
        self,
        arrays: ScopedArrays,
        numbers: ScopedNumbers,
        arrays_at_end: MutableMapping[Storage, Any],
        numbers_at_end: MutableMapping[Any, Var],
    ) -> None:
        """Create the variables of the states. From the loop's last look on, they are what the body's arrays
        and numbers are known by; `arrays` and `numbers` keep what these were known by before.
        """
        graph, region = self.graph, self.region
        for state_id in region.transitions:
            visits = [i for i in range(region.first, region.last + 1) if graph.state_ids[i] == state_id]
            state = graph.state(visits[-1]) if visits else region.states[state_id]
            vars = [
                Var("c", value) if variable.is_array else Var("c", value.value, value.path)
                for variable, value in region.values(state_id, state).items()
            ]
            for var in vars:
                var.bound = True
            self.vars[state_id] = tuple(vars)
        for transition in region.all_transitions:
            if transition.cut.results[0] not in arrays:  # it was recorded for another path
                numbers.maps[0].update(number_variables.variables_of([*transition.steps, transition.cut]))
                for storage in transition.cut.results:
                    arrays.maps[0][storage] = Var("t", storage), None
        for value, is_array, var in self._variables(region.end, graph.state(region.last)):
            if is_array:
                arrays.maps[0].setdefault(value, arrays_at_end[value])
                arrays_at_end[value] = var, None
            else:
                numbers.maps[0].setdefault(value, numbers_at_end[value])
                numbers_at_end[value] = var

    def _variables(self, state_id: int, state: State) -> list[tuple[Any, bool, Var]]:
        """Return, for each variable of a visited state, its storage or source at that visit, whether it is an
        array, and its variable in the replay.
        """
        pairs = zip(self.region.values(state_id, state).items(), self.vars[state_id], strict=True)
        return [(value, variable.is_array, var) for (variable, value), var in pairs]

    def emit(
        self, program: ReplayProgram, node: TreeNode, arrays: ScopedArrays, numbers: ScopedNumbers
    ) -> TreeNode:
        """Append the loop to a program, after the tree node of its first look; return the loop's own node."""
        region, graph = self.region, self.graph
        first = graph.state(region.first)
        before = self._vars_of(region.start, first, arrays, numbers)
        meanings = Meanings.of(program)
        key = self.keys[region.start], *(meanings[var] for var in _all_vars(first, arrays, numbers))
        segment = region.all_transitions[0].cut.segment
        node = self.trace.looks.segments.tree_node(node, segment, key)
        states = tuple(
            self._state(state_id, each, arrays, numbers) for state_id, each in region.transitions.items()
        )
        self._bind(region.end, graph.state(region.last), arrays, numbers)
        ends = self._numbering[region.end]
        program.steps.append(
            StateLoop(node, states, before, ends, region.last + 1 < len(graph.state_ids), self.known)
        )
        return node

    def _vars_of(
        self, state_id: int, state: State, arrays: ScopedArrays, numbers: ScopedNumbers
    ) -> tuple[Var, ...]:
        """Return by what the arrays and numbers of a visited state are known."""
        values = self.region.values(state_id, state)
        return tuple(
            arrays[value][0] if variable.is_array else numbers[value] for variable, value in values.items()
        )

    def _bind(self, state_id: int, state: State, arrays: ScopedArrays, numbers: ScopedNumbers) -> None:
        """Let the variables of a state be what its arrays and numbers at a visit are known by."""
        for value, is_array, var in self._variables(state_id, state):
            if is_array:
                arrays[value] = var, None
            else:
                numbers[value] = var

    def _bound_before(
        self, transition: Transition, arrays: ScopedArrays, numbers: ScopedNumbers
    ) -> tuple[ScopedArrays, ScopedNumbers]:
        """Return by what arrays and numbers are known where a transition starts."""
        arrays, numbers = arrays.new_child(), numbers.new_child()
        self._bind(transition.start, transition.before, arrays, numbers)
        return arrays, numbers

    # -- transitions -----------------------------------------------------------------------------------------

    def _state(
        self, state_id: int, starting: Sequence[Transition], arrays: ScopedArrays, numbers: ScopedNumbers
    ) -> LoopState:
        """Return a state with the transitions that start in it."""
        transitions = tuple(self._transition(each, arrays, numbers) for each in starting)
        native = self._branching_loop(state_id, starting)
        if native is None:
            return self._loop_state(state_id, transitions, None, arrays, numbers)
        self.reports.append(LoopReport(native.head.cut.source.path, native.segment, ""))
        iterations = self._iterations(native, ReplayProgram(), arrays, numbers)
        return self._loop_state(state_id, transitions, iterations, arrays, numbers)

    def _branching_loop(self, state_id: int, starting: Sequence[Transition]) -> NativeLoop | None:
        """Return the native loop with branches that starts in a state, or None."""
        loop = self._loop_of.get(state_id)
        if loop is None:
            return None
        entire = self._native_loop(loop)
        if isinstance(entire, NativeLoop):
            return entire if entire.branches and state_id == entire.head.start else None
        if len(loop) == 1 or all(each.end != state_id for each in starting):
            return None
        own = self._native_loop(frozenset([state_id]))
        return own if isinstance(own, NativeLoop) and own.branches else None

    def _transition(
        self, transition: Transition, arrays: ScopedArrays, numbers: ScopedNumbers
    ) -> LoopTransition:
        """Describe a transition, or the iterations of which it is the first."""
        cut = transition.cut
        arrays_here, numbers_here = self._bound_before(transition, arrays, numbers)
        program = ReplayProgram()
        for step in transition.steps:
            number_variables.emit(step, numbers_here, program)
        native = self._native_loop_from(transition)
        if isinstance(native, NativeLoop):
            self.reports.append(LoopReport(cut.source.path, native.segment, ""))
            return self._iterations(native.starting_with(transition), program, arrays, numbers)
        if native:
            self.reports.append(LoopReport(cut.source.path, None, native))
        program.steps.append(launch_records.run_of(cut, None, arrays_here, numbers_here))
        number = self._numbering[transition.end]
        after = self._vars_of(transition.end, transition.after, arrays_here, numbers_here)
        return LoopTransition(tuple(program.steps), number, {number: after})

    def _native_loop_from(self, transition: Transition) -> NativeLoop | str:
        """Return the iterations whose first transition is this one, as one launch, or why there are none.

        Iterations perform all transitions of the loop, and start in its first state. If the graph cannot do
        that, those of one state are tried, which return to it.
        """
        state_id = transition.start
        loop = self._loop_of.get(state_id, frozenset())
        if transition.end not in loop:
            return ""
        entire = self._native_loop(loop)
        if isinstance(entire, NativeLoop):
            return entire if state_id == entire.head.start and not entire.branches else ""
        if transition.end != state_id or len(loop) == 1:
            return entire
        own = self._native_loop(frozenset([state_id]))
        return "" if isinstance(own, NativeLoop) and own.branches else own

    def _native_loop(self, states: frozenset[int]) -> NativeLoop | str:
        """Return the native loop of all transitions between some states, or why there is none."""
        if states not in self._native_loops:
            transitions = self._in_order(states)
            self._native_loops[states] = native_loop(self.trace, self.region, transitions, transitions[0])
        return self._native_loops[states]

    def _in_order(self, states: frozenset[int]) -> list[Transition]:
        """Return the transitions between some states, in an order that depends only on their answers and the
        first state, so that paths which performed them in another order have the same native loop.
        """

        def answers(transition: Transition) -> list[str]:
            return [repr(step.value) for step in transition.steps if isinstance(step, Question)]

        visited = self.graph.state_ids[self.region.first : self.region.last + 1]
        order = [next(state_id for state_id in (*visited, *self.region.transitions) if state_id in states)]
        transitions = []
        for state_id in order:
            starting = [each for each in self.region.transitions[state_id] if each.end in states]
            for each in sorted(starting, key=answers):
                transitions.append(each)
                if each.end not in order:
                    order.append(each.end)
        return transitions

    def _iterations(
        self, native: NativeLoop, program: ReplayProgram, arrays: ScopedArrays, numbers: ScopedNumbers
    ) -> LoopTransition:
        """Append the launch of a native loop; return it as a transition to the state at its end."""
        head = native.head
        arrays, numbers = self._bound_before(head, arrays, numbers)
        for source in native.integers:
            number = source if isinstance(source, Var) else numbers[source]
            program.require(Rule.WITHIN, number, Literal(EXACT))
        launch = launch_records.launch_of_loop(native.segment, native.inputs, native.draws, arrays, numbers)
        slots = native.slots
        in_slots: dict[int, Var] = {
            slots.slot_of[variable]: arrays[value][0] if variable.is_array else numbers[value]
            for variable, value in self.region.values(head.start, head.before).items()
        }
        arrays_after = [slot for slot in native.outputs if slots.slots[slot][0].is_array]
        run = _run_of_loop(native, launch, len(arrays_after))
        program.steps.append(run)
        results = [*(number for block in run.blocks for number in block.numbers), *run.arrays]
        in_slots |= {slot: results[output] for slot, output in native.outputs.items()}
        after = {
            self._numbering[state_id]: tuple(
                in_slots[slots.slot_of[variable]] for variable in self.region.variables(state_id)
            )
            for state_id in native.states
        }
        state_numbers = tuple(self._numbering[state_id] for state_id in native.states)
        state: int | Var = state_numbers[0]
        if len(state_numbers) > 1:
            state = Var("s")
            program.define(state, GetItem(Literal(state_numbers), results[0]))
        return LoopTransition(tuple(program.steps), state, after)

    def _loop_state(
        self,
        state_id: int,
        transitions: tuple[LoopTransition, ...],
        iterations: LoopTransition | None,
        arrays: ScopedArrays,
        numbers: ScopedNumbers,
    ) -> LoopState:
        """Describe a state with its transitions."""
        state = self.region.states[state_id]
        arrays, numbers = arrays.new_child(), numbers.new_child()
        self._bind(state_id, state, arrays, numbers)
        values = _all_vars(state, arrays, numbers)
        return LoopState(self.vars[state_id], transitions, self.keys[state_id], values, iterations)


def _run_of_loop(native: NativeLoop, launch: Launch, n_arrays: int) -> RunLoop:
    """Describe the launch of a native loop whose last `n_arrays` outputs are arrays. If its last task writes
    all numbers, they are in one storage, for which a single wait suffices.
    """
    segment = native.segment
    types = [value.type for value in segment.graph.outputs]
    n_numbers, n_inputs = len(types) - n_arrays, len(segment.graph.inputs)
    numbers = {*range(n_inputs, n_inputs + n_numbers)}
    writers = [numbers.intersection(task.uses) for task in segment.schedule.tasks]
    last = [written for written in writers if written][-1:]
    length = n_numbers if last == [numbers] else 1
    blocks = []
    for first in range(0, n_numbers, length):
        dtypes = tuple(type.dtype for type in types[first : min(first + length, n_numbers)])
        storage = Storage(ArrayType((len(dtypes),), INTEGER, types[0].device))
        blocks.append(NumberBlock(Var("t", storage), tuple(Var("l") for _ in dtypes), dtypes))
    all_numbers = [number for block in blocks for number in block.numbers]
    counters = all_numbers[int(len(native.states) > 1) :][: len(native.draws)]
    arrays = tuple(Var("t", Storage(type)) for type in types[n_numbers:])
    run = RunLoop(launch, tuple(blocks), arrays, tuple(counters))
    for var in (*run.arrays, *(var for block in blocks for var in (block.storage, *block.numbers))):
        var.bound = True
    return run


def _all_vars(state: State, arrays: ScopedArrays, numbers: ScopedNumbers) -> tuple[Var, ...]:
    """Return by what all arrays and numbers of a visited state are known, arrays first."""
    return *(arrays[each][0] for each in state.arrays), *(numbers[each] for each in state.numbers)
