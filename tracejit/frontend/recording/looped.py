"""From a recorded round to a node `loop` that stands for it and all further ones.

The nodes between two equal heads leave the recording and become the body. What a variable holds at the first
head is an input of the body, which it writes if the variable holds something else at the second head; what
else the body reads was there before. Numbers that move are inputs that grow. What is read at places that move
(`places`) is an input seen through a window that moves; a carried array that is read and stored at such
places is one window, which must move as a whole.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracejit.frontend.recording.heads import Head
from tracejit.frontend.recording.number import Moving as MovingNumber
from tracejit.frontend.recording.number import NumberProxy, is_of, settled
from tracejit.frontend.recording.places import fixed, moves, slope_of
from tracejit.frontend.recording.recording import Literal, RuntimeNumber, Window
from tracejit.ir.graph import Builder, Effect, Graph, Node, Value
from tracejit.ir.moving import Differs
from tracejit.ir.structure import structure
from tracejit.ir.types import ArrayType
from tracejit.ir.view import View
from tracejit.ops import constant, copy, update, view
from tracejit.ops.loops import loop
from tracejit.passes.rolling.wiring import Unlike, check_plain

if TYPE_CHECKING:
    from tracejit.frontend.recording.trace import Trace

COUNT = np.dtype("int64")

_bodies: weakref.WeakValueDictionary[Hashable, Graph] = weakref.WeakValueDictionary()
"""Equal bodies are one graph, so that recordings with them are equal."""


class Unequal(Exception):
    """The round does not stand for the next ones."""


def loop_of(trace: Trace, rounds: Any, before: Head, after: Head, count: Any, location: str) -> None:
    """Let a loop of `count` rounds stand for what was recorded between two equal heads. Raises `Unequal`
    where that is not possible.
    """
    carried = _carried(before, after)
    try:
        check_plain([node for node in trace.nodes[before.nodes :] if node.op is not constant])
    except Unlike as error:
        raise Unequal(str(error)) from None
    if not carried:
        return  # every round computes the same again: nothing is left of it but the last one
    body = _Body(trace, rounds, trace.nodes[before.nodes :], carried, count)
    graph = body.graph()
    _forget(trace, before, rounds)
    if is_of(count, trace.numbers):
        counted = trace.number(RuntimeNumber(count._value, count._source), COUNT)
    else:
        counted = trace.literal(settled(count), COUNT)
    final = dict(zip(carried, body.emit(graph, counted, location), strict=True))
    for holder, first, last in zip(after.holders, before.values, after.values, strict=True):
        if first is last:
            continue
        if isinstance(holder, Window):
            holder.value = final[first]
        else:
            holder.pending = final[first]


def _carried(before: Head, after: Head) -> dict[Value, Value]:
    """What the round makes of the values that it begins with, where it changes them."""
    found: dict[Value, Value] = {}
    for first, last in zip(before.values, after.values, strict=True):
        if found.setdefault(first, last) is not last:
            raise Unequal("two variables hold one array")
    return {first: last for first, last in found.items() if first is not last}


def _forget(trace: Trace, head: Head, rounds: Any) -> None:
    """Take back what was recorded since a head, but for inputs."""
    for node in trace.nodes[head.nodes :]:
        for value in node.outputs:
            trace.defined.pop(value, None)
    added = list(zip(trace.inputs, trace.bound, strict=True))[head.inputs :]
    for value, _ in added:
        trace.defined.pop(value)
    del trace.nodes[head.nodes :], trace.structure[head.structure :]
    del trace.inputs[head.inputs :], trace.bound[head.inputs :]
    for value, bound in added:
        moving = trace.moving.get(value)
        if moving is None or moving.rounds is not rounds:
            trace._add_input(value, bound)
    scalars = trace.scalars
    trace.scalars = {k: v for k, v in scalars.items() if v in trace.defined or k in head.scalars}


class _Range(NamedTuple):
    """A place that moves with the rounds: `size` elements from `low` on, further by `step` each round.

    `low` is a number that moves with the loops around, or an integer.
    """

    low: Any
    size: int
    step: int


class _Body:
    """The body of a loop under construction, and its operands.

    operands: for each input of the body, what it begins as: a value, a number, or a part of a value.
    ranges: where carried values are read and stored, if that moves.
    low: for recorded values that are such a part of their array in the body, where it begins.
    seen: inputs for parts of values from before the loop.
    """

    def __init__(
        self, trace: Trace, rounds: Any, nodes: list[Node], carried: dict[Value, Value], count: Any
    ) -> None:
        self.trace, self.rounds, self.nodes, self.carried = trace, rounds, nodes, carried
        self.count = count
        self.depth = rounds.depth()
        self.builder = Builder()
        self.operands: list[Value | _Number | _Part] = []
        self.moves: list[tuple[int, int]] = []
        self.values: dict[Value, Value] = {}
        self.constants = {node.output: node for node in trace.nodes if node.op is constant}
        self.made = {value for node in nodes for value in node.outputs}
        self.ranges = {value: found for value in carried if (found := self._range_of(value)) is not None}
        self.low: dict[Value, Any] = {}
        self.seen: dict[Any, Value] = {}

    def graph(self) -> Graph:
        """The body; equal ones are one object."""
        targets = [self._target(value) for value in self.carried]
        for node in self.nodes:
            if node.op is not constant:
                self._copy(node)
        effects, used = [], set()
        for target, last in zip(targets, self.carried.values(), strict=True):
            value = self._value(last)
            if last in used or last not in self.made:
                value = self.builder.emit(copy, value)
            used.add(last)
            effects.append(Effect(target, value))
        made = self.builder.graph([], effects)
        return _bodies.setdefault(structure(made, locations=True), made)

    # ---- places that move

    def _range_of(self, first: Value) -> _Range | None:
        """Where a carried value is read and stored, if that moves: in one range, which moves as a whole."""
        members, last = {first}, self.carried[first]
        accesses: list[View] = []
        others = False
        for node in self.nodes:
            if members.isdisjoint(node.inputs):
                continue
            if node.op not in (view, update) or not members.isdisjoint(node.inputs[1:]):
                others = True
            else:
                accesses.append(node.attrs["view"])
            if node.op is update and node.inputs[0] in members:
                members.add(node.output)
        if not any(map(moves, accesses)):
            return None
        steps = {slope_of(seen.offset, self.depth) for seen in accesses}
        elsewhere = any(v in members for f, v in self.carried.items() if f is not first)
        if others or len(steps) > 1 or last not in members or elsewhere:
            raise Unequal("an array is used at places that move, and at others")
        try:
            low, high = accesses[0].span()
            for seen in accesses[1:]:
                low, high = min(low, seen.span()[0]), max(high, seen.span()[1])
        except Differs:
            raise Unequal("the places of an array move apart") from None
        return _Range(low, high - low, steps.pop())

    def _input(self, type: ArrayType, operand: Value | _Number | _Part, move: tuple[int, int]) -> Value:
        self.operands.append(operand)
        self.moves.append(move)
        return self.builder.input(type)

    def _part_input(self, base: Value, place: _Range, shape: tuple[int, ...]) -> Value:
        """An input that is a part of a value from before the loop."""
        type = ArrayType(shape, base.type.dtype, base.type.device)
        low, size, step = fixed(place.low, self.depth), place.size, place.step
        if isinstance(low, int):
            return self._input(type, base, (low, step))
        # what moves with a loop around is narrowed there
        reach = abs(step) * (operator.index(self.count) - 1)
        start = reach if step < 0 else 0
        part = _Part(base, View(low - start, (reach + size,), (1,)))
        return self._input(type, part, (start, step))

    def _target(self, value: Value) -> Value:
        place = self.ranges.get(value)
        if place is None:
            self.values[value] = found = self._input(value.type, value, (0, 0))
            return found
        self.values[value] = found = self._part_input(value, place, (place.size,))
        self.low[value] = place.low
        return found

    def _copy(self, node: Node) -> None:
        """Append a node of the round."""
        attrs = node.attrs
        if node.op in (view, update):
            seen, base = attrs["view"], node.inputs[0]
            low = self.low.get(base)
            if low is not None:
                attrs = {"view": seen.moved(-low)}
                if node.op is update:
                    self.low[node.output] = low
            elif moves(seen):
                if node.op is update or base in self.made or base in self.carried:
                    raise Unequal("a place moves in an array that each round makes anew")
                self.values[node.output] = self._seen(base, seen)
                return
        inputs = [self._value(value) for value in node.inputs]
        outputs: tuple[Value, ...]
        if attrs is node.attrs:
            outputs = self.builder.copy(node, inputs)
        else:
            outputs = (self.builder.append(node.op, tuple(inputs), node.location, attrs),)
        self.values.update(zip(node.outputs, outputs, strict=True))

    def _seen(self, base: Value, seen: View) -> Value:
        """A view that moves, of a value from before the loop."""
        low, high = seen.span()
        contiguous = seen.is_contiguous()
        place = _Range(low, high - low, slope_of(seen.offset, self.depth))
        shape = seen.shape if contiguous else (high - low,)
        key = base, low, place.step, shape
        if key not in self.seen:
            self.seen[key] = self._part_input(base, place, shape)
        found = self.seen[key]
        return found if contiguous else self.builder.emit(view, found, view=seen.moved(-low))

    # ---- values

    def _value(self, value: Value) -> Value:
        """A value of the recording in the body."""
        found = self.values.get(value)
        if found is not None:
            return found
        dtype, moving = value.type.dtype, self.trace.moving.get(value)
        number: _Number | None = None
        while type(moving) is MovingNumber:
            if moving.rounds is self.rounds:
                number = _Number(moving.base, dtype)
                self.values[value] = found = self._input(value.type, number, (0, moving.slope))
                return found
            if moving.rounds in self.trace.open_ranges:  # an outer loop
                number = _Number(self.rounds.number(moving), dtype)
                break
            moving = moving.base._source if type(moving.base) is NumberProxy else None
        if number is None and value in self.constants:
            (found,) = self.builder.copy(self.constants[value], ())
        elif number is None and isinstance(literal := self.trace.carried.get(value), Literal):
            found = self.builder.emit(constant, **literal.attrs)
        else:
            found = self._input(value.type, number or value, (0, 0))
        self.values[value] = found
        return found

    # ---- around the loop

    def emit(self, graph: Graph, counted: Value, location: str) -> list[Value]:
        """Append the loop to the recording: what carried values are behind it."""
        operands = [self._operand(operand) for operand in self.operands]
        attrs = {"body": graph, "moves": tuple(self.moves), "rounds": int(settled(self.count))}
        outputs = self.trace.emit(loop, counted, *operands, location=location, **attrs)
        finals = []
        for value, operand, result in zip(self.carried, self.operands, outputs, strict=False):
            if isinstance(operand, _Part):
                result = self.trace.emit(update, value, result, location=location, view=operand.view)
            finals.append(result)
        return finals

    def _operand(self, operand: Value | _Number | _Part) -> Value:
        if isinstance(operand, _Number):
            return _number_of(self.trace, *operand)
        if isinstance(operand, _Part):
            made: Value = self.trace.emit(view, operand.base, view=operand.view)
            return made
        return operand


class _Number(NamedTuple):
    """A number in front of the loop, as `dtype`."""

    number: Any
    dtype: np.dtype


class _Part(NamedTuple):
    """A part of a value, in front of the loop."""

    base: Value
    view: View


def _number_of(trace: Trace, number: Any, dtype: np.dtype) -> Any:
    """The value of a number in front of the loop."""
    if is_of(number, trace.numbers):
        return trace.number(RuntimeNumber(number._value, number._source), dtype)
    return trace.literal(settled(number), dtype)
