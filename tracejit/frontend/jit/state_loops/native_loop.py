"""Iterations between looks as a native loop, where the graph can compute whether to continue.

A replay executes equal iterations in a Python loop (`loop_steps`): it evaluates the body's questions,
launches a segment, and waits for the number that is looked at. If the questions are comparisons, and numbers
are computed only in ways that the graph supports (`native_numbers`), the graph evaluates the questions
itself. One launch then runs many iterations, up to the one after which an answer differs:

    while True:
        if not (err > tol): break            evaluated in Python once, before the launch
        x, err = launch(x, err, tol)         iterates while err > tol, at most `ITERATIONS` times

Iterations may have branches and look at several values: there are several *transitions* between the states of
the body, with different answers. A native iteration performs one of them: it computes all, and selects the
results of that one (if-conversion). Python's checks select the transition of the first iteration. Each
iteration determines the transition of the next one, and the loop ends when there is none:

    for v in x:                              transition 0: v > 0 is true, the segment reads the next v
        if v > 0: total += v                 transition 1: v > 0 is false, ...

The Python loop around the launch evaluates the questions again, so the graph may end a loop too early. It
does where a number leaves the range in which int64 and float64 compute as Python does, or where a denominator
is zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from tracejit import ops
from tracejit.frontend.jit.state_loops.loop_slots import Slots
from tracejit.frontend.jit.state_loops.native_numbers import (
    DTYPES,
    FLOAT,
    INTEGER,
    TRUTH,
    LoopNumbers,
    Unsupported,
)
from tracejit.frontend.jit.state_loops.regions import LoopRegion
from tracejit.frontend.recording.origins import InputOrigin, RuntimeNumber, StorageRange
from tracejit.frontend.recording.segments import Cut, Segment
from tracejit.frontend.recording.trace import Trace
from tracejit.ir.graph import Builder, Effect, Graph, Node, Value, constant_of
from tracejit.ir.op import Trait
from tracejit.ir.structure import structure
from tracejit.ir.types import HOST, ArrayType, Device
from tracejit.ir.view import View
from tracejit.ops.loops import COUNT, graph_can_fail, loop
from tracejit.passes.rolling.roll import check_size
from tracejit.passes.rolling.wiring import NotRollable, check_rollable

ITERATIONS = 4096
"""The largest number of iterations of a launch."""

EXPECTED = 64
"""The number of iterations that estimates of costs assume."""

MAX_TRANSITIONS = 16
"""The largest number of transitions that an iteration computes together."""

MAX_SELECTED = 1024
"""The largest number of elements of an array that an iteration with branches selects. Selecting more takes
longer than a launch for each iteration.
"""


class NativeLoop(NamedTuple):
    """Iterations as one launch.

    segment:     the graph and its schedule. Its outputs are the position in `states` of the state after the
                 last iteration, if there are several, then the slots that iterations change, numbers first.
    inputs:      what the graph's inputs stand for: an iteration limit, the transition of the first iteration
                 if there are several, storages and sources of the state at look `head`, and bound inputs.
    integers:    sources of integers, which must be exact in the graph.
    transitions: the looks at which the transitions start.
    head:        a look in the state where the first iteration starts.
    slots:       the loop-carried variables.
    states:      ids of the states in which the iterations may end.
    outputs:     by slot, the number of its output.
    """

    segment: Segment
    inputs: tuple[Any, ...]
    integers: tuple[Any, ...]
    transitions: tuple[int, ...]
    head: int
    slots: Slots
    states: tuple[int, ...]
    outputs: dict[int, int]

    def starting_with(self, index: int) -> NativeLoop:
        """Return the same loop with the transition from look `index` as its first iteration."""
        if len(self.transitions) == 1:
            return self
        return self._replace(inputs=(self.inputs[0], self.transitions.index(index), *self.inputs[2:]))


def native_loop(trace: Trace, region: LoopRegion, transitions: Sequence[int], head: int) -> NativeLoop | str:
    """Return the native loop whose iterations perform the transitions that start at these looks, or the
    reason why there is none. The first iteration starts in the state at look `head`.
    """
    try:
        builder = _LoopBuilder(trace, region, transitions, head)
        graph = builder.graph()
    except (Unsupported, NotRollable) as error:
        return str(error)
    segment = trace.looks.segments.find(("iterations", structure(graph)), graph)
    return NativeLoop(
        segment,
        tuple(builder.inputs),
        tuple(builder.integers),
        tuple(transitions),
        head,
        builder.slots,
        tuple(builder.states),
        builder.outputs,
    )


class _Transition:
    """A transition under construction: its cut, its states, and what it computes and asks.

    start, end: ids of the states where it starts and ends.
    before: the slots of the storages and sources in the state where it starts.
    after:  the storages and sources in the state where it ends, by slot.
    taken:  whether an iteration performs it; None: there is no other transition.
    ends:   the values that it stores in slots.
    """

    def __init__(self, trace: Trace, index: int, slots: Slots) -> None:
        graph = trace.looks.state_graph
        self.index = index
        self.cut: Cut = trace.looks.cuts[index + 1]
        self.start, self.end = graph.state_id(index), graph.state_id(index + 1)
        self.steps = graph.steps_between(index)
        self.before = {value: slots.slot_of[v] for v, value in slots.values_at(index).items()}
        self.after = {slots.slot_of[v]: value for v, value in slots.values_at(index + 1).items()}
        self.taken: Value | None = None
        self.ends: dict[int, Value] = {}


class _LoopBuilder:
    """A loop under construction: the outer graph, and the loop's body.

    values:    the values in the body of the slots that iterations change.
    invariant: the values in the body of what iterations do not change.
    outputs:   by slot, the number of its output.
    """

    def __init__(self, trace: Trace, region: LoopRegion, transitions: Sequence[int], head: int) -> None:
        if len(transitions) > MAX_TRANSITIONS:
            raise Unsupported(f"iterations have more than {MAX_TRANSITIONS} branches")
        graph = trace.looks.state_graph
        self.slots = Slots(graph, region, transitions, graph.state_id(head))
        self.head = {self.slots.slot_of[v]: value for v, value in self.slots.values_at(head).items()}
        self.transitions = [_Transition(trace, index, self.slots) for index in transitions]
        self.states = list(dict.fromkeys([graph.state_id(head), *(each.end for each in self.transitions)]))
        nodes = []
        for transition in self.transitions:
            if transition.cut.draws:
                raise Unsupported("an iteration draws random numbers")
            nodes += [node for node in transition.cut.segment.graph.nodes if node.op is not ops.constant]
        if any(node.op is loop and graph_can_fail(node.attrs["body"]) for node in nodes):
            raise Unsupported("an index may be out of range in a loop of an iteration")
        check_rollable(nodes)
        check_size(nodes)
        self.device: Device = self.transitions[0].cut.results[0].type.device
        self.outer, self.body = Builder(), Builder()
        self.numbers = LoopNumbers(self.body, self.device)
        self.count = self.outer.input(COUNT)
        self.inputs: list[Any] = [ITERATIONS]
        self.integers: list[Any] = []
        self.operands: list[Value] = []
        self.invariant: dict[Any, Value] = {}
        self.values: dict[int, Value] = {}
        self.outputs: dict[int, int] = {}

    def graph(self) -> Graph:
        """Build the graph that contains the loop."""
        which = self._operand(self._filled(self._input(COUNT, 0))) if len(self.transitions) > 1 else None
        self._add_slots()
        for number, transition in enumerate(self.transitions):
            if which is not None:
                transition.taken = self.body.emit(ops.equal, which, self.numbers.literal(number))
            self._perform(transition)
        ends = {slot: self._selected(slot) for slot in self.values}
        targets = list(self.values.values())
        results = list(ends.values())
        state = None
        if len(self.states) > 1:
            state = self._end_state()
            targets.insert(0, self._operand(self._around(0)))
            results.insert(0, state)
        conditions = [self._is_next(transition, ends, state) for transition in self.transitions]
        continues = conditions[0]
        for condition in conditions[1:]:
            continues = self.body.emit(ops.logical_or, continues, condition)
        self.outputs = {slot: number + (state is not None) for number, slot in enumerate(self.values)}
        if which is not None:
            targets, results = [*targets, which], [*results, self._choice(range(len(conditions)), conditions)]
        flag = self._operand(self._around(True))
        return self._outer_graph([*targets, flag], [*results, continues])

    def _outer_graph(self, targets: Sequence[Value], ends: Sequence[Value]) -> Graph:
        """Return the graph that contains a loop whose body stores these ends in its targets. The last one
        ends the loop.
        """
        effects, used = [], set(self.body.inputs)
        for target, value in zip(targets, ends, strict=True):
            stored = self.body.emit(ops.copy, value) if value in used else value
            used.add(stored)
            effects.append(Effect(target, stored))
        body = self.body.graph([], effects)
        finals = self.outer.emit(
            loop,
            self.count,
            *self.operands,
            body=body,
            moves=((0, 0),) * len(self.operands),
            rounds=EXPECTED,
            until=len(effects) - 1,
        )
        return self.outer.graph(finals[: -1 if len(self.transitions) == 1 else -2])

    # -- slots -----------------------------------------------------------------------------------------------

    def _add_slots(self) -> None:
        """Create the values of the slots that iterations change, numbers first."""
        for slot, variables in enumerate(self.slots.slots):
            if slot in self.slots.changed and not variables[0].is_array:
                self.values[slot] = self._start_of_number(slot)
        for slot, variables in enumerate(self.slots.slots):
            if slot in self.slots.changed and variables[0].is_array:
                self.values[slot] = self._start_of_array(slot)

    def _start_of_number(self, slot: int) -> Value:
        if slot in self.head:
            return self._number(self.head[slot])
        source = next(each.after[slot] for each in self.transitions if slot in each.after)
        if type(source.value) not in DTYPES:
            raise Unsupported(f"a number is a {type(source.value).__name__}")
        return self._operand(self._around(type(source.value)()))

    def _start_of_array(self, slot: int) -> Value:
        storage = self.head.get(slot)
        if storage is None:
            storage = next(each.after[slot] for each in self.transitions if slot in each.after)
        kind = storage.type
        for transition in self.transitions:
            cut = transition.cut
            for value, origin in zip(cut.segment.graph.inputs, cut.origins, strict=True):
                if isinstance(origin, StorageRange) and transition.before.get(origin.storage) == slot:
                    if (origin.lo, origin.hi) != (0, origin.storage.type.size):
                        raise Unsupported("an iteration reads a part of an array that it changes")
                    kind = value.type
        if slot in self.head:
            return self._operand(self._input(kind, storage))
        zero = self.outer.emit(ops.constant, **constant_of(0, kind.dtype))
        return self._operand(self.outer.emit(ops.full, zero, shape=kind.shape, device=kind.device))

    def _selected(self, slot: int) -> Value:
        """Return the value of a slot after the iteration: that of the transition that it performs."""
        selected: Value | None = None
        for transition in self.transitions:
            value = transition.ends.get(slot)
            if selected is None or value is None or value is selected:
                selected = selected or value
                continue
            if value.type.size > MAX_SELECTED:
                raise Unsupported("iterations have branches, and change large arrays")
            assert transition.taken is not None
            taken = self._spread(transition.taken, value.type.shape)
            selected = self.body.emit(ops.where, taken, value, selected)
        return self.values[slot] if selected is None else selected

    # -- transitions -----------------------------------------------------------------------------------------

    def _perform(self, transition: _Transition) -> None:
        """Compute what an iteration stores in the slots if it performs a transition."""
        values: dict[Any, Value] = {
            each: self.values[slot] for each, slot in transition.before.items() if slot in self.values
        }
        self.numbers.evaluate(transition.steps, values, partial(self._invariant_number, transition))
        cut = transition.cut
        values |= zip(cut.results, self._segment(transition, values), strict=True)
        values[cut.source] = self._looked_at(values[cut.results[0]])
        for slot, each in transition.after.items():
            target = self.values.get(slot)
            if target is None:  # no transition changes the slot
                continue
            value = values.get(each)
            if value is None:
                raise Unsupported("an iteration passes on a value from before the loop")
            value = self._shaped(self.numbers.array(value), target.type)
            if value.type != target.type:
                raise Unsupported("a value that an iteration passes on has another type in the next one")
            transition.ends[slot] = value

    def _is_next(self, transition: _Transition, ends: dict[int, Value], state: Value | None) -> Value:
        """Return whether the next iteration performs a transition, where slots and state are these."""
        values = {each: ends[slot] for each, slot in transition.before.items() if slot in ends}
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
        numbers = [self.states.index(each.end) for each in self.transitions]
        return self._choice(numbers, [each.taken for each in self.transitions])

    def _choice(self, numbers: Sequence[int], conditions: Sequence[Value | None]) -> Value:
        """Return the first number whose condition is true; the last one, if no other is."""
        chosen = self.numbers.array(self.numbers.literal(numbers[-1]))
        for number, condition in zip(reversed(numbers[:-1]), reversed(conditions[:-1]), strict=True):
            assert condition is not None
            chosen = self.body.emit(ops.where, condition, self.numbers.literal(number), chosen)
        return chosen

    # -- operands --------------------------------------------------------------------------------------------

    def _input(self, type: ArrayType, stands_for: Any) -> Value:
        """Add an input of the outer graph."""
        self.inputs.append(stands_for)
        return self.outer.input(type)

    def _operand(self, value: Value) -> Value:
        """Return an input of the body for a value of the outer graph."""
        self.operands.append(value)
        return self.body.input(value.type)

    def _around(self, value: Any) -> Value:
        """Return a Python number as an array without dimensions of the outer graph."""
        return self._filled(self.outer.emit(ops.constant, **constant_of(value, DTYPES[type(value)])))

    def _filled(self, number: Value) -> Value:
        return self.numbers.filled(self.outer, number)

    def _number(self, source: Any) -> Value:
        """Return an input of the body for a number: an array without dimensions."""
        kind = type(source.value)
        if kind not in DTYPES:
            raise Unsupported(f"a number is a {kind.__name__}")
        if kind is int:
            self.integers.append(source)
        return self._operand(self._filled(self._input(ArrayType((), DTYPES[kind], HOST), source)))

    def _invariant(self, type: ArrayType, origin: InputOrigin) -> Value:
        """Return an input of the body for an array, or a number of the host, that no iteration changes."""
        key = (
            type,
            *(
                (origin.storage, origin.lo, origin.hi)
                if isinstance(origin, StorageRange)
                else (origin.source,)
            ),
        )
        if key not in self.invariant:
            self.invariant[key] = self._operand(self._input(type, origin))
        return self.invariant[key]

    def _invariant_number(self, transition: _Transition, number: Any) -> Value:
        """Return an input of the body for a number that no iteration changes."""
        source = self._at_head(transition, number)
        if source not in self.invariant:
            self.invariant[source] = self._number(source)
        return self.invariant[source]

    def _at_head(self, transition: _Transition, value: Any) -> Any:
        """Return a storage or source that no iteration changes, as it is known at the head of the loop."""
        return self.head[transition.before[value]] if value in transition.before else value

    # -- arrays ----------------------------------------------------------------------------------------------

    def _looked_at(self, value: Value) -> Value:
        """Return the number that is looked at, from the first result of a segment."""
        dtype = value.type.dtype
        if dtype == TRUTH:
            kind: Any = TRUTH
        elif dtype.kind == "f":
            kind = FLOAT
        elif dtype.kind == "i" or (dtype.kind == "u" and dtype.itemsize < 8):
            kind = INTEGER
        else:
            raise Unsupported(f"a number is a {dtype}")
        value = value if value.type.shape == () else self._viewed(value, View.of_shape(()))
        return value if dtype == kind else self.body.emit(ops.astype, value, dtype=kind)

    def _viewed(self, value: Value, view: View) -> Value:
        return self.body.emit(ops.view, value, view=view)

    def _shaped(self, value: Value, type: ArrayType) -> Value:
        """Return an array in the shape of a type."""
        return value if value.type.shape == type.shape else self._viewed(value, View.of_shape(type.shape))

    def _segment(self, transition: _Transition, values: dict[Any, Value]) -> list[Value]:
        """Copy a transition's segment into the body, and return its outputs there."""
        graph, copied = transition.cut.segment.graph, dict[Value, Value]()
        for value, origin in zip(graph.inputs, transition.cut.origins, strict=True):
            copied[value] = self._bound(transition, value, origin, values)
        for node in graph.nodes:
            inputs = [copied[value] for value in node.inputs]
            outputs = self._node(transition, node, inputs)
            copied.update(zip(node.outputs, outputs, strict=True))
        return [copied[value] for value in graph.outputs]

    def _bound(
        self, transition: _Transition, value: Value, origin: InputOrigin, values: dict[Any, Value]
    ) -> Value:
        """Return the value of the body for an input of a segment."""
        if isinstance(origin, StorageRange):
            if origin.storage in values:
                return self._shaped(values[origin.storage], value.type)
            storage = self._at_head(transition, origin.storage)
            return self._invariant(value.type, StorageRange(storage, origin.lo, origin.hi))
        dtype = value.type.dtype
        if origin.source not in values:
            source = self._at_head(transition, origin.source)
            return self._invariant(value.type, RuntimeNumber(origin.value, source))
        number = self.numbers.array(values[origin.source])
        if dtype == number.type.dtype:
            return number
        if number.type.dtype == TRUTH or (dtype.kind in "iu") != (number.type.dtype == INTEGER):
            raise Unsupported(f"a number that iterations change becomes a {dtype}")
        converted: Value = self.body.emit(ops.astype, number, dtype=dtype)  # the body asks whether it fits
        return converted

    def _node(self, transition: _Transition, node: Node, inputs: list[Value]) -> Sequence[Value]:
        """Copy a node of a segment. Numbers that iterations change are arrays without dimensions here."""
        if node.op is ops.check_index and transition.taken is not None:
            taken = self._spread(transition.taken, inputs[0].type.shape)
            inputs = [self.body.emit(ops.where, taken, inputs[0], self.numbers.literal(0))]
        pairs = list(zip(node.inputs, inputs, strict=True))
        if not any(old.type.on_host and not value.type.on_host for old, value in pairs):
            return self.body.copy(node, inputs)
        shape = next((old.type.shape for old in node.inputs if not old.type.on_host), ())
        if node.op is ops.full:
            return [self._spread(inputs[0], node.output.type.shape)]
        if Trait.ELEMENTWISE not in node.op.traits:
            raise Unsupported(f"{node.op.name} takes a number that iterations change")
        spread = [
            self._spread(value, shape) if old.type.on_host and not value.type.on_host else value
            for old, value in pairs
        ]
        return self.body.copy(node, spread)

    def _spread(self, number: Value, shape: tuple[int, ...]) -> Value:
        """Broadcast a number to a shape."""
        return self._viewed(number, View.of_shape(()).broadcast(shape)) if shape else number
