"""The gradient of a loop over `tj.range`: a loop over its iterations in reverse, which reads values that the
forward loop has saved.

The gradient of an iteration is the gradient of its nodes (`passes.gradient`), in a separate graph. The values
of the iteration that this graph reads, its *residuals*, are known before the loop node is emitted. The
forward loop stores them in arrays with a row for each iteration. In the reverse loop, rows, moving positions
and the loop variable advance in the opposite direction.

    forward                            backward, from the last iteration to the first
    x = tanh(x * w + a[i])             %ct: cotangent of x; %w: partial sum for w; %a: sums for all of a
    saves x and tanh(...)              %t = %ct * (1 - tanh ** 2); %w += %t * x; %a[i] += %t; %ct = %t * w

Sums over the iterations start from the sums of the operators after the loop, so additions are done in the
order of the unrolled loop. A value on which nothing after the loop depends has a cotangent of zeros.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tracejit.frontend.recording.recording import Recording, lock, quiet
from tracejit.ir.graph import Builder, Effect, Node, Value, constant_of
from tracejit.ir.types import ArrayType, is_inexact
from tracejit.ops import add, constant, copy, empty, full, iota, view
from tracejit.ops.loops import loop as loop_op
from tracejit.passes.copier import CopiedStep, Copier
from tracejit.passes.gradient import Items, ReverseStep, gradient, nodes_between

if TYPE_CHECKING:
    from tracejit.frontend.recording.ranges.loop_node import LoopBody
    from tracejit.frontend.recording.ranges.ranges import RangeLoop

RECOMPUTED = frozenset({constant, full, iota})
"""Operators whose results are recomputed instead of saved."""


class Iteration(NamedTuple):
    """One iteration: its nodes and steps on values of the loop's body, the body's inputs, the stored values,
    and all nodes of the body.
    """

    items: Items
    inputs: Sequence[Value]
    effects: Sequence[Effect]
    nodes: Sequence[Node]


class Pullback(NamedTuple):
    """The gradient of an iteration. `seeds` are its inputs and `cotangents` its results, both by the input of
    the body whose cotangents they are.
    """

    nodes: Sequence[Node]
    seeds: dict[Value, Value]
    cotangents: dict[Value, Value | None]


def pull_back_iteration(
    iteration: Iteration, carried: Collection[Value], sums: Collection[Value], wrt: Sequence[Value]
) -> Pullback:
    """Return the gradient of an iteration, given the cotangents of the values that it stores in the `carried`
    inputs. The gradients of the inputs `sums` are added to sums of later iterations.
    """
    builder, seeds, ends = Builder(), {}, []
    for effect in iteration.effects:
        if effect.target in carried:
            seeds[effect.target] = builder.input(effect.value.type)
            ends.append(effect.value)
    for value in sums:
        seeds[value] = builder.input(value.type)
        ends.append(value)
    cotangents = gradient(builder, iteration.items, ends, list(seeds.values()), wrt)
    return Pullback(builder.nodes, seeds, dict(zip(wrt, cotangents, strict=True)))


def pull_back_loop(iteration: Iteration, carried: Sequence[Value], wrt: Sequence[Value]) -> Pullback:
    """Return a gradient that is valid for every iteration, if the values stored in `carried` have cotangents
    from after the loop. Repeats until the set of loop-carried inputs with cotangents no longer grows.
    """
    stored = [effect.target for effect in iteration.effects]
    while True:
        pullback = pull_back_iteration(iteration, carried, (), wrt)
        active = [v for v in wrt if pullback.cotangents[v] is not None]
        added = [v for v in active if v in stored and v not in carried]
        if not added:
            return pull_back_iteration(iteration, carried, [v for v in active if v not in stored], wrt)
        carried = [*carried, *added]


def read_by(pullback: Pullback) -> list[Value]:
    """Return the values of an iteration that its gradient reads."""
    defined = {*pullback.seeds.values(), *(v for node in pullback.nodes for v in node.outputs)}
    read = [v for node in pullback.nodes for v in node.inputs]
    read += [v for v in pullback.cotangents.values() if v is not None]
    return [v for v in dict.fromkeys(read) if v not in defined]


class ResidualKeeper:
    """The residuals that the iterations of a loop save for its gradient, with respect to any operand."""

    def __init__(self, body: LoopBody):
        builder = body.builder
        self.iteration = Iteration(body.items, list(builder.inputs), list(body.effects), builder.nodes)
        self.moves = list(body.moves)
        self.producers = {value: node for node in builder.nodes for value in node.outputs}
        stored = [effect.target for effect in body.effects]
        wrt = [v for v in builder.inputs if _is_differentiable(v)]
        pullback = pull_back_loop(self.iteration, [v for v in stored if v in wrt], wrt)
        self.saved: list[Value] = []
        for value in read_by(pullback):
            self._save(value, stored)
        already_stored = {effect.value for effect in body.effects}
        for value in self.saved:
            stack = builder.input(value.type)
            body.moves.append((0, value.type.size))
            is_new = value in self.producers and value not in already_stored
            result = value if is_new else builder.emit(copy, value)
            body.effects.append(Effect(stack, result))

    def _save(self, value: Value, stored: Collection[Value]) -> None:
        """Save a value, or the values from which it is recomputed."""
        node = self.producers.get(value)
        if value in self.saved or (node is None and value not in stored):
            return
        if node is not None and self.is_recomputed(node, stored):
            for operand in node.inputs:
                self._save(operand, stored)
            return
        self.saved.append(value)

    def is_recomputed(self, node: Node, stored: Collection[Value]) -> bool:
        """Whether recomputing a node is so cheap that its result is not saved: a fill, or a view of an
        existing value.
        """
        if node.op is not view:
            return node.op in RECOMPUTED
        base = node.inputs[0]
        return (base not in self.producers and base not in stored) or node.output.type.size >= base.type.size

    def allocate(self, builder: Builder, trip_count: int, location: str) -> list[Value]:
        """Allocate the arrays in which the loop stores the residuals of all iterations."""
        return [
            builder.emit(
                empty,
                location=location,
                shape=(trip_count, *v.type.shape),
                dtype=v.type.dtype,
                device=v.type.device,
            )
            for v in self.saved
        ]

    def step(
        self,
        body: LoopBody,
        operands: Sequence[Value],
        outputs: Sequence[Value],
        nodes: Sequence[Node],
        last: dict[int, Value],
    ) -> ReverseStep:
        """Return the loop as a step on a tape. `last`: numbers of the last iteration, by operand."""
        inputs = list(operands[: len(self.iteration.inputs)])
        return LoopStep(self, body.loop, int(body.trip_count), inputs, outputs, nodes, last)


def _is_differentiable(value: Value) -> bool:
    return is_inexact(value.type.dtype) and not value.type.on_host


class LoopStep(CopiedStep):
    """A loop on a tape. Its inputs are the loop's operands. Its outputs are the loop-carried values after the
    loop, and the residuals.
    """

    def __init__(
        self,
        keeper: ResidualKeeper,
        loop: RangeLoop,
        trip_count: int,
        operands: Sequence[Value],
        outputs: Sequence[Value],
        nodes: Sequence[Node],
        last: dict[int, Value],
    ):
        super().__init__(operands, outputs)
        self.keeper, self.loop, self.trip_count = keeper, loop, trip_count
        self.nodes, self.last = nodes, last

    def copy_for(self, copier: Copier) -> ReverseStep:
        """Return the step for copies of the nodes."""
        nodes = [node for node in copier.copies(self.nodes) if isinstance(node, Node)]
        inputs, outputs = ([copier.copy_of(v) for v in values] for values in (self.inputs, self.outputs))
        last = {i: copier.copy_of(v) for i, v in self.last.items()}
        return LoopStep(self.keeper, self.loop, self.trip_count, inputs, outputs, nodes, last)

    def pull_back_onto(
        self,
        builder: Builder,
        cotangents: Sequence[Value | None],
        active: Set[Value],
        totals: Sequence[Value | None],
    ) -> Sequence[Value | None]:
        """Append the loop over the iterations in reverse."""
        trace = self.loop.trace
        if type(builder) is not Builder and (len(trace.tapes) > 1 or builder is not trace):
            self.loop.unroll("a gradient is taken of a gradient, or of many examples")
        iteration = self.keeper.iteration
        wrt = self._wrt(active)
        targets = [
            effect.target
            for effect, ct in zip(iteration.effects, cotangents, strict=False)
            if ct is not None and effect.target in wrt
        ]
        if not targets:
            return [None] * len(self.inputs)
        pullback = pull_back_loop(iteration, targets, wrt)
        backward = _Backward(self, builder, pullback)
        if not isinstance(builder, Recording):
            return backward.emit(cotangents, totals)
        with quiet, lock:
            return backward.emit(cotangents, totals)

    def _wrt(self, active: Set[Value]) -> list[Value]:
        """Return the inputs of the body that depend on active values."""
        iteration = self.keeper.iteration
        operands = zip(iteration.inputs, self.inputs, strict=True)
        active_inputs = {v for v, operand in operands if operand in active and _is_differentiable(v)}
        while True:
            dependent = nodes_between(iteration.items, list(active_inputs))[1]
            added = {
                e.target for e in iteration.effects if e.value in dependent and _is_differentiable(e.target)
            }
            if added <= active_inputs:
                return [v for v in iteration.inputs if v in active_inputs]
            active_inputs |= added


class _Backward:
    """The loop over the iterations in reverse, under construction."""

    def __init__(self, step: LoopStep, builder: Builder, pullback: Pullback):
        self.step, self.outer, self.pullback = step, builder, pullback
        self.body = Builder()
        self.operands: list[Value] = []
        self.moves: list[tuple[int, int]] = []
        self.values: dict[Value, Value] = {}  # values of the body, by forward value
        self.location = step.nodes[-1].location
        self.positions = {value: i for i, value in enumerate(step.keeper.iteration.inputs)}
        stacks = step.outputs[len(step.keeper.iteration.effects) :]
        self.stacks = dict(zip(step.keeper.saved, stacks, strict=True))

    def emit(self, cotangents: Sequence[Value | None], totals: Sequence[Value | None]) -> list[Value | None]:
        """Append the loop. Return the sums of the cotangents of the operands."""
        step, pullback = self.step, self.pullback
        after = {e.target: ct for e, ct in zip(step.keeper.iteration.effects, cotangents, strict=False)}
        sums = dict(zip(step.inputs, totals, strict=True))
        targets = []
        for value, seed in pullback.seeds.items():
            operand = step.inputs[self.positions[value]]
            # Only one input of the body may continue the sum of an operand.
            initial = after[value] if value in after else sums.pop(operand, None)
            if initial is None:
                initial = self._zeros(self.outer, operand.type)
            targets.append(self._input(seed, initial, self._reversed(value), value.type))
        for node in pullback.nodes:
            outputs = self.body.copy(node, [self._value(v) for v in node.inputs])
            self.values.update(zip(node.outputs, outputs, strict=True))
        effects, stored = [], set(self.body.inputs)
        for value, target in zip(pullback.seeds, targets, strict=True):
            cotangent = pullback.cotangents[value]
            new = self._zeros(self.body, value.type) if cotangent is None else self._value(cotangent)
            if new in stored or new in self.body.inputs:
                new = self.body.emit(copy, new)
            stored.add(new)
            effects.append(Effect(target, new))
        trip_count = self.outer.emit(constant, **constant_of(step.trip_count, np.dtype("int64")))
        attrs = {"body": self.body.graph([], effects), "moves": tuple(self.moves), "rounds": step.trip_count}
        results = self.outer.emit(loop_op, trip_count, *self.operands, location=self.location, **attrs)
        for value, result in zip(pullback.seeds, results, strict=True):
            operand = step.inputs[self.positions[value]]
            total = sums.get(operand)
            sums[operand] = result if total is None else self._sum(total, result)
        return [sums[operand] for operand in step.inputs]

    def _sum(self, one: Value, other: Value) -> Value:
        total: Value = self.outer.emit(add, one, other, location=self.location)
        return total

    def _zeros(self, builder: Builder, type: ArrayType) -> Value:
        zero = builder.emit(constant, **constant_of(0.0, type.dtype))
        zeros: Value = builder.emit(full, zero, location=self.location, shape=type.shape, device=type.device)
        return zeros

    def _reversed(self, value: Value) -> tuple[int, int]:
        """Return the motion (start and step) of an input of the forward body in the reverse loop."""
        start, step = self.step.keeper.moves[self.positions[value]]
        return start + step * (self.step.trip_count - 1), -step

    def _input(self, value: Value, operand: Value, moves: tuple[int, int], type: ArrayType) -> Value:
        self.operands.append(operand)
        self.moves.append(moves)
        self.values[value] = new = self.body.input(type)
        return new

    def _value(self, value: Value) -> Value:
        """Return the value of the reverse body for a value of the iteration or of its gradient."""
        copied = self.values.get(value)
        if copied is not None:
            return copied
        step = self.step
        stack = self.stacks.get(value)
        if stack is not None:
            size = value.type.size
            return self._input(value, stack, (size * (step.trip_count - 1), -size), value.type)
        if value in self.positions:
            i = self.positions[value]
            if not value.type.on_host:
                return self._input(value, step.inputs[i], self._reversed(value), value.type)
            return self._input(
                value, step.last.get(i, step.inputs[i]), (0, -step.keeper.moves[i][1]), value.type
            )
        node = step.keeper.producers[value]
        outputs = self.body.copy(node, [self._value(v) for v in node.inputs])
        self.values.update(zip(node.outputs, outputs, strict=True))
        return self.values[value]
