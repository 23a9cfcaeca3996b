"""The node of a loop, made from a wiring: the body, its operands, and the new operands of later nodes.

A value that later nodes read of the last round only becomes an output of the loop. Values that they read of
other rounds (those that a backward pass needs, results that are collected) are stacked: one array with a row
for each round, of which they read views. Views of values from before the loop stay in front of the loop; a
transposed factor of products of few rows is copied there, once. A carried value that is read or stored at
places that move becomes one window, if all places of a round move alike.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from tracejit import ops
from tracejit.ir.graph import Builder, Effect, Graph, Node, Value, constant_of
from tracejit.ir.rounds import merge, merge_attributes
from tracejit.ir.structure import structure
from tracejit.ir.types import ArrayType
from tracejit.ir.view import View, contiguous_strides
from tracejit.passes.products import would_be_tiled
from tracejit.passes.rolling.wiring import RecordedGraph, Unlike, Wire, WireKind, Wiring


def make_loop(
    recorded: RecordedGraph, wiring: Wiring, renamed: dict[Value, Value], bodies: dict[Hashable, Graph]
) -> list[Node]:
    """The nodes that replace a run: the loop, its operands, and views of stacks for later nodes.

    The values that replace the run's are added to `renamed`. Equal bodies are one graph
    (`bodies`). Raises `Unlike` where a place that moves cannot be a window.
    """
    try:
        return _LoopMaker(recorded, wiring).run(renamed, bodies)
    except Unlike:
        return _MovingLoopMaker(recorded, wiring).run(renamed, bodies)


class MovingWindow(NamedTuple):
    """A place that moves with the rounds: elements from `start` on, further by `step` each round."""

    start: int
    size: int
    step: int


class _LoopMaker:
    """The state of making one loop. Results of a round are named (node of the round, output)."""

    def __init__(self, recorded: RecordedGraph, wiring: Wiring):
        self.recorded, self.wiring = recorded, wiring
        self.nodes = recorded.nodes[wiring.start : wiring.start + wiring.period]
        self.body = Builder()
        self.operands: list[Value] = []
        self.moves: list[tuple[int, int]] = []
        self.inputs: dict[Hashable, Value] = {}  # of the body
        self.values: dict[tuple[int, int], Value] = {}  # of the body, by place
        self.windows: dict[Hashable, MovingWindow] = {}  # of carried operands that move
        self.low: dict[tuple[int, int] | Value, int] = {}  # where the windows of such values start
        self.effects: list[Effect] = []
        self.before: list[Node] = []
        self.after: list[Node] = []

    def run(self, renamed: dict[Value, Value], bodies: dict[Hashable, Graph]) -> list[Node]:
        self._check_extents()
        last, stacked = self._needed()
        carried = self._carried()
        self._find_windows(carried, last, stacked)
        for source in carried:
            self._input(source, source.value, self.windows.get(source), self._type_of(source))
        for q, node in enumerate(self.nodes):
            self._copy(q, node)
        outputs: dict[tuple[int, int], list[Value]] = {}
        finals: list[Value] = []
        for source in carried:
            self.effects.append(Effect(self.inputs[source], self.values[source.place]))
            assert source.value is not None
            finals.append(Value(source.value.type))
            outputs.setdefault(source.place, []).append(finals[-1])
        for place in last:
            if place not in outputs:
                outputs[place] = [self._keep(place, finals)]
        stacks = {place: self._stack(place, finals) for place in stacked}
        loop = self._node(finals, bodies)
        for place, stack in stacks.items():
            self._unstack(place, stack, renamed)
        for place in last:
            if place not in stacks:
                renamed[self._value(place, self.wiring.rounds - 1)] = outputs[place][0]
        return [*self.before, loop, *self.after]

    def _check_extents(self) -> None:
        """Refuse rounds of different sizes."""
        last = self.recorded.nodes[self.wiring.end - self.wiring.period : self.wiring.end]
        for node, other in zip(self.nodes, last, strict=True):
            alike = all(v.type == w.type for v, w in zip(node.outputs, other.outputs, strict=True))
            if not alike or node.op is ops.loop:
                raise Unlike("rounds have different sizes", node.location)

    # ---- requirements

    def _value(self, place: tuple[int, int], round: int) -> Value:
        """A value of the recording."""
        q, k = place
        return self.recorded.nodes[self.wiring.start + round * self.wiring.period + q].outputs[k]

    def _needed(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """The places of which later nodes read the last round, and those of which they read other rounds.
        Views of values from before the loop are made there.
        """
        last, stacked = [], []
        rounds, end = self.wiring.rounds, self.wiring.end
        for q, node in enumerate(self.nodes):
            if self._is_outside(q):
                seen = self.recorded.nodes[self.wiring.start + q : end : self.wiring.period]
                self.before += [view for view in seen if self.recorded.is_needed(view.output, end)]
                continue
            for k in range(len(node.outputs)):
                if any(self.recorded.is_needed(self._value((q, k), r), end) for r in range(rounds - 1)):
                    if node.op is ops.update or node.op is ops.loop:
                        raise Unlike("contents of several rounds are needed later", node.location)
                    stacked.append((q, k))
                if self.recorded.is_needed(self._value((q, k), rounds - 1), end):
                    last.append((q, k))
        for q, k in (*last, *stacked):
            if self.nodes[q].outputs[k].type.on_host:
                raise Unlike("a number that is computed in a round is needed later", self.nodes[q].location)
        return last, stacked

    def _is_outside(self, q: int) -> bool:
        """Whether a node of the round is a view of one value from before the loop."""
        return self.nodes[q].op is ops.view and self.wiring.sources[q][0].kind is WireKind.FIXED

    def _carried(self) -> list[Wire]:
        """The sources that rounds carry, each once."""
        found = [s for sources in self.wiring.sources for s in sources if s.kind is WireKind.CARRIED]
        for source in found:
            if source.value is None or source.value.type.on_host:
                raise Unlike("a number is carried", self.nodes[source.place[0]].location)
        return list(dict.fromkeys(found))

    # ---- places that move

    def _find_windows(
        self, carried: list[Wire], last: list[tuple[int, int]], stacked: list[tuple[int, int]]
    ) -> None:
        """Find the windows of carried values that are read or stored at places that move."""
        steps, sources = self.wiring.steps, self.wiring.sources
        for source in carried:
            members: set[tuple[int, int]] = set()
            uses: list[tuple[int, int]] = []
            for q, node in enumerate(self.nodes):
                for k, operand in enumerate(sources[q]):
                    if operand == source or (operand.kind is WireKind.INNER and operand.place in members):
                        uses.append((q, k))
                        if node.op is ops.update and k == 0:
                            members.add((q, 0))
            accesses = [
                self.nodes[q] for q, k in uses if k == 0 and self.nodes[q].op in (ops.view, ops.update)
            ]
            moving = {steps[q] for q, k in uses if k == 0}
            if moving <= {0}:
                continue
            others = {s.place for s in carried if s is not source} | set(stacked) | set(last)
            if (
                len(accesses) < len(uses)
                or len(moving) > 1
                or source.place not in members
                or (others - {source.place}) & members
                or any(s.place == source.place for s in carried if s is not source)
            ):
                node = self.nodes[source.place[0]]
                raise Unlike("an array is used at places that move, and at others", node.location)
            spans = [node.attrs["view"].span() for node in accesses]
            low = min(span[0] for span in spans)
            self.windows[source] = MovingWindow(low, max(span[1] for span in spans) - low, moving.pop())
            self.low[self.inputs_key(source)] = low
            self.low.update(dict.fromkeys(members, low))

    @staticmethod
    def inputs_key(source: Wire) -> tuple[int, int]:
        """A key for the carried value itself among places."""
        return -1 - source.place[0], source.place[1]

    def _type_of(self, source: Wire) -> ArrayType:
        """The type of a carried value in the body."""
        assert source.value is not None
        window = self.windows.get(source)
        type = source.value.type
        return type if window is None else ArrayType((window.size,), type.dtype, type.device)

    def _input(
        self,
        key: Hashable,
        operand: Value | None,
        window: MovingWindow | None,
        type: ArrayType,
        grows: int = 0,
    ) -> Value:
        """An input of the body, made once."""
        found = self.inputs.get(key)
        if found is None:
            assert operand is not None
            found = self.inputs[key] = self.body.input(type)
            self.operands.append(operand)
            self.moves.append((0, grows) if window is None else (window.start, window.step))
        return found

    # ---- the body

    def _copy(self, q: int, node: Node) -> None:
        """Append a node of the round to the body."""
        sources, step = self.wiring.sources[q], self.wiring.steps[q]
        if node.outputs and all(v.type.on_host for v in node.outputs):
            raise Unlike("a round computes with numbers", node.location)
        base, attrs = sources[0] if sources else None, node.attrs
        if base is not None and (node.op is ops.view or node.op is ops.update):
            view: View = attrs["view"]
            low = self._low(base)
            if low is not None:
                view = view.moved(-low)
            elif base.kind is WireKind.FIXED and base.value is not None and _is_window(node, step):
                self.values[q, 0] = self._seen(base.value, view, step)
                return
            elif self._is_outside(q) and self._is_turned(q):
                self.values[q, 0] = self._made_before(node)
                return
            elif step:
                raise Unlike("a place moves in an array that each round makes anew", node.location)
            attrs = {"view": view}
        inputs = [self._operand(source) for source in sources]
        if node.op is ops.update:  # of a window its type is another one
            self.values[q, 0] = self.body.append(node.op, tuple(inputs), node.location, attrs)
            return
        if attrs is not node.attrs:
            node = Node(node.op, node.inputs, node.outputs, attrs, node.location)
        for k, value in enumerate(self.body.copy(node, inputs)):
            self.values[q, k] = value

    def _is_turned(self, q: int) -> bool:
        """Whether a view is a transposed factor of a product that would read a copy of it in place."""
        if self.nodes[q].attrs["view"].strides[:1] != (1,):
            return False
        factor = Wire(WireKind.INNER, (q, 0))
        readers = zip(self.nodes, self.wiring.sources, strict=True)
        return any(n.op is ops.matmul and s[1] == factor and would_be_tiled(n) for n, s in readers)

    def _made_before(self, view: Node) -> Value:
        """A view that is materialised once, before the loop."""
        if view not in self.before:
            self.before.append(view)
        return self._input(view.output, view.output, None, view.output.type)

    def _low(self, source: Wire) -> int | None:
        if source.kind is WireKind.CARRIED:
            return self.low.get(self.inputs_key(source)) if source in self.windows else None
        return self.low.get(source.place) if source.kind is WireKind.INNER else None

    def _operand(self, source: Wire) -> Value:
        """An operand in the body."""
        if source.kind is WireKind.INNER:
            return self.values[source.place]
        value = source.value
        assert value is not None
        if source.kind is WireKind.CARRIED:
            return self.inputs[source]
        if source.kind is WireKind.NUMBERS:
            return self._input(source, value, None, value.type, source.step)
        if source.kind is WireKind.VIEWS:
            seen = self.recorded.seen(value)
            assert seen is not None
            return self._seen(*seen, source.step)
        constant = self.recorded.constants.get(value)
        if constant is not None:
            if value not in self.inputs:
                self.inputs[value] = self.body.copy(constant, ())[0]
            return self.inputs[value]
        return self._input(value, value, None, value.type)

    def _seen(self, base: Value, view: View, step: int) -> Value:
        """A view of a value from before the loop that moves by `step` elements."""
        low, high = view.span()
        contiguous = view.is_contiguous()
        shape = view.shape if contiguous else (high - low,)
        type = ArrayType(shape, base.type.dtype, base.type.device)
        window = self._input((base, low, step, shape), base, MovingWindow(low, high - low, step), type)
        if contiguous:
            return window
        seen: Value = self.body.emit(ops.view, window, view=view.moved(-low))
        return seen

    # ---- results

    def _empty(self, type: ArrayType) -> Value:
        """Memory from before the loop for a result that is not carried."""
        attrs = {"shape": type.shape, "dtype": type.dtype, "device": type.device}
        node = Node(ops.empty, (), (Value(type),), attrs, self.nodes[0].location)
        self.before.append(node)
        return node.output

    def _store(
        self, place: tuple[int, int], operand: Value, window: MovingWindow | None, finals: list[Value]
    ) -> Value:
        value = self.values[place]
        target = self._input(("result", place, window), operand, window, value.type)
        self.effects.append(Effect(target, value))
        finals.append(Value(operand.type))
        return finals[-1]

    def _keep(self, place: tuple[int, int], finals: list[Value]) -> Value:
        """Make the last round's value a result."""
        return self._store(place, self._empty(self.values[place].type), None, finals)

    def _stack(self, place: tuple[int, int], finals: list[Value]) -> Value:
        """Stack the values of all rounds."""
        type = self.values[place].type
        whole = ArrayType((self.wiring.rounds, *type.shape), type.dtype, type.device)
        return self._store(place, self._empty(whole), MovingWindow(0, type.size, type.size), finals)

    def _unstack(self, place: tuple[int, int], stack: Value, renamed: dict[Value, Value]) -> None:
        """Have later nodes read rows of a stack."""
        node = self.nodes[place[0]]
        for r in range(self.wiring.rounds):
            value = self._value(place, r)
            if self.recorded.is_needed(value, self.wiring.end):
                view = View(r * value.type.size, value.type.shape, contiguous_strides(value.type.shape))
                renamed[value] = Value(value.type)
                self.after.append(Node(ops.view, (stack,), (renamed[value],), {"view": view}, node.location))

    def _node(self, finals: list[Value], bodies: dict[Hashable, Graph]) -> Node:
        if not finals:
            raise Unlike("nothing of it is needed", self.nodes[0].location)
        made = self.body.graph([], self.effects)
        body = bodies.setdefault(structure(made, locations=True), made)
        dtype = np.dtype("int64")
        rounds = self.wiring.rounds
        count = Builder()
        counted = count.emit(ops.constant, **constant_of(rounds, dtype))
        self.before += count.nodes
        attrs = {"body": body, "moves": tuple(self.moves), "rounds": rounds}
        return Node(ops.loop, (counted, *self.operands), tuple(finals), attrs, self.nodes[0].location)


