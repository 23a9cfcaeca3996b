"""A loop over looks as a step of the replay program.

The states of the loop, each with its variables, and the transitions between them become one `StateLoop`. A
replay performs, in each state, the transition whose checks are true: it launches the transition's segment, or
many iterations in one launch where the graph can evaluate the questions (`native_loop`).
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Hashable, MutableMapping, Sequence
from typing import Any, NamedTuple

from tracejit.frontend.jit import launch_records, number_variables
from tracejit.frontend.jit.state_loops.native_loop import NativeLoop, native_loop
from tracejit.frontend.jit.state_loops.native_numbers import EXACT
from tracejit.frontend.jit.state_loops.regions import LoopRegion
from tracejit.frontend.recording.segments import Segment, TreeNode
from tracejit.frontend.recording.sources import Question
from tracejit.frontend.recording.storage import Storage
from tracejit.frontend.recording.trace import Trace
from tracejit.frontend.signature.expressions import Const, Expr, GetItem, Literal, Result, Var
from tracejit.frontend.signature.meanings import Meanings
from tracejit.frontend.signature.program import (
    LoopState,
    ReplayProgram,
    Rule,
    RunSegment,
    StateLoop,
    Transition,
)
from tracejit.frontend.signature.runtime import element_of

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

    vars: the replay variables of each state, in the order of `LoopRegion.variables`.
    """

    def __init__(self, trace: Trace, region: LoopRegion) -> None:
        self.trace, self.region = trace, region
        self.graph = trace.looks.state_graph
        self.reports: list[LoopReport] = []
        self.vars: dict[int, tuple[Var, ...]] = {}
        self._numbering = {state_id: number for number, state_id in enumerate(region.transitions)}
        self._native_loops: dict[int | None, NativeLoop | str] = {}

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
            last_visit = max(
                i for i in range(region.first, region.last + 1) if graph.state_ids[i] == state_id
            )
            vars = [
                Var("c", value) if variable.is_array else Var("c", value.value, value.path)
                for variable, value in region.values_at(graph, last_visit).items()
            ]
            for var in vars:
                var.bound = True
            self.vars[state_id] = tuple(vars)
        for value, is_array, var in self._variables_at(region.last):
            if is_array:
                arrays.maps[0].setdefault(value, arrays_at_end[value])
                arrays_at_end[value] = var, None
            else:
                numbers.maps[0].setdefault(value, numbers_at_end[value])
                numbers_at_end[value] = var

    def _variables_at(self, index: int) -> list[tuple[Any, bool, Var]]:
        """Return the storage or source at a look of each variable, whether it is an array, and its variable
        in the replay.
        """
        values = self.region.values_at(self.graph, index)
        pairs = zip(values.items(), self.vars[self.graph.state_id(index)], strict=True)
        return [(value, variable.is_array, var) for (variable, value), var in pairs]

    def emit(
        self, program: ReplayProgram, node: TreeNode, arrays: ScopedArrays, numbers: ScopedNumbers
    ) -> TreeNode:
        """Append the loop to a program, after the tree node of its first look; return the loop's own node."""
        region, graph = self.region, self.graph
        before = self._vars_of(region.first, arrays, numbers)
        meanings = Meanings.of(program)
        segments = self.trace.looks.segments
        segment = self.trace.looks.cuts[region.first + 1].segment
        node = segments.tree_node(node, segment, self._key(arrays, numbers, meanings))
        states = tuple(
            self._state(state_id, starts, arrays, numbers) for state_id, starts in region.transitions.items()
        )
        self._bind(region.last, arrays, numbers)
        ends = self._numbering[graph.state_id(region.last)]
        program.steps.append(StateLoop(node, states, before, ends))
        return node

    def _vars_of(self, index: int, arrays: ScopedArrays, numbers: ScopedNumbers) -> tuple[Var, ...]:
        """Return by what the arrays and numbers of the state at a look are known."""
        values = self.region.values_at(self.graph, index)
        return tuple(
            arrays[value][0] if variable.is_array else numbers[value] for variable, value in values.items()
        )

    def _bind(self, index: int, arrays: ScopedArrays, numbers: ScopedNumbers) -> None:
        """Let the variables of the state at a look be what its arrays and numbers are known by."""
        for value, is_array, var in self._variables_at(index):
            if is_array:
                arrays[value] = var, None
            else:
                numbers[value] = var

    def _bound_at(
        self, index: int, arrays: ScopedArrays, numbers: ScopedNumbers
    ) -> tuple[ScopedArrays, ScopedNumbers]:
        """Return by what arrays and numbers are known at a look in the loop."""
        arrays, numbers = arrays.new_child(), numbers.new_child()
        self._bind(index, arrays, numbers)
        return arrays, numbers

    # -- transitions -----------------------------------------------------------------------------------------

    def _state(
        self, state_id: int, starts: Sequence[int], arrays: ScopedArrays, numbers: ScopedNumbers
    ) -> LoopState:
        """Return a state with the transitions that start at these looks."""
        transitions = tuple(self._transition(i, arrays, numbers) for i in starts)
        native = self._branching_loop(state_id, starts)
        if native is None:
            return LoopState(self.vars[state_id], transitions)
        cut = self.trace.looks.cuts[native.head + 1]
        self.reports.append(LoopReport(cut.source.path, native.segment, ""))
        iterations = self._iterations(native, ReplayProgram(), arrays, numbers)
        return LoopState(self.vars[state_id], transitions, iterations)

    def _branching_loop(self, state_id: int, starts: Sequence[int]) -> NativeLoop | None:
        """Return the native loop with branches that starts in a state, or None."""
        region, graph = self.region, self.graph
        entire = self._native_loop(None, region.first)
        if isinstance(entire, NativeLoop):
            is_head = entire.branches and state_id == graph.state_id(region.first)
            return entire if is_head else None
        loops = [i for i in starts if graph.state_ids[i + 1] == state_id and len(region.transitions) > 1]
        native = self._native_loop(state_id, loops[0]) if loops else ""
        return native if isinstance(native, NativeLoop) and native.branches else None

    def _transition(self, index: int, arrays: ScopedArrays, numbers: ScopedNumbers) -> Transition:
        """Return the transition that starts at a look, or the iterations of which it is the first."""
        graph, cut = self.graph, self.trace.looks.cuts[index + 1]
        arrays_here, numbers_here = self._bound_at(index, arrays, numbers)
        program = ReplayProgram()
        for step in graph.steps_between(index):
            number_variables.emit(step, numbers_here, program)
        native = self._native_loop_from(index)
        if isinstance(native, NativeLoop):
            self.reports.append(LoopReport(cut.source.path, native.segment, ""))
            return self._iterations(native.starting_with(index), program, arrays, numbers)
        if native:
            self.reports.append(LoopReport(cut.source.path, None, native))
        program.steps.append(launch_records.run_of(cut, None, self.trace, arrays_here, numbers_here))
        number = self._numbering[graph.state_id(index + 1)]
        after = self._vars_of(index + 1, arrays_here, numbers_here)
        return Transition(tuple(program.steps), number, {number: after})

    def _native_loop_from(self, index: int) -> NativeLoop | str:
        """Return the iterations whose first transition starts at a look, as one launch, or why there are
        none.

        Iterations perform all transitions of the loop, and start in its first state. If the graph cannot do
        that, those of one state are tried, which return to it.
        """
        region, graph = self.region, self.graph
        state_id = graph.state_id(index)
        entire = self._native_loop(None, region.first)
        if isinstance(entire, NativeLoop):
            is_first = state_id == graph.state_id(region.first)
            return entire if is_first and not entire.branches else ""
        if graph.state_ids[index + 1] != state_id or len(region.transitions) == 1:
            return entire
        own = self._native_loop(state_id, index)
        return "" if isinstance(own, NativeLoop) and own.branches else own

    def _native_loop(self, state_id: int | None, head: int) -> NativeLoop | str:
        """Return the native loop of all transitions (None), or of those from a state to itself."""
        if state_id not in self._native_loops:
            states = [*self.region.transitions] if state_id is None else [state_id]
            starts = self._in_order_of_answers(states)
            starts = [i for i in starts if state_id is None or self.graph.state_ids[i + 1] == state_id]
            self._native_loops[state_id] = native_loop(self.trace, self.region, starts, head)
        return self._native_loops[state_id]

    def _in_order_of_answers(self, states: Sequence[int]) -> list[int]:
        """Return the transitions from states, sorted by their answers, so that paths which performed them in
        another order have the same native loop.
        """

        def answers(index: int) -> list[str]:
            steps = self.graph.steps_between(index)
            return [repr(step.value) for step in steps if isinstance(step, Question)]

        transitions = self.region.transitions
        return [index for state_id in states for index in sorted(transitions[state_id], key=answers)]

    def _iterations(
        self, native: NativeLoop, program: ReplayProgram, arrays: ScopedArrays, numbers: ScopedNumbers
    ) -> Transition:
        """Append the launch of a native loop; return it as a transition to the state at its end."""
        arrays, numbers = self._bound_at(native.head, arrays, numbers)
        for source in native.integers:
            number = source if isinstance(source, Var) else numbers[source]
            program.require(Rule.WITHIN, number, Literal(EXACT))
        launch = launch_records.launch_of_loop(native.segment, native.inputs, arrays, numbers)
        results = [Var("t", Storage(value.type)) for value in native.segment.graph.outputs]
        slots = native.slots
        in_slots: dict[int, Var] = {
            slots.slot_of[variable]: arrays[value][0] if variable.is_array else numbers[value]
            for variable, value in slots.values_at(native.head).items()
        }
        looked_at = Var("l")
        for var in (*results, looked_at):
            var.bound = True
        program.steps.append(RunSegment(None, launch, tuple(results), looked_at))
        for slot, output in native.outputs.items():
            in_slots[slot] = results[output]
            if not slots.slots[slot][0].is_array:
                in_slots[slot] = looked_at
                if output > 0:
                    in_slots[slot] = Var("l")
                    element = Const(element_of(results[output].value.type.dtype))
                    program.define(in_slots[slot], Result(element, results[output]))
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
            program.define(state, GetItem(Literal(state_numbers), looked_at))
        return Transition(tuple(program.steps), state, after)

    # -- keys ------------------------------------------------------------------------------------------------

    def _key(self, arrays: ScopedArrays, numbers: ScopedNumbers, meanings: Meanings) -> Hashable:
        """Return a key that is equal for loops of two paths with the same states, loop-invariant values, and
        transitions.
        """
        graph, region = self.graph, self.region
        invariant: list[Any] = []
        for state_id in region.transitions:
            state = graph.state(graph.state_ids.index(state_id, region.first))
            carried = region.arrays[state_id], region.numbers[state_id]
            invariant += [storage for k, storage in enumerate(state.arrays) if k not in carried[0]]
            invariant += [numbers[source] for k, source in enumerate(state.numbers) if k not in carried[1]]

        def meaning(part: Any) -> Hashable:
            if isinstance(part, tuple):
                return tuple(map(meaning, part))
            if isinstance(part, Storage):
                return meanings[arrays[part][0]]
            return meanings[part] if isinstance(part, Expr) else part

        transitions = tuple(
            (
                self._numbering[state_id],
                self._numbering[graph.state_id(index + 1)],
                meaning(graph.transition_keys[index]),
            )
            for state_id, starts in region.transitions.items()
            for index in starts
        )
        variables = tuple((region.arrays[s], region.numbers[s]) for s in region.transitions)
        return transitions, variables, meaning(tuple(invariant))
