"""The conversion of a recorded iteration into a node `loop` that represents it and all further ones.

The nodes between two equal headers leave the recording and become the body of the loop. A value of the first
header is an input of the body. If the second header has a different value at the same position, the value is
loop-carried: the body stores the new value in the input. All other values that the body reads are older than
the loop. Induction variables are inputs that grow. A value that is read at moving positions (`positions`) is
an input that the body views through a moving window. A loop-carried array that is read and written at moving
positions has one window if all accesses move with it. If not, its elements are accessed by indices, which are
induction variables.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracejit.frontend.recording.draws import DrawCounter, Total
from tracejit.frontend.recording.number import NumberProxy, is_of, unproxied
from tracejit.frontend.recording.origins import ConstantOrigin, RuntimeNumber, Window
from tracejit.frontend.recording.ranges.headers import Header
from tracejit.frontend.recording.ranges.induction import OPERATORS
from tracejit.frontend.recording.ranges.loop_gradient import ResidualKeeper
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
from tracejit.ops import astype, constant, copy, full, gather, scatter, update, view
from tracejit.ops.loops import loop as loop_op
from tracejit.passes.copier import Copier
from tracejit.passes.gradient import Items, ReverseStep
from tracejit.passes.rolling.wiring import NotRollable, check_rollable

if TYPE_CHECKING:
    from tracejit.frontend.recording.ranges.ranges import RangeLoop
    from tracejit.frontend.recording.trace import Trace

INT64, FLOAT64 = np.dtype("int64"), np.dtype("float64")

_bodies: weakref.WeakValueDictionary[Hashable, Graph] = weakref.WeakValueDictionary()
"""Equal bodies are one graph object, so that recordings that contain them are equal."""


def loop_of(loop: RangeLoop, before: Header, after: Header, trip_count: Any, location: str) -> None:
    """Replace the recording between two equal headers by a loop of `trip_count` iterations. Raises `Unequal`
    if that is not possible. While a gradient is taken, the loop also stores the values that the backward pass
    of each iteration needs.
    """
    carried, trace = _carried(before, after), loop.trace
    try:
        check_rollable([node for node in trace.nodes[before.n_nodes :] if node.op is not constant])
    except NotRollable as error:
        raise Unequal(str(error)) from None
    if not carried:
        return  # all iterations compute the same values: only the last one remains
    tape = trace.tapes[0] if trace.tapes else None
    if tape is not None:
        trip_count = operator.index(trip_count)  # a look: the size of the residuals' memory depends on it
    items = tape.since(before.n_nodes) if tape is not None else trace.nodes[before.n_nodes :]
    body = LoopBody(loop, trace.nodes[before.n_nodes :], carried, trip_count)
    body.collect_counters(before)
    body.record(items)
    keeper = ResidualKeeper(body) if tape is not None else None
    graph = body.graph()
    if tape is not None:
        tape.forget(before.n_nodes)
    _forget(loop, before)
    final = dict(zip(carried, body.emit(graph, keeper, location), strict=True))
    for holder, first, last in zip(after.holders, before.values, after.values, strict=True):
        if first is last:
            continue
        if isinstance(holder, Window):
            holder.value = final[first]
        else:
            holder.pending = final[first]


def _carried(before: Header, after: Header) -> dict[Value, Value]:
    """Return the loop-carried values at the start of the iteration, with the new value of each."""
    values: dict[Value, Value] = {}
    for first, last in zip(before.values, after.values, strict=True):
        if values.setdefault(first, last) is not last:
            raise Unequal("two variables refer to one array")
    return {first: last for first, last in values.items() if first is not last}


def _forget(loop: RangeLoop, header: Header) -> None:
    """Remove everything recorded since a header, except for inputs."""
    trace = loop.trace
    for node in trace.nodes[header.n_nodes :]:
        trace.defined.difference_update(node.outputs)
    added = list(zip(trace.inputs, trace.origins, strict=True))[header.n_inputs :]
    for value, _ in added:
        trace.defined.remove(value)
    del trace.nodes[header.n_nodes :]
    del trace.inputs[header.n_inputs :], trace.origins[header.n_inputs :]
    for value, origin in added:
        source = trace.nest.values.get(value)
        if source is None or source.loop is not loop:
            trace._add_input(value, origin)
    scalars = trace.scalars
    trace.scalars = {k: v for k, v in scalars.items() if v in trace.defined or k in header.scalars}


class NumberOperand(NamedTuple):
    """A number before the loop, as `dtype`."""

    number: Any
    dtype: np.dtype


class CounterOperand(NamedTuple):
    """The counter of a random stream in the loop's first iteration, after the numbers that were `drawn` from
    it before. An iteration draws `step` numbers.
    """

    value: Value
    stream: int
    drawn: Total
    step: int


class SliceOperand(NamedTuple):
    """A slice of a value, taken before the loop."""

    base: Value
    view: View


Operand = Value | NumberOperand | CounterOperand | SliceOperand


class LoopBody(Copier):
    """The body of a loop under construction, and its operands.

    operands:      for each input of the body, its initial value: a value, a number, a counter, or a slice of
                   a value.
    moves:         for each input, its start and its step per iteration: offsets of a window, or an increment.
    slices:        the moving slices in which loop-carried values are read and written.
    slice_starts:  for recorded values that the body has as a slice: the offset of the slice in the recorded
                   value.
    slice_inputs:  inputs for slices of values from before the loop.
    float_arrays:  arrays for numbers that are computed in each iteration, and for their operands.
    counters:      counters of the random numbers that the iteration draws, by graph value.
    effects:       the values stored in inputs.
    """

    def __init__(
        self,
        loop: RangeLoop,
        nodes: list[Node],
        carried: dict[Value, Value],
        trip_count: Any,
    ) -> None:
        super().__init__(Builder())
        self.loop, self.trace, self.nodes, self.carried = loop, loop.trace, nodes, carried
        self.trip_count = trip_count
        self.depth = loop.depth()
        self.operands: list[Operand] = []
        self.moves: list[tuple[int, int]] = []
        self.constants = {node.output: node for node in self.trace.nodes if node.op is constant}
        self.produced = {value for node in nodes for value in node.outputs}
        self.slices = {
            value: moving_slice for value in carried if (moving_slice := self._slice_of(value)) is not None
        }
        self.slice_starts: dict[Value, Any] = {}
        self.slice_inputs: dict[Any, Value] = {}
        self.float_arrays: dict[Any, Value] = {}
        self.effects: list[Effect] = []
        self.items: list[Node | ReverseStep] = []
        self.counters: dict[Value, CounterOperand] = {}

    def collect_counters(self, before: Header) -> None:
        """Collect the counters of the iteration's draws from random streams."""
        per_iteration = self.trace.draws.drawn_since(before.drawn)
        if per_iteration is None:
            raise Unequal("an inner loop draws random numbers, and its trip count differs between calls")
        for value, origin in zip(self.trace.inputs, self.trace.origins, strict=True):
            source = origin.source if isinstance(origin, RuntimeNumber) else None
            if type(source) is not DrawCounter:
                continue
            begin, stream = before.drawn[source.stream], source.stream
            if source.further is begin.further and source.fixed >= begin.fixed:
                drawn = begin.plus(source.fixed - begin.fixed)
                self.counters[value] = CounterOperand(value, stream, drawn, per_iteration[stream])

    def record(self, items: Items) -> None:
        """Append an iteration to the body."""
        targets = [self._target(value) for value in self.carried]
        self.items = self.copies(items)
        stored = set()
        for target, last in zip(targets, self.carried.values(), strict=True):
            value = self.copy_of(last)
            if last in stored or last not in self.produced:
                value = self.builder.emit(copy, value)
                self.items.append(self.builder.nodes[-1])
            stored.add(last)
            self.effects.append(Effect(target, value))

    def graph(self) -> Graph:
        """Return the body. Equal bodies are one object."""
        body = self.builder.graph([], self.effects)
        return _bodies.setdefault(structure(body, locations=True), body)

    # ---- moving positions

    def _input(
        self,
        type: ArrayType,
        operand: Operand,
        move: tuple[int, int],
    ) -> Value:
        self.operands.append(operand)
        self.moves.append(move)
        return self.builder.input(type)

    def _slice_input(self, base: Value, moving_slice: MovingSlice, shape: tuple[int, ...]) -> Value:
        """Add an input that is a slice of a value from before the loop."""
        type = ArrayType(shape, base.type.dtype, base.type.device)
        low, size, step = fixed(moving_slice.low, self.depth), moving_slice.size, moving_slice.step
        if isinstance(low, int):
            return self._input(type, base, (low, step))
        # If the slice moves with an enclosing loop, too, the operand is the range that this loop accesses.
        distance = abs(step) * (operator.index(self.trip_count) - 1)
        start = distance if step < 0 else 0
        operand = SliceOperand(base, View(low - start, (distance + size,), (1,)))
        return self._input(type, operand, (start, step))

    def _target(self, value: Value) -> Value:
        moving_slice = self.slices.get(value)
        if moving_slice is None:
            self.replaced[value] = target = self._input(value.type, value, (0, 0))
            return target
        self.replaced[value] = target = self._slice_input(value, moving_slice, (moving_slice.size,))
        self.slice_starts[value] = moving_slice.low
        return target

    def copy_node(self, node: Node) -> Items:
        """Append a node of the iteration."""
        if node.op is constant:
            return []
        start, attrs = len(self.builder.nodes), node.attrs
        if node.op in (view, update):
            accessed, base = attrs["view"], node.inputs[0]
            slice_start = self.slice_starts.get(base)
            if slice_start is not None:
                attrs = {"view": accessed.moved(-slice_start)}
                if node.op is update:
                    self.slice_starts[node.output] = slice_start
            elif moves(accessed):
                if node.op is update or base in self.produced or base in self.carried:
                    return self._element(node)
                self.replaced[node.output] = self._moving_view(base, accessed)
                return self.builder.nodes[start:]
        varying = [v for v in node.inputs if type(self.trace.nest.values.get(v)) is Varying]
        if varying and not (node.op is full or Trait.ELEMENTWISE in node.op.traits):
            raise Unequal(f"{node.op.name} of a number that is computed in each iteration")
        inputs = [self._broadcast(v, node) if v in varying else self.copy_of(v) for v in node.inputs]
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

    def _slice_of(self, value: Value) -> MovingSlice | None:
        """Return the slice in which the iteration accesses a loop-carried value. None if there is no such
        slice: then elements at positions that move are accessed by indices.
        """
        try:
            return slice_of(value, self.nodes, self.carried, self.depth)
        except Unequal:
            if self.trace.tapes:
                raise
            return None

    def _element(self, node: Node) -> Items:
        """Append an access to an element, at a position that moves, of an array that the iteration
        changes.
        """
        accessed, base, emit = node.attrs["view"], node.inputs[0], self.builder.emit
        start = len(self.builder.nodes)
        if accessed.size != 1 or self.trace.tapes:
            raise Unequal("a position moves in an array that each iteration creates")
        low, step = fixed(accessed.offset, self.depth), slope_of(accessed.offset, self.depth)
        number = NumberOperand(self._number_at(low), INT64)
        index = self._input(ArrayType((), INT64, HOST), number, (0, step))
        index = emit(full, index, shape=(), device=base.type.device)
        flat = emit(view, self.copy_of(base), view=View.of_shape((base.type.size,)))
        if node.op is view:
            element = emit(gather, flat, index, axis=0, location=node.location)
            self.replaced[node.output] = emit(view, element, view=View.of_shape(accessed.shape))
            return self.builder.nodes[start:]
        element = emit(view, self.copy_of(node.inputs[1]), view=View.of_shape(()))
        written = emit(scatter, flat, element, index, axis=0, location=node.location)
        self.replaced[node.output] = emit(view, written, view=View.of_shape(base.type.shape))
        return self.builder.nodes[start:]

    def _number_at(self, position: Any) -> Any:
        """Return a position as a number that moves with the enclosing loops."""
        if isinstance(position, int):
            return position
        number: Any = int(position.values[0])
        for loop in self.trace.nest.loops:
            slope = slope_of(position, loop.depth())
            number = loop.moving(slope, number) if slope else number
        return number

    def _moving_view(self, base: Value, accessed: View) -> Value:
        """Return a moving view of a value from before the loop. While a gradient is taken, all reads of the
        value share one slice.
        """
        low, high = accessed.span()
        moving_slice = MovingSlice(low, high - low, slope_of(accessed.offset, self.depth))
        if self.trace.tapes:
            union = slice_of(base, self.nodes, self.carried, self.depth)
            assert union is not None
            moving_slice = union
        is_exact = accessed.is_contiguous() and not self.trace.tapes
        shape = accessed.shape if is_exact else (moving_slice.size,)
        key = base, moving_slice, shape
        if key not in self.slice_inputs:
            self.slice_inputs[key] = self._slice_input(base, moving_slice, shape)
        value = self.slice_inputs[key]
        return value if is_exact else self.builder.emit(view, value, view=accessed.moved(-moving_slice.low))

    # ---- values

    def copy_of(self, value: Value) -> Value:
        """Return the value of the body for a value of the recording."""
        replacement = self.replaced.get(value)
        if replacement is not None:
            return replacement
        if value in self.counters:
            counter = self.counters[value]
            self.replaced[value] = replacement = self._input(value.type, counter, (0, counter.step))
            return replacement
        dtype, source = value.type.dtype, self.trace.nest.values.get(value)
        number: NumberOperand | None = None
        while type(source) is Progression:
            if source.loop is self.loop:
                number = NumberOperand(source.base, dtype)
                self.replaced[value] = replacement = self._input(value.type, number, (0, source.slope))
                return replacement
            if source.loop in self.trace.nest.loops:  # an outer loop
                number = NumberOperand(self.loop.number(source), dtype)
                break
            source = source.base._source if type(source.base) is NumberProxy else None
        if number is None and value in self.constants:
            (replacement,) = self.builder.copy(self.constants[value], ())
        elif number is None and isinstance(literal := self.trace.looks.origins.get(value), ConstantOrigin):
            replacement = self.builder.emit(constant, **literal.attrs)
        else:
            replacement = self._input(value.type, number or value, (0, 0))
        self.replaced[value] = replacement
        return replacement

    # ---- numbers that are computed in each iteration

    def _broadcast(self, value: Value, node: Node) -> Value:
        """Return a number that varies as an array with the shape of a node's result."""
        source, result = self.trace.nest.values[value], node.output.type
        if source.loop is not self.loop:
            raise Unequal("a number of an enclosing loop is computed in each iteration")
        number = self._float_value(source, result.device)
        if value.type.dtype != FLOAT64:
            number = self.builder.emit(astype, number, dtype=value.type.dtype)
        if result.shape:
            number = self.builder.emit(view, number, view=View.of_shape(()).broadcast(result.shape))
        return number

    def _float_value(self, source: Any, device: Device) -> Value:
        """Return the value of a number in float arithmetic: an array if it is an induction variable or
        derived from one.
        """
        if type(source) in (int, float):
            number: Value = self.builder.emit(constant, **constant_of(float(source), FLOAT64))
            return number
        array = self.float_arrays.get(source)
        if array is not None:
            return array
        if type(source) is Varying:
            operands = [self._float_value(o, device) for o in source.operands]
            array = self.builder.emit(OPERATORS[source.operation], *operands)
        elif type(source) is Progression:
            type_ = ArrayType((), FLOAT64, HOST)
            number = self._input(type_, NumberOperand(source.base, FLOAT64), (0, source.slope))
            array = self.builder.emit(full, number, shape=(), device=device)
        else:
            proxy = NumberProxy(source.value, source, self.trace.numbers)
            array = self._input(ArrayType((), FLOAT64, HOST), NumberOperand(proxy, FLOAT64), (0, 0))
        self.float_arrays[source] = array
        return array

    # ---- the node and its operands

    def emit(self, graph: Graph, keeper: ResidualKeeper | None, location: str) -> list[Value]:
        """Append the loop to the recording. Return the loop-carried values after it."""
        trace = self.trace
        operands = [self._operand(operand) for operand in self.operands]
        begin = len(trace.nodes)
        if is_of(self.trip_count, trace.numbers):
            trip_count = trace.number(RuntimeNumber(self.trip_count._value, self.trip_count._source), INT64)
        else:
            trip_count = trace.literal(unproxied(self.trip_count), INT64)
        if keeper is not None:
            last = {i: v for i in range(len(self.operands)) if (v := self._last(i)) is not None}
            begin = len(trace.nodes)
            operands += keeper.allocate(trace, self.trip_count, location)
        iterations, first = int(unproxied(self.trip_count)), self.loop.iteration - 1
        attrs = {"body": graph, "moves": tuple(self.moves), "rounds": iterations, "first": first}
        outputs = trace.emit(loop_op, trip_count, *operands, location=location, **attrs)
        if keeper is not None:
            step = keeper.step(self, operands, outputs, trace.nodes[begin:], last)
            trace.tapes[0].stand(step, begin)
        finals = []
        for value, operand, result in zip(self.carried, self.operands, outputs, strict=False):
            if isinstance(operand, SliceOperand):
                result = trace.emit(update, value, result, location=location, view=operand.view)
            finals.append(result)
        return finals

    def _last(self, i: int) -> Value | None:
        """Return the value of a number in the last iteration, if the operand is a number. The trip count is
        known.
        """
        trace, operand, increase = self.trace, self.operands[i], self.moves[i][1] * (self.trip_count - 1)
        if isinstance(operand, CounterOperand):
            counter = trace.draws.counter(operand.stream, operand.drawn.plus(increase))
            return trace.number(counter, operand.value.type.dtype)
        if isinstance(operand, NumberOperand):
            return _number_of(trace, operand.number + increase, operand.dtype)
        return None

    def _operand(self, operand: Operand) -> Value:
        if isinstance(operand, NumberOperand):
            return _number_of(self.trace, *operand)
        if isinstance(operand, SliceOperand):
            value: Value = self.trace.emit(view, operand.base, view=operand.view)
            return value
        return operand.value if isinstance(operand, CounterOperand) else operand


def _number_of(trace: Trace, number: Any, dtype: np.dtype) -> Any:
    """Return the value of a number before the loop."""
    if is_of(number, trace.numbers):
        return trace.number(RuntimeNumber(number._value, number._source), dtype)
    return trace.literal(unproxied(number), dtype)
