"""The wiring of the rounds of a run, and the number of rounds that are wired alike.

Each operand of each node of a round is of one `WireKind`:

    INNER    result `d` of the same round
    CARRIED  result `d` of the round before; in the first round, a value from before the loop
    FIXED    one value from before the loop
    VIEWS    in each round another view of one value, offsets growing by one step
    NUMBERS  in each round another constant, growing by one step

and the offsets of the round's own views and stores grow by one step each (0: they stay).
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import enum
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tracejit import ops
from tracejit.ir.graph import Graph, Node, Value
from tracejit.ir.op import Trait
from tracejit.ir.rounds import Unlike
from tracejit.ir.view import View
from tracejit.ops.communicate import BETWEEN_RANKS
from tracejit.tuning import tuning_of


class WireKind(enum.Enum):
    """See the module's docstring."""

    INNER = enum.auto()
    CARRIED = enum.auto()
    FIXED = enum.auto()
    VIEWS = enum.auto()
    NUMBERS = enum.auto()


class Wire(NamedTuple):
    """The source of an operand. `place`: (node of the round, output); `value`: that of the first round, or
    the base of the views; `step`: elements, or what numbers grow by.
    """

    kind: WireKind
    place: tuple[int, int] = (-1, -1)
    value: Value | None = None
    offset: int = 0
    step: int = 0


class Wiring(NamedTuple):
    """A run of equal rounds: `rounds` times `period` nodes from `start` on.

    sources: of each node of a round, of each operand. steps: of each node, that of its view.
    """

    start: int
    period: int
    rounds: int
    sources: list[list[Wire]]
    steps: list[int]

    @property
    def end(self) -> int:
        return self.start + self.period * self.rounds


class RecordedGraph:
    """A recorded graph: its nodes but for constants, where values are defined, and who reads them."""

    def __init__(self, graph: Graph, nodes: Sequence[Node]):
        self.nodes = nodes
        self.defined = {v: (i, k) for i, node in enumerate(nodes) for k, v in enumerate(node.outputs)}
        self.constants = {n.outputs[0]: n for n in graph.nodes if n.op is ops.constant}
        self.results = set(graph.results())
        self.last_use: dict[Value, int] = {}
        for i, node in enumerate(nodes):
            for v in node.inputs:
                self.last_use[v] = i
        self.is_plain = _is_plain(nodes)

    def seen(self, value: Value) -> tuple[Value, View] | None:
        """The array that `value` is a view of, perhaps through other views, and the view; None for others."""
        place = self.defined.get(value)
        node = None if place is None else self.nodes[place[0]]
        if node is None or node.op is not ops.view:
            return None
        base, view = node.inputs[0], node.attrs["view"]
        inner = self.seen(base)
        whole = None if inner is None else inner[1].compose(view)
        return (base, view) if inner is None or whole is None else (inner[0], whole)

    def is_needed(self, value: Value, end: int) -> bool:
        """Whether a value is a result, or read from position `end` on."""
        return value in self.results or self.last_use.get(value, -1) >= end


def rounds_of(recorded: RecordedGraph, start: int, period: int, most: int, least: int) -> Wiring:
    """The wiring of at most `most` rounds from `start`. Raises `Unlike` if fewer than `least` are alike."""
    nodes = recorded.nodes
    if not recorded.is_plain:
        check_plain(nodes[start : start + period])
    rounds = most
    sources: list[list[Wire]] = []
    steps = []
    for q in range(period):
        column = nodes[start + q : start + rounds * period : period]
        step = 0
        if column[0].op is ops.view or column[0].op is ops.update:
            offsets = [node.attrs["view"].offset for node in column]
            step = offsets[1] - offsets[0]
            rounds = min(rounds, _affine(offsets, step))
        steps.append(step)
        if rounds < least:
            raise Unlike(f"the place of {column[0].op.name} does not move evenly", column[0].location)
        rounds = min(rounds, _sizes_evenly(column[:rounds]))
        if rounds < least:
            raise Unlike(f"the size of {column[0].op.name} does not grow evenly", column[0].location)
        found = []
        for k in range(len(column[0].inputs)):
            values = [node.inputs[k] for node in column[:rounds]]
            source, alike = _source(recorded, start, period, values)
            rounds = min(rounds, alike)
            if rounds < least:
                raise Unlike(
                    f"operand {k} of {column[0].op.name} comes from elsewhere in round {rounds}",
                    column[0].location,
                )
            found.append(source)
        sources.append(found)
    return Wiring(start, period, rounds, sources, steps)


def check_plain(body: Sequence[Node]) -> None:
    """Refuse rounds with Python or exchanges between ranks, on several devices, or on one without a kernel
    for loops.
    """
    first = None
    for node in body:
        if PYTHON & node.op.traits or node.op in BETWEEN_RANKS:
            raise Unlike(f"{node.op.name} runs in Python", node.location)
        for value in (*node.inputs, *node.outputs):
            device = value.type.device
            if device is first or value.type.on_host:
                continue
            if "roll" not in tuning_of(device).passes or (first is not None and device != first):
                raise Unlike("it is on several devices, or on a GPU", node.location)
            first = device


