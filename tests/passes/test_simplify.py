"""simplify: each rule on a small graph, and the meaning of random graphs."""

import functools
import pathlib

import numpy as np
import pytest

from tests.counting import calls
from tests.golden import check_golden
from tests.graphs import F4, F8, I4, assert_same_meaning, random_graph
from tracejit import ops
from tracejit.ir.evaluate import evaluate
from tracejit.ir.graph import Builder, Effect, constant_of
from tracejit.ir.op import OPS
from tracejit.ir.types import CPU, HOST, ArrayType
from tracejit.ir.verify import verify
from tracejit.ir.view import View
from tracejit.loopnest.regions import disjoint, inverse, same
from tracejit.passes.dce import dce
from tracejit.passes.simplify import simplify

GOLDEN = pathlib.Path(__file__).parent / "golden"


class Case:
    """A graph of one array input that grows by calls."""

    def __init__(self, dtype=F4, shape=(4, 6)):
        self.b = Builder()
        self.x = self.b.input(ArrayType(shape, np.dtype(dtype)))

    def number(self, value, dtype=None):
        return self.b.emit(ops.constant, **constant_of(value, dtype or self.x.type.dtype))

    def view(self, value, view):
        return self.b.emit(ops.view, value, view=view)

    def result(self, *outputs):
        """Names of the operators left, after checking that the meaning is the same."""
        graph = self.b.graph(outputs)
        simple = dce(verify(simplify(graph)))
        assert_same_meaning(simple, graph)
        self.graph = simple
        return [n.op.name for n in simple.nodes if n.op is not ops.constant]


@pytest.mark.parametrize("seed", range(300))
def test_random_graphs_keep_their_meaning(seed):
    graph = random_graph(seed)
    simple = verify(simplify(graph))
    assert_same_meaning(simple, graph, seed)


NEUTRAL = [
    ("add", -0.0, F4, True), ("add", 0.0, F4, False), ("add", 0, I4, True),
    ("subtract", 0.0, F4, True), ("subtract", -0.0, F4, False), ("subtract", 0, I4, True),
    ("multiply", 1.0, F8, True), ("multiply", 1, I4, True), ("multiply", 0.0, F4, False),
    ("divide", 1.0, F4, True), ("pow", 1.0, F4, True), ("floor_divide", 1, I4, True),
    ("floor_divide", 1.0, F4, False), ("bitwise_and", -1, I4, True), ("bitwise_or", 0, I4, True),
    ("bitwise_xor", 0, I4, True), ("bitwise_left_shift", 0, I4, True),
    ("bitwise_and", 2**32 - 1, "uint32", True),
]  # fmt: skip


@pytest.mark.parametrize(("name", "number", "dtype", "vanishes"), NEUTRAL)
def test_neutral_operand(name, number, dtype, vanishes):
    case = Case(dtype)
    left = case.result(case.b.emit(OPS[name], case.x, case.number(number)))
    assert left == ([] if vanishes else [name])


@pytest.mark.parametrize(
    ("exponent", "dtype", "expected"),
    [(2.0, F4, "square"), (2, I4, "square"), (0.5, F8, "sqrt"), (-1.0, F4, "reciprocal"), (3.0, F4, "pow")],
)
def test_powers(exponent, dtype, expected):
    case = Case(dtype)
    assert case.result(case.b.emit(ops.pow, case.x, case.number(exponent))) == [expected]


@pytest.mark.parametrize("dtype", [F4, F8])
@pytest.mark.parametrize("exponent", [2.0, 0.5, -1.0, 1.0])
def test_powers_are_those_of_numpy_bit_for_bit(exponent, dtype):
    case = Case(dtype, (10000,))
    graph = case.b.graph([case.b.emit(ops.pow, case.x, case.number(exponent))])
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(10000) * 10.0 ** rng.integers(-30, 30, 10000)).astype(dtype)
    x[:5] = [0.0, -0.0, np.inf, -np.inf, np.nan]
    ((expected,), _), ((got,), _) = evaluate(graph, [x]), evaluate(simplify(graph), [x])
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(np.signbit(got[:4]), np.signbit(expected[:4]))


