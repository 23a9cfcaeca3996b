"""The dataflow, or wiring, of the iterations of a run, and the number of iterations with the same wiring.

Each operand of each node of an iteration has a `WireKind`:

    INNER    a result of the same iteration
    CARRIED  a result of the previous iteration; in the first iteration, a value from before the loop
    FIXED    a value from before the loop, the same in all iterations
    VIEWS    a view of a value from before the loop, whose offset grows by the same step in each iteration
    NUMBERS  a constant that grows by the same step in each iteration

The offset of each view and store in the iteration grows by a constant step, which may be 0.
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import enum
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tracejit import ops
from tracejit.ir.graph import Graph, Node, Value
from tracejit.ir.iterations import NotRollable
from tracejit.ir.op import Trait
from tracejit.ir.types import name_of
from tracejit.ir.view import View
from tracejit.kernels.library.plan import routine_call
from tracejit.ops.communicate import BETWEEN_RANKS
from tracejit.tuning import tuning_of


class WireKind(enum.Enum):
    """The kinds of operands; see the module's docstring."""

    INNER = enum.auto()
    CARRIED = enum.auto()
    FIXED = enum.auto()
    VIEWS = enum.auto()
    NUMBERS = enum.auto()


class Wire(NamedTuple):
    """The source of an operand.

    result: for INNER and CARRIED, the (index of a node in the iteration, index of its output). value: for
    other kinds, and for CARRIED, the value in the first iteration. offset, step: for VIEWS, those of the
    offset in elements; step: for NUMBERS, the increment.
    """

    kind: WireKind
    result: tuple[int, int] = (-1, -1)
    value: Value | None = None
    offset: int = 0
    step: int = 0


class Wiring(NamedTuple):
    """A run of equal iterations: `trip_count` times `period` nodes from position `start` on.

    sources: the source of each operand of each node of an iteration. steps: for each node, the step of the
    offset of its view.
    """

    start: int
    period: int
    trip_count: int
    sources: list[list[Wire]]
    steps: list[int]

    @property
    def end(self) -> int:
        return self.start + self.period * self.trip_count


class RecordedGraph:
    """A recorded graph: its nodes except constants, and the definitions and last uses of values."""

    def __init__(self, graph: Graph, nodes: Sequence[Node]):
        self.nodes = nodes
        self.defined = {v: (i, k) for i, node in enumerate(nodes) for k, v in enumerate(node.outputs)}
        self.constants = {n.outputs[0]: n for n in graph.nodes if n.op is ops.constant}
        self.results = set(graph.results())
        self.last_use: dict[Value, int] = {}
        for i, node in enumerate(nodes):
            for v in node.inputs:
                self.last_use[v] = i
        self.is_rollable = _is_rollable(nodes)

    def base_of(self, value: Value) -> tuple[Value, View] | None:
        """The base of the chain of views that defines `value`, and the composed view; None without."""
        definition = self.defined.get(value)
        node = None if definition is None else self.nodes[definition[0]]
        if node is None or node.op is not ops.view:
            return None
        base, view = node.inputs[0], node.attrs["view"]
        inner = self.base_of(base)
        composed = None if inner is None else inner[1].compose(view)
        return (base, view) if inner is None or composed is None else (inner[0], composed)

    def is_needed(self, value: Value, end: int) -> bool:
        """Whether a value is a result of the graph, or is read at position `end` or later."""
        return value in self.results or self.last_use.get(value, -1) >= end


def wiring_of(recorded: RecordedGraph, start: int, period: int, most: int, least: int) -> Wiring:
    """The wiring of up to `most` iterations from `start`; raises `NotRollable` if it is less than `least`."""
    nodes = recorded.nodes
    if not recorded.is_rollable:
        check_rollable(nodes[start : start + period])
    trip_count = most
    sources: list[list[Wire]] = []
    steps = []
    for q in range(period):
        column = nodes[start + q : start + trip_count * period : period]
        step = 0
        if column[0].op is ops.view or column[0].op is ops.update:
            offsets = [node.attrs["view"].offset for node in column]
            step = offsets[1] - offsets[0]
            trip_count = min(trip_count, _n_affine(offsets, step))
        steps.append(step)
        if trip_count < least:
            raise NotRollable(f"the offset of {column[0].op.name} is not affine", column[0].location)
        trip_count = min(trip_count, _n_affine_sizes(column[:trip_count]))
        if trip_count < least:
            raise NotRollable(f"the size of {column[0].op.name} is not affine", column[0].location)
        node_sources = []
        for k in range(len(column[0].inputs)):
            values = [node.inputs[k] for node in column[:trip_count]]
            source, n_equal = _source(recorded, start, period, values)
            trip_count = min(trip_count, n_equal)
            if trip_count < least:
                raise NotRollable(
                    f"operand {k} of {column[0].op.name} has a different source in iteration {trip_count}",
                    column[0].location,
                )
            node_sources.append(source)
        sources.append(node_sources)
    return Wiring(start, period, trip_count, sources, steps)


def check_rollable(body: Sequence[Node]) -> None:
    """Raise `NotRollable` for nodes that cannot be in a loop.

    These are nodes that no kernel computes, nodes that communicate between ranks, and nodes on several
    devices, or on a device without a kernel for loops.
    """
    first = None
    for node in body:
        if _runs_in_python(node) or node.op in BETWEEN_RANKS:
            raise NotRollable(f"{node.op.name} runs in Python", node.location)
        for value in (*node.inputs, *node.outputs):
            device = value.type.device
            if device is first or value.type.on_host:
                continue
            if "roll" not in tuning_of(device).passes or (first is not None and device != first):
                raise NotRollable("it is on several devices, or on a GPU", node.location)
            first = device


