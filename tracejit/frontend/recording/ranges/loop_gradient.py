"""The gradient of a loop over `tj.range`: a loop over its rounds in reverse, on values that these have kept.

A round's gradient is that of its nodes (`passes.gradient`), in a graph of its own. The values of the round
that it reads are known before the loop is made, so the loop *keeps* them in arrays with a row for each round.
In the reverse loop, rows, moving places and the loop variable go in the other direction.

    forward                            backward, from the last round to the first
    x = tanh(x * w + a[i])             %ct: that of x; %w: sum for w so far; %a: sums for all of a
    keeps x and tanh(...)              %t = %ct * (1 - tanh ** 2); %w += %t * x; %a[i] += %t; %ct = %t * w

Sums over the rounds continue those of the operators after the loop, so additions come in the order of the
unrolled loop. A value on which nothing after the loop depends has a cotangent of zeros.
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

AGAIN = frozenset({constant, full, iota})
"""Operators whose results are computed again instead of kept."""


class Round(NamedTuple):
    """One round: nodes and steps on values of the loop's body, the stored values, all nodes of the body."""

    items: Items
    inputs: Sequence[Value]
    effects: Sequence[Effect]
    nodes: Sequence[Node]


class Pulled(NamedTuple):
    """The gradient of a round: seeds and results by the inputs of the body that they are cotangents of."""

    nodes: Sequence[Node]
    seeds: dict[Value, Value]
    found: dict[Value, Value | None]


def pull_back_round(
    round: Round, carried: Collection[Value], sums: Collection[Value], wrt: Sequence[Value]
) -> Pulled:
    """The gradient of a round, from the cotangents of the values that it stores in `carried` inputs; sums
    continue those of later rounds.
    """
    builder, seeds, ends = Builder(), {}, []
    for effect in round.effects:
        if effect.target in carried:
            seeds[effect.target] = builder.input(effect.value.type)
            ends.append(effect.value)
    for value in sums:
        seeds[value] = builder.input(value.type)
        ends.append(value)
    found = gradient(builder, round.items, ends, list(seeds.values()), wrt)
    return Pulled(builder.nodes, seeds, dict(zip(wrt, found, strict=True)))


def pull_back_rounds(round: Round, carried: Sequence[Value], wrt: Sequence[Value]) -> Pulled:
    """The gradient of every round, if the values stored in `carried` have cotangents from after the loop."""
    stored = [effect.target for effect in round.effects]
    while True:
        pulled = pull_back_round(round, carried, (), wrt)
        found = [v for v in wrt if pulled.found[v] is not None]
        more = [v for v in found if v in stored and v not in carried]
        if not more:
            return pull_back_round(round, carried, [v for v in found if v not in stored], wrt)
        carried = [*carried, *more]


def read_by(pulled: Pulled) -> list[Value]:
    """The values of its round that a gradient reads."""
    inside = {*pulled.seeds.values(), *(v for node in pulled.nodes for v in node.outputs)}
    read = [v for node in pulled.nodes for v in node.inputs]
    read += [v for v in pulled.found.values() if v is not None]
    return [v for v in dict.fromkeys(read) if v not in inside]


