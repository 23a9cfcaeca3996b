"""Construction of a `loop` node from a wiring: its body, its operands, and the new operands of later nodes.

A value of which later nodes read the last iteration only becomes an output of the loop. Values of which they
read other iterations (for a backward pass, or as collected results) are stacked: they are stored in one array
with a row for each iteration, and later nodes read views of it. Views of values from before the loop are
hoisted; a transposed factor of products of few rows is also copied there, once. A loop-carried value that is
read or stored at moving offsets becomes one window, if all offsets of an iteration have the same step.

A result of an iteration is identified by a pair (index of its node in the iteration, index of the output).
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from tracejit import ops
from tracejit.ir.graph import Builder, Effect, Graph, Node, Value, constant_of
from tracejit.ir.iterations import merge, merge_attributes
from tracejit.ir.structure import structure
from tracejit.ir.types import ArrayType
from tracejit.ir.view import View, contiguous_strides
from tracejit.passes.products import would_be_tiled
from tracejit.passes.rolling.wiring import NotRollable, RecordedGraph, Wire, WireKind, Wiring


def make_loop(
    recorded: RecordedGraph, wiring: Wiring, renamed: dict[Value, Value], bodies: dict[Hashable, Graph]
) -> list[Node]:
    """Return the nodes that replace a run: the loop, its operands, and views of stacks for later nodes.

    The values that replace those of the run are added to `renamed`. Equal bodies are shared, through
    `bodies`. If moving offsets cannot be expressed by windows, the body has views with moving offsets
    instead. Raises `NotRollable` if the run cannot be a loop.
    """
    try:
        return _WindowLoop(recorded, wiring).run(renamed, bodies)
    except NotRollable:
        return _MovingViewLoop(recorded, wiring).run(renamed, bodies)


class MovingWindow(NamedTuple):
    """A window of `size` elements, at `start` in the first iteration, that moves by `step` per iteration."""

    start: int
    size: int
    step: int


class _WindowLoop:
    """The state of the construction of one loop."""

    def __init__(self, recorded: RecordedGraph, wiring: Wiring):
        self.recorded, self.wiring = recorded, wiring
        self.nodes = recorded.nodes[wiring.start : wiring.start + wiring.period]
        self.body = Builder()
        self.operands: list[Value] = []
        self.moves: list[tuple[int, int]] = []
        self.inputs: dict[Hashable, Value] = {}  # of the body
        self.values: dict[tuple[int, int], Value] = {}  # of the body, by result
        self.windows: dict[Hashable, MovingWindow] = {}  # of loop-carried operands that move
        self.window_starts: dict[
            tuple[int, int] | Value, int
        ] = {}  # the start of the window of such operands
        self.effects: list[Effect] = []
        self.before: list[Node] = []
        self.after: list[Node] = []

    def run(self, renamed: dict[Value, Value], bodies: dict[Hashable, Graph]) -> list[Node]:
        self._check_extents()
        last, stacked = self._live_out()
        carried = self._carried_sources()
        self._find_windows(carried, last, stacked)
        for source in carried:
            self._input(source, source.value, self.windows.get(source), self._type_of(source))
        for q, node in enumerate(self.nodes):
            self._copy(q, node)
        outputs: dict[tuple[int, int], list[Value]] = {}
        finals: list[Value] = []
        for source in carried:
            self.effects.append(Effect(self.inputs[source], self.values[source.result]))
            assert source.value is not None
            finals.append(Value(source.value.type))
            outputs.setdefault(source.result, []).append(finals[-1])
        for result in last:
            if result not in outputs:
                outputs[result] = [self._store_last(result, finals)]
        stacks = {result: self._stack(result, finals) for result in stacked}
        loop = self._node(finals, bodies)
        for result, stack in stacks.items():
            self._unstack(result, stack, renamed)
        for result in last:
            if result not in stacks:
                renamed[self._value(result, self.wiring.trip_count - 1)] = outputs[result][0]
        return [*self.before, loop, *self.after]

    def _check_extents(self) -> None:
        """Raise `NotRollable` if the types of results differ between iterations."""
        last = self.recorded.nodes[self.wiring.end - self.wiring.period : self.wiring.end]
        for node, other in zip(self.nodes, last, strict=True):
            is_equal = all(v.type == w.type for v, w in zip(node.outputs, other.outputs, strict=True))
            if not is_equal or node.op is ops.loop:
                raise NotRollable("iterations have different sizes", node.location)

    # ---- requirements

    def _value(self, result: tuple[int, int], iteration: int) -> Value:
        """The value of a result of an iteration in the recording."""
        q, k = result
        return self.recorded.nodes[self.wiring.start + iteration * self.wiring.period + q].outputs[k]

    def _live_out(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """The results of which later nodes read the last iteration, and those of which they read others.

        Views of values from before the loop are not included; those that later nodes read are hoisted.
        """
        last, stacked = [], []
        trip_count, end = self.wiring.trip_count, self.wiring.end
        for q, node in enumerate(self.nodes):
            if self._is_hoisted(q):
                views = self.recorded.nodes[self.wiring.start + q : end : self.wiring.period]
                self.before += [view for view in views if self.recorded.is_needed(view.output, end)]
                continue
            for k in range(len(node.outputs)):
                if any(self.recorded.is_needed(self._value((q, k), r), end) for r in range(trip_count - 1)):
                    if node.op is ops.update or node.op is ops.loop:
                        raise NotRollable(
                            "array contents of several iterations are needed later", node.location
                        )
                    stacked.append((q, k))
                if self.recorded.is_needed(self._value((q, k), trip_count - 1), end):
                    last.append((q, k))
        for q, k in (*last, *stacked):
            if self.nodes[q].outputs[k].type.on_host:
                raise NotRollable(
                    "a number that is computed in the loop is needed later", self.nodes[q].location
                )
        return last, stacked

    def _is_hoisted(self, q: int) -> bool:
        """Whether a node is a view of the same value from before the loop in each iteration."""
        return self.nodes[q].op is ops.view and self.wiring.sources[q][0].kind is WireKind.FIXED

    def _carried_sources(self) -> list[Wire]:
        """The loop-carried sources, without duplicates."""
        carried = [s for sources in self.wiring.sources for s in sources if s.kind is WireKind.CARRIED]
        for source in carried:
            if source.value is None or source.value.type.on_host:
                raise NotRollable("a number is loop-carried", self.nodes[source.result[0]].location)
        return list(dict.fromkeys(carried))

    # ---- moving windows

    def _find_windows(
        self, carried: list[Wire], last: list[tuple[int, int]], stacked: list[tuple[int, int]]
    ) -> None:
        """Compute the windows of loop-carried values that are read or stored at moving offsets."""
        steps, sources = self.wiring.steps, self.wiring.sources
        for source in carried:
            members: set[tuple[int, int]] = set()
            uses: list[tuple[int, int]] = []
            for q, node in enumerate(self.nodes):
                for k, operand in enumerate(sources[q]):
                    if operand == source or (operand.kind is WireKind.INNER and operand.result in members):
                        uses.append((q, k))
                        if node.op is ops.update and k == 0:
                            members.add((q, 0))
            accesses = [
                self.nodes[q] for q, k in uses if k == 0 and self.nodes[q].op in (ops.view, ops.update)
            ]
            window_steps = {steps[q] for q, k in uses if k == 0}
            if window_steps <= {0}:
                continue
            other_results = {s.result for s in carried if s is not source} | set(stacked) | set(last)
            if (
                len(accesses) < len(uses)
                or len(window_steps) > 1
                or source.result not in members
                or (other_results - {source.result}) & members
                or any(s.result == source.result for s in carried if s is not source)
            ):
                node = self.nodes[source.result[0]]
                raise NotRollable("an array is accessed at moving and at other offsets", node.location)
            spans = [node.attrs["view"].span() for node in accesses]
            start = min(span[0] for span in spans)
            self.windows[source] = MovingWindow(
                start, max(span[1] for span in spans) - start, window_steps.pop()
            )
            self.window_starts[self.initial_key(source)] = start
            self.window_starts.update(dict.fromkeys(members, start))

    @staticmethod
    def initial_key(source: Wire) -> tuple[int, int]:
        """A key in `window_starts` for the initial value of a loop-carried source."""
        return -1 - source.result[0], source.result[1]

    def _type_of(self, source: Wire) -> ArrayType:
        """The type of a loop-carried value in the body."""
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
        growth: int = 0,
    ) -> Value:
        """The input of the body with the given key, created on first use."""
        input = self.inputs.get(key)
        if input is None:
            assert operand is not None
            input = self.inputs[key] = self.body.input(type)
            self.operands.append(operand)
            self.moves.append((0, growth) if window is None else (window.start, window.step))
        return input

    # ---- the body

    def _copy(self, q: int, node: Node) -> None:
        """Append node `q` of the iteration to the body."""
        sources, step = self.wiring.sources[q], self.wiring.steps[q]
        if node.outputs and all(v.type.on_host for v in node.outputs):
            raise NotRollable("an iteration computes numbers", node.location)
        base, attrs = sources[0] if sources else None, node.attrs
        if base is not None and (node.op is ops.view or node.op is ops.update):
            view: View = attrs["view"]
            window_start = self._window_start(base)
            if window_start is not None:
                view = view.moved(-window_start)
            elif base.kind is WireKind.FIXED and base.value is not None and _is_window(node, step):
                self.values[q, 0] = self._moving_view(base.value, view, step)
                return
            elif self._is_hoisted(q) and self._is_transposed_factor(q):
                self.values[q, 0] = self._hoist(node)
                return
            elif step:
                raise NotRollable("an offset moves in an array that each iteration creates", node.location)
            attrs = {"view": view}
        inputs = [self._operand(source) for source in sources]
        if node.op is ops.update:  # the type of the result is that of the window
            self.values[q, 0] = self.body.append(node.op, tuple(inputs), node.location, attrs)
            return
        if attrs is not node.attrs:
            node = Node(node.op, node.inputs, node.outputs, attrs, node.location)
        for k, value in enumerate(self.body.copy(node, inputs)):
            self.values[q, k] = value

    def _is_transposed_factor(self, q: int) -> bool:
        """Whether view `q` is a transposed factor of a product that would read a copy in place."""
        if self.nodes[q].attrs["view"].strides[:1] != (1,):
            return False
        factor = Wire(WireKind.INNER, (q, 0))
        readers = zip(self.nodes, self.wiring.sources, strict=True)
        return any(n.op is ops.matmul and s[1] == factor and would_be_tiled(n) for n, s in readers)

    def _hoist(self, view: Node) -> Value:
        """Materialise a view once, before the loop; return the input of the body."""
        if view not in self.before:
            self.before.append(view)
        return self._input(view.output, view.output, None, view.output.type)

    def _window_start(self, source: Wire) -> int | None:
        if source.kind is WireKind.CARRIED:
            return self.window_starts.get(self.initial_key(source)) if source in self.windows else None
        return self.window_starts.get(source.result) if source.kind is WireKind.INNER else None

    def _operand(self, source: Wire) -> Value:
        """The value in the body of an operand."""
        if source.kind is WireKind.INNER:
            return self.values[source.result]
        value = source.value
        assert value is not None
        if source.kind is WireKind.CARRIED:
            return self.inputs[source]
        if source.kind is WireKind.NUMBERS:
            return self._input(source, value, None, value.type, source.step)
        if source.kind is WireKind.VIEWS:
            base_and_view = self.recorded.base_of(value)
            assert base_and_view is not None
            return self._moving_view(*base_and_view, source.step)
        constant = self.recorded.constants.get(value)
        if constant is not None:
            if value not in self.inputs:
                self.inputs[value] = self.body.copy(constant, ())[0]
            return self.inputs[value]
        return self._input(value, value, None, value.type)

    def _moving_view(self, base: Value, view: View, step: int) -> Value:
        """The value in the body of a view, of a value from before the loop, that moves by `step` elements."""
        low, high = view.span()
        is_contiguous = view.is_contiguous()
        shape = view.shape if is_contiguous else (high - low,)
        type = ArrayType(shape, base.type.dtype, base.type.device)
        window = self._input((base, low, step, shape), base, MovingWindow(low, high - low, step), type)
        if is_contiguous:
            return window
        result: Value = self.body.emit(ops.view, window, view=view.moved(-low))
        return result

    # ---- results

    def _empty(self, type: ArrayType) -> Value:
        """Allocate an array before the loop for a result that is not loop-carried."""
        attrs = {"shape": type.shape, "dtype": type.dtype, "device": type.device}
        node = Node(ops.empty, (), (Value(type),), attrs, self.nodes[0].location)
        self.before.append(node)
        return node.output

    def _store(
        self, result: tuple[int, int], operand: Value, window: MovingWindow | None, finals: list[Value]
    ) -> Value:
        value = self.values[result]
        target = self._input(("result", result, window), operand, window, value.type)
        self.effects.append(Effect(target, value))
        finals.append(Value(operand.type))
        return finals[-1]

    def _store_last(self, result: tuple[int, int], finals: list[Value]) -> Value:
        """Store the value of the last iteration as an output of the loop."""
        return self._store(result, self._empty(self.values[result].type), None, finals)

    def _stack(self, result: tuple[int, int], finals: list[Value]) -> Value:
        """Store the values of all iterations, stacked in one array, as an output of the loop."""
        type = self.values[result].type
        stacked = ArrayType((self.wiring.trip_count, *type.shape), type.dtype, type.device)
        return self._store(result, self._empty(stacked), MovingWindow(0, type.size, type.size), finals)

    def _unstack(self, result: tuple[int, int], stack: Value, renamed: dict[Value, Value]) -> None:
        """Emit views of the rows of a stack for later nodes."""
        node = self.nodes[result[0]]
        for r in range(self.wiring.trip_count):
            value = self._value(result, r)
            if self.recorded.is_needed(value, self.wiring.end):
                view = View(r * value.type.size, value.type.shape, contiguous_strides(value.type.shape))
                renamed[value] = Value(value.type)
                self.after.append(Node(ops.view, (stack,), (renamed[value],), {"view": view}, node.location))

    def _node(self, finals: list[Value], bodies: dict[Hashable, Graph]) -> Node:
        if not finals:
            raise NotRollable("none of its results is needed", self.nodes[0].location)
        graph = self.body.graph([], self.effects)
        body = bodies.setdefault(structure(graph, locations=True), graph)
        dtype = np.dtype("int64")
        trip_count = self.wiring.trip_count
        constants = Builder()
        count = constants.emit(ops.constant, **constant_of(trip_count, dtype))
        self.before += constants.nodes
        attrs = {"body": body, "moves": tuple(self.moves), "rounds": trip_count}
        return Node(ops.loop, (count, *self.operands), tuple(finals), attrs, self.nodes[0].location)


def _is_window(node: Node, step: int) -> bool:
    """Whether a view of a value from before the loop is a window: loops with the same body may move it."""
    return node.op is ops.view and bool(step or node.attrs["view"].is_contiguous())


class _MovingViewLoop(_WindowLoop):
    """Builds a loop whose operands are accessed in full, through moving views, instead of through windows.

    Extents may differ between iterations: the integers of the body are `Moving`.
    """

    def _check_extents(self) -> None:
        pass

    def _find_windows(
        self, carried: list[Wire], last: list[tuple[int, int]], stacked: list[tuple[int, int]]
    ) -> None:
        """Create no windows; raise `NotRollable` if later nodes need results whose sizes differ."""
        for result in (*last, *stacked):
            types = [self._value(result, r).type for r in (0, self.wiring.trip_count - 1)]
            if types[0] != types[1]:
                node = self.nodes[result[0]]
                raise NotRollable(
                    "a result whose size differs between iterations is needed later", node.location
                )

    def _copy(self, q: int, node: Node) -> None:
        column = self._column(q)
        if node.outputs and all(v.type.on_host for v in node.outputs):
            raise NotRollable("an iteration computes numbers", node.location)
        inputs = tuple([self._operand(source, q, k) for k, source in enumerate(self.wiring.sources[q])])
        runs = [1] * len(column)
        try:
            attrs = merge_attributes(column, runs)
            types = [
                merge([v.type for v in values], runs)
                for values in zip(*[n.outputs for n in column], strict=True)
            ]
        except NotRollable as error:
            raise NotRollable(f"{error} of {node.op.name}", node.location) from None
        outputs = tuple(map(Value, types))
        self.body.nodes.append(Node(node.op, inputs, outputs, attrs, node.location))
        for k, value in enumerate(outputs):
            self.values[q, k] = value

    def _column(self, q: int) -> Sequence[Node]:
        """Node `q` of the iteration, in all iterations."""
        wiring = self.wiring
        return self.recorded.nodes[wiring.start + q : wiring.end : wiring.period]

    def _operand(self, source: Wire, q: int = 0, k: int = 0) -> Value:
        if source.kind is not WireKind.VIEWS:
            return super()._operand(source)
        bases_and_views = [self.recorded.base_of(node.inputs[k]) for node in self._column(q)]
        known = [pair for pair in bases_and_views if pair is not None]
        base = known[0][0]
        view = merge([view for _, view in known], [1] * len(known))
        array = self._input(base, base, None, base.type)
        result: Value = self.body.emit(ops.view, array, view=view)
        return result
