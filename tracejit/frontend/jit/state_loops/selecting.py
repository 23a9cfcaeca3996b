"""Native loops by if-conversion: an iteration computes all transitions, and selects the results of one.

Python's checks select the transition of the first iteration. Each iteration determines the transition of the
next one, and the loop ends when there is none:

    for v in x:                              transition 0: v > 0 is true, the segment reads the next v
        if v > 0: total += v                 transition 1: v > 0 is false, ...
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tracejit import ops
from tracejit.frontend.jit.state_loops.loop_builder import (
    MAX_SELECTED,
    BodyTransition,
    LoopBuilder,
    NativeLoop,
)
from tracejit.frontend.jit.state_loops.native_numbers import Unsupported
from tracejit.frontend.jit.state_loops.regions import LoopRegion
from tracejit.frontend.recording.look_loops.state_graph import Transition
from tracejit.frontend.recording.trace import Trace
from tracejit.ir.graph import Builder, Node, Value
from tracejit.ops.loops import COUNT

MAX_TRANSITIONS = 16
"""The largest number of transitions that an iteration computes together."""


class SelectingLoop(LoopBuilder):
    """A loop whose iterations compute all transitions."""

    ITERATIONS = 4096

    def __init__(self, region: LoopRegion, transitions: Sequence[Transition], head: Transition) -> None:
        if len(transitions) > MAX_TRANSITIONS:
            raise Unsupported(f"iterations have more than {MAX_TRANSITIONS} branches")
        super().__init__(region, transitions, head, Builder())

    def loop(self, trace: Trace) -> NativeLoop:
        """Return the loop."""
        which = self._operand(self._filled(self._input(COUNT, 0))) if len(self.transitions) > 1 else None
        self._add_slots(self.slots.changed)
        self.taken = [self._is_taken(which, number) for number in range(len(self.transitions))]
        self.ends = [
            self._perform(each, taken) for each, taken in zip(self.transitions, self.taken, strict=True)
        ]
        ends = {slot: self._selected(slot) for slot in self.values}
        targets, results = list(self.values.values()), list(ends.values())
        state = None
        if len(self.states) > 1:
            state = self._end_state()
            targets.insert(0, self._operand(self._around(0)))
            results.insert(0, state)
        conditions = [self._is_next(transition, ends, state) for transition in self.transitions]
        continues = conditions[0]
        for condition in conditions[1:]:
            continues = self.body.emit(ops.logical_or, continues, condition)
        n_outputs = len(targets)
        if which is not None:
            targets, results = [*targets, which], [*results, self._choice(range(len(conditions)), conditions)]
        flag = self._operand(self._around(True))
        graph = self._outer_graph([*targets, flag], [*results, continues], n_outputs)
        return self._finished(trace, graph, branches=False)

    def _is_taken(self, which: Value | None, number: int) -> Value | None:
        """Return whether an iteration performs transition `number`; None if there is no other one."""
        if which is None:
            return None
        taken: Value = self.body.emit(ops.equal, which, self.numbers.literal(number))
        return taken

    def _selected(self, slot: int) -> Value:
        """Return the value of a slot after the iteration: that of the transition that it performs."""
        selected: Value | None = None
        for taken, ends in zip(self.taken, self.ends, strict=True):
            value = ends.get(slot)
            if selected is None or value is None or value is selected:
                selected = selected or value
                continue
            if value.type.size > MAX_SELECTED:
                raise Unsupported("iterations have branches, and change large arrays")
            assert taken is not None
            selected = self.body.emit(ops.where, self._spread(taken, value.type.shape), value, selected)
        return self.values[slot] if selected is None else selected

    def _perform(self, transition: BodyTransition, taken: Value | None) -> dict[int, Value]:
        """Return what an iteration stores in the slots if it performs a transition."""
        values = self._values_before(transition, self.values)
        self.numbers.evaluate(transition.steps, values, partial(self._invariant_number, transition))
        graph = transition.cut.segment.graph
        copied = self._segment_inputs(transition, values)
        for node in graph.nodes:
            outputs = self._node(node, self._valid(node, [copied[value] for value in node.inputs], taken))
            copied.update(zip(node.outputs, outputs, strict=True))
        return self._values_after(transition, values, [copied[value] for value in graph.outputs])

    def _valid(self, node: Node, inputs: list[Value], taken: Value | None) -> list[Value]:
        """Return the operands of a node, with a valid index to check in iterations that do not perform its
        transition.
        """
        if node.op is not ops.check_index or taken is None:
            return inputs
        is_taken = self._spread(taken, inputs[0].type.shape)
        return [self.body.emit(ops.where, is_taken, inputs[0], self.numbers.literal(0))]

    def _is_next(self, transition: BodyTransition, ends: dict[int, Value], state: Value | None) -> Value:
        """Return whether the next iteration performs a transition, where slots and state are these."""
        values = self._values_before(transition, ends)
        invariant_number = partial(self._invariant_number, transition)
        conditions = self.numbers.evaluate(transition.steps, values, invariant_number)
        if state is not None:
            start = self.numbers.literal(self.states.index(transition.start))
            conditions = [self.body.emit(ops.equal, state, start), *conditions]
        if not conditions:
            raise Unsupported("nothing is asked in an iteration")
        return self.numbers.all(conditions)

    def _end_state(self) -> Value:
        """Return the position, in `states`, of the state where the iteration's transition ends."""
        return self._choice([self.states.index(each.end) for each in self.transitions], self.taken)

    def _choice(self, numbers: Sequence[int], conditions: Sequence[Value | None]) -> Value:
        """Return the first number whose condition is true; the last one, if no other is."""
        chosen = self.numbers.array(self.numbers.literal(numbers[-1]))
        for number, condition in zip(reversed(numbers[:-1]), reversed(conditions[:-1]), strict=True):
            assert condition is not None
            chosen = self.body.emit(ops.where, condition, self.numbers.literal(number), chosen)
        return chosen