@pytest.mark.parametrize("count", [8.0, 6.0])
def test_a_mean_is_one_structure_whatever_its_count(count):
    case = Case()
    rows = case.b.emit(ops.sum, case.x, axes=(1,), pieces=0)
    kept = case.view(rows, View.of_shape((4, 1)))
    whole = case.b.emit(ops.sum, case.x, axes=(0, 1), pieces=0)
    means = [case.b.emit(ops.divide, total, case.number(count)) for total in (rows, kept, whole)]
    assert case.result(*means).count("divide") == 3


@pytest.mark.parametrize(("divisor", "expected"), [(8.0, "multiply"), (-0.25, "multiply"), (3.0, "divide")])
def test_division_by_a_power_of_two(divisor, expected):
    case = Case(F4)
    assert case.result(case.b.emit(ops.divide, case.x, case.number(divisor))) == [expected]


@pytest.mark.parametrize("divisor", [2.0**127, 2.0**-127, 2.0**-149, np.inf, 0.0, np.nan])
def test_division_by_numbers_without_a_normal_reciprocal_stays(divisor):
    case = Case(F4)
    assert case.result(case.b.emit(ops.divide, case.x, case.number(divisor))) == ["divide"]


def test_signs():
    case = Case(F4)
    minus = case.b.emit(ops.negative, case.x)
    assert case.result(case.b.emit(ops.negative, minus)) == []
    assert case.result(case.b.emit(ops.square, minus)) == ["square"]
    assert case.result(case.b.emit(ops.add, minus, case.x)) == ["subtract"]
    assert case.result(case.b.emit(ops.subtract, case.x, minus)) == ["add"]


@pytest.mark.parametrize(
    ("source", "middle", "target", "left"),
    [
        ("float32", "float64", "float32", 0),
        ("float64", "float32", "float64", 2),
        ("int32", "float64", "int32", 0),
        ("int64", "float64", "int64", 2),
        ("int32", "float32", "float64", 2),
        ("int8", "int64", "uint8", 1),
        ("bool", "float32", "int32", 1),
        ("float32", "float64", "int32", 2),
        ("uint32", "float64", "int32", 2),
        ("int32", "float64", "int64", 1),
    ],
)
def test_casts(source, middle, target, left):
    case = Case(source)
    y = case.b.emit(ops.astype, case.x, dtype=np.dtype(middle))
    assert len(case.result(case.b.emit(ops.astype, y, dtype=np.dtype(target)))) == left


def test_constants_are_folded():
    case = Case(F4)
    three = case.b.emit(ops.add, case.number(1.0), case.number(2.0))
    assert case.result(case.b.emit(ops.multiply, case.x, three)) == ["multiply"]
    (constant,) = [n for n in case.graph.nodes if n.op is ops.constant]
    assert constant.attrs["value"] == 3.0


def test_run_time_numbers_are_not_folded():
    case = Case(F4)
    rate = case.b.input(ArrayType((), F4, HOST))
    fill = case.b.emit(ops.full, rate, shape=(4, 6), device=CPU)
    assert case.result(case.b.emit(ops.multiply, case.x, fill)) == ["multiply"]
    assert case.result(case.b.emit(ops.negative, fill)) == ["full", "negative"]


def test_views_compose():
    case = Case()
    turned = case.view(case.x, View.of_shape((4, 6)).permute((1, 0)))
    assert case.result(case.view(turned, View.of_shape((6, 4)).permute((1, 0)))) == []
    part = case.view(turned, View.of_shape((6, 4)).slice_axis(0, 2, 4))
    assert case.result(part) == ["view"]


