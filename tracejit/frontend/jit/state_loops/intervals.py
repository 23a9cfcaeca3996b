"""Intervals of integers in the body of a native loop with branches.

    while i < n:             the branch knows: i is at most n - 1, and n is exact
        i += 1               so the next iteration starts with an exact i

Integers with which an iteration starts are assumed to be `EXACT` (see `native_numbers`). Intervals of other
integers follow from the operators that compute them, and from the conditions of the branches around them. A
native loop does not check what they imply.

Method: interval analysis, refined by the conditions of branches (Cousot and Cousot 1976).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tracejit import ops
from tracejit.frontend.jit.state_loops.native_numbers import EXACT, INTEGER
from tracejit.ir.graph import Node, Value
from tracejit.ir.op import Op

MAX_NODES = 64
"""The largest number of nodes from which the interval of a value is computed. Others have that of a dtype."""


class Interval(NamedTuple):
    """The integers from `lo` to `hi`. `assumed`: the integers whose exactness it relies on."""

    lo: int
    hi: int
    assumed: frozenset[Value] = frozenset()

    def within(self, other: Interval) -> Interval:
        """The integers that are in this interval and in another one, or `other` if there is none."""
        lo, hi = max(self.lo, other.lo), min(self.hi, other.hi)
        return Interval(lo, hi, self.assumed | other.assumed) if lo <= hi else other


BranchFacts = dict[Value, Interval]
"""Intervals of values that follow from the conditions of branches."""


class Intervals:
    """Intervals of the values of a body and of its nested graphs.

    facts: those of the branch that is built now.
    """

    def __init__(self) -> None:
        self.facts: BranchFacts = {}
        self._producers: dict[Value, Node] = {}
        self._outer: dict[Value, Value] = {}
        self._assumed: set[Value] = set()

    def note_node(self, node: Node) -> None:
        """Note the node that computes its outputs."""
        for value in node.outputs:
            self._producers[value] = node

    def note_input(self, inner: Value, outer: Value) -> None:
        """Note that an input of a nested graph has the value of the enclosing graph."""
        self._outer[inner] = outer

    def assume_exact(self, value: Value) -> None:
        """Assume that a value is exact when an iteration starts."""
        if value.type.dtype == INTEGER:
            self._assumed.add(value)

    def of(self, value: Value, facts: BranchFacts) -> Interval | None:
        """Return the interval of an integer where these facts hold; None if it is no integer."""
        return _Evaluation(self, facts).of(value)

    def is_exact(self, value: Value, facts: BranchFacts) -> frozenset[Value] | None:
        """Return the integers whose exactness implies that of a value; None if the value may be inexact."""
        interval = self.of(value, facts)
        if interval is None or interval.lo < -EXACT or interval.hi >= EXACT:
            return None
        return interval.assumed

    def truth(self, condition: Value) -> tuple[bool, frozenset[Value]] | None:
        """Return whether a condition is true in the branch that is built now, and the integers whose
        exactness this relies on; None if it depends on the iteration.
        """
        node = self._comparison(condition)
        if node is None:
            return None
        a, b = self.operand(node.inputs[0]), self.operand(node.inputs[1])
        if a is b:
            return node.op in (ops.less_equal, ops.greater_equal, ops.equal), frozenset()
        x, y = self.of(a, self.facts), self.of(b, self.facts)
        if x is None or y is None:
            return None
        assumed = x.assumed | y.assumed
        for answer in True, False:
            op = node.op if answer else _OPPOSITE[node.op]
            if _ALWAYS[op](x, y):
                return answer, assumed
        return None

    def learn(self, condition: Value, truth: bool) -> None:
        """Add the facts that follow from the truth of a condition to those of the present branch."""
        condition = self.operand(condition)
        node = self._producers.get(condition)
        if node is None:
            return
        if node.op is (ops.logical_and if truth else ops.logical_or):
            for value in node.inputs:
                self.learn(value, truth)
        elif node.op is ops.logical_not:
            self.learn(node.inputs[0], not truth)
        elif node.op in _OPPOSITE:
            self._compare(node.op if truth else _OPPOSITE[node.op], *map(self.operand, node.inputs))

    def operand(self, value: Value) -> Value:
        """Return the value of the outermost graph, or of the node, that a value is equal to."""
        while True:
            if value in self._outer:
                value = self._outer[value]
                continue
            node = self._producers.get(value)
            if node is None or node.op not in _SAME or node.inputs[0].type.size != 1:
                return value
            value = node.inputs[0]

    def node_of(self, value: Value) -> Node | None:
        """Return the node that computes a value."""
        return self._producers.get(value)

    def is_assumed(self, value: Value) -> bool:
        """Whether a value is assumed to be exact."""
        return value in self._assumed

    def _comparison(self, condition: Value) -> Node | None:
        node = self._producers.get(self.operand(condition))
        return node if node is not None and node.op in _OPPOSITE else None

    def _compare(self, op: Op, a: Value, b: Value) -> None:
        """Add the facts that follow from a comparison."""
        x, y = self.of(a, self.facts), self.of(b, self.facts)
        if x is None or y is None:
            return
        for value, own, lo, hi, other in (
            (a, x, *_BOUNDS[op](y), y),
            (b, y, *_BOUNDS[_MIRRORED[op]](x), x),
        ):
            lo, hi = max(lo, own.lo), min(hi, own.hi)
            if lo > hi:
                continue  # the branch never runs
            fact = self.facts[value] = Interval(lo, hi, own.assumed | other.assumed)
            node = self._producers.get(value)
            is_cast = node is not None and node.op is ops.bitcast and node.inputs[0].type.dtype == INTEGER
            if node is not None and is_cast and fact.hi <= np.iinfo(np.int64).max:
                self.facts[self.operand(node.inputs[0])] = fact


class _Evaluation:
    """The computation of an interval."""

    def __init__(self, intervals: Intervals, facts: BranchFacts) -> None:
        self.intervals, self.facts = intervals, facts
        self.known: dict[Value, Interval | None] = {}

    def of(self, value: Value) -> Interval | None:
        """Return the interval of an integer; None if it is no integer."""
        value = self.intervals.operand(value)
        if value not in self.known:
            self.known[value] = _of_dtype(value)
            if self.known[value] is not None:
                interval = self._computed(value)
                fact = self.facts.get(value)
                self.known[value] = interval if fact is None else interval.within(fact)
        return self.known[value]

    def _computed(self, value: Value) -> Interval:
        """Return the interval of an integer without the facts about itself."""
        of_dtype = _of_dtype(value)
        assert of_dtype is not None
        if self.intervals.is_assumed(value):
            return Interval(-EXACT, EXACT - 1, frozenset((value,)))
        node = self.intervals.node_of(value)
        if node is None or len(self.known) > MAX_NODES:
            return of_dtype
        if node.op is ops.constant:
            number = int(node.attrs["value"])
            return Interval(number, number)
        rule = _RULES.get(node.op)
        if rule is None:
            return of_dtype
        operands = [self.of(each) for each in (node.inputs[1:] if node.op is ops.where else node.inputs)]
        if any(each is None for each in operands):
            return of_dtype
        ends = rule(*operands)
        if ends is None or ends[0] < of_dtype.lo or ends[1] > of_dtype.hi:
            return of_dtype
        assumed = frozenset[Value]().union(*(each.assumed for each in operands if each is not None))
        return Interval(*ends, assumed)


def _of_dtype(value: Value) -> Interval | None:
    """Return the interval of all numbers of a dtype; None if it is no integer."""
    dtype = value.type.dtype
    if dtype.kind == "b":
        return Interval(0, 1)
    if dtype.kind not in "iu":
        return None
    return Interval(int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))


_SAME = frozenset({ops.full, ops.copy, ops.view})
"""Operators that return the number that is their operand."""

_OPPOSITE: dict[Op, Op] = {
    ops.less: ops.greater_equal,
    ops.greater_equal: ops.less,
    ops.greater: ops.less_equal,
    ops.less_equal: ops.greater,
    ops.equal: ops.not_equal,
    ops.not_equal: ops.equal,
}
"""Comparisons, and the one that is true if it is false."""

_MIRRORED: dict[Op, Op] = {
    ops.less: ops.greater,
    ops.greater: ops.less,
    ops.less_equal: ops.greater_equal,
    ops.greater_equal: ops.less_equal,
    ops.equal: ops.equal,
    ops.not_equal: ops.not_equal,
}
"""Comparisons, and the same one of exchanged operands."""

_MAX = 1 << 64

_BOUNDS: dict[Op, Callable[[Interval], tuple[int, int]]] = {
    ops.less: lambda y: (-_MAX, y.hi - 1),
    ops.less_equal: lambda y: (-_MAX, y.hi),
    ops.greater: lambda y: (y.lo + 1, _MAX),
    ops.greater_equal: lambda y: (y.lo, _MAX),
    ops.equal: lambda y: (y.lo, y.hi),
    ops.not_equal: lambda y: (-_MAX, _MAX),
}
"""Comparisons, and the interval of the first operand if they are true, given that of the second one."""

_ALWAYS: dict[Op, Callable[[Interval, Interval], bool]] = {
    ops.less: lambda x, y: x.hi < y.lo,
    ops.less_equal: lambda x, y: x.hi <= y.lo,
    ops.greater: lambda x, y: x.lo > y.hi,
    ops.greater_equal: lambda x, y: x.lo >= y.hi,
    ops.equal: lambda x, y: x.lo == x.hi == y.lo == y.hi,
    ops.not_equal: lambda x, y: x.hi < y.lo or x.lo > y.hi,
}
"""Comparisons, and whether they are true for all integers of two intervals."""


def _product(x: Interval, y: Interval) -> tuple[int, int]:
    ends = [a * b for a in x[:2] for b in y[:2]]
    return min(ends), max(ends)


def _bits(x: Interval, y: Interval) -> tuple[int, int]:
    """Return the interval of a bitwise or, or exclusive or: that of integers with as many bits."""
    bits = max(end.bit_length() if end >= 0 else (-end - 1).bit_length() for end in (*x[:2], *y[:2]))
    return (0 if x.lo >= 0 and y.lo >= 0 else -(1 << bits)), (1 << bits) - 1


def _common_bits(x: Interval, y: Interval) -> tuple[int, int]:
    """Return the interval of a bitwise and."""
    if x.lo >= 0 or y.lo >= 0:
        return 0, min(each.hi for each in (x, y) if each.lo >= 0)
    return _bits(x, y)


def _shifted(x: Interval, y: Interval) -> tuple[int, int] | None:
    """Return the interval of a right shift."""
    if y.lo < 0 or y.hi > 63:
        return None
    ends = [a >> b for a in x[:2] for b in y[:2]]
    return min(ends), max(ends)


def _quotient(x: Interval, y: Interval) -> tuple[int, int] | None:
    """Return the interval of a floor division by positive integers."""
    if y.lo <= 0:
        return None
    ends = [a // b for a in x[:2] for b in y[:2]]
    return min(ends), max(ends)


_RULES: dict[Op, Callable[..., tuple[int, int] | None]] = {
    ops.add: lambda x, y: (x.lo + y.lo, x.hi + y.hi),
    ops.subtract: lambda x, y: (x.lo - y.hi, x.hi - y.lo),
    ops.multiply: _product,
    ops.negative: lambda x: (-x.hi, -x.lo),
    ops.abs: lambda x: (max(x.lo, -x.hi, 0), max(x.hi, -x.lo)),
    ops.bitwise_invert: lambda x: (-x.hi - 1, -x.lo - 1),
    ops.bitwise_and: _common_bits,
    ops.bitwise_or: _bits,
    ops.bitwise_xor: _bits,
    ops.bitwise_right_shift: _shifted,
    ops.floor_divide: _quotient,
    ops.remainder: lambda x, y: (0, y.hi - 1) if y.lo > 0 else None,
    ops.where: lambda x, y: (min(x.lo, y.lo), max(x.hi, y.hi)),
    ops.astype: lambda x: (x.lo, x.hi),
}
"""The interval of an operator's result, given those of its operands; None if it is not known. It holds unless
the result overflows.
"""
