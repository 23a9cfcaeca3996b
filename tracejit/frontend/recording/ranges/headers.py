"""Headers of a `tj.range`: all that its further rounds depend on, noted at the begin of each round.

When two headers are equal but for the content of arrays, all further rounds equal the one between them. A
header consists of the variables of the frame that runs the ``for`` statement, with all that they refer to; of
the body's rebindings and writes elsewhere; and of all arrays of the recording that are alive, which must be
the same at both headers if no variable refers to them. Something that cannot be compared (an object of the
user's own class, an iterator) makes a header that equals no other.

>>> from tracejit.frontend.recording.ranges.headers import difference_of
>>> difference_of((("x", 1), ("y", 2)), (("x", 1), ("y", 3)))
'y'
"""

from __future__ import annotations

import types
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from tracejit.frontend.python.identity import Identity
from tracejit.frontend.recording.look_loops.states import Hidden, Walk
from tracejit.frontend.recording.number import NumberProxy
from tracejit.frontend.recording.origins import TrackedExtent
from tracejit.frontend.recording.ranges.positions import at_start
from tracejit.frontend.recording.recording import thread
from tracejit.frontend.recording.sources import Progression, Varying
from tracejit.frontend.recording.storage import Storage
from tracejit.ir.graph import Value

if TYPE_CHECKING:
    from tracejit.frontend.recording.ranges.ranges import RangeLoop
    from tracejit.frontend.recording.trace import Trace

Parts = Sequence[tuple[str, Hashable]]


class Header:
    """The begin of a round.

    parts:   the keys to compare, with names for people; None if something cannot be compared.
    values:  values of the graph that are referenced, in the order of the parts.
    holders: the storages that refer to them, until the next round begins.
    moving:  arrays of variables whose views move with the rounds.
    nodes, inputs, scalars: the size of the recording then; drawn: the draws from each random stream.
    difference: the name of the part that was not equal.
    """

    __slots__ = (
        "difference",
        "drawn",
        "holders",
        "inputs",
        "moving",
        "nodes",
        "parts",
        "scalars",
        "values",
    )

    def __init__(self, trace: Trace) -> None:
        self.parts: Parts | None = None
        self.holders: list[Storage | TrackedExtent] = []
        self.values: list[Value] = []
        self.moving: list[Any] = []
        self.nodes, self.inputs = len(trace.nodes), len(trace.inputs)
        self.scalars = dict(trace.scalars)
        self.drawn = trace.draws.begin()
        self.difference = ""

    def equals(self, later: Header) -> bool:
        """Whether the body does the same after both; notes the difference."""
        if self.parts is None or later.parts is None:
            self.difference = self.difference or later.difference
            return False
        self.difference = difference_of(self.parts, later.parts)
        return not self.difference


def difference_of(one: Parts, other: Parts) -> str:
    """The name of the first part that is not equal; empty if all are."""
    for (name, part), (found, now) in zip(one, other, strict=False):
        if name != found or part != now:
            return name if name == found else f"{name} or {found}"
    return "" if len(one) == len(other) else "a variable that is new"


def header_at(loop: RangeLoop, frame: types.FrameType) -> Header:
    """The header of a round; `frame` runs the ``for`` statement."""
    trace = loop.trace
    header = Header(trace)
    walk = _HeaderWalk(loop)
    parts: list[tuple[str, Hashable]] = []
    try:
        for name, value in frame.f_locals.items():
            header.difference = f"{name} is an object that cannot be compared"
            parts.append((name, walk.key(value)))
        header.difference = "something that is changed elsewhere"
        parts += [("an argument", walk.key(copy)) for copy in trace.body.containers()]
        parts += [
            ("something that is changed elsewhere", (id(s), walk.key(v))) for s, v in trace.body.changes()
        ]
    except Hidden:
        return header
    header.difference, header.moving = "", walk.moving
    outside = [s for s in trace.live() if s not in walk.storages]
    windows = [w for windows in trace.windows.values() for w in windows]
    parts.append(("an array that no variable holds", tuple((id(s), id(s.pending)) for s in outside)))
    parts.append(("the arrays that are used", tuple(map(id, windows))))
    parts.append(("random numbers that are drawn", tuple(id(s) for s, _ in trace.draws.totals)))
    parts.append(("a look at a value", len(trace.looks.cuts)))
    parts.append(("a call of Python's", (len(trace.callbacks), len(trace.rules), len(trace.imports))))
    parts.append(("the device", (thread.device, thread.tapes, trace.vouched)))
    header.parts = parts
    held = [(s, s.pending) for s in (*walk.storages, *outside)]
    header.holders = [*(s for s, value in held if value is not None), *windows]
    header.values = [*(value for _, value in held if value is not None), *(w.value for w in windows)]
    return header


class _HeaderWalk(Walk):
    """A walk that counts arrays, so that they are equal in equal places, and compares numbers."""

    def __init__(self, loop: RangeLoop) -> None:
        super().__init__(loop.trace)
        self.loop = loop
        self.moving: list[Any] = []

    def origin(self, value: Any) -> Hashable:
        return value.type.shape, value.type.dtype, value.type.device

    def view(self, array: Any) -> Hashable:
        seen: Hashable = at_start(array._view, self.loop)
        if seen is not array._view:
            self.moving.append(array)
        return seen

    def key(self, value: Any) -> Hashable:
        kind = type(value)
        if kind is NumberProxy and not value._numbers.closed:
            return self._number(value._source)
        return super().key(value)

    def _number(self, source: Any) -> Hashable:
        if type(source) is Varying and source.loop is self.loop:
            operands = [o if type(o) in (int, float) else self._number(o) for o in source.operands]
            return "varying", source.operation, self.loop.round - source.round, repr(operands)
        if type(source) is not Progression or source.loop is not self.loop:
            return "number", Identity(source)
        ago = self.loop.round - source.round
        first = source.base - source.slope * source.round
        plain = ("plain", first) if type(first) is int else ("number", type(first._value), first._value)
        return "moving", source.slope, ago, plain
