"""Rounds between looks as a native loop, where the graph can compute whether to go on.

A replay repeats equal rounds in a loop of Python's (`jit.loops`): it asks the body's questions, launches a
segment, waits for the number that is looked at. Where the questions are comparisons, and numbers are only
computed as the graph can, too (`exit_numbers`), the graph asks them itself. Then the launch runs many rounds,
up to the one after which an answer is another one:

    while True:
        if not (err > tol): break            asked in Python once, before the launch
        x, err = launch(x, err, tol)         loop until not (err > tol), at most `ROUNDS` rounds

Rounds may have branches: several *ways* from a state back to it, with different answers. A native round
computes all of them, and selects the results of the way that it goes (if-conversion). Python's checks say
which way the first round goes; each round finds the way of the next one, and the loop ends when there is
none:

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
from tracejit.frontend.jit.exit_numbers import DTYPES, FLOAT, INTEGER, TRUTH, RoundNumbers, Unfit
from tracejit.frontend.recording.origins import Bound, Extent, RuntimeNumber
from tracejit.frontend.recording.segments import Cut, Segment
from tracejit.frontend.recording.storage import Storage
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
"""How many rounds are expected, where costs are estimated."""

WAYS = 16
"""Most ways of a round that are computed together."""

SELECTED = 1024
"""Most elements of an array that a round with branches selects: more take longer than a launch each."""


class ExitLoop(NamedTuple):
    """Rounds as one launch.

    segment: the graph and its schedule. Outputs are the numbers of the state that each round changes, and
             then the arrays.
    words:   what stands for its inputs: a count, the way of the first round if there are several, storages
             of the state, sources of numbers, what is bound.
    integers: sources of integers: they have to be exact.
    ways:    how many there are.
    """

    segment: Segment
    words: tuple[Any, ...]
    integers: tuple[Any, ...]
    ways: int

    def beginning(self, way: int) -> ExitLoop:
        """The same rounds, the first one of which goes this way."""
        if self.ways == 1:
            return self
        return self._replace(words=(self.words[0], way, *self.words[2:]))


def exit_loop(
    trace: Trace, indices: Sequence[int], arrays: Sequence[int], numbers: Sequence[int]
) -> ExitLoop | str:
    """The native loop of the rounds that go the ways from these looks, all in one state and back to it, and
    change these arrays and numbers of it; or why there is none.
    """
    try:
        builder = _LoopBuilder(trace, indices)
        graph = builder.graph(arrays, numbers)
    except (Unfit, Unlike) as error:
        return str(error)
    segment = trace.looks.segments.find(("rounds", structure(graph)), graph)
    return ExitLoop(segment, tuple(builder.words), tuple(builder.integers), len(indices))


class _Way:
    """A way from a state back to it: its cut, the states where it begins and ends, what it computes and asks.

    before: the arrays and numbers of the state in which the first way begins, by those of this one.
    taken:  whether this round goes it; None: there is no other one.
    ends:   what a round that goes it makes of the state.
    """

    def __init__(self, trace: Trace, index: int) -> None:
        graph = trace.looks.graph
        self.cut: Cut = trace.looks.cuts[index + 1]
        self.now, self.then = graph.state(index), graph.state(index + 1)
        self.steps = graph.between(index)
        self.before: dict[Any, Any] = {}
        self.taken: Value | None = None
        self.ends: list[Value] = []


class _LoopBuilder:
    """A loop under construction: the graph around it, and its body."""

    def __init__(self, trace: Trace, indices: Sequence[int]) -> None:
        self.ways = [_Way(trace, index) for index in indices]
        if len(self.ways) > WAYS:
            raise Unfit(f"rounds have more than {WAYS} branches")
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
        first = self.ways[0].now
        for way in self.ways:
            now = way.now
            way.before = {
                **dict(zip(now.carriers, first.carriers, strict=True)),
                **dict(zip(now.sources, first.sources, strict=True)),
            }

    def graph(self, arrays: Sequence[int], numbers: Sequence[int]) -> Graph:
        """The graph around the loop."""
        which = self._which() if len(self.ways) > 1 else None
        places = [self._array(k) for k in arrays]
        sources = [self._number(self.ways[0].now.sources[k]) for k in numbers]
        targets = sources + places
        for number, way in enumerate(self.ways):
            if which is not None:
                way.taken = self.body.emit(ops.equal, which, self.numbers.literal(number))
            self._round(way, dict(zip(arrays, places, strict=True)), dict(zip(numbers, sources, strict=True)))
            way.ends = [self._shaped(value, t.type) for t, value in zip(targets, way.ends, strict=True)]
            if any(value.type != t.type for t, value in zip(targets, way.ends, strict=True)):
                raise Unfit("a round hands on what was there before the loop")
        ends = [self._selected([way.ends[i] for way in self.ways]) for i in range(len(targets))]
        holds = [self._holds(way, dict(zip(numbers, ends, strict=False))) for way in self.ways]
        flag = self._operand(self._around(True))
        goes_on = holds[0]
        for hold in holds[1:]:
            goes_on = self.body.emit(ops.logical_or, goes_on, hold)
        if which is not None:
            targets, ends = [*targets, which], [*ends, self._first(holds)]
        return self._looped([*targets, flag], [*ends, goes_on])

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

    # -- ways ------------------------------------------------------------------------------------------------

    def _which(self) -> Value:
        """The number of the way that a round goes."""
        return self._operand(self._filled(self._input(COUNT, 0)))

    def _round(self, way: _Way, arrays: dict[int, Value], numbers: dict[int, Value]) -> None:
        """What a round makes of these arrays and numbers of the state, if it goes a way."""
        places = {way.now.carriers[k]: value for k, value in arrays.items()}
        round: dict[Any, Value] = {way.now.sources[k]: value for k, value in numbers.items()}
        self.numbers.ask(way.steps, round, partial(self._outside, way))
        made = dict(zip(way.cut.made, self._segment(way, places, round), strict=True))
        round[way.cut.source] = self._found(made[way.cut.made[0]])
        left = places | made
        found = [round.get(way.then.sources[k]) for k in numbers]
        found += [left.get(way.then.carriers[k]) for k in arrays]
        if None in found:
            raise Unfit("a round hands on what was there before the loop")
        way.ends = [self.numbers.array(value) for value in found if value is not None]

    def _selected(self, values: Sequence[Value]) -> Value:
        """The value of the way that the round goes."""
        found = values[0]
        for way, value in zip(self.ways[1:], values[1:], strict=True):
            if value is not found:
                if value.type.size > SELECTED:
                    raise Unfit("rounds have branches, and change large arrays")
                assert way.taken is not None
                taken = self._spread(way.taken, value.type.shape)
                found = self.body.emit(ops.where, taken, value, found)
        return found

    def _holds(self, way: _Way, numbers: dict[int, Value]) -> Value:
        """Whether the next round, which finds these numbers of the state, goes a way."""
        next = {way.now.sources[k]: value for k, value in numbers.items()}
        conditions = self.numbers.ask(way.steps, next, partial(self._outside, way))
        if not conditions:
            raise Unfit("nothing is asked in a round")
        return self.numbers.all(conditions)

    def _first(self, holds: Sequence[Value]) -> Value:
        """The number of the way that the next round goes."""
        found = self.numbers.array(self.numbers.literal(len(holds) - 1))
        for number, hold in reversed(list(enumerate(holds[:-1]))):
            found = self.body.emit(ops.where, hold, self.numbers.literal(number), found)
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

    def _array(self, k: int) -> Value:
        """Array k of the state, which rounds change."""
        kind = self.ways[0].now.carriers[k].type
        for way in self.ways:
            storage = way.now.carriers[k]
            for value, bound in zip(way.cut.segment.graph.inputs, way.cut.bound, strict=True):
                if isinstance(bound, Extent) and bound.storage is storage:
                    if (bound.lo, bound.hi) != (0, storage.type.size):
                        raise Unfit("a round reads a part of an array that it changes")
                    kind = value.type
        return self._operand(self._input(kind, self.ways[0].now.carriers[k]))

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
        source = way.before.get(number, number)
        if source not in self.known:
            self.known[source] = self._number(source)
        return self.known[source]

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

    def _segment(self, way: _Way, places: dict[Storage, Value], numbers: dict[Any, Value]) -> list[Value]:
        """The outputs of a way's segment in the body."""
        values: dict[Value, Value] = {}
        for value, bound in zip(way.cut.segment.graph.inputs, way.cut.bound, strict=True):
            values[value] = self._bound(way, value, bound, places, numbers)
        for node in way.cut.segment.graph.nodes:
            inputs = [values[value] for value in node.inputs]
            outputs = self._node(way, node, inputs)
            values.update(zip(node.outputs, outputs, strict=True))
        return [values[value] for value in way.cut.segment.graph.outputs]

    def _bound(self, way: _Way, value: Value, bound: Bound, places: Any, numbers: Any) -> Value:
        """The value of the body for an input of the segment."""
        if isinstance(bound, Extent):
            if bound.storage in places:
                return self._shaped(places[bound.storage], value.type)
            storage = way.before.get(bound.storage, bound.storage)
            return self._known(value.type, Extent(storage, bound.lo, bound.hi))
        dtype = value.type.dtype
        if bound.source not in numbers:
            source = way.before.get(bound.source, bound.source)
            return self._known(value.type, RuntimeNumber(bound.value, source))
        number = self.numbers.array(numbers[bound.source])
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