class Keeper:
    """The values that the rounds of a loop keep for their gradient, whatever it is taken of."""

    def __init__(self, body: LoopBody):
        builder = body.builder
        self.round = Round(body.items, list(builder.inputs), list(body.effects), builder.nodes)
        self.moves = list(body.moves)
        self.made = {value: node for node in builder.nodes for value in node.outputs}
        stored = [effect.target for effect in body.effects]
        wrt = [v for v in builder.inputs if _is_differentiable(v)]
        pulled = pull_back_rounds(self.round, [v for v in stored if v in wrt], wrt)
        self.kept: list[Value] = []
        for value in read_by(pulled):
            self._need(value, stored)
        used = {effect.value for effect in body.effects}
        for value in self.kept:
            stack = builder.input(value.type)
            body.moves.append((0, value.type.size))
            result = value if value in self.made and value not in used else builder.emit(copy, value)
            body.effects.append(Effect(stack, result))

    def _need(self, value: Value, stored: Collection[Value]) -> None:
        """Keep a value, or the values from which it is computed again."""
        node = self.made.get(value)
        if value in self.kept or (node is None and value not in stored):
            return
        if node is not None and self.is_made_again(node, stored):
            for operand in node.inputs:
                self._need(operand, stored)
            return
        self.kept.append(value)

    def is_made_again(self, node: Node, stored: Collection[Value]) -> bool:
        """Whether a node is so cheap that its result is not kept: a fill, or a view of an existing value."""
        if node.op is not view:
            return node.op in AGAIN
        base = node.inputs[0]
        return (base not in self.made and base not in stored) or node.output.type.size >= base.type.size

    def memory(self, builder: Builder, count: int, location: str) -> list[Value]:
        """The memory in which all rounds keep the value."""
        return [
            builder.emit(
                empty,
                location=location,
                shape=(count, *v.type.shape),
                dtype=v.type.dtype,
                device=v.type.device,
            )
            for v in self.kept
        ]

    def step(
        self,
        body: LoopBody,
        operands: Sequence[Value],
        outputs: Sequence[Value],
        nodes: Sequence[Node],
        last: dict[int, Value],
    ) -> ReverseStep:
        """The loop on the tape. `last`: numbers of the last round, by operand."""
        inputs = list(operands[: len(self.round.inputs)])
        return LoopStep(self, body.loop, int(body.count), inputs, outputs, nodes, last)


def _is_differentiable(value: Value) -> bool:
    return is_inexact(value.type.dtype) and not value.type.on_host


class LoopStep(CopiedStep):
    """A loop on a tape. Its inputs are the loop's operands, its outputs the carried values after it and the
    kept values.
    """

    def __init__(
        self,
        keeper: Keeper,
        loop: RangeLoop,
        count: int,
        operands: Sequence[Value],
        outputs: Sequence[Value],
        nodes: Sequence[Node],
        last: dict[int, Value],
    ):
        super().__init__(operands, outputs)
        self.keeper, self.loop, self.count = keeper, loop, count
        self.nodes, self.last = nodes, last

    def copy_for(self, copier: Copier) -> ReverseStep:
        """The step for copies of the nodes."""
        nodes = [node for node in copier.copies(self.nodes) if isinstance(node, Node)]
        inputs, outputs = ([copier.found(v) for v in values] for values in (self.inputs, self.outputs))
        last = {i: copier.found(v) for i, v in self.last.items()}
        return LoopStep(self.keeper, self.loop, self.count, inputs, outputs, nodes, last)

    def pull_back_onto(
        self,
        builder: Builder,
        cotangents: Sequence[Value | None],
        active: Set[Value],
        totals: Sequence[Value | None],
    ) -> Sequence[Value | None]:
        """Append the loop over the rounds in reverse."""
        trace = self.loop.trace
        if type(builder) is not Builder and (len(trace.tapes) > 1 or builder is not trace):
            self.loop.unroll("a gradient is taken of a gradient, or of many examples")
        round = self.keeper.round
        wrt = self._wrt(active)
        given = [
            effect.target
            for effect, ct in zip(round.effects, cotangents, strict=False)
            if ct is not None and effect.target in wrt
        ]
        if not given:
            return [None] * len(self.inputs)
        pulled = pull_back_rounds(round, given, wrt)
        backward = _Backward(self, builder, pulled)
        if not isinstance(builder, Recording):
            return backward.emit(cotangents, totals)
        with lock, quiet:
            return backward.emit(cotangents, totals)

    def _wrt(self, active: Set[Value]) -> list[Value]:
        """The inputs of the body that depend on active values."""
        round = self.keeper.round
        held = zip(round.inputs, self.inputs, strict=True)
        found = {v for v, operand in held if operand in active and _is_differentiable(v)}
        while True:
            reached = nodes_between(round.items, list(found))[1]
            more = {e.target for e in round.effects if e.value in reached and _is_differentiable(e.target)}
            if more <= found:
                return [v for v in round.inputs if v in found]
            found |= more


