"""Slots of a native loop: all that it carries between rounds, for bodies in several states (see `exits`).

Each state of a loop has arrays and numbers of its own (`regions.LoopRegion`), its *places*. What a way only
hands on from a place of one state to a place of another one needs no second copy, so both are one slot:

    while float(err) > tol:          state A: x, err, n      slots: x, err, n, found in A,
        if x.sum() > 1.0:            state B: x, err, n             found in B
            x = x * 0.5              a way from B to A changes x, err and n
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tracejit.frontend.jit.loop_regions import LoopRegion
from tracejit.frontend.recording.loops.ways import StateGraph


class StatePlace(NamedTuple):
    """Array or number `k` of a state of the body."""

    state: int
    is_array: bool
    k: int


class Slots:
    """The slots of ways in a loop.

    slots:   the places of each slot.
    of:      the slot of each place.
    changed: slots that a way changes, or that the loop does not begin with.
    """

    def __init__(self, graph: StateGraph, region: LoopRegion, ways: Sequence[int], head: int) -> None:
        self.graph, self.region = graph, region
        states = dict.fromkeys([head, *(graph.number(i + end) for i in ways for end in (0, 1))])
        self.slots: list[list[StatePlace]] = [[place] for at in states for place in places_of(region, at)]
        self.of = {slot[0]: number for number, slot in enumerate(self.slots)}
        for index in ways:
            for source, target in self._handed_on(index):
                self._join(source, target)
        self.changed = {
            number for number, slot in enumerate(self.slots) if slot and all(p.state != head for p in slot)
        }
        for index in ways:
            kept = {target for source, target in self._handed_on(index) if self.of[source] == self.of[target]}
            end = graph.number(index + 1)
            self.changed |= {self.of[p] for p in places_of(region, end) if p not in kept}

    def held(self, index: int) -> dict[StatePlace, Any]:
        """The arrays and numbers in the places of the state at a look."""
        return held_at(self.graph, self.region, index)

    def _handed_on(self, index: int) -> Iterable[tuple[StatePlace, StatePlace]]:
        """Places of a way's end, and those of its begin that hold the same."""
        before = {held: place for place, held in self.held(index).items()}
        return [(before[held], place) for place, held in self.held(index + 1).items() if held in before]

    def _join(self, source: StatePlace, target: StatePlace) -> None:
        """Make two places one slot, unless a state had two of its places there."""
        one, other = self.of[source], self.of[target]
        if one == other:
            return
        if {place.state for place in self.slots[one]} & {place.state for place in self.slots[other]}:
            return
        self.slots[one] += self.slots[other]
        self.of.update(dict.fromkeys(self.slots[other], one))
        self.slots[other] = []


def places_of(region: LoopRegion, at: int) -> list[StatePlace]:
    """The places of a state, in the order of its variables."""
    arrays = [StatePlace(at, True, k) for k in region.arrays[at]]
    return arrays + [StatePlace(at, False, k) for k in region.numbers[at]]


def held_at(graph: StateGraph, region: LoopRegion, index: int) -> dict[StatePlace, Any]:
    """The arrays and numbers in the places of the state at a look."""
    state = graph.state(index)
    return {
        place: state.carriers[place.k] if place.is_array else state.sources[place.k]
        for place in places_of(region, graph.number(index))
    }
