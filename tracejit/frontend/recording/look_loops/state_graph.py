"""The state graph of a trace: states of the body at its looks, and the transitions between them.

    while float(err) > tol:                  look A
        y = step(x, t)
        if float(loss(y)) < float(loss(x)):  looks B and C
            x = y
        else:
            t *= 0.5

What the rest of a body does depends on its state at a look (`states.State`) and on the answers to the
questions that it asks of numbers. Looks with equal states therefore share one id. The recording between two
consecutive looks is a *transition*: numbers to compute, questions with their answers, and a segment to
launch. Every call that is in the state where a transition starts, and gets the same answers, performs the
same transition. The example has a transition from A to B, one from B to C, and two from C to A.

The state of a look may be unknown (for example when `sorted` calls the function that looks). Such a look gets
a state of its own, which consists of the last known state and all results since.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit.frontend.recording.look_loops.states import State
from tracejit.frontend.recording.origins import InputOrigin, RuntimeNumber
from tracejit.frontend.recording.sources import Computed, Question, Source
from tracejit.frontend.recording.storage import Storage
from tracejit.frontend.recording.trace_numbers import Numbers
from tracejit.ir.types import ArrayType

if TYPE_CHECKING:
    from tracejit.frontend.recording.segments import Cut

MAX_UNKNOWN = 16
"""The largest number of consecutive looks whose state is unknown."""


@dataclass(eq=False, repr=False)
class Transition:
    """The recording between two consecutive looks.

    start, end:    the ids of the states where it starts and ends.
    before, after: the states of the body at the two looks.
    steps:         the computations and questions between the looks.
    cut:           the look with which it ends.
    key:           see `transition_key`.
    """

    start: int
    end: int
    before: State
    after: State
    steps: Sequence[Any]
    cut: Cut
    key: Any

    @property
    def described(self) -> tuple[Any, ...]:
        """For each step, what it computes or asks, and the answer to it if it is a question."""
        return self.key[1]

    @property
    def n_arrays(self) -> int:
        """The number of arrays of the state where it ends."""
        return len(self.after.arrays)

    @property
    def ends(self) -> tuple[Hashable, ...]:
        """The origins of the arrays, and then of the numbers, of the state where it ends."""
        return self.key[3]


class Unresolved(Exception):
    """A transition uses a value that is not part of the state where it starts."""


class StateGraph:
    """The states of a body at its looks, and the transitions between them. The graph refers to the cuts and
    numbers of its trace.

    states:          the state at each look; None where even the results since the last known state are
                     unknown.
    state_ids:       the id of each state; equal states share one.
    transition_keys: the key of the transition from each look to the next; None if it uses a value that is not
                     part of the state where it starts.
    transitions:     by state id: the distinct transitions from that state, by key and end.
    produced:        the storages that segments have produced.
    recordings_left: how many looks with known states are still recorded before `run_ahead` is tried again.
    """

    def __init__(self, cuts: list[Cut], numbers: Numbers) -> None:
        self.cuts, self.numbers = cuts, numbers
        self.states: list[State | None] = []
        self.state_ids: list[int | None] = []
        self.transition_keys: list[Hashable] = []
        self.transitions: dict[int, dict[tuple[Hashable, int | None], Transition]] = {}
        self.produced: set[Storage] = set()
        self.recordings_left = 0
        self._ids: dict[Hashable, int] = {}
        self._ambiguous: set[int] = set()
        self._positions: list[int] = []  # of the looks, among the steps of the trace
        self._unknown_in_a_row = 0

    def note(self, cut: Cut, state: State | None) -> None:
        """Add a look, which is the last of the trace's steps, and the state of the body there if it is
        known.
        """
        self._positions.append(len(self.numbers.steps) - 1)
        self.produced.update(cut.results)
        start = len(self.states) - 1
        before = self.states[-1] if self.states else None
        steps = [] if start < 0 else self.steps_between(start)
        self._unknown_in_a_row = 0 if state is not None else self._unknown_in_a_row + 1
        if state is None and before is not None and self._unknown_in_a_row <= MAX_UNKNOWN:
            state = self._state_after(before, cut, steps)
        state_id = None
        if state is not None:
            state_id = self._ids.setdefault((state.key, types_of(state)), len(self._ids))
            if state_id in self._ambiguous:
                state = state_id = None
        self.states.append(state)
        self.state_ids.append(state_id)
        if start < 0:
            return
        key: Hashable = None
        if before is not None and state is not None:
            key = self._transition_key(before, state, cut, steps)
        self.transition_keys.append(key)
        if before is not None and state is not None and key is not None and state_id is not None:
            start_id = self.state_id(start)
            self._add_transition(Transition(start_id, state_id, before, state, steps, cut, key))

    def _add_transition(self, transition: Transition) -> None:
        """Add a transition. Its questions and answers select it among those from the same state. If another
        one has the same ones, the body depends on more than its state, so the state becomes unknown.
        """
        state_id = transition.start
        known = self.transitions.setdefault(state_id, {})
        if (transition.key, transition.end) in known:
            return
        if any(other.described == transition.described for other in known.values()):
            self._ambiguous.add(state_id)
            known.clear()
            for transitions in self.transitions.values():  # none of them ends in a known state any more
                for stale in [each for each in transitions if each[1] == state_id]:
                    del transitions[stale]
            self.state_ids = [None if each == state_id else each for each in self.state_ids]
            pairs = zip(self.states, self.state_ids, strict=True)
            self.states = [None if each is None else state for state, each in pairs]
        else:
            known[transition.key, transition.end] = transition

    def state(self, index: int) -> State:
        """The state at a look, which must be known."""
        state = self.states[index]
        assert state is not None
        return state

    def state_id(self, index: int) -> int:
        """The id of the state at a look, which must be known."""
        state_id = self.state_ids[index]
        assert state_id is not None
        return state_id

    @property
    def n_states(self) -> int:
        """The number of different states so far."""
        return len(self._ids)

    def add_state(self) -> int:
        """Return the id of a further state, which the body has not visited."""
        return self._ids.setdefault(object(), len(self._ids))

    def steps_between(self, index: int) -> list[Any]:
        """The computations and questions between a look and the next one."""
        return self.numbers.steps[self._positions[index] + 1 : self._positions[index + 1]]

    def transition_from(self, index: int) -> Transition:
        """The transition from a look to the next one, which must be known."""
        return self.transitions[self.state_id(index)][self.transition_keys[index], self.state_ids[index + 1]]

    def is_known(self, index: int) -> bool:
        """Whether there is a look after this one, and the transition between their states is known."""
        ends = self.state_ids[index : index + 2]
        return len(ends) == 2 and None not in ends and self.transition_keys[index] is not None

    def steps_since(self, index: int) -> list[Any]:
        """All steps after a look."""
        return self.numbers.steps[self._positions[index] + 1 :]

    def _state_after(self, before: State, cut: Cut, steps: list[Any]) -> State | None:
        """A state for a look whose own one is unknown: the state before it, and all results since."""
        try:
            key = "after", before.key, types_of(before), transition_key(before, None, cut, steps, self)
        except Unresolved:
            return None
        arrays = dict.fromkeys((*before.arrays, *cut.results))
        computed = (step for step in steps if isinstance(step, Computed))
        numbers = dict.fromkeys((*before.numbers, *computed, cut.source))
        return State(key, tuple(arrays), tuple(numbers))

    def _transition_key(self, before: State, after: State, cut: Cut, steps: list[Any]) -> Hashable:
        try:
            return transition_key(before, after, cut, steps, self)
        except Unresolved:
            return None


def types_of(state: State) -> tuple[ArrayType, ...]:
    """Return the types of a state's arrays."""
    return tuple(storage.type for storage in state.arrays)


