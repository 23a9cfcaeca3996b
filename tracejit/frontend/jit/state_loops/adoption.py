"""Transitions that other paths of the function have recorded.

    while i < n:                 transitions a, b and c from this look to itself
        if x[i] > 0: ...         a
        elif y[i] > 0: ...       b
        else: ...                c

A call of which a transition is not known is recorded, and its own path contains the transitions that it
performs: a and c, say. If paths knew only these, a call that performs a, b and c would be recorded although
other paths know b. So a new path adopts the transitions of other paths between the states of its loops: the
number of recorded calls is limited by the number of transitions, not by that of their combinations.

Each trace has storages and numbers of its own. To be adopted, states and transitions are described in terms
of meanings (`signature.meanings`): the storage of the first argument, the global `scale`. A state that refers
to anything else, such as an object without a name, is not adopted. A transition depends on what its own call
has checked before its first look, too; the path that adopts it checks the same (`signature.conditions`).
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tracejit.frontend.jit.state_loops.regions import VARYING, StateVariable, reachable
from tracejit.frontend.python.identity import Identity
from tracejit.frontend.python.interned import Interned, interned
from tracejit.frontend.recording.draws import DrawCounter, DrawKey, Total
from tracejit.frontend.recording.look_loops.state_graph import Transition, types_of
from tracejit.frontend.recording.look_loops.states import BY_IDENTITY, Local, State
from tracejit.frontend.recording.origins import InputOrigin, RuntimeNumber, StorageRange
from tracejit.frontend.recording.segments import Cut, Segment
from tracejit.frontend.recording.sources import Computed, Source
from tracejit.frontend.recording.storage import Storage
from tracejit.frontend.signature.arguments import Arguments
from tracejit.frontend.signature.conditions import Conditions
from tracejit.frontend.signature.expressions import Expr
from tracejit.frontend.signature.meanings import Meanings
from tracejit.frontend.signature.program import Bind, ProgramStep, ReplayProgram
from tracejit.ir.types import ArrayType


class NotPortable(Exception):
    """A state or transition refers to something that other traces cannot refer to."""


class FromOutside(NamedTuple):
    """A storage or number that is older than all looks."""

    meaning: Hashable


LITERALS = (bool, int, float, np.generic, type(None))

NumberSample = tuple[Any, str]
"""The value of a number in the call that was recorded, and its path in messages."""


@dataclass(eq=False, repr=False)
class KnownTransition:
    """A transition, independent of its trace.

    start, end:      the keys of the states where it starts and ends.
    arrays, numbers: the types of the arrays, and the numbers, of the state where it starts.
    steps:           the computations (`Computed`) and questions (`Question`): class, operation, operands, and
                     value in the call that was recorded. An operand is a literal, `FromOutside`, or a name of
                     `state_graph.transition_key`.
    segment:         the segment that it launches.
    inputs:          what the segment's inputs stand for: a name or `FromOutside`, and the first and last
                     element of a storage or the value of a number; `DrawKey` and `DrawCounter` of random
                     streams.
    totals:          the random streams that it draws from, and the total of each.
    looked_at:       the number looked at.
    n_arrays:        the number of arrays of the state where it ends.
    ends:            the names of these arrays, and of the numbers.
    described:       the keys of the steps, and the answers to questions.
    outside:         the meanings of all `FromOutside` parts.
    """

    start: Interned
    end: Interned
    arrays: tuple[ArrayType, ...]
    numbers: tuple[NumberSample, ...]
    steps: tuple[tuple[Any, Any, tuple[Any, ...], Any], ...]
    segment: Segment
    inputs: tuple[tuple[Any, Any], ...]
    totals: tuple[tuple[Any, Total], ...]
    looked_at: NumberSample
    n_arrays: int
    ends: tuple[Any, ...]
    described: tuple[Any, ...]
    outside: tuple[Hashable, ...]


class KnownTransitions:
    """The transitions of a path by their keys, and the conditions under which they are right."""

    __slots__ = ("__weakref__", "by_key", "conditions")

    def __init__(self, by_key: Mapping[Interned, KnownTransition], conditions: Conditions) -> None:
        self.by_key, self.conditions = by_key, conditions


@dataclass(eq=False, repr=False)
class AdoptedTransition:
    """A known transition as part of another path.

    start, end: the ids of its states in that path.
    n_arrays, ends: as of a `Transition`.
    outside:    the storages and expressions that `FromOutside` operands stand for.
    first_draw: the position of its first random stream in the call.
    """

    known: KnownTransition
    start: int
    end: int
    n_arrays: int
    ends: tuple[Any, ...]
    outside: Mapping[Hashable, Any]
    first_draw: int

    def transition(self, values: Mapping[StateVariable, Any]) -> Transition:
        """Return the transition with storages and numbers of its own, except for variables that have the same
        value whenever the body is in the state where it starts.
        """
        known = self.known

        arrays: list[Any] = [values[StateVariable(self.start, True, k)] for k in range(len(known.arrays))]
        arrays = [
            Storage(kind) if each is VARYING else each
            for each, kind in zip(arrays, known.arrays, strict=True)
        ]
        numbers: list[Any] = [values[StateVariable(self.start, False, k)] for k in range(len(known.numbers))]
        numbers = [
            Source(path, value) if each is VARYING else each
            for each, (value, path) in zip(numbers, known.numbers, strict=True)
        ]
        named: dict[Any, Any] = {("state", k): each for k, each in enumerate(arrays)}
        named |= {("number", k): each for k, each in enumerate(numbers)}

        def operand(name: Any) -> Any:
            if isinstance(name, FromOutside):
                return self.outside[name.meaning]
            return named[name] if isinstance(name, tuple | str) else name

        steps = []
        for number, (kind, operation, operands, result) in enumerate(known.steps, 1):
            steps.append(kind(operation, tuple(map(operand, operands)), result))
            named["computed", number] = steps[-1]
        origins = tuple(self._origin(name, what, operand) for name, what in known.inputs)
        draws = range(self.first_draw, self.first_draw + len(known.totals))
        totals = tuple((stream, Total(fixed, operand(more))) for stream, (fixed, more) in known.totals)
        results = tuple([Storage(output.type) for output in known.segment.graph.outputs])
        looked_at = Source(known.looked_at[1], known.looked_at[0])
        named |= {("result", k): storage for k, storage in enumerate(results)} | {"looked at": looked_at}
        ends = [operand(name) for name in known.ends]
        return Transition(
            self.start,
            self.end,
            State((), tuple(arrays), tuple(numbers)),
            State((), tuple(ends[: self.n_arrays]), tuple(ends[self.n_arrays :])),
            steps,
            Cut(known.segment, looked_at, origins, results, draws, totals),
            (known.segment, self._local(known.described), (), self.ends),
        )

    def _local(self, part: Any) -> Any:
        """Return a part of a key with the expressions of this path instead of their meanings."""
        if type(part) is tuple:
            return tuple(map(self._local, part))
        return self.outside.get(part, part)

    def _origin(self, name: Any, what: Any, operand: Callable[[Any], Any]) -> InputOrigin:
        """Return the origin of an input of the segment."""
        if isinstance(name, DrawKey):
            return RuntimeNumber(what, DrawKey(self.first_draw + name.stream))
        if isinstance(name, DrawCounter):
            source = DrawCounter(self.first_draw + name.stream, name.fixed, operand(name.further))
            return RuntimeNumber(what, source)
        return (
            StorageRange(operand(name), *what)
            if isinstance(what, tuple)
            else RuntimeNumber(what, operand(name))
        )


class Adoption:
    """The transitions of a recorded call in terms of meanings, and those that it adopts.

    holds:      whether the recorded call passes the checks of a program.
    state_keys: by state id: the key of a state, which equal states of all paths share.
    by_key:     the transitions that can be adopted from this path.
    """

    def __init__(self, arguments: Arguments, holds: Callable[[ReplayProgram], bool]) -> None:
        self.trace, self.program, self.holds = arguments.trace, arguments.program, holds
        self.graph = self.trace.looks.state_graph
        self._meanings = Meanings.of(self.program)
        self._outside: dict[Hashable, Any] = {}
        self._note_variables(self.program.steps)
        binds = [step for step in self.program.steps if isinstance(step, Bind)]
        self._objects = {id(bind.var.value): self._meanings[bind.var] for bind in binds}
        self._storages: dict[Storage, Hashable] = {}
        for storage, (var, offset) in arguments.arrays.items():
            meaning = self._meanings[var], None if offset is None else self._meanings[offset]
            self._storages[storage] = meaning
            self._outside[meaning] = storage
        self.state_keys: dict[int, Interned] = {}
        self._ids: dict[Interned, int] = {}
        for state_id, state in zip(self.graph.state_ids, self.graph.states, strict=True):
            if state_id is not None and state is not None and state_id not in self.state_keys:
                self._add_state(state_id, state)
        self._own: set[Hashable] = set()  # keys of transitions that other paths cannot have
        self.by_key: dict[Interned, KnownTransition] = {}
        for transitions in self.graph.transitions.values():
            for each in transitions.values():
                try:
                    key, known = self._known(each)
                except NotPortable:
                    self._own.add(Identity(object()))
                else:
                    self.by_key[key] = known

    def known_transitions(self, conditions: Conditions) -> KnownTransitions:
        """Return the transitions that other paths can adopt from this one."""
        return KnownTransitions(self.by_key, conditions)

    def adopt(self) -> list[AdoptedTransition]:
        """Adopt the transitions of other paths that lie between states of this one."""
        found: dict[Interned, tuple[KnownTransition, KnownTransitions]] = {}
        for path in self.trace.looks.segments.recent_paths():
            outside = self._outside.keys() | path.conditions.bound
            for key, known in path.by_key.items():
                if key not in self.by_key and key not in found and outside.issuperset(known.outside):
                    found[key] = known, path
        edges = [
            (each.start, each.end)
            for each in (*self.by_key.values(), *(known for known, _ in found.values()))
        ]
        after = reachable(self._ids, edges)
        before = reachable(self._ids, [(b, a) for a, b in edges])
        holds: dict[KnownTransitions, bool] = {}
        adopted, first_draw = [], len(self.trace.draws.totals)
        for key, (known, path) in found.items():
            if known.start not in after or known.end not in before or not self._fits(known):
                continue
            if path not in holds:
                needed = {meaning for each in path.by_key.values() for meaning in each.outside}
                holds[path] = self._require(path.conditions, needed)
            if holds[path]:
                self.by_key[key] = known
                ids = self._id_of(known.start), self._id_of(known.end)
                outside = {key: self._outside[key] for key in known.outside}
                ends = tuple(
                    self._outside[e.meaning] if isinstance(e, FromOutside) else e for e in known.ends
                )
                adopted.append(AdoptedTransition(known, *ids, known.n_arrays, ends, outside, first_draw))
                first_draw += len(known.totals)
        return adopted

    @property
    def transitions(self) -> frozenset[Hashable]:
        """Keys of the transitions that this path knows."""
        return frozenset((*self.by_key, *self._own))

    def _require(self, conditions: Conditions, needed: Set[Hashable]) -> bool:
        """Require the conditions of another path, if the recorded call meets them, and bind variables with
        the meanings `needed`. Return whether it does.
        """
        missing = conditions.missing(self.program, needed)
        if missing is None:
            return False
        if missing and not self.holds(ReplayProgram([*self.program.steps, *missing])):
            return False
        self.program.steps += missing
        self._note_variables(missing)
        return True

    def _note_variables(self, steps: Sequence[ProgramStep]) -> None:
        """Note the meanings of the variables that steps bind."""
        for step in steps:
            self._meanings.add(step)
            if isinstance(step, Bind):
                self._outside[self._meanings[step.var]] = step.var

    def _fits(self, known: KnownTransition) -> bool:
        """Whether a question has another answer in each transition that starts in the same state, after equal
        steps.
        """
        for other in self.by_key.values():
            if other.start is known.start:
                pairs = zip(other.described, known.described, strict=False)
                mine, right = next(((a, b) for a, b in pairs if a != b), ((None, None), (None, None)))
                if mine[0] is None or mine[0] != right[0] or None in (mine[1], right[1]):
                    return False
        return True

    # -- states and transitions in terms of meanings ---------------------------------------------------------

    def _add_state(self, state_id: int, state: State) -> None:
        try:
            key = interned("state", self._portable(state.key), types_of(state))
        except NotPortable:
            key = interned("state", Identity(object()))  # which no other path has
        else:
            self._ids[key] = state_id
        self.state_keys[state_id] = key

    def _id_of(self, key: Interned) -> int:
        """Return the id of a state in this path."""
        state_id = self._ids.get(key)
        if state_id is None:
            state_id = self._ids[key] = self.graph.add_state()
            self.state_keys[state_id] = key
        return state_id

    def _known(self, transition: Transition) -> tuple[Interned, KnownTransition]:
        """Return a transition in terms of meanings, and its key."""
        cut, before = transition.cut, transition.before
        start, end = self.state_keys[transition.start], self.state_keys[transition.end]
        if start not in self._ids or end not in self._ids:
            raise NotPortable
        outside: dict[Hashable, None] = {}
        names: dict[Any, Any] = {storage: ("state", k) for k, storage in enumerate(before.arrays)}
        names |= {source: ("number", k) for k, source in enumerate(before.numbers)}

        def name(value: Any) -> Any:
            if isinstance(value, Storage | Computed | Source) and value in names:
                return names[value]
            if isinstance(value, Storage | Expr):
                meaning = self._portable(value)
                outside[meaning] = None
                return FromOutside(meaning)
            if not isinstance(value, LITERALS):
                raise NotPortable
            return value

        steps = []
        for number, step in enumerate(transition.steps, 1):
            steps.append((type(step), step.operation, tuple(map(name, step.operands)), step.value))
            names[step] = "computed", number

        def input_of(origin: InputOrigin) -> tuple[Any, Any]:
            if isinstance(origin, StorageRange):
                return name(origin.storage), (origin.lo, origin.hi)
            source = origin.source
            if isinstance(source, DrawKey):
                source = DrawKey(source.stream - cut.draws.start)
            elif isinstance(source, DrawCounter):
                source = DrawCounter(source.stream - cut.draws.start, source.fixed, name(source.further))
            else:
                source = name(source)
            return source, origin.value

        inputs = [input_of(origin) for origin in cut.origins]
        totals = [(stream, Total(total.fixed, name(total.further))) for stream, total in cut.totals]
        names |= {storage: ("result", k) for k, storage in enumerate(cut.results)} | {cut.source: "looked at"}
        described = self._portable(transition.described)
        known = KnownTransition(
            start,
            end,
            types_of(before),
            tuple((source.value, source.path) for source in before.numbers),
            tuple(steps),
            cut.segment,
            tuple(inputs),
            tuple(totals),
            (cut.source.value, cut.source.path),
            len(transition.after.arrays),
            tuple(name(value) for value in (*transition.after.arrays, *transition.after.numbers)),
            described,
            tuple(outside),
        )
        return interned("transition", start, self._portable(transition.key), end), known

    def _portable(self, part: Any) -> Any:
        """Return a part of a key in terms of meanings."""
        if isinstance(part, Local):
            raise NotPortable
        if isinstance(part, Identity):
            return self._identity(part.value)
        if isinstance(part, tuple):
            return tuple(map(self._portable, part))
        if isinstance(part, Storage):
            if part not in self._storages:
                raise NotPortable
            return self._storages[part]
        if isinstance(part, Expr):
            return self._meanings[part]
        return part

    def _identity(self, value: Any) -> Hashable:
        """Return the meaning of an object, or its identity if it is the same in all calls."""
        if isinstance(value, Expr):
            return self._meanings[value]
        if id(value) in self._objects:
            return self._objects[id(value)]
        if isinstance(value, (*BY_IDENTITY, types.CodeType)) or _is_scope_of_module(value):
            return Identity(value)
        raise NotPortable


def _is_scope_of_module(value: Any) -> bool:
    """Whether an object is the dict that contains the variables of a module."""
    module = sys.modules.get(str(value.get("__name__"))) if type(value) is dict else None
    return module is not None and vars(module) is value
