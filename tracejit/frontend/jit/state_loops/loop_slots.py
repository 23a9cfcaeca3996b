"""Slots of a native loop: its loop-carried variables, for bodies with several states (see `native_loop`).

Each state of a loop has variables of its own (`regions.LoopRegion.variables`). If a transition only passes a
variable of one state on as a variable of another state, both share one slot, and no copy is needed:

    while float(err) > tol:          state A: x, err, n      three slots: x, err and n,
        if x.sum() > 1.0:            state B: x, err, n      each shared by a variable of A and one of B
            x = x * 0.5              a transition from B to A changes x, err and n
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tracejit.frontend.jit.state_loops.regions import LoopRegion, StateVariable
from tracejit.frontend.recording.look_loops.state_graph import StateGraph


class Slots:
    """The slots of some transitions of a loop, which starts in state `head`.

    slots:   the variables that share each slot.
    slot_of: the slot of each variable.
    changed: the slots that a transition changes, or that have no value when the loop starts.
    """

    def __init__(self, graph: StateGraph, region: LoopRegion, transitions: Sequence[int], head: int) -> None:
        self.graph, self.region = graph, region
        states = dict.fromkeys([head, *(graph.state_id(i + end) for i in transitions for end in (0, 1))])
        self.slots: list[list[StateVariable]] = [
            [variable] for state_id in states for variable in region.variables(state_id)
        ]
        self.slot_of = {slot[0]: number for number, slot in enumerate(self.slots)}
        for index in transitions:
            for source, target in self._passed_on(index):
                self._merge(source, target)
        self.changed = {
            number
            for number, slot in enumerate(self.slots)
            if slot and all(variable.state_id != head for variable in slot)
        }
        for index in transitions:
            unchanged = {b for a, b in self._passed_on(index) if self.slot_of[a] == self.slot_of[b]}
            variables = region.variables(graph.state_id(index + 1))
            self.changed |= {self.slot_of[variable] for variable in variables if variable not in unchanged}

    def values_at(self, index: int) -> dict[StateVariable, Any]:
        """The storages and sources of the variables of the state at a look."""
        return self.region.values_at(self.graph, index)

    def _passed_on(self, index: int) -> Iterable[tuple[StateVariable, StateVariable]]:
        """Return the pairs of variables, at the start and at the end of a transition, that have one value."""
        before = {value: variable for variable, value in self.values_at(index).items()}
        after = self.values_at(index + 1).items()
        return [(before[value], variable) for variable, value in after if value in before]

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
