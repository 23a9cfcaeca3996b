"""From a recorded round to a node `loop` that stands for it and all further ones.

The nodes between two equal heads leave the recording and become the body. What a variable holds at the first
head is an input of the body, which it writes if the variable holds something else at the second head; what
else the body reads was there before. Numbers that move are inputs that grow.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit.frontend.recording.heads import Head
from tracejit.frontend.recording.number import Moving, NumberProxy, is_of, settled
from tracejit.frontend.recording.recording import Literal, RuntimeNumber, Window
from tracejit.ir.graph import Builder, Effect, Graph, Node, Value
from tracejit.ir.structure import structure
from tracejit.ops import constant, copy
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
    body = _Body(trace, rounds, trace.nodes[before.nodes :], carried)
    graph = body.graph()
    _forget(trace, before, rounds)
    operands = [v if isinstance(v, Value) else _number_of(trace, *v) for v in body.operands]
    if is_of(count, trace.numbers):
        counted = trace.number(RuntimeNumber(count._value, count._source), COUNT)
    else:
        counted = trace.literal(settled(count), COUNT)
    attrs = {"body": graph, "moves": tuple(body.moves), "rounds": int(settled(count))}
    outputs = trace.emit(loop, counted, *operands, location=location, **attrs)
    final = dict(zip(carried, outputs, strict=True))
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


class _Body:
    """The body of a loop under construction, and its operands."""

    def __init__(self, trace: Trace, rounds: Any, nodes: list[Node], carried: dict[Value, Value]) -> None:
        self.trace, self.rounds, self.nodes, self.carried = trace, rounds, nodes, carried
        self.builder = Builder()
        self.operands: list[Value | tuple[Any, np.dtype]] = []
        self.moves: list[tuple[int, int]] = []
        self.values: dict[Value, Value] = {}
        self.constants = {node.output: node for node in trace.nodes if node.op is constant}
        self.made = {value for node in nodes for value in node.outputs}

    def graph(self) -> Graph:
        """The body; equal ones are one object."""
        targets = [self._input(value, value) for value in self.carried]
        for node in self.nodes:
            if node.op is constant:
                continue
            outputs = self.builder.copy(node, [self._value(value) for value in node.inputs])
            self.values.update(zip(node.outputs, outputs, strict=True))
        effects, used = [], set()
        for target, last in zip(targets, self.carried.values(), strict=True):
            value = self._value(last)
            if last in used or last not in self.made:
                value = self.builder.emit(copy, value)
            used.add(last)
            effects.append(Effect(target, value))
        made = self.builder.graph([], effects)
        return _bodies.setdefault(structure(made, locations=True), made)

    def _input(self, value: Value, operand: Value | tuple[Any, np.dtype], step: int = 0) -> Value:
        self.operands.append(operand)
        self.moves.append((0, step))
        self.values[value] = found = self.builder.input(value.type)
        return found

    def _value(self, value: Value) -> Value:
        """A value of the recording in the body."""
        found = self.values.get(value)
        if found is not None:
            return found
        dtype, moving = value.type.dtype, self.trace.moving.get(value)
        while type(moving) is Moving:
            if moving.rounds is self.rounds:
                return self._input(value, (moving.base, dtype), moving.slope)
            if moving.rounds in self.trace.open_ranges:  # an outer loop
                return self._input(value, (self.rounds.number(moving), dtype))
            moving = moving.base._source if type(moving.base) is NumberProxy else None
        if value in self.constants:
            (found,) = self.builder.copy(self.constants[value], ())
        elif isinstance(literal := self.trace.carried.get(value), Literal):
            found = self.builder.emit(constant, **literal.attrs)
        else:
            return self._input(value, value)
        self.values[value] = found
        return found


def _number_of(trace: Trace, number: Any, dtype: np.dtype) -> Any:
    """The value of a number in front of the loop."""
    if is_of(number, trace.numbers):
        return trace.number(RuntimeNumber(number._value, number._source), dtype)
    return trace.literal(settled(number), dtype)
