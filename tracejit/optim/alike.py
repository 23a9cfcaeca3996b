"""Loops that do the same for many rows of arrays, as over the parameters of a model: recorded for a few rows.

`each` gives the rows of a loop. In a trace, two rows of each kind are recorded. Where the second one is the
first one with the arrays of the second row in place of those of the first, further rows of the kind are not
given: the nodes of the first are copied for them. Kinds differ in types, and in which arrays are the same.

    for p, g in each([(p1, g1), (p2, g2), (p3, g3)]):       %6 = multiply(%1, %5);  %7 = subtract(%0, %6)
        p -= g * 0.1                                        %8 = multiply(%3, %5);  %9 = subtract(%2, %8)
                                                            ... and a copy of these for p3 and g3

What such a loop does besides array work it must do for each kind only.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.recording import eager
from tracejit.frontend.recording.patterns import Pattern
from tracejit.frontend.recording.recording import lock, quiet
from tracejit.frontend.recording.storage import interned
from tracejit.frontend.recording.trace import MOST, Trace
from tracejit.ir.graph import Node, Value
from tracejit.ops import constant
from tracejit.passes.cse import attributes_key

Row = tuple[Any, ...]


def each(rows: Sequence[Row]) -> Iterator[Row]:
    """Rows of arrays, all but those for which a trace copies what it has recorded for others.

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
        # Once for many rows: to hush the watcher takes longer than much of what is done here.
        with quiet, lock:
            row, kind, before = _next_unknown(trace, remaining, kinds)
        trace.end_operation()
        if row is None:
            return
        start = len(trace.nodes)
        yield row
        if kind is not None:
            with quiet, lock:
                kind.note(trace, trace.nodes[start:], before, _contents(trace, _arrays(row)))


def _next_unknown(
    trace: Trace, rows: Iterator[Row], kinds: dict[Hashable, _Kind]
) -> tuple[Row | None, _Kind | None, list[Value]]:
    """The next row that has to be recorded, its kind, if it can have one, and its contents. Rows before it
    become copies. None: there is no further row, or there are too many.
    """
    for row in rows:
        arrays = _arrays(row)
        before = _contents(trace, arrays)
        if before is None:
            return row, None, []
        key = _key(row, arrays, before)
        kind = kinds.get(key)
        if kind is None:
            kind = kinds[key] = _Kind()
        if kind.pattern is None:
            return row, kind, before
        kind.repeat(trace, arrays, before)
        if len(trace.nodes) > MOST:
            break
    return None, None, []


def _contents(trace: Trace, arrays: Sequence[Any]) -> list[Value] | None:
    """The contents of a row's arrays, if these are contiguous whole arrays; else None."""
    for x in arrays:
        if not isinstance(x, ArrayCore) or not x._view.is_whole(x._storage.type.shape):
            return None
    return [trace.read(x._storage, x._view) for x in arrays]


def _arrays(row: Row) -> list[Any]:
    """The arrays of a row, without its gaps."""
    return [x for x in row if x is not None]


def _key(row: Row, arrays: Sequence[Any], before: list[Value]) -> Hashable:
    """The key of a row's kind."""
    storages = [x._storage for x in arrays]
    same = (*map(storages.index, storages), *map(before.index, before))
    gaps = [x is None for x in row]
    types = [id(interned(s.type)) for s in storages]  # their own hash takes long
    return (*types, *same, *[x._view.writable for x in arrays], *gaps)


class _Kind:
    """The recording of the first row of a kind, and the pattern of all, once another one was alike."""

    def __init__(self) -> None:
        self.pattern: Pattern | None = None
        self._nodes: list[Node] | None = None
        self._before: list[Value] = []
        self._after: list[Value] = []
        self._changed: list[tuple[int, Value, int | None]] = []

    def note(
        self, trace: Trace, nodes: Sequence[Node], before: list[Value], after: list[Value] | None
    ) -> None:
        """Compare what was recorded for a row with the first one, if this is not that."""
        nodes = [node for node in nodes if node.op is not constant]  # literals are common to all rows
        if after is None:  # the body has changed what an array is a view of
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
        """Record the same for another row."""
        assert self.pattern is not None
        values = trace.emit_copy(self.pattern, before)
        for position, new, place in self._changed:
            x = arrays[position]
            trace.write(x._storage, x._view, new if place is None else values[place])


def _is_alike(one: Node, other: Node, values: dict[Value, Value]) -> bool:
    """Whether `other` is `one` on other values, to which the outputs are added."""
    if len(one.outputs) != len(other.outputs) or one.op is not other.op or one.location != other.location:
        return False
    values.update(zip(one.outputs, other.outputs, strict=True))
    inputs = tuple([values.get(v, v) for v in one.inputs])
    return inputs == other.inputs and attributes_key(one.attrs) == attributes_key(other.attrs)
