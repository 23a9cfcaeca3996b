"""Rounds between looks as a native loop, where the graph can compute whether to go on.

A replay repeats equal rounds in a loop of Python's (`jit.look_steps`): it asks the body's questions, launches
a segment, waits for the number that is looked at. Where the questions are comparisons, and numbers are only
computed as the graph can, too (`exit_numbers`), the graph asks them itself. Then the launch runs many rounds,
up to the one after which an answer is another one:

    while True:
        if not (err > tol): break            asked in Python once, before the launch
        x, err = launch(x, err, tol)         loop until not (err > tol), at most `ROUNDS` rounds

Rounds may have branches and look at several values: there are several *ways* between the states of the body,
with different answers. A native round goes one of them: it computes all, and selects the results of that one
(if-conversion). Python's checks say which way the first round goes; each round finds the way of the next one,
and the loop ends when there is none:

    for v in x:                              way 0: v > 0 is true, the segment reads the next v
        if v > 0: total += v                 way 1: v > 0 is false, ...

Python's loop stays around it and asks again, so the graph may end a loop too early: where a number leaves
what int64 and float64 compute as Python does, or a denominator is zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from tracejit import ops
from tracejit.frontend.jit.carried import Slots
from tracejit.frontend.jit.exit_numbers import DTYPES, FLOAT, INTEGER, TRUTH, RoundNumbers, Unfit
from tracejit.frontend.jit.loop_regions import LoopRegion
from tracejit.frontend.recording.origins import Bound, Extent, RuntimeNumber
from tracejit.frontend.recording.segments import Cut, Segment
from tracejit.frontend.recording.trace import Trace
from tracejit.ir.graph import Builder, Effect, Graph, Node, Value, constant_of
from tracejit.ir.op import Trait
from tracejit.ir.structure import structure
from tracejit.ir.types import HOST, ArrayType, Device
from tracejit.ir.view import View
from tracejit.ops.loops import COUNT, graph_can_fail, loop
from tracejit.passes.rolling.roll import check_size
from tracejit.passes.rolling.wiring import Unlike, check_plain

ROUNDS = 4096
"""Most rounds of a launch."""

LIKELY = 64
"""The number of rounds that estimates of costs assume."""

WAYS = 16
"""Most ways of a round that are computed together."""

SELECTED = 1024
"""Most elements of an array that a round with branches selects: more take longer than a launch each."""


class ExitLoop(NamedTuple):
    """Rounds as one launch.

    segment: the graph and its schedule. Its outputs are the number of the state after the last round, if
             there are several, then slots that rounds change, numbers first.
    words:   what stands for its inputs: a count, the way of the first round if there are several, then
             storages and sources of the state at the loop's first look, and what is bound.
    integers: sources of integers: they have to be exact.
    ways:    the looks with which they begin; head: a look in the state of the first round.
    slots:   what rounds carry; states: those in which they may end; outputs: by slot, its output's number.
    """

    segment: Segment
    words: tuple[Any, ...]
    integers: tuple[Any, ...]
    ways: tuple[int, ...]
    head: int
    slots: Slots
    states: tuple[int, ...]
    outputs: dict[int, int]

    def beginning(self, index: int) -> ExitLoop:
        """The same rounds, the first one of which goes the way from this look."""
        if len(self.ways) == 1:
            return self
        return self._replace(words=(self.words[0], self.ways.index(index), *self.words[2:]))


def exit_loop(trace: Trace, region: LoopRegion, ways: Sequence[int], head: int) -> ExitLoop | str:
    """The native loop of the rounds that go the ways from these looks; the first one begins at look `head`,
    or in its state. Or why there is none.
    """
    try:
        builder = _LoopBuilder(trace, region, ways, head)
        graph = builder.graph()
    except (Unfit, Unlike) as error:
        return str(error)
    segment = trace.looks.segments.find(("rounds", structure(graph)), graph)
    return ExitLoop(
        segment,
        tuple(builder.words),
        tuple(builder.integers),
        tuple(ways),
        head,
        builder.slots,
        tuple(builder.states),
        builder.outputs,
    )


class _Way:
    """A way: its cut, the states where it begins and ends, what it computes and asks.

    before: the slots of the arrays and numbers of the state where it begins.
    taken:  whether this round goes it; None: there is no other one.
    ends:   what a round that goes it makes of the slots of the state where it ends.
    """

    def __init__(self, trace: Trace, index: int, slots: Slots) -> None:
        graph = trace.looks.graph
        self.index = index
        self.cut: Cut = trace.looks.cuts[index + 1]
        self.begin, self.end = graph.number(index), graph.number(index + 1)
        self.steps = graph.between(index)
        self.before = {held: slots.of[place] for place, held in slots.held(index).items()}
        self.after = {slots.of[place]: held for place, held in slots.held(index + 1).items()}
        self.taken: Value | None = None
        self.ends: dict[int, Value] = {}


class _LoopBuilder:
    """A loop under construction: the graph around it, and its body.

    values: of the body, for slots that rounds change. outputs: by slot, the number of its output.
    """

    def __init__(self, trace: Trace, region: LoopRegion, ways: Sequence[int], head: int) -> None:
        if len(ways) > WAYS:
            raise Unfit(f"rounds have more than {WAYS} branches")
        states = trace.looks.graph
        self.slots = Slots(states, region, ways, states.number(head))
        self.head = {self.slots.of[place]: held for place, held in self.slots.held(head).items()}
        self.ways = [_Way(trace, index, self.slots) for index in ways]
        self.states = list(dict.fromkeys([states.number(head), *(way.end for way in self.ways)]))
        nodes = []
        for way in self.ways:
            if way.cut.draws:
                raise Unfit("a round draws random numbers")
            nodes += [node for node in way.cut.segment.graph.nodes if node.op is not ops.constant]
        if any(node.op is loop and graph_can_fail(node.attrs["body"]) for node in nodes):
            raise Unfit("an index may be out of range in a loop of a round")
        check_plain(nodes)
        check_size(nodes)
        self.device: Device = self.ways[0].cut.made[0].type.device
        self.outer, self.body = Builder(), Builder()
        self.numbers = RoundNumbers(self.body, self.device)
        self.count = self.outer.input(COUNT)
        self.words: list[Any] = [ROUNDS]
        self.integers: list[Any] = []
        self.operands: list[Value] = []
        self.known: dict[Any, Value] = {}  # what stays, in the body
        self.values: dict[int, Value] = {}
        self.outputs: dict[int, int] = {}

    def graph(self) -> Graph:
        """The graph around the loop."""
        which = self._operand(self._filled(self._input(COUNT, 0))) if len(self.ways) > 1 else None
        self._begin()
        for number, way in enumerate(self.ways):
            if which is not None:
                way.taken = self.body.emit(ops.equal, which, self.numbers.literal(number))
            self._round(way)
        ends = {slot: self._selected(slot) for slot in self.values}
        targets = list(self.values.values())
        results = list(ends.values())
        state = None
        if len(self.states) > 1:
            state = self._state()
            targets.insert(0, self._operand(self._around(0)))
            results.insert(0, state)
        holds = [self._holds(way, ends, state) for way in self.ways]
        goes_on = holds[0]
        for hold in holds[1:]:
            goes_on = self.body.emit(ops.logical_or, goes_on, hold)
        self.outputs = {slot: number + (state is not None) for number, slot in enumerate(self.values)}
        if which is not None:
            targets, results = [*targets, which], [*results, self._first(holds)]
        flag = self._operand(self._around(True))
        return self._looped([*targets, flag], [*results, goes_on])

    def _looped(self, targets: Sequence[Value], ends: Sequence[Value]) -> Graph:
        """The graph around a loop whose rounds store these values, the last one of which ends it."""
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
            rounds=LIKELY,
            until=len(effects) - 1,
        )
        return self.outer.graph(finals[: -1 if len(self.ways) == 1 else -2])

    # -- slots -----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Make the values of slots that rounds change, numbers first."""
        for slot, places in enumerate(self.slots.slots):
            if slot in self.slots.changed and not places[0].is_array:
                self.values[slot] = self._begin_of_number(slot)
        for slot, places in enumerate(self.slots.slots):
            if slot in self.slots.changed and places[0].is_array:
                self.values[slot] = self._begin_of_array(slot)

    def _begin_of_number(self, slot: int) -> Value:
        if slot in self.head:
            return self._number(self.head[slot])
        source = next(way.after[slot] for way in self.ways if slot in way.after)
        if type(source.value) not in DTYPES:
            raise Unfit(f"a number is a {type(source.value).__name__}")
        return self._operand(self._around(type(source.value)()))

    def _begin_of_array(self, slot: int) -> Value:
        held = self.head.get(slot)
        if held is None:
            held = next(way.after[slot] for way in self.ways if slot in way.after)
        kind = held.type
        for way in self.ways:
            for value, bound in zip(way.cut.segment.graph.inputs, way.cut.bound, strict=True):
                if isinstance(bound, Extent) and way.before.get(bound.storage) == slot:
                    if (bound.lo, bound.hi) != (0, bound.storage.type.size):
                        raise Unfit("a round reads a part of an array that it changes")
                    kind = value.type
        if slot in self.head:
            return self._operand(self._input(kind, held))
        zero = self.outer.emit(ops.constant, **constant_of(0, kind.dtype))
        return self._operand(self.outer.emit(ops.full, zero, shape=kind.shape, device=kind.device))

    def _selected(self, slot: int) -> Value:
        """The content of a slot after the round: that of the way that the round goes."""
        found: Value | None = None
        for way in self.ways:
            value = way.ends.get(slot)
            if found is None or value is None or value is found:
                found = found or value
                continue
            if value.type.size > SELECTED:
                raise Unfit("rounds have branches, and change large arrays")
            assert way.taken is not None
            found = self.body.emit(ops.where, self._spread(way.taken, value.type.shape), value, found)
        return self.values[slot] if found is None else found

    # -- ways ------------------------------------------------------------------------------------------------

    def _round(self, way: _Way) -> None:
        """Compute what a round makes of the slots, if it goes a way."""
        held: dict[Any, Value] = {
            each: self.values[slot] for each, slot in way.before.items() if slot in self.values
        }
        self.numbers.ask(way.steps, held, partial(self._outside, way))
        made = dict(zip(way.cut.made, self._segment(way, held), strict=True))
        held |= made
        held[way.cut.source] = self._found(made[way.cut.made[0]])
        for slot, each in way.after.items():
            target = self.values.get(slot)
            if target is None:  # the loop hands it on
                continue
            value = held.get(each)
            if value is None:
                raise Unfit("a round hands on what was there before the loop")
            value = self._shaped(self.numbers.array(value), target.type)
            if value.type != target.type:
                raise Unfit("what a round hands on is of another type in the next one")
            way.ends[slot] = value

    def _holds(self, way: _Way, ends: dict[int, Value], state: Value | None) -> Value:
        """Whether the next round, which finds these slots in this state, goes a way."""
        next = {each: ends[slot] for each, slot in way.before.items() if slot in ends}
        conditions = self.numbers.ask(way.steps, next, partial(self._outside, way))
        if state is not None:
            there = self.numbers.literal(self.states.index(way.begin))
            conditions = [self.body.emit(ops.equal, state, there), *conditions]
        if not conditions:
            raise Unfit("nothing is asked in a round")
        return self.numbers.all(conditions)

    def _state(self) -> Value:
        """The number of the state where the way ends that the round goes."""
        return self._choice([self.states.index(way.end) for way in self.ways], [w.taken for w in self.ways])

    def _first(self, holds: Sequence[Value]) -> Value:
        """The number of the way that the next round goes."""
        return self._choice(range(len(holds)), holds)

    def _choice(self, numbers: Sequence[int], conditions: Sequence[Value | None]) -> Value:
        """The first number whose condition holds; the last one, if no other does."""
        found = self.numbers.array(self.numbers.literal(numbers[-1]))
        for number, condition in zip(reversed(numbers[:-1]), reversed(conditions[:-1]), strict=True):
            assert condition is not None
            found = self.body.emit(ops.where, condition, self.numbers.literal(number), found)
        return found

    # -- operands --------------------------------------------------------------------------------------------

    def _input(self, type: ArrayType, word: Any) -> Value:
        self.words.append(word)
        return self.outer.input(type)

    def _operand(self, value: Value) -> Value:
        """An input of the body for a value around it."""
        self.operands.append(value)
        return self.body.input(value.type)

    def _around(self, value: Any) -> Value:
        """An array without dimensions around the loop, for a plain number."""
        return self._filled(self.outer.emit(ops.constant, **constant_of(value, DTYPES[type(value)])))

    def _filled(self, number: Value) -> Value:
        return self.numbers.filled(self.outer, number)

    def _number(self, source: Any) -> Value:
        """A number, as an array without dimensions."""
        kind = type(source.value)
        if kind not in DTYPES:
            raise Unfit(f"a number is a {kind.__name__}")
        if kind is int:
            self.integers.append(source)
        return self._operand(self._filled(self._input(ArrayType((), DTYPES[kind], HOST), source)))

    def _known(self, type: ArrayType, bound: Bound) -> Value:
        """An array, or a number of the host, that rounds do not change."""
        key = type, *((bound.storage, bound.lo, bound.hi) if isinstance(bound, Extent) else (bound.source,))
        if key not in self.known:
            self.known[key] = self._operand(self._input(type, bound))
        return self.known[key]

    def _outside(self, way: _Way, number: Any) -> Value:
        """A number that rounds do not change."""
        source = self._at_begin(way, number)
        if source not in self.known:
            self.known[source] = self._number(source)
        return self.known[source]

    def _at_begin(self, way: _Way, held: Any) -> Any:
        """An array or number that rounds do not change, as the loop begins with it."""
        return self.head[way.before[held]] if held in way.before else held

    # -- arrays ----------------------------------------------------------------------------------------------

    def _found(self, looked: Value) -> Value:
        """The number that is looked at."""
        dtype = looked.type.dtype
        if dtype == TRUTH:
            wanted: Any = TRUTH
        elif dtype.kind == "f":
            wanted = FLOAT
        elif dtype.kind == "i" or (dtype.kind == "u" and dtype.itemsize < 8):
            wanted = INTEGER
        else:
            raise Unfit(f"a number is a {dtype}")
        value = looked if looked.type.shape == () else self._viewed(looked, View.of_shape(()))
        return value if dtype == wanted else self.body.emit(ops.astype, value, dtype=wanted)

    def _viewed(self, value: Value, view: View) -> Value:
        return self.body.emit(ops.view, value, view=view)

    def _shaped(self, value: Value, type: ArrayType) -> Value:
        """All of an array, in the shape of a type."""
        return value if value.type.shape == type.shape else self._viewed(value, View.of_shape(type.shape))

    def _segment(self, way: _Way, held: dict[Any, Value]) -> list[Value]:
        """The outputs of a way's segment in the body."""
        values: dict[Value, Value] = {}
        for value, bound in zip(way.cut.segment.graph.inputs, way.cut.bound, strict=True):
            values[value] = self._bound(way, value, bound, held)
        for node in way.cut.segment.graph.nodes:
            inputs = [values[value] for value in node.inputs]
            outputs = self._node(way, node, inputs)
            values.update(zip(node.outputs, outputs, strict=True))
        return [values[value] for value in way.cut.segment.graph.outputs]

    def _bound(self, way: _Way, value: Value, bound: Bound, held: dict[Any, Value]) -> Value:
        """The value of the body for an input of the segment."""
        if isinstance(bound, Extent):
            if bound.storage in held:
                return self._shaped(held[bound.storage], value.type)
            storage = self._at_begin(way, bound.storage)
            return self._known(value.type, Extent(storage, bound.lo, bound.hi))
        dtype = value.type.dtype
        if bound.source not in held:
            source = self._at_begin(way, bound.source)
            return self._known(value.type, RuntimeNumber(bound.value, source))
        number = self.numbers.array(held[bound.source])
        if dtype == number.type.dtype:
            return number
        if number.type.dtype == TRUTH or (dtype.kind in "iu") != (number.type.dtype == INTEGER):
            raise Unfit(f"a number that rounds change becomes a {dtype}")
        converted: Value = self.body.emit(ops.astype, number, dtype=dtype)  # the body asks whether it fits
        return converted

    def _node(self, way: _Way, node: Node, inputs: list[Value]) -> Sequence[Value]:
        """A node of the segment; numbers that rounds change are arrays without dimensions here."""
        if node.op is ops.check_index and way.taken is not None:
            taken = self._spread(way.taken, inputs[0].type.shape)
            inputs = [self.body.emit(ops.where, taken, inputs[0], self.numbers.literal(0))]
        pairs = list(zip(node.inputs, inputs, strict=True))
        if not any(given.type.on_host and not value.type.on_host for given, value in pairs):
            return self.body.copy(node, inputs)
        shape = next((given.type.shape for given in node.inputs if not given.type.on_host), ())
        if node.op is ops.full:
            return [self._spread(inputs[0], node.output.type.shape)]
        if Trait.ELEMENTWISE not in node.op.traits:
            raise Unfit(f"{node.op.name} takes a number that rounds change")
        spread = [
            self._spread(value, shape) if given.type.on_host and not value.type.on_host else value
            for given, value in pairs
        ]
        return self.body.copy(node, spread)

    def _spread(self, number: Value, shape: tuple[int, ...]) -> Value:
        """A number at all places of a shape."""
        return self._viewed(number, View.of_shape(()).broadcast(shape)) if shape else number
