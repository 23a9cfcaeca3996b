"""From a recorded round to a node `loop` that stands for it and all further ones.

The nodes between two equal headers leave the recording and become the body. The value of a variable at the
first header is an input of the body, which writes it if the variable has another value at the second. All
other values that the body reads are older than the loop. Numbers that move are inputs that grow. A value that
is read at places that move (`positions`) is an input viewed through a moving window. A carried array that is
read and stored at such places has one window, which must move as a whole.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracejit.frontend.recording.draws import DrawCounter, Total
from tracejit.frontend.recording.number import NumberProxy, is_of, unproxied
from tracejit.frontend.recording.origins import ConstantOrigin, RuntimeNumber, TrackedExtent
from tracejit.frontend.recording.ranges.headers import Header
from tracejit.frontend.recording.ranges.induction import OPERATORS
from tracejit.frontend.recording.ranges.loop_gradient import Keeper
from tracejit.frontend.recording.ranges.positions import (
    MovingSlice,
    Unequal,
    fixed,
    moves,
    slice_of,
    slope_of,
)
from tracejit.frontend.recording.sources import Progression, Varying
from tracejit.ir.graph import Builder, Effect, Graph, Node, Value, constant_of
from tracejit.ir.op import Trait
from tracejit.ir.structure import structure
from tracejit.ir.types import HOST, ArrayType, Device
from tracejit.ir.view import View
from tracejit.ops import astype, constant, copy, full, update, view
from tracejit.ops.loops import loop as loop_op
from tracejit.passes.copier import Copier
from tracejit.passes.gradient import Items, ReverseStep
from tracejit.passes.rolling.wiring import Unlike, check_plain

if TYPE_CHECKING:
    from tracejit.frontend.recording.ranges.ranges import RangeLoop
    from tracejit.frontend.recording.trace import Trace

COUNT, FLOAT64 = np.dtype("int64"), np.dtype("float64")

_bodies: weakref.WeakValueDictionary[Hashable, Graph] = weakref.WeakValueDictionary()
"""Equal bodies are one graph, so that recordings with them are equal."""


def loop_of(loop: RangeLoop, before: Header, after: Header, count: Any, location: str) -> None:
    """Replace the recording between two equal headers by a loop of `count` rounds. Raises `Unequal` where
    that is not possible. While a gradient is taken, the loop keeps the values that its rounds need for it.
    """
    carried, trace = _carried(before, after), loop.trace
    try:
        check_plain([node for node in trace.nodes[before.nodes :] if node.op is not constant])
    except Unlike as error:
        raise Unequal(str(error)) from None
    if not carried:
        return  # every round computes the same: only the last one remains
    tape = trace.tapes[0] if trace.tapes else None
    if tape is not None:
        count = operator.index(count)  # a look: the memory of kept values depends on it
    items = tape.since(before.nodes) if tape is not None else trace.nodes[before.nodes :]
    body = LoopBody(loop, trace.nodes[before.nodes :], carried, count)
    body.draws(before)
    body.record(items)
    keeper = Keeper(body) if tape is not None else None
    graph = body.graph()
    if tape is not None:
        tape.forget(before.nodes)
    _forget(loop, before)
    final = dict(zip(carried, body.emit(graph, keeper, location), strict=True))
    for holder, first, last in zip(after.holders, before.values, after.values, strict=True):
        if first is last:
            continue
        if isinstance(holder, TrackedExtent):
            holder.value = final[first]
        else:
            holder.pending = final[first]


def _carried(before: Header, after: Header) -> dict[Value, Value]:
    """The values with which the round begins and that it changes, with the new value of each."""
    found: dict[Value, Value] = {}
    for first, last in zip(before.values, after.values, strict=True):
        if found.setdefault(first, last) is not last:
            raise Unequal("two variables hold one array")
    return {first: last for first, last in found.items() if first is not last}


def _forget(loop: RangeLoop, header: Header) -> None:
    """Undo the recording since a header, but for inputs."""
    trace = loop.trace
    for node in trace.nodes[header.nodes :]:
        trace.defined.difference_update(node.outputs)
    added = list(zip(trace.inputs, trace.bound, strict=True))[header.inputs :]
    for value, _ in added:
        trace.defined.remove(value)
    del trace.nodes[header.nodes :]
    del trace.inputs[header.inputs :], trace.bound[header.inputs :]
    for value, bound in added:
        moving = trace.nest.values.get(value)
        if moving is None or moving.loop is not loop:
            trace._add_input(value, bound)
    scalars = trace.scalars
    trace.scalars = {k: v for k, v in scalars.items() if v in trace.defined or k in header.scalars}


class NumberOperand(NamedTuple):
    """A number in front of the loop, as `dtype`."""

    number: Any
    dtype: np.dtype


class CounterOperand(NamedTuple):
    """The counter of a random stream in the first of the rounds, after what was `drawn` from it; `step`: how
    many numbers a round draws.
    """

    value: Value
    stream: int
    drawn: Total
    step: int


class PartOperand(NamedTuple):
    """A part of a value, in front of the loop."""

    base: Value
    view: View


Operand = Value | NumberOperand | CounterOperand | PartOperand


class LoopBody(Copier):
    """The body of a loop under construction, and its operands.

    operands: for each input of the body, its initial value: a value, a number, or a part of a value.
    slices: the moving places where carried values are read and stored. While a gradient is taken, also those
        where values from before the loop are read.
    low: for recorded values that are such a part of their array in the body, the begin of the part.
    seen: inputs for parts of values from before the loop.
    arrays: arrays for numbers that are computed in each round, and for their operands.
    counters: those of random numbers that the round draws, by their values.
    effects: the values stored in inputs.
    """

    def __init__(
        self,
        loop: RangeLoop,
        nodes: list[Node],
        carried: dict[Value, Value],
        count: Any,
    ) -> None:
        super().__init__(Builder())
        self.loop, self.trace, self.nodes, self.carried = loop, loop.trace, nodes, carried
        self.count = count
        self.depth = loop.depth()
        self.operands: list[Operand] = []
        self.moves: list[tuple[int, int]] = []
        self.constants = {node.output: node for node in self.trace.nodes if node.op is constant}
        self.made_here = {value for node in nodes for value in node.outputs}
        self.slices = {
            value: found
            for value in carried
            if (found := slice_of(value, nodes, carried, self.depth)) is not None
        }
        self.low: dict[Value, Any] = {}
        self.seen: dict[Any, Value] = {}
        self.arrays: dict[Any, Value] = {}
        self.effects: list[Effect] = []
        self.items: list[Node | ReverseStep] = []
        self.counters: dict[Value, CounterOperand] = {}

    def draws(self, before: Header) -> None:
        """Find the counters of the round's draws from random streams."""
        of_round = self.trace.draws.of_round(before.drawn)
        if of_round is None:
            raise Unequal("a loop in a round draws random numbers, and its count is another one in each call")
        for value, bound in zip(self.trace.inputs, self.trace.bound, strict=True):
            source = bound.source if isinstance(bound, RuntimeNumber) else None
            if type(source) is not DrawCounter:
                continue
            begin, stream = before.drawn[source.stream], source.stream
            if source.further is begin.further and source.fixed >= begin.fixed:
                drawn = begin.plus(source.fixed - begin.fixed)
                self.counters[value] = CounterOperand(value, stream, drawn, of_round[stream])

    def record(self, items: Items) -> None:
        """Append a round to the body."""
        targets = [self._target(value) for value in self.carried]
        self.items = self.copies(items)
        used = set()
        for target, last in zip(targets, self.carried.values(), strict=True):
            value = self.found(last)
            if last in used or last not in self.made_here:
                value = self.builder.emit(copy, value)
                self.items.append(self.builder.nodes[-1])
            used.add(last)
            self.effects.append(Effect(target, value))

    def graph(self) -> Graph:
        """The body; equal ones are one object."""
        made = self.builder.graph([], self.effects)
        return _bodies.setdefault(structure(made, locations=True), made)

    # ---- places that move

    def _input(
        self,
        type: ArrayType,
        operand: Operand,
        move: tuple[int, int],
    ) -> Value:
        self.operands.append(operand)
        self.moves.append(move)
        return self.builder.input(type)

    def _part_input(self, base: Value, place: MovingSlice, shape: tuple[int, ...]) -> Value:
        """An input that is a part of a value from before the loop."""
        type = ArrayType(shape, base.type.dtype, base.type.device)
        low, size, step = fixed(place.low, self.depth), place.size, place.step
        if isinstance(low, int):
            return self._input(type, base, (low, step))
        # a place that moves with an enclosing loop is narrowed there
        reach = abs(step) * (operator.index(self.count) - 1)
        start = reach if step < 0 else 0
        part = PartOperand(base, View(low - start, (reach + size,), (1,)))
        return self._input(type, part, (start, step))

    def _target(self, value: Value) -> Value:
        place = self.slices.get(value)
        if place is None:
            self.replaced[value] = found = self._input(value.type, value, (0, 0))
            return found
        self.replaced[value] = found = self._part_input(value, place, (place.size,))
        self.low[value] = place.low
        return found

    def copy_node(self, node: Node) -> Items:
        """Append a node of the round."""
        if node.op is constant:
            return []
        start, attrs = len(self.builder.nodes), node.attrs
        if node.op in (view, update):
            seen, base = attrs["view"], node.inputs[0]
            low = self.low.get(base)
            if low is not None:
                attrs = {"view": seen.moved(-low)}
                if node.op is update:
                    self.low[node.output] = low
            elif moves(seen):
                if node.op is update or base in self.made_here or base in self.carried:
                    raise Unequal("a place moves in an array that each round makes anew")
                self.replaced[node.output] = self._seen(base, seen)
                return self.builder.nodes[start:]
        varying = [v for v in node.inputs if type(self.trace.nest.values.get(v)) is Varying]
        if varying and not (node.op is full or Trait.ELEMENTWISE in node.op.traits):
            raise Unequal(f"{node.op.name} of a number that is computed in each round")
        inputs = [self._spread(v, node) if v in varying else self.found(v) for v in node.inputs]
        if varying and node.op is full:
            self.replaced[node.output] = self.builder.emit(copy, inputs[0])
            return self.builder.nodes[start:]
        outputs: tuple[Value, ...]
        if attrs is node.attrs:
            outputs = self.builder.copy(node, inputs)
        else:
            outputs = (self.builder.append(node.op, tuple(inputs), node.location, attrs),)
        self.replaced.update(zip(node.outputs, outputs, strict=True))
        return self.builder.nodes[start:]

    def _seen(self, base: Value, seen: View) -> Value:
        """A moving view of a value from before the loop. A gradient reads all of it as one part."""
        low, high = seen.span()
        place = MovingSlice(low, high - low, slope_of(seen.offset, self.depth))
        if self.trace.tapes:
            found = slice_of(base, self.nodes, self.carried, self.depth)
            assert found is not None
            place = found
        whole = seen.is_contiguous() and not self.trace.tapes
        shape = seen.shape if whole else (place.size,)
        key = base, place, shape
        if key not in self.seen:
            self.seen[key] = self._part_input(base, place, shape)
        part = self.seen[key]
        return part if whole else self.builder.emit(view, part, view=seen.moved(-place.low))

    # ---- values

    def found(self, value: Value) -> Value:
        """A value of the recording in the body."""
        found = self.replaced.get(value)
        if found is not None:
            return found
        if value in self.counters:
            counter = self.counters[value]
            self.replaced[value] = found = self._input(value.type, counter, (0, counter.step))
            return found
        dtype, moving = value.type.dtype, self.trace.nest.values.get(value)
        number: NumberOperand | None = None
        while type(moving) is Progression:
            if moving.loop is self.loop:
                number = NumberOperand(moving.base, dtype)
                self.replaced[value] = found = self._input(value.type, number, (0, moving.slope))
                return found
            if moving.loop in self.trace.nest.loops:  # an outer loop
                number = NumberOperand(self.loop.number(moving), dtype)
                break
            moving = moving.base._source if type(moving.base) is NumberProxy else None
        if number is None and value in self.constants:
            (found,) = self.builder.copy(self.constants[value], ())
        elif number is None and isinstance(literal := self.trace.looks.origins.get(value), ConstantOrigin):
            found = self.builder.emit(constant, **literal.attrs)
        else:
            found = self._input(value.type, number or value, (0, 0))
        self.replaced[value] = found
        return found

    # ---- numbers that are computed in each round

    def _spread(self, value: Value, node: Node) -> Value:
        """A number that varies as an array of the shape of a node's result."""
        source, result = self.trace.nest.values[value], node.output.type
        if source.loop is not self.loop:
            raise Unequal("a number of a loop around is computed in each round")
        number = self._computed(source, result.device)
        if value.type.dtype != FLOAT64:
            number = self.builder.emit(astype, number, dtype=value.type.dtype)
        if result.shape:
            number = self.builder.emit(view, number, view=View.of_shape(()).broadcast(result.shape))
        return number

    def _computed(self, source: Any, device: Device) -> Value:
        """The value of a number in arithmetic of floats: an array for one that moves or varies."""
        if type(source) in (int, float):
            number: Value = self.builder.emit(constant, **constant_of(float(source), FLOAT64))
            return number
        found = self.arrays.get(source)
        if found is not None:
            return found
        if type(source) is Varying:
            operands = [self._computed(o, device) for o in source.operands]
            found = self.builder.emit(OPERATORS[source.operation], *operands)
        elif type(source) is Progression:
            type_ = ArrayType((), FLOAT64, HOST)
            number = self._input(type_, NumberOperand(source.base, FLOAT64), (0, source.slope))
            found = self.builder.emit(full, number, shape=(), device=device)
        else:
            held = NumberProxy(source.value, source, self.trace.numbers)
            found = self._input(ArrayType((), FLOAT64, HOST), NumberOperand(held, FLOAT64), (0, 0))
        self.arrays[source] = found
        return found

    # ---- around the loop

    def emit(self, graph: Graph, keeper: Keeper | None, location: str) -> list[Value]:
        """Append the loop to the recording; the carried values after it."""
        trace = self.trace
        operands = [self._operand(operand) for operand in self.operands]
        begin = len(trace.nodes)
        if is_of(self.count, trace.numbers):
            counted = trace.number(RuntimeNumber(self.count._value, self.count._source), COUNT)
        else:
            counted = trace.literal(unproxied(self.count), COUNT)
        if keeper is not None:
            last = {i: v for i in range(len(self.operands)) if (v := self._last(i)) is not None}
            begin = len(trace.nodes)
            operands += keeper.memory(trace, self.count, location)
        rounds, first = int(unproxied(self.count)), self.loop.round - 1
        attrs = {"body": graph, "moves": tuple(self.moves), "rounds": rounds, "first": first}
        outputs = trace.emit(loop_op, counted, *operands, location=location, **attrs)
        if keeper is not None:
            step = keeper.step(self, operands, outputs, trace.nodes[begin:], last)
            trace.tapes[0].stand(step, begin)
        finals = []
        for value, operand, result in zip(self.carried, self.operands, outputs, strict=False):
            if isinstance(operand, PartOperand):
                result = trace.emit(update, value, result, location=location, view=operand.view)
            finals.append(result)
        return finals

    def _last(self, i: int) -> Value | None:
        """The value of a number in the last round, if the operand is one; the count is known."""
        trace, operand, further = self.trace, self.operands[i], self.moves[i][1] * (self.count - 1)
        if isinstance(operand, CounterOperand):
            counter = trace.draws.counter(operand.stream, operand.drawn.plus(further))
            return trace.number(counter, operand.value.type.dtype)
        if isinstance(operand, NumberOperand):
            return _number_of(trace, operand.number + further, operand.dtype)
        return None

    def _operand(self, operand: Operand) -> Value:
        if isinstance(operand, NumberOperand):
            return _number_of(self.trace, *operand)
        if isinstance(operand, PartOperand):
            made: Value = self.trace.emit(view, operand.base, view=operand.view)
            return made
        return operand.value if isinstance(operand, CounterOperand) else operand


def _number_of(trace: Trace, number: Any, dtype: np.dtype) -> Any:
    """The value of a number in front of the loop."""
    if is_of(number, trace.numbers):
        return trace.number(RuntimeNumber(number._value, number._source), dtype)
    return trace.literal(unproxied(number), dtype)
