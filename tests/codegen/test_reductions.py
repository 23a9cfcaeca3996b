"""Reductions with what comes before and after them: rows, columns, pieces, scans."""

import numpy as np
import pytest

from tests.codegen import runner
from tests.codegen.bodies import random_array
from tests.codegen.cases import kernels, spread
from tests.tuning import tune
from tracejit import ops
from tracejit.codegen.lower import lower
from tracejit.ir.graph import Builder
from tracejit.ir.types import CPU, DTYPES, HALVES, HOST, ArrayType
from tracejit.ir.view import View
from tracejit.targets import emit
from tracejit.tuning import tuning_of

REDUCTIONS = [ops.sum, ops.prod, ops.max, ops.min, ops.any, ops.all]
F4, F8 = np.dtype("float32"), np.dtype("float64")
SUMMED = [dtype for dtype in DTYPES if dtype not in HALVES]  # which are float32 here, see passes/widen.py
REAL = [dtype for dtype in SUMMED if dtype.kind != "c"]


def only_kernel(graph):
    (kernel,) = kernels(graph)
    return kernel


@pytest.mark.parametrize("dtype", SUMMED, ids=str)
@pytest.mark.parametrize("op", REDUCTIONS, ids=lambda op: op.name)
@pytest.mark.parametrize(
    ("shape", "axes"), [((7, 40), (1,)), ((7, 40), (0,)), ((5, 3, 20), (0, 2)), ((0, 9), (0,))]
)
def test_every_reduction(op, dtype, shape, axes):
    if dtype not in op.admits or (0 in shape and op in (ops.max, ops.min)):
        pytest.skip("not defined")
    rng = np.random.default_rng(1)
    b = Builder()
    x = b.input(ArrayType(shape, dtype))
    node = only_kernel(b.graph([b.emit(op, x, axes=axes)]))
    arrays = [rng.integers(0, 2, shape).astype(dtype)] if op is ops.prod else [random_array(rng, x.type)]
    runner.check(node, arrays, rng=rng, exact=False)


