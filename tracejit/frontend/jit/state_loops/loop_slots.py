"""Slots of a native loop: its loop-carried variables, for bodies with several states (see `native_loop`).

Each state of a loop has variables of its own (`regions.LoopRegion.variables`). If a transition only passes a
variable of one state on as a variable of another state, both share one slot, and no copy is needed. So do
arrays of which a transition only replaces elements:

    while float(err) > tol:          state A: x, err, n      three slots: x, err and n,
        if x.sum() > 1.0:            state B: x, err, n      each shared by a variable of A and one of B
            x = x * 0.5              a transition from B to A changes x, err and n
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tracejit.frontend.jit.state_loops.regions import LoopRegion, StateVariable
from tracejit.frontend.recording.look_loops.state_graph import Transition
from tracejit.frontend.recording.origins import StorageRange
from tracejit.frontend.recording.segments import Cut
from tracejit.frontend.recording.storage import Storage
from tracejit.ir.graph import Value
from tracejit.ops import scatter, update, view
from tracejit.ops.loops import loop, targets


class Slots:
    """The slots of some transitions of a loop, which starts in state `head`.

    slots:   the variables that share each slot.
    slot_of: the slot of each variable.
    changed: the slots that a transition changes, or that have no value when the loop starts.
    """

    def __init__(self, region: LoopRegion, transitions: Sequence[Transition], head: int) -> None:
        self.region = region
        states = dict.fromkeys([head, *(state for each in transitions for state in (each.start, each.end))])
        self.slots: list[list[StateVariable]] = [
            [variable] for state_id in states for variable in region.variables(state_id)
        ]
        self.slot_of = {slot[0]: number for number, slot in enumerate(self.slots)}
        for each in transitions:
            for source, target in self._passed_on(each):
                self._merge(source, target)
        for each in transitions:
            for source, target in self._overwritten(each):
                self._merge(source, target)
        self.changed = {
            number
            for number, slot in enumerate(self.slots)
            if slot and all(variable.state_id != head for variable in slot)
        }
        for each in transitions:
            unchanged = {b for a, b in self._passed_on(each) if self.slot_of[a] == self.slot_of[b]}
            variables = region.variables(each.end)
            self.changed |= {self.slot_of[variable] for variable in variables if variable not in unchanged}

    def _passed_on(self, transition: Transition) -> Iterable[tuple[StateVariable, StateVariable]]:
        """Return the pairs of variables, at the start and at the end of a transition, that have one value."""
        before, after = self._ends(transition)
        return [(before[value], variable) for variable, value in after if value in before]

    def _overwritten(self, transition: Transition) -> Iterable[tuple[StateVariable, StateVariable]]:
        """Return the pairs of arrays, at the start and at the end of a transition, of which the second is the
        first with some elements replaced.
        """
        before, after = self._ends(transition)
        written = _written_in(transition.cut)
        bases = [(before.get(written.get(value)), variable) for variable, value in after]
        return [(source, target) for source, target in bases if source is not None]

    def _ends(self, each: Transition) -> tuple[dict[Any, StateVariable], Iterable[tuple[StateVariable, Any]]]:
        """Return the variables before a transition by their values, and those after it with their values."""
        before = self.region.values(each.start, each.before)
        after = self.region.values(each.end, each.after)
        return {value: variable for variable, value in before.items()}, after.items()

    def _merge(self, source: StateVariable, target: StateVariable) -> None:
        """Let two variables share a slot, unless two variables of one state would share it then."""
        one, other = self.slot_of[source], self.slot_of[target]
        if one == other:
            return
        if {v.state_id for v in self.slots[one]} & {v.state_id for v in self.slots[other]}:
            return
        self.slots[one] += self.slots[other]
        self.slot_of.update(dict.fromkeys(self.slots[other], one))
        self.slots[other] = []


def _written_in(cut: Cut) -> dict[Storage, Storage]:
    """Return the results of a segment that are an array of the state before with some elements replaced, by
    that array.
    """
    graph = cut.segment.graph
    origins = dict(zip(graph.inputs, cut.origins, strict=True))
    base: dict[Value, Value] = {}
    for node in graph.nodes:
        if (
            node.op is update
            or node.op is scatter
            or (node.op is view and node.output.type.size == node.inputs[0].type.size)
        ):
            base[node.output] = node.inputs[0]
        elif node.op is loop:
            base.update(
                zip(node.outputs, [node.inputs[1 + i] for i in targets(node.attrs["body"])], strict=True)
            )
    written = {}
    for value, storage in zip(graph.outputs, cut.results, strict=True):
        while value in base:
            value = base[value]
        origin = origins.get(value)
        if isinstance(origin, StorageRange) and (origin.lo, origin.hi) == (0, origin.storage.type.size):
            written[storage] = origin.storage
    return written
