"""Loop headers of a `tj.range`: snapshots, taken at the start of each iteration, of all that further
iterations depend on.

If two headers are equal except for the content of arrays, all further iterations equal the one between them.
A header covers the variables of the frame that runs the ``for`` statement, with all objects that they refer
to; the body's rebindings and writes elsewhere; and all live arrays of the recording. Arrays that no variable
refers to must be identical at both headers. A value that cannot be compared (an object of a user-defined
class, an iterator) yields a header that equals no other.

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
from tracejit.frontend.recording.origins import Window
from tracejit.frontend.recording.ranges.positions import at_start
from tracejit.frontend.recording.recording import thread
from tracejit.frontend.recording.sources import Progression, Varying
from tracejit.frontend.recording.storage import Storage
from tracejit.ir.graph import Value

if TYPE_CHECKING:
    from tracejit.frontend.recording.ranges.ranges import RangeLoop
    from tracejit.frontend.recording.trace import Trace

HeaderKeys = Sequence[tuple[str, Hashable]]


class Header:
    """The start of an iteration.

    keys:       the keys to compare, with names for messages; None if a value cannot be compared.
    values:     the graph values that are referenced, in the order of the keys.
    holders:    the storages and windows that refer to `values`, until the next iteration starts.
    moving:     arrays that variables refer to and whose views move with the iterations.
    n_nodes, n_inputs, scalars: the state of the recording at this point.
    drawn:      the draws from each random stream.
    difference: the name of the first key that is not equal.
    """

    __slots__ = (
        "difference",
        "drawn",
        "holders",
        "keys",
        "moving",
        "n_inputs",
        "n_nodes",
        "scalars",
        "values",
    )

    def __init__(self, trace: Trace) -> None:
        self.keys: HeaderKeys | None = None
        self.holders: list[Storage | Window] = []
        self.values: list[Value] = []
        self.moving: list[Any] = []
        self.n_nodes, self.n_inputs = len(trace.nodes), len(trace.inputs)
        self.scalars = dict(trace.scalars)
        self.drawn = trace.draws.snapshot()
        self.difference = ""

    def equals(self, later: Header) -> bool:
        """Whether the body does the same after both headers; sets `difference`."""
        if self.keys is None or later.keys is None:
            self.difference = self.difference or later.difference
            return False
        self.difference = difference_of(self.keys, later.keys)
        return not self.difference


def difference_of(one: HeaderKeys, other: HeaderKeys) -> str:
    """Return the name of the first key that is not equal, or an empty string if all are equal."""
    for (name, key), (other_name, other_key) in zip(one, other, strict=False):
        if name != other_name or key != other_key:
            return name if name == other_name else f"{name} or {other_name}"
    return "" if len(one) == len(other) else "a variable that is new"


def header_at(loop: RangeLoop, frame: types.FrameType) -> Header:
    """Return the header of an iteration; `frame` runs the ``for`` statement."""
    trace = loop.trace
    header = Header(trace)
    walk = _HeaderWalk(loop)
    keys: list[tuple[str, Hashable]] = []
    try:
        for name, value in frame.f_locals.items():
            header.difference = f"{name} is an object that cannot be compared"
            keys.append((name, walk.key(value)))
        header.difference = "something that is changed elsewhere"
        keys += [("an argument", walk.key(copy)) for copy in trace.body.containers()]
        keys += [
            ("something that is changed elsewhere", (id(s), walk.key(v))) for s, v in trace.body.changes()
        ]
    except Hidden:
        return header
    header.difference, header.moving = "", walk.moving
    outside = [s for s in trace.live() if s not in walk.storages]
    windows = [w for windows in trace.windows.values() for w in windows]
    keys.append(("an array that no variable refers to", tuple((id(s), id(s.pending)) for s in outside)))
    keys.append(("the arrays that are used", tuple(map(id, windows))))
    keys.append(("random numbers that are drawn", tuple(id(s) for s, _ in trace.draws.totals)))
    keys.append(("a look at a value", len(trace.looks.cuts)))
    keys.append(("a call of Python's", (len(trace.callbacks), len(trace.rules), len(trace.imports))))
    keys.append(("the device", (thread.device, thread.tapes, trace.vouched)))
    header.keys = keys
    values = [(s, s.pending) for s in (*walk.storages, *outside)]
    header.holders = [*(s for s, value in values if value is not None), *windows]
    header.values = [*(value for _, value in values if value is not None), *(w.value for w in windows)]
    return header


class _HeaderWalk(Walk):
    """A walk that numbers arrays in the order of its visits, so that arrays in equal positions have equal
    keys, and that compares numbers by value or source.
    """

    def __init__(self, loop: RangeLoop) -> None:
        super().__init__(loop.trace)
        self.loop = loop
        self.moving: list[Any] = []

    def origin(self, value: Any) -> Hashable:
        return value.type.shape, value.type.dtype, value.type.device

    def view(self, array: Any) -> Hashable:
        key: Hashable = at_start(array._view, self.loop)
        if key is not array._view:
            self.moving.append(array)
        return key

    def key(self, value: Any) -> Hashable:
        kind = type(value)
        if kind is NumberProxy and not value._numbers.closed:
            return self._number(value._source)
        return super().key(value)

    def _number(self, source: Any) -> Hashable:
        if type(source) is Varying and source.loop is self.loop:
            operands = [o if type(o) in (int, float) else self._number(o) for o in source.operands]
            return "varying", source.operation, self.loop.iteration - source.iteration, repr(operands)
        if type(source) is not Progression or source.loop is not self.loop:
            return "number", Identity(source)
        age = self.loop.iteration - source.iteration
        first = source.base - source.slope * source.iteration
        first_key = ("literal", first) if type(first) is int else ("number", type(first._value), first._value)
        return "moving", source.slope, age, first_key
