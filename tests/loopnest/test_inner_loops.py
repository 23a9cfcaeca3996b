"""Loops whose iterations choose a branch by a state: those that stay in a state run it as an inner loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.fuzz.count import COUNT
from tests.graphs import assert_same
from tests.loopnest.serial_programs import BOOL, F8, I8, Kernels, expected_of, loop_graph, node_of
from tracejit import ops
from tracejit.codegen.cpu.serial import emit_serial
from tracejit.ir.graph import Builder, Effect, Graph, Value, constant_of
from tracejit.ir.types import CPU, ArrayType
from tracejit.ir.view import View
from tracejit.loopnest.serial import lower_serial

SCALAR, FLAG, ROW = ArrayType((), I8), ArrayType((), BOOL), ArrayType((8,), F8)
TYPES = [SCALAR, SCALAR, SCALAR, ROW, FLAG]
"""The operands: the state, two numbers, an array, and whether the loop continues."""


def number(b: Builder, value: Any, dtype: np.dtype = I8) -> Value:
    constant = b.emit(ops.constant, **constant_of(value, dtype))
    return b.emit(ops.full, constant, shape=(), device=CPU)


def branch(build: Callable[..., list[Value]]) -> Graph:
    b = Builder()
    inputs = [b.input(type) for type in TYPES[:4]]
    return b.graph(build(b, *inputs))


def machine(
    branches: list[Graph],
    follow: Callable[..., Value] | None = None,
    choose: Callable[..., Value] | None = None,
) -> Graph:
    """Return a loop that runs one of some branches, by the state. `follow`: computes whether the loop
    continues from its flag and its numbers; `choose`: computes the condition that chooses one of two branches
    instead, from the numbers and the array.
    """
    b = Builder()
    inputs = [b.input(type) for type in TYPES]
    which = inputs[0] if choose is None else choose(b, *inputs[1:4])
    results = list(b.emit(ops.case, which, *inputs[:4], branches=tuple(branches)))
    if follow is not None:
        results[-1] = follow(b, results[-1], *results[1:3])
    body = b.graph([], [Effect(x, value) for x, value in zip(inputs, results, strict=True)])
    return loop_graph(body, [(0, 0)] * len(TYPES), 16, TYPES, until=4)


def random_branch(rng: np.random.Generator, states: int) -> Graph:
    """Return a branch whose conditions choose the next state, and change the numbers and the array."""

    def end(b: Builder, values: list[Value]) -> list[Value]:
        _state, x, y, row = values
        kind = rng.integers(4)
        if kind == 0:
            x = b.emit(ops.add, x, number(b, int(rng.integers(-2, 4))))
        elif kind == 1:
            x, y = y, b.emit(ops.subtract, x, y)
        elif kind == 2:
            index = b.emit(ops.remainder, y, number(b, 8))
            old = b.emit(ops.gather, row, index, axis=0)
            new = b.emit(ops.add, old, b.emit(ops.astype, x, dtype=F8))
            row = b.emit(ops.scatter, row, new, index, axis=0)
        following = number(b, int(rng.integers(states)))
        continues = number(b, bool(rng.random() < 0.9), BOOL)
        return [following, x, y, row, continues]

    def build(b: Builder, *values: Value, depth: int = 0) -> list[Value]:
        if depth == 2 or rng.random() < 0.3:
            return end(b, list(values))
        compare = (ops.less, ops.greater, ops.equal)[rng.integers(3)]
        which = b.emit(compare, values[1 + rng.integers(2)], number(b, int(rng.integers(-3, 8))))
        nested = [branch(lambda b, *inner: build(b, *inner, depth=depth + 1)) for _ in range(2)]
        return list(b.emit(ops.case, which, *values, branches=tuple(nested)))

    return branch(build)


def random_machine(seed: int) -> Graph:
    rng = np.random.default_rng(seed)
    states = int(rng.integers(2, 6))

    def follow(b: Builder, continues: Value, x: Value, y: Value) -> Value:
        is_small = b.emit(ops.less, b.emit(ops.abs, x), number(b, 1000))
        return b.emit(ops.logical_and, continues, is_small)

    branches = [random_branch(rng, states) for _ in range(states)]
    return machine(branches, follow if rng.random() < 0.5 else None)


def random_condition(seed: int) -> Graph:
    """A loop whose iterations choose one of two branches by a number, or by an element of the array."""
    rng = np.random.default_rng(seed)

    def choose(b: Builder, x: Value, y: Value, row: Value) -> Value:
        compared = b.emit(ops.add, x, y) if rng.random() < 0.5 else x
        if rng.random() < 0.3:
            index = b.emit(ops.remainder, y, number(b, 8))
            compared = b.emit(ops.astype, b.emit(ops.gather, row, index, axis=0), dtype=I8)
        return b.emit((ops.less, ops.greater)[rng.integers(2)], compared, number(b, int(rng.integers(-3, 8))))

    return machine([random_branch(rng, 2) for _ in range(2)], choose=choose)


def operands(seed: int, count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    x, y = rng.integers(-5, 9, 2)
    return [np.int64(count), np.int64(0), x, y, rng.integers(-9, 9, 8).astype("float64"), np.bool_(True)]


@pytest.mark.parametrize("interval", [1, 4096])
@pytest.mark.parametrize("batch", range(max(1, COUNT // 100)))
@pytest.mark.parametrize("build", [random_machine, random_condition])
def test_random_machines(build, batch, interval):
    """Each kernel runs to its end, and is left at each check whether the thread has other work."""
    seeds = range(14 * batch, 14 * batch + 14)
    graphs = [build(seed) for seed in seeds]
    assert sum("while True" in source_of(graph) for graph in graphs) > 5
    kernels = Kernels(graphs, interval)
    for position, (seed, graph) in enumerate(zip(seeds, graphs, strict=True)):
        for count in (0, 1, 2, 3, 7, 40):
            arrays = operands(seed, count)
            expected = expected_of(graph, arrays)
            for leaves in (False, True):
                assert_same(kernels.run(position, arrays, leaves=leaves)[0], expected)


def source_of(graph: Graph) -> str:
    lowered = lower_serial(node_of(graph))
    return emit_serial(lowered.program, len(lowered.slots))


def counting(last: int) -> Graph:
    """A branch that adds an element to the first number until the second one reaches the end of the array,
    and goes on to another state.
    """

    def more(b: Builder, state: Value, x: Value, y: Value, row: Value) -> list[Value]:
        element = b.emit(ops.gather, row, y, axis=0)
        total = b.emit(ops.add, x, b.emit(ops.astype, element, dtype=I8))
        return [number(b, 1), total, b.emit(ops.add, y, number(b, 1)), row, number(b, True, BOOL)]

    def done(b: Builder, state: Value, x: Value, y: Value, row: Value) -> list[Value]:
        return [number(b, last), x, number(b, 0), row, number(b, True, BOOL)]

    def build(b: Builder, *values: Value) -> list[Value]:
        which = b.emit(ops.less, values[2], number(b, 8))
        return list(b.emit(ops.case, which, *values, branches=(branch(done), branch(more))))

    return branch(build)


def storing(following: int) -> Graph:
    """A branch that stores the first number, and goes on to another state."""

    def build(b: Builder, state: Value, x: Value, y: Value, row: Value) -> list[Value]:
        total = b.emit(ops.astype, x, dtype=F8)
        row = b.emit(ops.update, row, total, view=View(0, (), ()))
        return [number(b, following), x, y, row, number(b, True, BOOL)]

    return branch(build)


def test_a_state_that_is_left_and_entered_again():
    graph = machine([storing(1), counting(0)])
    assert source_of(graph).count("while True") == 1
    kernels = Kernels([graph])
    arrays = operands(1, 45)
    arrays[1:4] = np.int64(0), np.int64(0), np.int64(0)
    assert_same(kernels.run(0, arrays)[0], expected_of(graph, arrays))


def test_states_that_are_left_at_once_have_no_inner_loop():
    graph = machine([storing(1), counting(1)])
    assert source_of(graph).count("while True") == 1
    graph = machine([storing(2), counting(0), storing(0)])
    assert source_of(graph).count("while True") == 1
    graph = machine([storing(1), storing(2), storing(0)])
    assert "while True" not in source_of(graph)
