"""Native loops under construction: the parts that are independent of how an iteration selects its transition.

The graph of a native loop is a `loop` whose operands are the slots that iterations change, and everything
else that they use. `LoopBuilder` creates the operands, and copies the segments of transitions into the body.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any, NamedTuple

import numpy as np

from tracejit import ops
from tracejit.config import config
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
from tracejit.frontend.recording.draws import DrawCounter, DrawKey
from tracejit.frontend.recording.look_loops.state_graph import Transition
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
from tracejit.passes.rolling.wiring import check_rollable

MAX_SELECTED = 1024
"""The largest number of elements of an array that an iteration selects as a whole. Selecting more takes
longer than a launch for each iteration.
"""

UNSIGNED = np.dtype("uint64")

ROUNDED_TO = np.dtype("float32"), np.dtype("float64")
"""The dtypes to which the graph converts integers as Python and NumPy do."""

MAX_ITERATIONS = 1 << 20
"""The largest number of iterations of a launch that draws random numbers, which are reserved before it, and
of the naive engine, which answers an interrupt between launches.
"""

EXPECTED = 64
"""The number of iterations that estimates of costs assume."""


class NativeLoop(NamedTuple):
    """Iterations as one launch.

    segment:     the graph and its schedule. Its outputs are the position in `states` of the state after the
                 last iteration, if there are several, then the counters of the random streams, then the slots
                 that iterations change, numbers first.
    inputs:      what the graph's inputs stand for: an iteration limit, the transition of the first iteration
                 if there are several, storages and sources of the state before `head`, and bound inputs.
    integers:    sources of integers, which must be exact in the graph.
    transitions: the transitions that iterations perform.
    head:        one from the state where the first iteration starts.
    slots:       the loop-carried variables.
    states:      ids of the states in which the iterations may end.
    outputs:     by slot, the number of its output.
    branches:    whether an iteration without a transition ends the loop and changes nothing. If not, the
                 first iteration performs a transition without a check (see `starting_with`).
    draws:       the random streams that iterations draw from, and the largest number of draws of a launch.
    """

    segment: Segment
    inputs: tuple[Any, ...]
    integers: tuple[Any, ...]
    transitions: tuple[Transition, ...]
    head: Transition
    slots: Slots
    states: tuple[int, ...]
    outputs: dict[int, int]
    branches: bool
    draws: tuple[tuple[Any, int], ...] = ()

    def starting_with(self, transition: Transition) -> NativeLoop:
        """Return the same loop with this transition as its first iteration."""
        if len(self.transitions) == 1:
            return self
        return self._replace(inputs=(self.inputs[0], self.transitions.index(transition), *self.inputs[2:]))


class BodyTransition:
    """A transition under construction.

    start, end: ids of the states where it starts and ends.
    descriptions: of its steps; equal ones compute, or ask, the same.
    before: the slots of the storages and sources in the state where it starts.
    after:  the storages and sources in the state where it ends, by slot.
    graph:  that of its segment.
    """

    def __init__(self, transition: Transition, slots: Slots) -> None:
        self.transition = transition
        self.cut: Cut = transition.cut
        self.graph = self.cut.segment.graph
        self.start, self.end = transition.start, transition.end
        self.steps = transition.steps
        self.descriptions = tuple(description for description, _answer in transition.described)
        before = slots.region.values(self.start, transition.before)
        after = slots.region.values(self.end, transition.after)
        self.before = {value: slots.slot_of[variable] for variable, value in before.items()}
        self.after = {slots.slot_of[variable]: value for variable, value in after.items()}


class LoopBuilder:
    """A loop under construction: the outer graph, and the loop's body.

    values:    the values in the body of the slots that iterations change.
    invariant: the values in the body of what iterations do not change.
    body:      the builder of the part of the body that is built now; `root` is that of the entire body.
    draws:     the random streams, and the largest number of draws of an iteration from each.
    counters:  the values in the body of the streams' counters when an iteration starts.
    most:      the largest number of iterations of a launch. One that ends there, in another state than that
               in which native iterations start, continues in Python until it reaches that state.

    A subclass has a method `loop`, and defines `ITERATIONS`, the largest number of iterations of any launch,
    and `MAY_DRAW`, whether iterations may draw random numbers.
    """

    ITERATIONS: int
    MAY_DRAW = False

    def __init__(
        self, region: LoopRegion, transitions: Sequence[Transition], head: Transition, body: Builder
    ) -> None:
        self.first = head
        self.slots = Slots(region, transitions, head.start)
        before = region.values(head.start, head.before)
        self.head = {self.slots.slot_of[variable]: value for variable, value in before.items()}
        self.transitions = [BodyTransition(each, self.slots) for each in transitions]
        ids = [head.start, *(each.end for each in self.transitions)]
        self.states = list(dict.fromkeys([*ids, *(each.start for each in self.transitions)]))
        self.draws: dict[Any, int] = {}
        self.counters: dict[Any, Value] = {}
        nodes = []
        for transition in self.transitions:
            self._note_draws(transition.cut)
            nodes += [node for node in transition.cut.segment.graph.nodes if node.op is not ops.constant]
        if any(node.op is loop and graph_can_fail(node.attrs["body"]) for node in nodes):
            raise Unsupported("an index may be out of range in a loop of an iteration")
        check_rollable(nodes)
        check_size(nodes)
        self.device: Device = self.transitions[0].cut.results[0].type.device
        self.outer, self.root, self.body = Builder(), body, body
        self.numbers = LoopNumbers(self.body, self.device)
        self.count = self.outer.input(COUNT)
        is_limited = bool(self.draws) or config.engine == "naive"
        self.most = min(self.ITERATIONS, MAX_ITERATIONS) if is_limited else self.ITERATIONS
        self.inputs: list[Any] = [self.most]
        self.integers: list[Any] = []
        self.operands: list[Value] = []
        self.moves: list[tuple[int, int]] = []
        self.invariant: dict[Any, Value] = {}
        self.values: dict[int, Value] = {}

    def _note_draws(self, cut: Cut) -> None:
        for stream, total in cut.totals:
            if not self.MAY_DRAW or total.further is not None:
                raise Unsupported("an iteration draws random numbers")
            self.draws[stream] = max(total.fixed, self.draws.get(stream, 0))

    def _outer_graph(self, targets: Sequence[Value], ends: Sequence[Value], n_outputs: int) -> Graph:
        """Return the graph that contains a loop whose body stores these ends in its targets. The last one
        ends the loop. The outputs are the first `n_outputs` targets.
        """
        effects, used = [], set(self.body.inputs)
        for target, value in zip(targets, ends, strict=True):
            stored = self.body.emit(ops.copy, value) if value in used else value
            used.add(stored)
            effects.append(Effect(target, stored))
        finals = self.outer.emit(
            loop,
            self.count,
            *self.operands,
            body=self.body.graph([], effects),
            moves=tuple(self.moves),
            rounds=EXPECTED,
            until=len(effects) - 1,
        )
        return self.outer.graph(finals[:n_outputs])

    def _finished(self, trace: Trace, graph: Graph, *, branches: bool) -> NativeLoop:
        """Return the loop with a graph, whose outputs are the state if there are several, and the slots."""
        segment = trace.looks.segments.find(("iterations", structure(graph)), graph)
        first = int(len(self.states) > 1) + len(self.counters)
        return NativeLoop(
            segment,
            tuple(self.inputs),
            tuple(self.integers),
            tuple(each.transition for each in self.transitions),
            self.first,
            self.slots,
            tuple(self.states),
            {slot: first + number for number, slot in enumerate(self.values)},
            branches,
            tuple((stream, most * self.most) for stream, most in self.draws.items()),
        )

    # -- slots -----------------------------------------------------------------------------------------------

    def _add_slots(self, carried: Set[int]) -> None:
        """Create the values of the slots that an iteration passes on to the next one, numbers first."""
        for slot, variables in enumerate(self.slots.slots):
            if slot in carried and not variables[0].is_array:
                self.values[slot] = self._start_of_number(slot)
        for slot, variables in enumerate(self.slots.slots):
            if slot in carried and variables[0].is_array:
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

    # -- transitions -----------------------------------------------------------------------------------------

    def _values_before(self, transition: BodyTransition, slots: dict[int, Value]) -> dict[Any, Value]:
        """Return the storages and sources in the state where a transition starts that iterations change."""
        return {each: slots[slot] for each, slot in transition.before.items() if slot in slots}

    def _values_after(
        self, transition: BodyTransition, values: dict[Any, Value], results: Sequence[Value]
    ) -> dict[int, Value]:
        """Return what a transition stores in the slots, given the results of its segment."""
        cut, stored = transition.cut, dict[int, Value]()
        values = values | dict(zip(cut.results, results, strict=True))
        values[cut.source] = self._looked_at(results[0])
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
            stored[slot] = value
        return stored

    # -- operands --------------------------------------------------------------------------------------------

    def _input(self, type: ArrayType, stands_for: Any) -> Value:
        """Add an input of the outer graph."""
        self.inputs.append(stands_for)
        return self.outer.input(type)

    def _operand(self, value: Value, step: int = 0) -> Value:
        """Return an input of the body for a value of the outer graph. A number grows by `step` in each
        iteration.
        """
        self.operands.append(value)
        self.moves.append((0, step))
        return self.root.input(value.type)

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

    def _invariant_number(self, transition: BodyTransition, number: Any) -> Value:
        """Return an input of the body for a number that no iteration changes."""
        source = self._at_head(transition, number)
        if source not in self.invariant:
            self.invariant[source] = self._number(source)
        return self.invariant[source]

    def _at_head(self, transition: BodyTransition, value: Any) -> Any:
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

    def _segment_inputs(self, transition: BodyTransition, values: dict[Any, Value]) -> dict[Value, Value]:
        """Return the values of the body for the inputs of a transition's segment."""
        cut = transition.cut
        return {
            value: self._bound(transition, value, origin, values)
            for value, origin in zip(cut.segment.graph.inputs, cut.origins, strict=True)
        }

    def _bound(
        self, transition: BodyTransition, value: Value, origin: InputOrigin, values: dict[Any, Value]
    ) -> Value:
        """Return the value of the body for an input of a segment."""
        if isinstance(origin, StorageRange):
            if origin.storage in values:
                return self._shaped(values[origin.storage], value.type)
            storage = self._at_head(transition, origin.storage)
            return self._invariant(value.type, StorageRange(storage, origin.lo, origin.hi))
        dtype = value.type.dtype
        if isinstance(origin.source, DrawKey | DrawCounter):
            return self._drawn(transition.cut, origin)
        if origin.source not in values:
            source = self._at_head(transition, origin.source)
            return self._invariant(value.type, RuntimeNumber(origin.value, source))
        number = self.numbers.array(values[origin.source])
        if dtype == number.type.dtype:
            return number
        is_rounded = number.type.dtype == INTEGER and dtype in ROUNDED_TO
        if number.type.dtype == TRUTH or (
            not is_rounded and (dtype.kind in "iu") != (number.type.dtype == INTEGER)
        ):
            raise Unsupported(f"a number that iterations change becomes a {dtype}")
        converted: Value = self.body.emit(ops.astype, number, dtype=dtype)  # the body asks whether it fits
        return converted

    def _drawn(self, cut: Cut, origin: RuntimeNumber) -> Value:
        """Return the key of a random stream, or its counter."""
        source = origin.source
        stream, _ = cut.totals[source.stream - cut.draws.start]
        if isinstance(source, DrawKey):
            key = DrawKey(list(self.draws).index(stream))
            return self._invariant(ArrayType((), UNSIGNED, HOST), RuntimeNumber(origin.value, key))
        return self._advanced(stream, source.fixed)

    def _advanced(self, stream: Any, count: int) -> Value:
        """Return the counter of a random stream after an iteration has drawn `count` numbers."""
        drawn = self.body.emit(ops.constant, **constant_of(count, UNSIGNED))
        counter: Value = self.body.emit(ops.add, self.counters[stream], drawn)
        return counter

    def _add_counters(self) -> None:
        """Create the counters of the random streams."""
        for number, stream in enumerate(self.draws):
            start = RuntimeNumber(0, DrawCounter(number, 0))
            counter = self._filled(self._input(ArrayType((), UNSIGNED, HOST), start))
            self.counters[stream] = self._operand(counter)

    def _node(self, node: Node, inputs: list[Value]) -> Sequence[Value]:
        """Copy a node of a segment. Numbers that iterations change are arrays without dimensions here."""
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