@pytest.mark.parametrize("op", [ops.argmax, ops.argmin], ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("axis", [0, 1])
def test_positions(op, dtype, axis):
    rng = np.random.default_rng(2)
    b = Builder()
    x = b.input(ArrayType((33, 20), dtype))
    runner.check(only_kernel(b.graph([b.emit(op, x, axis=axis)])), [random_array(rng, x.type)], rng=rng)


@pytest.mark.parametrize("dtype", [F4, F8, np.dtype("int8")], ids=str)
@pytest.mark.parametrize(("shape", "axis"), [((6, 50), 1), ((50, 30), 0), ((4, 9, 16), 1), ((11,), 0)])
@pytest.mark.parametrize("op", [ops.cumulative_sum, ops.cumulative_max, ops.cumulative_min], ids=str)
def test_running_results(op, dtype, shape, axis):
    rng = np.random.default_rng(3)
    b = Builder()
    x = b.input(ArrayType(shape, dtype))
    total = b.emit(op, b.emit(ops.negative, x), axis=axis)
    runner.check(
        only_kernel(b.graph([b.emit(ops.square, total), total])),
        [random_array(rng, x.type)],
        rng=rng,
        exact=op is ops.cumulative_sum,
    )


def test_running_products():
    rng = np.random.default_rng(3)
    for dtype in (F4, np.dtype("complex128"), np.dtype("int8")):
        b = Builder()
        x = b.input(ArrayType((6, 50), dtype))
        node = only_kernel(b.graph([b.emit(ops.cumulative_prod, x, axis=1)]))
        runner.check(node, [rng.choice([-1, 1, 2], (6, 50)).astype(dtype)], rng=rng, exact=False)


@pytest.mark.parametrize("shape", [(30, 1000), (5, 3000), (64, 10), (1, 5), (3, 4, 50)])
def test_softmax_is_one_kernel(shape):
    rng = np.random.default_rng(4)
    b = Builder()
    x = b.input(ArrayType(shape, F4))
    axes = (len(shape) - 1,)
    e = b.emit(ops.exp, b.emit(ops.subtract, x, spread(b, b.emit(ops.max, x, axes=axes), axes, shape)))
    y = b.emit(ops.divide, e, spread(b, b.emit(ops.sum, e, axes=axes), axes, shape))
    node = only_kernel(b.graph([y]))
    assert node.attrs["kind"] == "rows"
    assert node.attrs["inplace"] == ((0, 0),)
    runner.check(node, [rng.normal(size=shape).astype(F4)], rng=rng, exact=False, tolerance=1e-6)
    runner.check(node, [rng.normal(size=shape).astype(F4)], [(0, 0)], rng=rng, exact=False, tolerance=1e-6)


@pytest.mark.parametrize("axes", [(1,), (0,), (0, 2)])
def test_normalization_along_any_axes(axes):
    """Mean and variance over leading, middle or trailing axes, scale and shift: one kernel."""
    rng = np.random.default_rng(5)
    shape = (6, 20, 18)
    kept = tuple(n for a, n in enumerate(shape) if a not in axes)
    b = Builder()
    x, scale = b.input(ArrayType(shape, F8)), b.input(ArrayType(kept, F8))
    count = b.input(ArrayType((), F8, HOST))
    mean = b.emit(ops.divide, b.emit(ops.sum, x, axes=axes), count)
    centred = b.emit(ops.subtract, x, spread(b, mean, axes, shape))
    variance = b.emit(ops.divide, b.emit(ops.sum, b.emit(ops.square, centred), axes=axes), count)
    scaled = b.emit(ops.multiply, scale, b.emit(ops.reciprocal, b.emit(ops.sqrt, variance)))
    y = b.emit(ops.multiply, centred, spread(b, scaled, axes, shape))
    node = only_kernel(b.graph([y, mean]))
    count_of = np.float64(np.prod(shape) / np.prod(kept))
    arrays = {x: rng.normal(size=shape), scale: rng.normal(size=kept), count: count_of}
    runner.check(node, [arrays[v] for v in node.inputs], rng=rng, exact=False, tolerance=1e-12)


def overlapping(node):
    """Whether the kernel of `node` finishes each row after it has begun the next one."""
    return "unit > lo" in emit(lower(node).spec)


def test_rows_overlap_where_they_share_no_scratch_row():
    """The quotient of a softmax may be taken while the next row's maximum is sought; without the maximum, the
    next row's exponentials would be in the place of those that are divided.
    """
    rng = np.random.default_rng(8)
    shape = (41, 30)
    for shifted in (True, False):
        b = Builder()
        x = b.input(ArrayType(shape, F4))
        moved = b.emit(ops.subtract, x, spread(b, b.emit(ops.max, x, axes=(1,)), (1,), shape))
        e = b.emit(ops.exp, moved if shifted else x)
        y = b.emit(ops.divide, e, spread(b, b.emit(ops.sum, e, axes=(1,)), (1,), shape))
        node = only_kernel(b.graph([y]))
        assert overlapping(node) == shifted
        for shared in ((), [(0, 0)]):
            runner.check(
                node, [rng.normal(size=shape).astype(F4)], shared, rng=rng, exact=False, tolerance=1e-6
            )


@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_overlapping_rows_of_every_dtype(dtype):
    """Two results of a row, of `dtype` and bool, and an array with a stride of its own, wait for the last
    loop; permuted axes make two kept dimensions.
    """
    rng = np.random.default_rng(9)
    inner, shape = (7, 6, 21), (6, 7, 21)
    b = Builder()
    x, factor = b.input(ArrayType(inner, dtype)), b.input(ArrayType((6, 1, 21), dtype))
    rows = b.emit(ops.view, x, view=View.of_shape(inner).permute((1, 0, 2)))
    factors = b.emit(ops.view, factor, view=View.of_shape((6, 1, 21)).broadcast(shape))
    low = spread(b, b.emit(ops.min, rows, axes=(2,)), (2,), shape)
    equal = b.emit(ops.equal, rows, low)
    every = spread(b, b.emit(ops.all, equal, axes=(2,)), (2,), shape)
    y = b.emit(ops.where, every, factors, b.emit(ops.maximum, low, factors))
    node = only_kernel(b.graph([y]))
    assert overlapping(node)
    runner.check(node, [random_array(rng, v.type) for v in node.inputs], rng=rng)


@pytest.mark.parametrize("dtype", [F4, F8], ids=str)
@pytest.mark.parametrize(
    ("shape", "axes"),
    [((1 << 20,), (0,)), ((1 << 19, 2), (0,)), ((2, 300_001), (1,)), ((200_003, 3), (0, 1))],
)
def test_long_sums_are_split_and_accurate(dtype, shape, axes):
    rng = np.random.default_rng(6)
    b = Builder()
    x = b.input(ArrayType(shape, dtype))
    partial, combine = kernels(b.graph([b.emit(ops.sum, b.emit(ops.square, x), axes=axes)]))
    array = (rng.normal(size=shape) + 3).astype(dtype)
    (parts,), status = runner.run(partial, [array], rng=rng)
    (result,), _ = runner.run(combine, [parts], rng=rng)
    assert status == 0
    assert lower(partial).units >= 2
    exact = np.square(array).astype(np.longdouble).sum(axis=axes)
    theirs = np.square(array).sum(axis=axes)
    eps = np.finfo(dtype).eps
    assert np.all(np.abs(result - exact) <= np.maximum(np.abs(theirs - exact), 2 * eps * exact))


def test_a_bias_gradient_updates_in_place():
    """Sum over rows, then momentum and step of a bias: one kernel over columns, in place."""
    rng = np.random.default_rng(7)
    b = Builder()
    g = b.input(ArrayType((50, 700), F4))
    bias, speed = (b.input(ArrayType((700,), F4)) for _ in range(2))
    rate = b.input(ArrayType((), F4, HOST))
    moved = b.emit(ops.add, speed, b.emit(ops.sum, g, axes=(0,)))
    stepped = b.emit(ops.subtract, bias, b.emit(ops.multiply, rate, moved))
    node = only_kernel(b.graph([moved, stepped]))
    assert node.attrs["kind"] == "columns"
    arrays = {
        g: rng.normal(size=(50, 700)),
        bias: rng.normal(size=700),
        speed: rng.normal(size=700),
        rate: 0.1,
    }
    pairs = [(0, node.inputs.index(speed)), (1, node.inputs.index(bias))]
    assert set(pairs) <= set(node.attrs["inplace"])
    inputs = [np.asarray(arrays[v], F4) for v in node.inputs]
    runner.check(node, inputs, pairs, rng=rng, exact=False)


@pytest.mark.parametrize("shape", [(96, 5000), (32, 3, 400), (31, 2000), (64, 20000)])
def test_far_rows_are_taken_whole_and_in_pieces(shape, monkeypatch):
    tune(monkeypatch, last=1000)
    rng = np.random.default_rng(4)
    b = Builder()
    x = b.input(ArrayType(shape, F4))
    scaled = b.emit(ops.multiply, x, x)
    graph = b.graph([b.emit(op, scaled, axes=(0,)) for op in (ops.sum, ops.max)])
    nodes = kernels(graph)
    columns = [n for n in nodes if n.attrs["kind"] == "columns"]
    width = int(np.prod(shape[1:]))
    if shape[0] % 2 == 0:
        slots = [dict(zip(lower(n).spec.slot_names(), lower(n).slots, strict=True)) for n in columns[:2]]
        tiles = {min(width, tuning_of(CPU).units.uncached_columns // (1 + (len(columns) == 1)))}
        assert {s["columns"].value for s in slots} == tiles
        assert all(lower(n).spec.pieces for n in columns[:2])
    array = rng.standard_normal(shape).astype(F4)
    values = {x: array}
    for node in nodes:
        results, _ = runner.run(node, [values[v] for v in node.inputs], rng=rng)
        values |= zip(node.outputs, results, strict=True)
    found = {value.type.shape: [] for node in nodes for value in node.outputs}
    for node in nodes:
        for value in node.outputs:
            found[value.type.shape].append(values[value])
    total, largest = found[shape[1:]]
    np.testing.assert_allclose(total, (array * array).sum(0, dtype=F8), rtol=1e-6)
    np.testing.assert_array_equal(largest, (array * array).max(0))


@pytest.mark.parametrize("rows", [*range(2, 12), 33])
def test_columns_take_lines_in_order(rows, monkeypatch):
    """Several lines are read at once; each column still adds up one element after the other."""
    tune(monkeypatch, private=0)
    rng = np.random.default_rng(rows)
    b = Builder()
    shape = rows, 700
    x, y, factor = (b.input(ArrayType(s, F4)) for s in (shape, shape, (rows,)))
    scaled = b.emit(
        ops.multiply, x, b.emit(ops.view, factor, view=View.of_shape((rows,)).expand(1).broadcast(shape))
    )
    outputs = [b.emit(ops.sum, scaled, axes=(0,)), b.emit(ops.max, y, axes=(0,))]
    outputs.append(b.emit(ops.sum, b.emit(ops.multiply, x, y), axes=(0,)))
    nodes = kernels(b.graph(outputs))
    assert {node.attrs["kind"] for node in nodes} == {"columns"}
    assert {lower(node).spec.lines for node in nodes} == {tuning_of(CPU).units.lines}
    values = {v: rng.standard_normal(v.type.shape).astype(F4) for v in b.inputs}
    in_order = [np.zeros(700), np.full(700, -np.inf, F4), np.zeros(700)]
    for line in range(rows):
        x, y, factor = (values[v][line] for v in b.inputs)
        in_order[0] += (x * factor).astype(F8)
        in_order[1] = np.maximum(in_order[1], y)
        in_order[2] += (x * y).astype(F8)
    wanted = dict(zip(outputs, in_order, strict=True))
    for node in nodes:
        results, _ = runner.run(node, [values[v] for v in node.inputs], rng=rng)
        for value, result in zip(node.outputs, results, strict=True):
            values[value] = result
    assert len(nodes) == len(outputs)
    for node, expected in zip(nodes, wanted.values(), strict=True):
        np.testing.assert_array_equal(values[node.outputs[0]], expected.astype(F4))


@pytest.mark.parametrize("dtype", [F4, F8], ids=str)
@pytest.mark.parametrize("op", [ops.max, ops.min], ids=lambda op: op.name)
def test_extremes_of_special_values(op, dtype):
    """NaN of either sign wins; +0 is above -0."""
    info = np.finfo(dtype)
    special = [0.0, -0.0, np.inf, -np.inf, info.max, info.min, info.tiny, info.smallest_subnormal, 1.5, -1.5]
    pairs = [(a, b) for a in special for b in special]
    x = np.empty((2 * len(pairs) + 2, 37), dtype)
    for line, (a, b) in enumerate(pairs * 2):
        x[line], x[line, 5 + line % 30] = a, b
    x[len(pairs) : 2 * len(pairs), 20] = np.nan
    x[len(pairs) : -2 : 2] *= -1  # of both signs
    x[-2:] = [[np.inf], [-np.inf]]
    b = Builder()
    node = only_kernel(b.graph([b.emit(op, b.input(ArrayType(x.shape, dtype)), axes=(1,))]))
    (result,), _ = runner.run(node, [x])
    theirs = x.max(axis=1) if op is ops.max else x.min(axis=1)
    np.testing.assert_array_equal(result, theirs)
    zeros = result == 0
    has_plus, has_minus = (((x == 0) & (np.signbit(x) == sign)).any(axis=1) for sign in (False, True))
    assert zeros.any()
    np.testing.assert_array_equal(
        np.signbit(result[zeros]), (~has_plus if op is ops.max else has_minus)[zeros]
    )


@pytest.mark.parametrize("dtype", [F4, F8], ids=str)
@pytest.mark.parametrize("op", [ops.square, ops.multiply], ids=lambda op: op.name)
@pytest.mark.parametrize("n", [2, 15, 64, 1000, 5000])
def test_sums_of_products_add_them_in_one_instruction(n, op, dtype):
    """No product is rounded by itself, so that differences of large ones are as exact as sums."""
    rng = np.random.default_rng(n)
    b = Builder()
    x, y = (b.input(ArrayType((3, n), dtype)) for _ in range(2))
    product = b.emit(op, x) if op is ops.square else b.emit(op, x, y)
    node = only_kernel(b.graph([b.emit(ops.sum, product, axes=(1,))]))
    source = emit(lower(node).spec)
    assert "= multiply_add_reassoc(" in source
    assert "= multiply(" not in source
    assert "= square(" not in source
    arrays = [rng.standard_normal(v.type.shape).astype(dtype) for v in node.inputs]
    runner.check(node, arrays, rng=rng, exact=False, tolerance=1e-4)


def test_a_product_that_is_needed_elsewhere_is_rounded():
    b = Builder()
    x = b.input(ArrayType((3, 100), F4))
    product = b.emit(ops.square, x)
    total = b.emit(ops.sum, product, axes=(1,))
    node = only_kernel(b.graph([product, b.emit(ops.subtract, product, spread(b, total, (1,), (3, 100)))]))
    assert "multiply_add_reassoc" not in emit(lower(node).spec)
    array = random_array(np.random.default_rng(4), x.type)
    runner.check(node, [array], rng=np.random.default_rng(4), exact=False)


def test_what_overflows_or_is_no_number_in_a_sum_of_products():
    b = Builder()
    x, y = (b.input(ArrayType((5, 40), F4)) for _ in range(2))
    node = only_kernel(b.graph([b.emit(ops.sum, b.emit(ops.multiply, x, y), axes=(1,))]))
    first, second = np.ones((2, 5, 40), np.float32)
    first[0, 3], second[0, 3] = 1e30, 1e30
    first[1, 3], second[1, 3] = np.inf, 0
    first[2, 3], second[2, 3] = np.inf, -1
    first[3, 3] = np.nan
    (result,), _ = runner.run(node, [first, second])
    np.testing.assert_array_equal(result, [np.inf, np.nan, -np.inf, np.nan, 40])


@pytest.mark.parametrize(("index", "array", "axis"), [((0,), (20,), 0), ((2,), (3, 0), 1)])
def test_what_is_empty_is_not_read_in_front_of_the_loop_over_it(index, array, axis):
    """An index read there is whatever lies in the memory, and leads anywhere."""
    b = Builder()
    i, x = b.input(ArrayType(index, np.dtype("int64"))), b.input(ArrayType(array, F8))
    picked = b.emit(ops.gather, x, i, axis=0)
    graph = b.graph([picked, b.emit(ops.sum, picked, axes=(axis,)), b.emit(ops.multiply, picked, picked)])
    node = only_kernel(graph)
    in_front, _, inside = emit(lower(node, ()).spec).partition("independent(start, stop):")
    assert " = x0[" not in in_front
    assert " = x0[" in inside
    outputs, _ = runner.run(node, [np.zeros(index, np.int64), np.ones(array)])
    assert not outputs[1].any()
