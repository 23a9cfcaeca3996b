"""Intervals of integers in native loops contain the integers, whatever the conditions of branches imply."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.fuzz.count import COUNT
from tracejit import ops
from tracejit.frontend.jit.state_loops.branching import _Branch
from tracejit.frontend.jit.state_loops.intervals import Interval, Intervals
from tracejit.frontend.jit.state_loops.native_numbers import EXACT
from tracejit.ir.evaluate import evaluate
from tracejit.ir.graph import Value, constant_of
from tracejit.ir.types import CPU, ArrayType

I8 = np.dtype("int64")
NUMBER = ArrayType((), I8)
INTEGERS = [np.dtype(name) for name in ("int8", "uint8", "int32", "uint64", "int64")]
BINARY = (ops.add, ops.subtract, ops.multiply, ops.bitwise_and, ops.bitwise_or, ops.bitwise_xor)
BY_CONSTANTS = (ops.floor_divide, ops.remainder, ops.bitwise_right_shift)
UNARY = (ops.negative, ops.abs, ops.bitwise_invert, ops.copy)
COMPARISONS = (ops.less, ops.less_equal, ops.greater, ops.greater_equal, ops.equal, ops.not_equal)
CONSTANTS = (0, 1, 2, 3, 7, 8, 100, 255, -1, -5, EXACT, -EXACT)


class Program:
    """A random body: integers of three variables, and truth values of comparisons."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.intervals = Intervals()
        self.body = _Branch(None, self.intervals)
        self.variables = [self.body.input(NUMBER) for _ in range(3)]
        for variable in self.variables:
            self.intervals.assume_exact(variable)
        self.integers, self.truths = list(self.variables), list[Value]()
        for _ in range(12):
            self.integers.append(self.integer())
            if self.rng.random() < 0.4:
                self.truths.append(self.truth())

    def one(self, items: Any) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def constant(self, value: int) -> Value:
        constant = self.body.emit(ops.constant, **constant_of(value, I8))
        return self.body.emit(ops.full, constant, shape=(), device=CPU)

    def operand(self) -> Value:
        return self.one(self.integers) if self.rng.random() < 0.8 else self.constant(self.one(CONSTANTS))

    def integer(self) -> Value:
        kind = self.rng.random()
        if kind < 0.5:
            return self.body.emit(self.one(BINARY), self.operand(), self.operand())
        if kind < 0.65:
            return self.body.emit(
                self.one(BY_CONSTANTS), self.operand(), self.constant(self.one(CONSTANTS[1:6]))
            )
        if kind < 0.8:
            return self.body.emit(self.one(UNARY), self.operand())
        if kind < 0.9 and self.truths:
            return self.body.emit(ops.where, self.one(self.truths), self.operand(), self.operand())
        narrow = self.body.emit(ops.astype, self.operand(), dtype=self.one(INTEGERS))
        return self.body.emit(ops.astype, narrow, dtype=I8)

    def truth(self) -> Value:
        kind = self.rng.random()
        if kind < 0.15 and len(self.truths) > 1:
            return self.body.emit(
                self.one((ops.logical_and, ops.logical_or)), self.truths[-1], self.truths[-2]
            )
        if kind < 0.25 and self.truths:
            return self.body.emit(ops.logical_not, self.truths[-1])
        if kind < 0.4:
            unsigned = np.dtype("uint64")
            limit = self.body.emit(ops.constant, **constant_of(self.one((1, 8, 100)), unsigned))
            return self.body.emit(
                ops.less, self.body.emit(ops.bitcast, self.operand(), dtype=unsigned), limit
            )
        return self.body.emit(self.one(COMPARISONS), self.operand(), self.operand())

    def values(self) -> dict[Value, Any]:
        """Return all integers and truth values for exact variables."""
        known = {variable: self.number() for variable in self.variables}
        graph = self.body.graph([*self.integers, *self.truths])
        with np.errstate(all="ignore"):
            results, _ = evaluate(graph, [np.int64(known[variable]) for variable in self.variables])
        return {v: np.asarray(result).item() for v, result in zip(graph.outputs, results, strict=True)}

    def number(self) -> int:
        kind = self.rng.integers(4)
        if kind == 0:
            return int(self.rng.integers(-EXACT, EXACT))
        return self.one((-EXACT, EXACT - 1, 0, 1)) if kind == 1 else int(self.rng.integers(-12, 300))


def contains(interval: Interval | None, value: int) -> bool:
    assert interval is not None
    return interval.lo <= value <= interval.hi


@pytest.mark.parametrize("batch", range(max(1, COUNT // 5)))
def test_random_programs(batch):
    narrowed = decided = 0
    for seed in range(20 * batch, 20 * batch + 20):
        program = Program(seed)
        samples = [program.values() for _ in range(40)]
        for truth in (None, *program.truths):
            for answer in (True, False):
                program.intervals.facts = {}
                if truth is not None:
                    program.intervals.learn(truth, answer)
                facts = program.intervals.facts
                fitting = [each for each in samples if truth is None or each[truth] is answer]
                for value in program.integers:
                    interval = program.intervals.of(value, facts)
                    assert all(contains(interval, each[value]) for each in fitting), (seed, value)
                    narrowed += interval.lo > -EXACT or interval.hi < EXACT - 1
                for condition in program.truths:
                    known = program.intervals.truth(condition)
                    if known is not None:
                        decided += 1
                        assert all(each[condition] is known[0] for each in fitting), (seed, condition)
    assert narrowed > 500
    assert decided > 10


def test_a_counter_stays_exact():
    intervals = Intervals()
    body = _Branch(None, intervals)
    i, n = body.input(NUMBER), body.input(NUMBER)
    intervals.assume_exact(i)
    intervals.assume_exact(n)
    one = body.emit(ops.constant, **constant_of(1, I8))
    following = body.emit(ops.add, i, one)
    assert intervals.is_exact(following, {}) is None
    intervals.learn(body.emit(ops.less, i, n), True)
    assert intervals.is_exact(following, intervals.facts) == {i, n}
    assert intervals.is_exact(body.emit(ops.subtract, i, one), intervals.facts) is None


def test_values_of_an_enclosing_branch():
    intervals = Intervals()
    body = _Branch(None, intervals)
    i = body.input(NUMBER)
    three = body.emit(ops.constant, **constant_of(3, I8))
    intervals.learn(body.emit(ops.equal, i, three), True)
    inner = _Branch(body, intervals)
    doubled = inner.emit(ops.add, i, i)
    assert intervals.of(doubled, intervals.facts)[:2] == (6, 6)
