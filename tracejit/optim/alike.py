"""Loops with the same body for many rows of arrays, such as over a model's parameters: only a few rows are
recorded.

`each` yields the rows of a loop. In a trace, two rows of each kind are recorded. If the second recording
equals the first with the arrays substituted, further rows of the kind are not yielded: the nodes of the first
recording are copied for them. The kind of a row consists of the types of its arrays and of which arrays are
identical.

    for p, g in each([(p1, g1), (p2, g2), (p3, g3)]):       %6 = multiply(%1, %5);  %7 = subtract(%0, %6)
        p -= g * 0.1                                        %8 = multiply(%3, %5);  %9 = subtract(%2, %8)
                                                            ... and a copy of these for p3 and g3

Effects of the loop's body other than array operations therefore occur only for the recorded rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.recording import eager
from tracejit.frontend.recording.patterns import Pattern
from tracejit.frontend.recording.recording import lock, quiet
from tracejit.frontend.recording.storage import interned
from tracejit.frontend.recording.trace import MAX_OPERATIONS, Trace
from tracejit.ir.graph import Node, Value
from tracejit.ops import constant
from tracejit.passes.cse import attributes_key

Row = tuple[Any, ...]


def each(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield the rows, except those for which a trace copies the recording of other rows.

    >>> import tracejit as tj
    >>> a, b = tj.ones(2), tj.ones(2)
    >>> [row[0] is x for x, row in zip((a, b), each([(a,), (b,)]))]
    [True, True]
    """
    trace = eager.current(cut=False)
    if not isinstance(trace, Trace) or trace.tapes:
        yield from rows
        return
    kinds: dict[Hashable, _Kind] = {}
    remaining = iter(rows)
    while True:
        # One `quiet` for many rows: entering it costs more than most of the work inside.
        with quiet, lock:
            row, kind, contents = _next_to_record(trace, remaining, kinds)
        trace.end_operation()
        if row is None:
            return
        start = len(trace.nodes)
        yield row
        if kind is not None:
            with quiet, lock:
                kind.note(trace, trace.nodes[start:], contents, _contents(trace, _arrays(row)))


def _next_to_record(
    trace: Trace, rows: Iterator[Row], kinds: dict[Hashable, _Kind]
) -> tuple[Row | None, _Kind | None, list[Value]]:
    """Return the next row to be recorded, its kind, if it has one, and its contents. For the rows before it,
    copies are appended. Return None if there are no further rows, or the trace has too many nodes.
    """
    for row in rows:
        arrays = _arrays(row)
        contents = _contents(trace, arrays)
        if contents is None:
            return row, None, []
        key = _key(row, arrays, contents)
        kind = kinds.get(key)
        if kind is None:
            kind = kinds[key] = _Kind()
        if kind.pattern is None:
            return row, kind, contents
        kind.repeat(trace, arrays, contents)
        if len(trace.nodes) > MAX_OPERATIONS:
            break
    return None, None, []


def _contents(trace: Trace, arrays: Sequence[Any]) -> list[Value] | None:
    """Return the contents of a row's arrays if each is a contiguous view of its entire storage, else None."""
    for x in arrays:
        if not isinstance(x, ArrayCore) or not x._view.is_identity(x._storage.type.shape):
            return None
    return [trace.read(x._storage, x._view) for x in arrays]


def _arrays(row: Row) -> list[Any]:
    """Return the arrays of a row, without the items that are None."""
    return [x for x in row if x is not None]


def _key(row: Row, arrays: Sequence[Any], contents: list[Value]) -> Hashable:
    """Return the key of a row's kind."""
    storages = [x._storage for x in arrays]
    identities = (*map(storages.index, storages), *map(contents.index, contents))
    gaps = [x is None for x in row]
    types = [id(interned(s.type)) for s in storages]  # interned: hashing a type is slow
    return (*types, *identities, *[x._view.writable for x in arrays], *gaps)


class _Kind:
    """The recording of the first row of a kind, and, once a second row has matched it, the pattern of all.

    _before, _after: the contents of the first row's arrays before and after its recording.
    _changed:        for each changed array: its position, its new content, and the position of that content
                     in the pattern, or None.
    """

    def __init__(self) -> None:
        self.pattern: Pattern | None = None
        self._nodes: list[Node] | None = None
        self._before: list[Value] = []
        self._after: list[Value] = []
        self._changed: list[tuple[int, Value, int | None]] = []

    def note(
        self, trace: Trace, nodes: Sequence[Node], before: list[Value], after: list[Value] | None
    ) -> None:
        """Store the recording of the first row, or compare that of a later row with it."""
        nodes = [node for node in nodes if node.op is not constant]  # literals are common to all rows
        if after is None:  # the body has changed the storage of which an array is a view
            return
        if self._nodes is None:
            self._nodes, self._before, self._after = nodes, before, after
            return
        values = dict(zip(self._before, before, strict=True))
        if (
            len(nodes) == len(self._nodes)
            and all(_is_alike(*pair, values) for pair in zip(self._nodes, nodes, strict=True))
            and [values.get(v, v) for v in self._after] == after
        ):
            pattern = self.pattern = Pattern(self._nodes, self._before)
            trace.copied += pattern.known(self._nodes, {}), pattern.known(nodes, values)
            pairs = enumerate(zip(self._before, self._after, strict=True))
            self._changed = [(i, new, pattern.place(new)) for i, (old, new) in pairs if new is not old]

    def repeat(self, trace: Trace, arrays: Sequence[Any], before: list[Value]) -> None:
        """Append a copy of the pattern for another row."""
        assert self.pattern is not None
        values = trace.emit_copy(self.pattern, before)
        for position, new, index in self._changed:
            x = arrays[position]
            trace.write(x._storage, x._view, new if index is None else values[index])


def _is_alike(one: Node, other: Node, values: dict[Value, Value]) -> bool:
    """Return whether `other` is `one` with operands substituted by `values`, and add the outputs to these."""
    if len(one.outputs) != len(other.outputs) or one.op is not other.op or one.location != other.location:
        return False
    values.update(zip(one.outputs, other.outputs, strict=True))
    inputs = tuple([values.get(v, v) for v in one.inputs])
    return inputs == other.inputs and attributes_key(one.attrs) == attributes_key(other.attrs)