def _is_window(node: Node, step: int) -> bool:
    """Whether a node sees a value from before the loop where a loop of this body may see another place."""
    return node.op is ops.view and bool(step or node.attrs["view"].is_contiguous())


class _MovingLoopMaker(_LoopMaker):
    """A loop whose operands are seen in full, through views that move, and whose extents may differ between
    rounds: the numbers of its body are `Moving`.
    """

    def _check_extents(self) -> None:
        pass

    def _find_windows(
        self, carried: list[Wire], last: list[tuple[int, int]], stacked: list[tuple[int, int]]
    ) -> None:
        """Find no windows: the plan of a round decides on places."""
        for place in (*last, *stacked):
            types = [self._value(place, r).type for r in (0, self.wiring.rounds - 1)]
            if types[0] != types[1]:
                node = self.nodes[place[0]]
                raise Unlike("a result of another size in each round is needed later", node.location)

    def _copy(self, q: int, node: Node) -> None:
        column = self._column(q)
        if node.outputs and all(v.type.on_host for v in node.outputs):
            raise Unlike("a round computes with numbers", node.location)
        inputs = tuple([self._operand(source, q, k) for k, source in enumerate(self.wiring.sources[q])])
        runs = [1] * len(column)
        try:
            attrs = merge_attributes(column, runs)
            types = [
                merge([v.type for v in same], runs) for same in zip(*[n.outputs for n in column], strict=True)
            ]
        except Unlike as error:
            raise Unlike(f"{error} of {node.op.name}", node.location) from None
        outputs = tuple(map(Value, types))
        self.body.nodes.append(Node(node.op, inputs, outputs, attrs, node.location))
        for k, value in enumerate(outputs):
            self.values[q, k] = value

    def _column(self, q: int) -> Sequence[Node]:
        """A node of the round, in all rounds."""
        wiring = self.wiring
        return self.recorded.nodes[wiring.start + q : wiring.end : wiring.period]

    def _operand(self, source: Wire, q: int = 0, k: int = 0) -> Value:
        if source.kind is not WireKind.VIEWS:
            return super()._operand(source)
        found = [self.recorded.seen(node.inputs[k]) for node in self._column(q)]
        made = [each for each in found if each is not None]
        base = made[0][0]
        view = merge([view for _, view in made], [1] * len(made))
        whole = self._input(base, base, None, base.type)
        seen: Value = self.body.emit(ops.view, whole, view=view)
        return seen
