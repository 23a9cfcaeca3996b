"""Serial kernels: the bits of the evaluator, also when they are left and continued; what they refuse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tests.fuzz.count import COUNT
from tests.graphs import assert_same
from tests.launching import launch
from tests.loopnest.serial_programs import (
    BOOL,
    F8,
    I8,
    MOST,
    Kernels,
    expected_of,
    loop_graph,
    node_of,
    random_loop,
    random_operands,
)
from tracejit import ops
from tracejit.compile import compile_graph
from tracejit.errors import VerificationError
from tracejit.ir.graph import Builder, Effect, Graph, Value, constant_of
from tracejit.ir.types import CPU, HOST, ArrayType
from tracejit.ir.view import View
from tracejit.loopnest import serial
from tracejit.loopnest.operands import NotSerial
from tracejit.loopnest.serial import lower_serial
from tracejit.ops.loops import COUNT as COUNT_TYPE
from tracejit.ops.loops import nested_graphs

BATCH = 25
N = 6
X = ArrayType((N,), F8)
LONG = ArrayType((20,), F8)
SCALAR, INDEX, FLAG = (ArrayType((), dtype) for dtype in (F8, I8, BOOL))


def has_case(graph: Graph) -> bool:
    """Whether a graph contains a `case` that is not within a loop."""
    return any(node.op is ops.case for node in graph.nodes)


def is_serial(graph: Graph) -> bool:
    try:
        lower_serial(node_of(graph))
    except NotSerial:
        return False
    return True


def check(graph: Graph, arrays: Sequence[np.ndarray], *, serial: bool = True) -> None:
    """Compile a graph, run it, and compare with the evaluator, bit for bit."""
    schedule = compile_graph(graph)
    assert any(kernel.source.startswith("# serial") for kernel in schedule.kernels) == serial
    assert_same(launch(schedule, arrays)[0], expected_of(graph, arrays))


# -- random loops -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", range(max(1, COUNT // BATCH)))
def test_random_kernels(batch):
    """Each kernel runs to its end, and is left after each iteration."""
    seeds = range(BATCH * batch, BATCH * (batch + 1))
    graphs = {seed: random_loop(np.random.default_rng(seed)) for seed in seeds}
    serial = {seed: graph for seed, graph in graphs.items() if is_serial(graph)}
    assert len(serial) > 0.5 * len(graphs)
    kernels, left = Kernels(list(serial.values()), interval=1), 0
    for position, (seed, graph) in enumerate(serial.items()):
        rng = np.random.default_rng(seed)
        for count in (0, 1, MOST, None):
            arrays = random_operands(graph, rng, count)
            expected = expected_of(graph, arrays)
            for leaves in (False, True):
                outputs, times = kernels.run(position, arrays, leaves=leaves)
                assert_same(outputs, expected)
                left += times
    assert left > len(serial)


def check_or_refused(graph: Graph, arrays: Sequence[np.ndarray]) -> bool:
    """Compile a random graph and compare it with the evaluator. Return whether it was compiled; else, it
    contains a `case`, and the error says why there is no kernel.
    """
    try:
        schedule = compile_graph(graph)
    except VerificationError as error:
        if "a loop with a case must be a serial kernel, but " in str(error):
            return False
        raise
    assert_same(launch(schedule, arrays)[0], expected_of(graph, arrays))
    return True


@pytest.mark.parametrize("batch", range(max(1, COUNT // BATCH)))
def test_random_graphs_through_all_passes(batch):
    for seed in range(100_000 + 5 * batch, 100_005 + 5 * batch):
        rng = np.random.default_rng(seed)
        graph = random_loop(rng)
        assert check_or_refused(graph, random_operands(graph, rng)) or not is_serial(graph)


@pytest.mark.parametrize("batch", range(max(1, COUNT // BATCH)))
def test_ordinary_loops_return_the_same_bits(batch, monkeypatch):
    def refuse(node: Any) -> Any:
        raise NotSerial("it is not in this test")

    monkeypatch.setattr(serial, "lower_serial", refuse)
    for seed in range(200_000 + 5 * batch, 200_005 + 5 * batch):
        rng = np.random.default_rng(seed)
        graph = random_loop(rng)
        check_or_refused(graph, random_operands(graph, rng))


# -- graphs by hand -----------------------------------------------------------------------------------------


def graph_of(
    types: Sequence[ArrayType],
    build: Callable[..., dict[int, Value]],
    *,
    windows: dict[int, tuple[ArrayType, int, int]] | None = None,
    steps: dict[int, Any] | None = None,
    rounds: int = 4,
    **attrs: Any,
) -> Graph:
    """Return a loop over operands of these types. ``build(emit, *inputs)`` returns the new values of the
    inputs that change, by their positions. `windows`: the type, start and step of moving windows.
    """
    windows, steps, b = windows or {}, steps or {}, Builder()
    inputs = [b.input(windows[i][0] if i in windows else type) for i, type in enumerate(types)]
    results = build(b.emit, *inputs)
    body = b.graph([], [Effect(inputs[i], value) for i, value in results.items()])
    moves = [windows[i][1:] if i in windows else (0, steps.get(i, 0)) for i in range(len(types))]
    return loop_graph(body, moves, rounds, types, **attrs)


def branch(types: Sequence[ArrayType], build: Callable[..., Sequence[Value]]) -> Graph:
    b = Builder()
    return b.graph(build(b.emit, *[b.input(type) for type in types]))


def at(emit: Any, x: Value, i: int) -> Value:
    return emit(ops.view, x, view=View(i, (), ()))


def put(emit: Any, x: Value, value: Value, i: int) -> Value:
    return emit(ops.update, x, value, view=View(i, (), ()))


def number(emit: Any, value: Any, dtype: Any = F8) -> Value:
    return emit(ops.full, emit(ops.constant, **constant_of(value, dtype)), shape=(), device=CPU)


def operands(graph: Graph, seed: int = 0, count: int = 4) -> list[np.ndarray]:
    return random_operands(graph, np.random.default_rng(seed), count)


def refuses(graph: Graph, reason: str) -> None:
    """A loop is refused for a reason. If it contains a `case`, the error says so, else another loop runs."""
    with pytest.raises(NotSerial, match=reason):
        lower_serial(node_of(graph))
    if has_case(node_of(graph).attrs["body"]):
        with pytest.raises(VerificationError, match=f"with a case must be a serial kernel, but .*{reason}"):
            compile_graph(graph)
    else:
        assert check_or_refused(graph, operands(graph))


def old_element(emit, x):
    """Reads an element before and after it has been overwritten; the second is an old version."""
    y = put(emit, x, number(emit, 2.5), 1)
    return {0: put(emit, y, emit(ops.add, at(emit, x, 1), at(emit, y, 0)), 2)}


def several_elements(emit, x):
    return {0: emit(ops.add, x, x)}


def moves_several(emit, x):
    """Copies elements onto others, some of which are read."""
    return {0: emit(ops.update, x, emit(ops.view, x, view=View(0, (4,), (1,))), view=View(2, (4,), (1,)))}


def running_sums(emit, x):
    """Elements picked by an array of indices, which depend on an element; their running sums."""
    i = emit(
        ops.add,
        emit(ops.iota, size=3, device=CPU),
        emit(ops.full, number_of(emit, 2), shape=(3,), device=CPU),
    )
    picked = emit(ops.cumulative_sum, emit(ops.gather, x, i, axis=0), axis=0)
    last = emit(ops.view, picked, view=View(2, (), ()))
    picked = emit(ops.update, picked, emit(ops.multiply, last, last), view=View(0, (), ()))
    x = emit(ops.update, x, picked, view=View(4, (3,), (-1,)))
    return {0: emit(ops.where, emit(ops.less, x, emit(ops.copy, x)), x, emit(ops.add, x, x))}


def a_row(emit, x, y):
    """Writes a row of an array of two dimensions."""
    grid = emit(ops.view, y, view=View(0, (10, 2), (2, 1)))
    first = emit(ops.view, x, view=View(0, (2,), (1,)))
    row = emit(ops.full, number_of(emit, 7), shape=(), device=CPU)
    grid = emit(ops.scatter, grid, first, row, axis=0)
    flat = emit(ops.view, grid, view=View(0, (20,), (1,)))
    return {1: flat, 0: emit(ops.add, x, emit(ops.view, flat, view=View(10, (6,), (1,))))}


SHORT = {
    "several elements": ([X], several_elements),
    "moves": ([X], moves_several),
    "running sums": ([X], running_sums),
    "row": ([X, LONG], a_row),
}


@pytest.mark.parametrize("case", SHORT)
def test_arrays_of_few_elements(case):
    types, build = SHORT[case]
    graph = graph_of(types, build)
    for seed in range(3):
        check(graph, operands(graph, seed))


def number_of(emit, value):
    return emit(ops.constant, **constant_of(value, I8))


def reduction(emit, x, s):
    return {1: emit(ops.sum, x, axes=(0,), pieces=0)}


def overwritten_scratch(emit, x, s):
    """Overwrites an array that later iterations read in its old state."""
    return {1: at(emit, put(emit, x, s, 0), 0)}


def exchanged_arrays(emit, x, y):
    return {0: y, 1: x}


def gathers_many(emit, x, s):
    i = emit(ops.iota, size=20, device=CPU)
    return {1: emit(ops.view, emit(ops.gather, x, i, axis=0), view=View(3, (), ()))}


def writes_many(emit, x, y):
    return {0: emit(ops.update, x, emit(ops.view, y, view=View(0, (18,), (1,))), view=View(2, (18,), (1,)))}


def writes_a_changed_copy(emit, x):
    part = put(emit, emit(ops.view, x, view=View(1, (3,), (1,))), number(emit, 1.5), 0)
    again = put(emit, part, number(emit, 2.5), 1)
    return {0: emit(ops.update, put(emit, x, number(emit, 0.5), 0), again, view=View(1, (3,), (1,)))}


def picks_from_few(emit, x, s):
    few = emit(ops.add, x, x)
    return {1: emit(ops.gather, few, emit(ops.full, number_of(emit, 2), shape=(), device=CPU), axis=0)}


def writes_to_several_places(emit, x):
    i = emit(ops.iota, size=2, device=CPU)
    few = emit(ops.view, x, view=View(3, (2,), (1,)))
    return {0: emit(ops.scatter, x, few, i, axis=0)}


REFUSED = {
    "it reads elements that it has overwritten": ([X], old_element),
    "it computes 20 elements": ([LONG], several_elements),
    "sum|it contains": ([X, SCALAR], reduction),
    "later ones read": ([X, SCALAR], overwritten_scratch),
    "an iteration copies an array": ([X, X], exchanged_arrays),
    "it (gathers|computes) 20 elements": ([LONG, SCALAR], gathers_many),
    "it computes 18 elements": ([LONG, LONG], writes_many),
    "it reads elements that it has overwritten|in a copy": ([X], writes_a_changed_copy),
    "it selects an element of a short array": ([X, SCALAR], picks_from_few),
    "it writes at several indices": ([X], writes_to_several_places),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_refused_loops(reason):
    types, build = REFUSED[reason]
    refuses(graph_of(types, build), reason)


def test_too_many_statements(monkeypatch):
    monkeypatch.setattr(serial, "MAX_STATEMENTS", 5)

    def build(emit, s):
        for _ in range(8):
            s = emit(ops.add, s, s)
        return {0: s}

    with pytest.raises(NotSerial, match="more than 5 statements"):
        lower_serial(node_of(graph_of([SCALAR], build)))


def test_half_precision_is_refused():
    half = ArrayType((), np.dtype("float16"))
    with pytest.raises(NotSerial, match="it computes float16"):
        lower_serial(node_of(graph_of([half], lambda emit, s: {0: emit(ops.add, s, s)})))


def test_a_register_must_be_all_of_its_operand():
    graph = graph_of([X], lambda emit, s: {0: emit(ops.add, s, s)}, windows={0: (SCALAR, 2, 0)})
    refuses(graph, "it carries an element of an array")


@pytest.mark.parametrize("reads_old", [False, True])
def test_branches_that_write(reads_old):
    """The elements before a `case` in which a branch writes are no longer in memory; those after it are."""
    types = [X, SCALAR]

    def build(emit, x, s):
        before = at(emit, x, 1)
        which = emit(ops.less, before, s)
        writes = branch(types, lambda emit, x, s: [put(emit, x, s, 1)])
        passes = branch(types, lambda emit, x, s: [x])
        y = emit(ops.case, which, x, s, branches=(passes, writes))[0]
        again = at(emit, x if reads_old else y, 1)
        total = emit(ops.add, emit(ops.add, before, again), at(emit, y, 0))
        return {0: put(emit, y, total, 2), 1: emit(ops.subtract, s, number(emit, 0.75))}

    graph = graph_of(types, build)
    if reads_old:  # the same element has been loaded before
        with pytest.raises(NotSerial, match="overwritten"):
            lower_serial(node_of(graph))
        return
    for seed in range(4):
        check(graph, operands(graph, seed))


def test_a_branch_must_return_what_it_overwrites():
    types = [X, SCALAR]

    def build(emit, x, s):
        writes = branch(types, lambda emit, x, s: [at(emit, put(emit, x, s, 1), 2)])
        passes = branch(types, lambda emit, x, s: [s])
        (s,) = emit(ops.case, emit(ops.less, at(emit, x, 1), s), x, s, branches=(passes, writes))
        return {0: put(emit, x, s, 3)}

    refuses(graph_of(types, build), "a branch overwrites elements that are read later")


def test_a_branch_cannot_choose_between_arrays():
    types = [X, X]

    def build(emit, x, y):
        first, second = branch(types, lambda emit, x, y: [x]), branch(types, lambda emit, x, y: [y])
        (z,) = emit(ops.case, emit(ops.less, at(emit, x, 1), at(emit, y, 1)), x, y, branches=(first, second))
        return {0: put(emit, x, at(emit, z, 0), 3)}

    refuses(graph_of(types, build), "a branch chooses between two arrays")


def nested(
    emit: Any, types: Sequence[ArrayType], values: Sequence[Value], build: Any, rounds: int = 3, **kwargs: Any
) -> tuple[Value, ...]:
    """Emit a nested loop of 3 iterations."""
    graph = graph_of(types, build, rounds=rounds, **kwargs)
    attrs = node_of(graph).attrs
    count = emit(ops.constant, **constant_of(rounds, I8))
    return emit(ops.loop, count, *values, **attrs)


def test_elements_that_a_nested_loop_overwrites():
    """An element that was loaded before a nested loop is loaded again after it, and within it."""

    def inner(emit, x, s):
        total = emit(ops.add, at(emit, x, 2), s)
        y = put(emit, x, total, 2)
        return {0: y, 1: emit(ops.add, s, at(emit, y, 2))}

    def build(emit, x, s):
        before = at(emit, x, 2)
        y, s = nested(emit, [X, SCALAR], [x, emit(ops.add, s, before)], inner)
        return {
            0: put(emit, y, emit(ops.add, before, at(emit, y, 2)), 1),
            1: emit(ops.subtract, s, at(emit, y, 2)),
        }

    graph = graph_of([X, SCALAR], build)
    for count in (0, 1, 3):
        check(graph, operands(graph, 1, count))


def test_a_nested_loop_that_writes_an_array_twice_passed():
    """One array as two operands: writes to one are not visible through the other."""

    def build(emit, x):
        (y,) = nested(emit, [X, X], [x, x], lambda emit, x, y: {0: put(emit, x, at(emit, y, 1), 0)})
        return {0: y}

    refuses(graph_of([X], build), "a loop in it reads elements that another iteration overwrites")


def test_an_array_as_two_operands_of_the_loop():
    def build(emit, x, y):
        return {
            0: put(emit, put(emit, x, emit(ops.add, at(emit, y, 1), at(emit, x, 2)), 1), at(emit, y, 2), 0)
        }

    node = node_of(graph_of([X, X], build))
    for has_effect in (False, True):
        b = Builder()
        count, x = b.input(COUNT_TYPE), b.input(X)
        (result,) = b.emit(ops.loop, count, x, x, **node.attrs)
        graph = b.graph([b.emit(ops.add, result, x)], [Effect(x, result)] * has_effect)
        schedule, arrays = compile_graph(graph), [np.array(4), np.arange(6.0)]
        (output,), after = launch(schedule, arrays)
        (expected,) = expected_of(graph, arrays)
        np.testing.assert_array_equal(output, expected)
        np.testing.assert_array_equal(after[0], expected - arrays[1] if has_effect else arrays[1])


def test_views_that_are_not_contiguous():
    def build(emit, x, s):
        reverse = emit(ops.view, x, view=View(N - 1, (N,), (-1,)))
        (s,) = nested(
            emit, [X, SCALAR], [reverse, s], lambda emit, x, s: {1: emit(ops.add, s, at(emit, x, 1))}
        )
        return {1: s}

    refuses(graph_of([X, SCALAR], build), "a loop in it reads a view that is not contiguous")


def test_registers_are_exchanged():
    """Effects are a parallel assignment, in the evaluator, too."""
    types = [SCALAR] * 3
    graph = graph_of(types, lambda emit, a, b, c: {0: b, 1: c, 2: a})
    arrays = [np.array(n) for n in (4, 1.0, 2.0, 3.0)]
    assert [x.item() for x in expected_of(graph, arrays)] == [2.0, 3.0, 1.0]
    check(graph, arrays)


@pytest.mark.parametrize("step", [1, -1])
def test_an_only_element_that_would_move(step):
    """In a loop of one iteration the step of a window has no meaning."""
    start = {"windows": {0: (SCALAR, 0, step)}, "rounds": 1}
    outer = graph_of([SCALAR], lambda emit, s: {0: emit(ops.add, s, s)}, **start)
    check(outer, [np.array(1), np.array(1.5)])

    def build(emit, s):
        return {0: nested(emit, [SCALAR], [s], lambda emit, s: {0: emit(ops.add, s, s)}, **start)[0]}

    graph = graph_of([SCALAR], build)
    check(graph, operands(graph))
    flag = graph_of(
        [FLAG], lambda emit, f: {0: emit(ops.logical_not, f)}, windows={0: (FLAG, 0, step)}, rounds=1, until=0
    )
    check(flag, [np.array(1), np.array(False)])


@pytest.mark.parametrize(
    ("dtype", "start", "step"),
    [
        *(
            ("int8", 120, 3),
            ("uint8", 3, -2),
            ("int64", 2**63 - 2, 1),
            ("uint64", 5, -3),
            ("float64", 2.0, -3),
        ),
        *(("float32", -4.0, 2), ("float64", 2.0**53 - 8, 1), ("uint16", 65530, 5), ("float64", 1.0, 2.0)),
    ],
)
def test_induction_variables(dtype, start, step):
    """Integers wrap; floats are exact; a kernel that is left continues with the value that it had."""
    kind = np.dtype(dtype)
    types = [ArrayType((), kind, HOST), ArrayType((), kind), ArrayType((MOST,), kind)]

    def build(emit, n, last, all):
        array = emit(ops.full, n, shape=(), device=CPU)
        return {1: array, 2: array}

    windows = {2: (ArrayType((), kind), MOST - 1, -1)}
    graph = graph_of(types, build, windows=windows, steps={0: step}, rounds=MOST)
    arrays = [np.array(MOST), np.array(start, kind), np.zeros((), kind), np.zeros(MOST, kind)]
    check(graph, arrays)
    outputs, times = Kernels([graph], interval=1).run(0, arrays, leaves=True)
    assert_same(outputs, expected_of(graph, arrays))
    assert times == MOST - 1


def test_the_condition_ends_the_loop_at_every_iteration():
    """Also in a kernel that is left before."""

    def build(emit, n, s, flag):
        array = emit(ops.full, n, shape=(), device=CPU)
        return {2: emit(ops.less, array, s), 1: emit(ops.subtract, s, number(emit, 1, I8))}

    types = [COUNT_TYPE, INDEX, FLAG]
    graph = graph_of(types, build, steps={0: 1}, rounds=30, until=0)
    kernels = Kernels([graph], interval=1)
    for limit in range(12):
        arrays = [np.array(30), np.array(0), np.array(limit), np.array(True)]
        expected = expected_of(graph, arrays)
        for leaves in (False, True):
            assert_same(kernels.run(0, arrays, leaves=leaves)[0], expected)


def test_long_nested_loops_are_counted():
    """A loop is left after few iterations if each of them is long."""

    def build(emit, s):
        (s,) = nested(
            emit, [SCALAR], [s], lambda emit, s: {0: emit(ops.add, s, number(emit, 1.0))}, rounds=1000
        )
        return {0: s}

    graph = graph_of([SCALAR], build, rounds=50)
    arrays = [np.array(50), np.array(0.0)]
    outputs, times = Kernels([graph]).run(0, arrays, leaves=True)
    assert outputs[0].item() == 50_000.0
    assert times >= 9


def test_nested_graphs_are_all_lowered():
    """Most of the random programs contain branches and loops, in each other."""
    depths = [depth_of(random_loop(np.random.default_rng(seed))) for seed in range(40)]
    assert sum(depth > 2 for depth in depths) > 5


def depth_of(graph: Graph) -> int:
    return max((1 + depth_of(g) for node in graph.nodes for g in nested_graphs(node)), default=0)
