"""Native loops over a cycle of transitions: an iteration performs all of them, or none.

    for i in range(n):                           state A: a look at first[i]
        part = x[first[i] : first[i + 1]]        state B: a look at first[i + 1]
        y[i] = part.sum()                        an iteration: the transitions A-B and B-A

An iteration computes the transitions one after the other, and whether all checks hold. If one does not, the
iteration changes nothing and is the last one; replays continue there with single transitions. The transition
that writes into large arrays is the last one of the cycle, when all checks are known: then it stores elements
as they are, instead of selecting between two arrays.

Kernels of an iteration may compute nodes of several transitions. Reductions whose bits depend on what else
their kernel computes are therefore excluded; sums of short slices are not among them (see
`Selection.adds_in_order`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

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
from tracejit.ir.graph import Builder, Graph, Node, Value
from tracejit.ir.op import ANY_ORDER, COMPENSATED
from tracejit.ir.types import is_floating
from tracejit.ir.view import View
from tracejit.ops.loops import loop

_WRITES = (ops.scatter, ops.update)


class CycleLoop(LoopBuilder):
    """A loop whose iterations perform a cycle of transitions.

    holds:       the conjunction of the checks so far.
    unless_held: values that have the elements of a slot's value if a check does not hold, with that value.
    """

    ITERATIONS = 4096

    def __init__(self, region: LoopRegion, transitions: Sequence[Transition]) -> None:
        cycle = _writing_last(_in_cycle(transitions))
        if any(_may_round_differently(each.cut.segment.graph) for each in cycle):
            raise Unsupported("a sum may round differently in an iteration than in a segment")
        super().__init__(region, cycle, cycle[0], Builder())
        self.states = [cycle[0].start]
        self.holds: Value | None = None
        self.unless_held: dict[Value, Value] = {}

    def loop(self, trace: Trace) -> NativeLoop:
        """Return the loop."""
        self._add_slots(self.slots.changed & self.head.keys())
        self.unless_held.update({value: value for value in self.values.values()})
        slots = dict(self.values)
        for transition in self.transitions:
            slots = self._perform(transition, slots)
        if self.holds is None:
            raise Unsupported("nothing is asked in an iteration")
        ends = [self._end(slot, slots.get(slot)) for slot in self.values]
        flag = self._operand(self._around(True))
        targets = list(self.values.values())
        graph = self._outer_graph([*targets, flag], [*ends, self.holds], len(targets))
        return self._finished(trace, graph, branches=True)

    def _perform(self, transition: BodyTransition, slots: dict[int, Value]) -> dict[int, Value]:
        """Add the checks and the nodes of a transition, and return the slots in the state where it ends."""
        values = self._values_before(transition, slots)
        conditions = self.numbers.evaluate(
            transition.steps, values, partial(self._invariant_number, transition)
        )
        if conditions:
            self.holds = self.numbers.all(conditions if self.holds is None else [self.holds, *conditions])
        copied = self._segment_inputs(transition, values)
        for node in transition.cut.segment.graph.nodes:
            inputs = [copied[value] for value in node.inputs]
            copied.update(zip(node.outputs, self._copied(node, inputs), strict=True))
        cut = transition.cut
        results = [copied[value] for value in cut.segment.graph.outputs]
        values |= dict(zip(cut.results, results, strict=True))
        values[cut.source] = self._looked_at(results[0])
        after = {slot: values[each] for slot, each in transition.after.items() if each in values}
        if any(slot in self.slots.changed and slot not in after for slot in transition.after):
            raise Unsupported("an iteration passes on a value from before the loop")
        return after

    def _copied(self, node: Node, inputs: list[Value]) -> Sequence[Value]:
        """Copy a node so that it neither fails nor changes a large array if a check does not hold."""
        if self.holds is None:
            return self._node(node, inputs)
        if node.op is ops.check_index:
            holds = self._spread(self.holds, inputs[0].type.shape)
            inputs = [self.body.emit(ops.where, holds, inputs[0], self.numbers.literal(0))]
        elif node.op is loop and any(value in self.unless_held for value in inputs):
            raise Unsupported("an iteration changes an array in a loop")
        elif node.op in _WRITES and inputs[0] in self.unless_held:
            content = inputs[1]
            if node.op is ops.update:
                before = self._viewed(inputs[0], node.attrs["view"])
            else:
                before = self.body.emit(ops.gather, inputs[0], inputs[2], axis=node.attrs["axis"])
            if before.type != content.type:
                raise Unsupported("an iteration writes elements of another type")
            holds = self._spread(self.holds, content.type.shape)
            inputs[1] = self.body.emit(ops.where, holds, content, before)
        outputs = self._node(node, inputs)
        if inputs and inputs[0] in self.unless_held and (node.op in _WRITES or _reshapes(node)):
            self.unless_held[outputs[0]] = self.unless_held[inputs[0]]
        return outputs

    def _end(self, slot: int, value: Value | None) -> Value:
        """Return what an iteration stores in a slot of the head's state, given the value after the cycle."""
        before = self.values[slot]
        if value is None:
            return before
        value = self._shaped(self.numbers.array(value), before.type)
        if value.type != before.type:
            raise Unsupported("a value that an iteration passes on has another type in the next one")
        if self.unless_held.get(value) is before:
            return value
        if value.type.size > MAX_SELECTED:
            raise Unsupported("an iteration replaces large arrays")
        assert self.holds is not None
        return self.body.emit(ops.where, self._spread(self.holds, value.type.shape), value, before)


def _may_round_differently(graph: Graph) -> bool:
    """Whether a reduction of floats may add them in another order if its kernel computes other nodes, too."""
    return any(
        (node.op.accumulation in (ANY_ORDER, COMPENSATED) and is_floating(node.output.type.dtype))
        or (node.op is loop and _may_round_differently(node.attrs["body"]))
        for node in graph.nodes
    )


def _reshapes(node: Node) -> bool:
    """Whether a node returns all elements of an array in the same order."""
    is_view = node.op is ops.view and node.output.type.size == node.inputs[0].type.size
    return is_view and node.attrs["view"] == View.of_shape(node.output.type.shape)


def _in_cycle(transitions: Sequence[Transition]) -> list[Transition]:
    """Return transitions in the order in which an iteration performs them. Raises Unsupported if they are not
    a cycle of several states without branches.
    """
    by_start = {each.start: each for each in transitions}
    if len(by_start) != len(transitions) or len(transitions) < 2:
        raise Unsupported("iterations have branches")
    order = [transitions[0]]
    while len(order) < len(transitions):
        order.append(by_start[order[-1].end])
    if order[-1].end != order[0].start or len({each.start for each in order}) < len(order):
        raise Unsupported("iterations have branches")
    return order


def _writing_last(cycle: Sequence[Transition]) -> list[Transition]:
    """Rotate a cycle so that a transition which writes into arrays is the last one."""

    def writes(transition: Transition) -> Any:
        return any(node.op in _WRITES for node in transition.cut.segment.graph.nodes)

    last = next((k for k, each in enumerate(cycle) if writes(each)), len(cycle) - 1)
    return [*cycle[last + 1 :], *cycle[: last + 1]]