def test_reading_back_a_store():
    case = Case()
    left, right = (View.of_shape((4, 6)).slice_axis(1, lo, lo + 3) for lo in (0, 3))
    y = case.b.emit(ops.negative, case.view(case.x, left))
    stored = case.b.emit(ops.update, case.b.emit(ops.update, case.x, y, view=left), y, view=right)
    assert case.result(case.view(stored, left)) == ["view", "negative"]
    assert case.result(case.view(stored, View.of_shape((4, 6)).slice_axis(1, 2, 4)))[-1] == "view"


def test_a_read_beside_stores_reads_the_newest_array():
    """An older one would live on, and could not be written in place."""
    case = Case()
    rows = [View.of_shape((4, 6)).select(0, n) for n in range(4)]
    stored = case.x
    for row in rows[:3]:
        stored = case.b.emit(ops.update, stored, case.b.emit(ops.negative, case.view(stored, row)), view=row)
    case.result(case.view(stored, rows[3]), stored)
    (last,) = (n for n in case.graph.nodes if n.op is ops.view and n.attrs["view"] == rows[3])
    assert last.inputs[0] is case.graph.outputs[1]


def _stores(count, reads=True):
    """`count` stores into one array, with `reads` of its elements between them, or at the end only."""
    case = Case(shape=(count, 2))
    stored, found = case.x, []
    rest, here = (View.of_shape((count, 2)).select(1, k) for k in range(2))
    for n in range(count):
        value = case.view(case.x, rest.select(0, n))
        stored = case.b.emit(ops.update, stored, value, view=here.select(0, n))
        if reads or n == count - 1:
            found += [case.view(stored, rest.select(0, n)), case.view(stored, here.select(0, n))]
    return case.b.graph([stored, *found])


def test_long_chains_of_stores():
    simplify(_stores(12_000, reads=False))  # deep enough for a RecursionError
    few, many = (calls(functools.partial(simplify, _stores(n))) for n in (200, 400))
    assert many < 2.1 * few


def test_a_store_over_a_store_and_over_everything():
    case = Case()
    row = View.of_shape((4, 6)).select(0, 1)
    y = case.b.emit(ops.negative, case.view(case.x, row))
    twice = case.b.emit(
        ops.update, case.b.emit(ops.update, case.x, case.view(case.x, row), view=row), y, view=row
    )
    assert case.result(twice) == ["view", "negative", "update"]
    once = case.b.emit(ops.update, case.x, y, view=row)
    seen = case.view(once, View.of_shape((4, 6)))
    twice = case.b.emit(ops.update, once, case.b.emit(ops.negative, case.view(seen, row.moved(1))), view=row)
    assert case.result(twice)[-1] == "update"
    assert [n.inputs[0] is case.x for n in case.graph.nodes if n.op is ops.update] == [True, False]
    turned = View.of_shape((4, 6)).permute((1, 0))
    z = case.b.emit(ops.negative, case.view(case.x, turned))
    assert case.result(case.b.emit(ops.update, case.x, z, view=turned)) == ["view", "negative", "view"]


def test_golden():
    """In-place arithmetic on a slice, as the frontend records it."""
    case = Case()
    row = View.of_shape((4, 6)).select(0, 1)
    doubled = case.b.emit(ops.multiply, case.view(case.x, row), case.number(2.0))
    stored = case.b.emit(ops.update, case.x, doubled, view=row)
    again = case.b.emit(ops.update, stored, case.view(stored, row), view=row)
    mean = case.b.emit(ops.divide, case.b.emit(ops.sum, again, axes=(0, 1), pieces=0), case.number(8.0))
    graph = case.b.graph([case.b.emit(ops.pow, mean, case.number(2.0))], [Effect(case.x, again)])
    check_golden(GOLDEN / "simplify.txt", f"{graph}\n=>\n{dce(simplify(graph))}")