def transition_key(
    before: State, after: State | None, cut: Cut, steps: list[Any], graph: StateGraph
) -> Hashable:
    """Return a key that is equal for transitions from one state with the same segment, computations,
    questions, answers, and origins of the values in the state where they end.

    Raises Unresolved if a transition uses a value that is neither in the state where it starts nor older than
    all looks.
    """
    names: dict[Any, Hashable] = {storage: ("state", k) for k, storage in enumerate(before.arrays)}
    names |= {source: ("number", k) for k, source in enumerate(before.numbers)}

    def name(operand: Any) -> Hashable:
        if operand in names:
            return names[operand]
        if isinstance(operand, Computed | Source) or operand in graph.produced:
            raise Unresolved
        return operand

    def name_of_number(operand: Any) -> Hashable:
        is_literal = operand is None or isinstance(operand, bool | int | float | np.generic)
        return (type(operand), repr(operand)) if is_literal else name(operand)

    def name_of_input(origin: InputOrigin) -> Hashable:
        """The origin of an input of the segment: an extent of a storage, or a number."""
        if not isinstance(origin, RuntimeNumber):
            return name(origin.storage), origin.lo, origin.hi
        source = origin.source
        if not hasattr(source, "stream"):
            return name_of_number(source)
        position = source.stream - cut.draws.start
        return type(source), position, cut.totals[position][0], *map(name_of_number, source[1:])

    described: list[Hashable] = []  # each step, and the answer to it if it is a question
    for step in steps:
        description = type(step), step.operation, *map(name_of_number, step.operands)
        is_question = isinstance(step, Question)
        described.append((description, (type(step.value), repr(step.value)) if is_question else None))
        if not is_question:
            names[step] = "computed", len(described)
    inputs = [name_of_input(origin) for origin in cut.origins]
    inputs += [(total.fixed, name_of_number(total.further)) for _stream, total in cut.totals]
    names |= {storage: ("result", k) for k, storage in enumerate(cut.results)} | {cut.source: "looked at"}
    ends = () if after is None else (*map(name, after.arrays), *map(name, after.numbers))
    return cut.segment, tuple(described), tuple(inputs), ends