def _is_rollable(body: Sequence[Node]) -> bool:
    """Whether `check_rollable` accepts these nodes."""
    try:
        check_rollable(body)
    except NotRollable:
        return False
    return True


def _runs_in_python(node: Node) -> bool:
    """Whether no kernel computes a node."""
    if Trait.HOST not in node.op.traits:
        return Trait.ORDERED in node.op.traits
    shapes = [value.type.shape for value in (*node.inputs, *node.outputs)]
    return routine_call(node.op.name, shapes, node.attrs, name_of(node.inputs[0].type.dtype)) is None


def _n_affine_sizes(column: Sequence[Node]) -> int:
    """The number of leading iterations in which all extents and strides of a node grow by constant steps."""
    first = column[0]
    if first.op is ops.loop:
        return len(column)
    if "view" not in first.attrs:
        types = [v.type for v in first.outputs]
        if all(
            v.type is type or v.type == type
            for node in column
            for v, type in zip(node.outputs, types, strict=True)
        ):
            return len(column)
    return _n_affine_rows([_sizes_of(node) for node in column])


def _n_affine_rows(rows: Sequence[tuple[int, ...]]) -> int:
    """The number of leading rows in which every column grows by a constant step."""
    if all(row == rows[0] for row in rows):
        return len(rows)
    numbers = np.array(rows)
    steps = np.diff(numbers, axis=0)
    changes = np.flatnonzero((steps != steps[0]).any(axis=1))
    return int(changes[0]) + 1 if len(changes) else len(rows)


def _sizes_of(node: Node) -> tuple[int, ...]:
    """The extents and strides of a node, which may differ between the iterations of a loop."""
    view: View | None = node.attrs.get("view")
    shape = [n for value in node.outputs for n in value.type.shape]
    return (*shape, *view.shape, *view.strides) if view is not None else tuple(shape)


def _n_affine(numbers: Sequence[int], step: int) -> int:
    """The number of leading numbers that grow by `step` each."""
    for r in range(1, len(numbers)):
        if numbers[r] != numbers[r - 1] + step:
            return r
    return len(numbers)


def _source(recorded: RecordedGraph, start: int, period: int, values: Sequence[Value]) -> tuple[Wire, int]:
    """The source of an operand with these values, and the number of iterations for which it is valid."""
    first, second = values[0], values[1]
    n_values = len(values)
    if first is second:
        n_equal = next((r for r in range(n_values) if values[r] is not first), n_values)
        if (
            recorded.defined.get(first, (-1, 0))[0] >= start
        ):  # defined in the first iteration, so not before the loop
            n_equal = 1
        return Wire(WireKind.FIXED, value=first), n_equal
    defined, nodes = recorded.defined, recorded.nodes
    definition = defined.get(second)
    if definition is not None and definition[0] >= start:
        inner = definition[0] >= start + period
        d, k = (definition[0] - start) % period, definition[1]
        base = start + d - (0 if inner else period)
        n_equal = 0 if inner else 1
        while n_equal < n_values:
            if nodes[base + n_equal * period].outputs[k] is not values[n_equal]:
                break
            n_equal += 1
        if inner:
            return Wire(WireKind.INNER, (d, k)), n_equal
        first_definition = defined.get(first)
        if (first_definition is not None and first_definition[0] >= start) or first.type != second.type:
            return Wire(WireKind.CARRIED), 0
        return Wire(WireKind.CARRIED, (d, k), first), n_equal
    if first in recorded.constants:
        return _numbers(recorded, values)
    return _views(recorded, start, values)


def _views(recorded: RecordedGraph, start: int, values: Sequence[Value]) -> tuple[Wire, int]:
    """The source of an operand that is a view, defined before the loop, of one array."""
    views: list[View] = []
    base: Value | None = None
    for value in values:
        definition = recorded.defined.get(value)
        base_and_view = None if definition is None or definition[0] >= start else recorded.base_of(value)
        if base_and_view is None or (views and base_and_view[0] is not base):
            break
        base, view = base_and_view
        if views and (len(view.shape) != len(views[0].shape) or view.strides != views[0].strides):
            break
        views.append(view)
    if len(views) < 2:
        return Wire(WireKind.VIEWS), 1
    offsets = [view.offset for view in views]
    step = offsets[1] - offsets[0]
    n_equal = min(_n_affine(offsets, step), _n_affine_rows([(*v.shape, *v.strides) for v in views]))
    return Wire(WireKind.VIEWS, value=values[0], offset=offsets[0], step=step), n_equal


EXACT = {"float32": 1 << 24, "float64": 1 << 53}
"""For each float dtype, the integer up to which it represents all integers."""


def _numbers(recorded: RecordedGraph, values: Sequence[Value]) -> tuple[Wire, int]:
    """The source of an operand that is a constant: only integers are summed without rounding errors."""
    constants = [recorded.constants.get(value) for value in values]
    n_equal = next((r for r, node in enumerate(constants) if node is None), len(constants))
    numbers = [node.attrs["value"] for node in constants[:n_equal] if node is not None]
    dtype = str(values[0].type.dtype)
    limit = EXACT.get(dtype, 1 << 62 if values[0].type.dtype.kind in "iu" else 0)
    if (
        n_equal < 2
        or not all(x == x // 1 and abs(x) < limit for x in numbers[:2])
        or isinstance(numbers[0], bool)
    ):
        return Wire(WireKind.NUMBERS), 1
    step = int(numbers[1] - numbers[0])
    n_equal = _n_affine(numbers, step)
    if any(abs(x) >= limit or str(x) == "-0.0" for x in numbers[:n_equal]):
        return Wire(WireKind.NUMBERS), 1
    return Wire(WireKind.NUMBERS, value=values[0], step=step), n_equal