def _is_plain(body: Sequence[Node]) -> bool:
    """Whether `check_plain` refuses no part of these nodes."""
    try:
        check_plain(body)
    except Unlike:
        return False
    return True


PYTHON = {Trait.ORDERED, Trait.HOST}
"""Operators of these traits run in Python."""


def _sizes_evenly(column: Sequence[Node]) -> int:
    """The number of first rounds in which all numbers of a node's types and view grow evenly."""
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
    return _evenly([_numbers_of(node) for node in column])


def _evenly(rows: Sequence[tuple[int, ...]]) -> int:
    """The number of first rows in which all numbers grow evenly."""
    if all(row == rows[0] for row in rows):
        return len(rows)
    numbers = np.array(rows)
    steps = np.diff(numbers, axis=0)
    uneven = np.flatnonzero((steps != steps[0]).any(axis=1))
    return int(uneven[0]) + 1 if len(uneven) else len(rows)


def _numbers_of(node: Node) -> tuple[int, ...]:
    """The integers in which the rounds of a loop may differ."""
    seen: View | None = node.attrs.get("view")
    shape = [n for value in node.outputs for n in value.type.shape]
    return (*shape, *seen.shape, *seen.strides) if seen is not None else tuple(shape)


def _affine(numbers: Sequence[int], step: int) -> int:
    """The number of first numbers that grow by `step` each."""
    for r in range(1, len(numbers)):
        if numbers[r] != numbers[r - 1] + step:
            return r
    return len(numbers)


def _source(recorded: RecordedGraph, start: int, period: int, values: Sequence[Value]) -> tuple[Wire, int]:
    """The source of an operand that is these values in the rounds, and for how many rounds."""
    first, second = values[0], values[1]
    count = len(values)
    if first is second:
        alike = next((r for r in range(count) if values[r] is not first), count)
        if recorded.defined.get(first, (-1, 0))[0] >= start:  # of the first round: start later
            alike = 1
        return Wire(WireKind.FIXED, value=first), alike
    defined, nodes = recorded.defined, recorded.nodes
    place = defined.get(second)
    if place is not None and place[0] >= start:
        inner = place[0] >= start + period
        d, k = (place[0] - start) % period, place[1]
        base = start + d - (0 if inner else period)
        alike = 0 if inner else 1
        while alike < count:
            if nodes[base + alike * period].outputs[k] is not values[alike]:
                break
            alike += 1
        if inner:
            return Wire(WireKind.INNER, (d, k)), alike
        known = defined.get(first)
        if (known is not None and known[0] >= start) or first.type != second.type:
            return Wire(WireKind.CARRIED), 0
        return Wire(WireKind.CARRIED, (d, k), first), alike
    if first in recorded.constants:
        return _numbers(recorded, values)
    return _views(recorded, start, values)


def _views(recorded: RecordedGraph, start: int, values: Sequence[Value]) -> tuple[Wire, int]:
    """Views of one value, made before the loop."""
    made: list[View] = []
    base: Value | None = None
    for value in values:
        place = recorded.defined.get(value)
        seen = None if place is None or place[0] >= start else recorded.seen(value)
        if seen is None or (made and seen[0] is not base):
            break
        base, view = seen
        if made and (len(view.shape) != len(made[0].shape) or view.strides != made[0].strides):
            break
        made.append(view)
    if len(made) < 2:
        return Wire(WireKind.VIEWS), 1
    offsets = [view.offset for view in made]
    step = offsets[1] - offsets[0]
    alike = min(_affine(offsets, step), _evenly([(*v.shape, *v.strides) for v in made]))
    return Wire(WireKind.VIEWS, value=values[0], offset=offsets[0], step=step), alike


EXACT = {"float32": 1 << 24, "float64": 1 << 53}
"""The integer up to which a float dtype represents all integers."""


def _numbers(recorded: RecordedGraph, values: Sequence[Value]) -> tuple[Wire, int]:
    """Integral constants that grow by one step; fractions would not add up exactly."""
    known = [recorded.constants.get(value) for value in values]
    alike = next((r for r, node in enumerate(known) if node is None), len(known))
    numbers = [node.attrs["value"] for node in known[:alike] if node is not None]
    dtype = str(values[0].type.dtype)
    most = EXACT.get(dtype, 1 << 62 if values[0].type.dtype.kind in "iu" else 0)
    if (
        alike < 2
        or not all(x == x // 1 and abs(x) < most for x in numbers[:2])
        or isinstance(numbers[0], bool)
    ):
        return Wire(WireKind.NUMBERS), 1
    step = int(numbers[1] - numbers[0])
    alike = _affine(numbers, step)
    if any(abs(x) >= most or str(x) == "-0.0" for x in numbers[:alike]):
        return Wire(WireKind.NUMBERS), 1
    return Wire(WireKind.NUMBERS, value=values[0], step=step), alike