class _Backward:
    """The loop over the rounds in reverse, under construction."""

    def __init__(self, step: LoopStep, builder: Builder, pulled: Pulled):
        self.step, self.around, self.pulled = step, builder, pulled
        self.body = Builder()
        self.operands: list[Value] = []
        self.moves: list[tuple[int, int]] = []
        self.values: dict[Value, Value] = {}  # of the body, for values of the round and its gradient
        self.location = step.nodes[-1].location
        self.number = {value: i for i, value in enumerate(step.keeper.round.inputs)}
        stacks = step.outputs[len(step.keeper.round.effects) :]
        self.stacks = dict(zip(step.keeper.kept, stacks, strict=True))

    def emit(self, cotangents: Sequence[Value | None], totals: Sequence[Value | None]) -> list[Value | None]:
        """Append the loop; the sums of cotangents of the operands."""
        step, pulled = self.step, self.pulled
        behind = {e.target: ct for e, ct in zip(step.keeper.round.effects, cotangents, strict=False)}
        sums = dict(zip(step.inputs, totals, strict=True))
        targets = []
        for value, seed in pulled.seeds.items():
            operand = step.inputs[self.number[value]]
            begin = behind[value] if value in behind else sums.pop(operand, None)  # each sum continues once
            if begin is None:
                begin = self._zeros(self.around, operand.type)
            targets.append(self._input(seed, begin, self._reversed(value), value.type))
        for node in pulled.nodes:
            outputs = self.body.copy(node, [self._found(v) for v in node.inputs])
            self.values.update(zip(node.outputs, outputs, strict=True))
        effects, used = [], set(self.body.inputs)
        for value, target in zip(pulled.seeds, targets, strict=True):
            found = pulled.found[value]
            new = self._zeros(self.body, value.type) if found is None else self._found(found)
            if new in used or new in self.body.inputs:
                new = self.body.emit(copy, new)
            used.add(new)
            effects.append(Effect(target, new))
        count = self.around.emit(constant, **constant_of(step.count, np.dtype("int64")))
        attrs = {"body": self.body.graph([], effects), "moves": tuple(self.moves), "rounds": step.count}
        ends = self.around.emit(loop_op, count, *self.operands, location=self.location, **attrs)
        for value, end in zip(pulled.seeds, ends, strict=True):
            operand = step.inputs[self.number[value]]
            known = sums.get(operand)
            sums[operand] = end if known is None else self._sum(known, end)
        return [sums[operand] for operand in step.inputs]

    def _sum(self, one: Value, other: Value) -> Value:
        made: Value = self.around.emit(add, one, other, location=self.location)
        return made

    def _zeros(self, builder: Builder, type: ArrayType) -> Value:
        zero = builder.emit(constant, **constant_of(0.0, type.dtype))
        made: Value = builder.emit(full, zero, location=self.location, shape=type.shape, device=type.device)
        return made

    def _reversed(self, value: Value) -> tuple[int, int]:
        """The motion of an input of the forward body in the reverse loop."""
        start, step = self.step.keeper.moves[self.number[value]]
        return start + step * (self.step.count - 1), -step

    def _input(self, value: Value, operand: Value, moves: tuple[int, int], type: ArrayType) -> Value:
        self.operands.append(operand)
        self.moves.append(moves)
        self.values[value] = made = self.body.input(type)
        return made

    def _found(self, value: Value) -> Value:
        """A value of the round, or of its gradient, in the body."""
        known = self.values.get(value)
        if known is not None:
            return known
        step = self.step
        stack = self.stacks.get(value)
        if stack is not None:
            size = value.type.size
            return self._input(value, stack, (size * (step.count - 1), -size), value.type)
        if value in self.number:
            i = self.number[value]
            if not value.type.on_host:
                return self._input(value, step.inputs[i], self._reversed(value), value.type)
            return self._input(
                value, step.last.get(i, step.inputs[i]), (0, -step.keeper.moves[i][1]), value.type
            )
        node = step.keeper.made[value]
        outputs = self.body.copy(node, [self._found(v) for v in node.inputs])
        self.values.update(zip(node.outputs, outputs, strict=True))
        return self.values[value]
