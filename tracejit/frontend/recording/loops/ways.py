"""The looks of a trace as states of its body, and the ways from one to the next.

    while float(err) > tol:                  look A
        y = step(x, t)
        if float(loss(y)) < float(loss(x)):  looks B and C
            x = y
        else:
            t *= 0.5

The rest of a body depends on its state at a look (`states.State`), and on the answers to its questions. So
looks with equal states have one number. The recording between two looks is a *way*: numbers to compute,
questions, a segment to launch. Every call does the same that is in the state where the way begins and gets
the same answers. In the example there are ways from A to B, from B to C, and two from C to A.

A look whose state is not known (made by a function that `sorted` calls, say) is a state of its own, made of
the last known state and the results since.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit.frontend.recording.draws import Draws
from tracejit.frontend.recording.loops.states import State
from tracejit.frontend.recording.origins import Bound, RuntimeNumber
from tracejit.frontend.recording.sources import Computed, Question, Source
from tracejit.frontend.recording.storage import Storage
from tracejit.frontend.recording.trace_numbers import Numbers

if TYPE_CHECKING:
    from tracejit.frontend.recording.segments import Cut

BLIND = 16
"""Most looks in a row whose state is not known."""


class Unknown(Exception):
    """A way uses something that is not in the state where it begins."""


class StateGraph:
    """The states of a body at its looks, and the ways between them. It knows the trace's cuts, numbers and
    draws.

    states: of each look; None where even the results since the last known state are not known.
    at:     the number of each state; equal states have one.
    way_keys: of the way from each look to the next; None if it uses something of the path that is not in its
            state.
    ways:   by the number of a state: the looks with which different ways from there begin.
    made:   storages that segments have made.
    again:  the number of known looks before one that is not known (see `ahead`).
    """

    def __init__(self, cuts: list[Cut], numbers: Numbers, draws: Draws) -> None:
        self.cuts, self.numbers, self.draws = cuts, numbers, draws
        self.states: list[State | None] = []
        self.at: list[int | None] = []
        self.way_keys: list[Hashable] = []
        self.ways: dict[int, dict[tuple[Hashable, int | None], int]] = {}
        self.made: set[Storage] = set()
        self._known: dict[Hashable, int] = {}
        self._unknown: set[int] = set()
        self._places: list[int] = []  # of the looks, among the steps
        self._blind = 0
        self.again = 0

    def note(self, cut: Cut, state: State | None) -> None:
        """Add a look, the last of the trace's steps, and the state of the body if that is known."""
        self._places.append(len(self.numbers.steps) - 1)
        self.made.update(cut.made)
        begin = len(self.states) - 1
        before = self.states[-1] if self.states else None
        self._blind = 0 if state is not None else self._blind + 1
        if state is None and before is not None and self._blind <= BLIND:
            state = self._after(begin, before, cut)
        number = None
        if state is not None:
            key = state.key, *(storage.type for storage in state.carriers)
            number = self._known.setdefault(key, len(self._known))
            if number in self._unknown:
                state = number = None
        self.states.append(state)
        self.at.append(number)
        if begin < 0:
            return
        found = None
        if before is not None and state is not None:
            found = self._way_key(begin, before, state, cut)
        self.way_keys.append(found)
        if found is not None:
            self._add_way(self.at[begin], (found, number), begin)  # type: ignore[arg-type]

    def _add_way(self, at: int, way: tuple[Hashable, int | None], begin: int) -> None:
        """Note a way from a state. Its questions and answers decide whether it is gone: where another way has
        the same ones, the body depends on more than the state, which counts as unknown from then on.
        """
        known = self.ways.setdefault(at, {})
        if way in known:
            return
        if any(_answers(other) == _answers(way) for other in known):
            self._unknown.add(at)
            known.clear()
            for ways in self.ways.values():  # none of them leads to a state that is known
                for gone in [way for way in ways if way[1] == at]:
                    del ways[gone]
            self.at = [None if number == at else number for number in self.at]
            self.states = [None if self.at[i] is None else state for i, state in enumerate(self.states)]
        else:
            known[way] = begin

    def state(self, index: int) -> State:
        """The state at a look, where it is known."""
        state = self.states[index]
        assert state is not None
        return state

    def number(self, index: int) -> int:
        """The number of the state at a look."""
        number = self.at[index]
        assert number is not None
        return number

    def between(self, index: int) -> list[Any]:
        """Computations and questions between a look and the next one."""
        return self.numbers.steps[self._places[index] + 1 : self._places[index + 1]]

    def since(self, index: int) -> list[Any]:
        """All steps after a look."""
        return self.numbers.steps[self._places[index] + 1 :]

    def _after(self, begin: int, before: State, cut: Cut) -> State | None:
        """The state at a look where it is not known."""
        steps = self.between(begin)
        try:
            key = "after", self.at[begin], way_key(before, None, cut, steps, self)
        except Unknown:
            return None
        carriers = dict.fromkeys((*before.carriers, *cut.made))
        sources = dict.fromkeys((*before.sources, *(s for s in steps if isinstance(s, Computed)), cut.source))
        return State(key, tuple(carriers), tuple(sources))

    def _way_key(self, begin: int, before: State, then: State, cut: Cut) -> Hashable:
        try:
            return way_key(before, then, cut, self.between(begin), self)
        except Unknown:
            return None


def _answers(way: tuple[Any, int | None]) -> Hashable:
    """The computations, questions and answers of a way."""
    answers: Hashable = way[0][1]
    return answers


def way_key(now: State, then: State | None, cut: Cut, steps: list[Any], graph: StateGraph) -> Hashable:
    """A key that is equal for ways from one state with equal computations, questions and places of results.

    Raises Unknown if a way uses what is neither in its state nor older than all looks.
    """
    names: dict[Any, Hashable] = {c: ("state", k) for k, c in enumerate(now.carriers)}
    names |= {s: ("number", k) for k, s in enumerate(now.sources)}

    def name(operand: Any) -> Hashable:
        if operand in names:
            return names[operand]
        if isinstance(operand, Computed | Source) or operand in graph.made:
            raise Unknown
        return operand

    def name_of_number(operand: Any) -> Hashable:
        plain = operand is None or isinstance(operand, bool | int | float | np.generic)
        return (type(operand), repr(operand)) if plain else name(operand)

    def origin(bound: Bound) -> Hashable:
        """The origin of an input of the segment: a place or a number."""
        if not isinstance(bound, RuntimeNumber):
            return name(bound.storage), bound.lo, bound.hi
        source = bound.source
        if not hasattr(source, "stream"):
            return name_of_number(source)
        stream = graph.draws.totals[source.stream][0]
        return type(source), source.stream - cut.draws.start, stream, *map(name_of_number, source[1:])

    done: list[Hashable] = []
    for step in steps:
        done.append((type(step), step.operation, *map(name_of_number, step.operands)))
        if isinstance(step, Question):
            done.append((type(step.value), repr(step.value)))
        else:
            names[step] = "computed", len(done)
    inputs = [origin(bound) for bound in cut.bound]
    totals = [graph.draws.totals[index][1] for index in cut.draws]
    inputs += [(total.fixed, name_of_number(total.further)) for total in totals]
    names |= {storage: ("made", k) for k, storage in enumerate(cut.made)} | {cut.source: "found"}
    ends = () if then is None else (*map(name, then.carriers), *map(name, then.sources))
    return cut.segment, tuple(done), tuple(inputs), ends