@pytest.mark.parametrize("seed", range(200))
def test_regions(seed):
    """same, disjoint and inverse against the elements themselves."""
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 5, rng.integers(1, 4)).tolist())
    base = np.arange(np.prod(shape)).reshape(shape)
    one, other = (_random_view(rng, shape) for _ in range(2))
    elements, others = one.read(base), other.read(base)
    if disjoint(one, other, shape):
        assert not set(elements.flat) & set(others.flat)
    if same(one, other):
        assert elements.ravel().tolist() == others.ravel().tolist()
    back = inverse(one, shape)
    if back is not None:
        np.testing.assert_array_equal(back.read(np.ascontiguousarray(elements)), base)
    full = View.of_shape(shape).permute(tuple(rng.permutation(len(shape)).tolist()))
    full = full.slice_axis(0, None, None, -1)
    found = inverse(full, shape)
    if found is not None:
        np.testing.assert_array_equal(found.read(np.ascontiguousarray(full.read(base))), base)


def _random_view(rng, shape):
    view = View.of_shape(shape)
    for axis, extent in enumerate(shape):
        start, stop = sorted(rng.integers(0, extent + 1, 2).tolist()) if rng.random() < 0.6 else (0, extent)
        view = view.slice_axis(axis, start, stop, int(rng.choice([1, 2])))
    return view


@pytest.mark.parametrize("seed", range(200))
def test_disjoint_does_not_depend_on_how_views_are_written(seed):
    """A kernel asks about views with fewer dimensions than those that were recorded."""
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 7, rng.integers(1, 4)).tolist())
    one, other = (_random_view(rng, shape) for _ in range(2))
    if one.size and other.size:
        expected = disjoint(one, other, shape)
        assert disjoint(one.merged(), other.merged(), shape) == expected
        assert disjoint(one, other.merged(), shape) == expected


def test_disjoint_sees_columns():
    left, right = (View.of_shape((4, 6)).slice_axis(1, lo, lo + 3) for lo in (0, 3))
    assert disjoint(left, right, (4, 6))
    assert not disjoint(left, left, (4, 6))


@pytest.mark.parametrize(("written", "read", "axis"), [((1,), (), 0), ((), (1, 1), 1), ((1,), (1,), 1)])
def test_the_element_that_was_just_stored(written, read, axis):
    """The index is read as another view, or another index is read."""
    case = Case(shape=(4, 3))
    i, j = (case.b.input(ArrayType((), np.dtype("int64"))) for _ in range(2))
    shape = (4, 3)[:axis] + written + (4, 3)[axis + 1 :]
    x = case.b.input(ArrayType(shape, F4))
    stored = case.b.emit(ops.scatter, case.x, x, case.view(i, View.of_shape(written)), axis=axis)
    results = [case.b.emit(ops.gather, stored, case.view(k, View.of_shape(read)), axis=axis) for k in (i, j)]
    simplified = simplify(case.b.graph(results))
    assert sum(node.op is ops.gather for node in dce(verify(simplified)).nodes) == 1
    inputs = [np.random.default_rng(0).random((4, 3), np.float32), np.array(1), np.array(2)]
    inputs.append(np.arange(x.type.size, dtype=np.float32).reshape(shape))
    for one, other in zip(
        evaluate(case.b.graph(results), inputs)[0], evaluate(simplified, inputs)[0], strict=True
    ):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("shapes", [((0, 4), (4, 3)), ((2, 0), (0, 3)), ((2, 4), (4, 0))])
def test_a_product_of_nothing_is_zeros(shapes):
    case = Case(shape=shapes[0])
    y = case.b.input(ArrayType(shapes[1], F4))
    assert case.result(case.b.emit(ops.matmul, case.x, y)) == ["full"]


@pytest.mark.parametrize(
    ("dtype", "left"), [("float32", ["abs"]), ("int8", ["abs"]), ("uint8", ["negative", "abs"])]
)
def test_the_absolute_value_of_a_negative(dtype, left):
    case = Case(dtype)
    assert case.result(case.b.emit(ops.abs, case.b.emit(ops.negative, case.x))) == left
