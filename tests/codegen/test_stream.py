"""Results that go around the caches: the same bits as the evaluator's, wherever lines begin and end."""

import re

import numpy as np
import pytest

from tests.codegen import bodies, runner
from tests.codegen.cases import CASES, arguments, kernels, spread
from tests.thorough import some
from tests.tuning import tune
from tracejit import ops
from tracejit.codegen.cpu.map import BAND
from tracejit.codegen.lower import lower
from tracejit.codegen.objects.build import EntryPoint, build_object
from tracejit.codegen.spec import BLOCK
from tracejit.codegen.text import load_source
from tracejit.ir.graph import Builder, Effect
from tracejit.ir.types import CPU, ArrayType
from tracejit.ir.view import View
from tracejit.targets import emit
from tracejit.tuning import tuning_of

pytestmark = pytest.mark.usefixtures("nothing_known")

F4 = np.dtype("float32")


@pytest.fixture(autouse=True)
def _everything_is_large(monkeypatch):
    tune(monkeypatch, streamed=-1, streamed_run=1)


@pytest.mark.parametrize("seed", some(range(200, 230), 10))
def test_random_bodies(seed):
    body = bodies.random_body(seed)
    runner.check(
        runner.fused_node(body), bodies.random_arguments(body, seed), rng=np.random.default_rng(seed)
    )


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "bool"])
@pytest.mark.parametrize("n", [2, 15, 64, 1023, 1024, 1025, 5000])
def test_every_length(n, dtype):
    rng = np.random.default_rng(n)
    b = Builder()
    x, y = (b.input(ArrayType((n,), np.dtype(dtype))) for _ in range(2))
    (node,) = kernels(b.graph([b.emit(ops.multiply, x, y)]))
    assert lower(node).spec.stages == (dtype,)
    runner.check(node, [bodies.random_array(rng, v.type) for v in node.inputs], rng=rng)


@pytest.mark.parametrize("columns", [7, 1024, 3000])
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "bias_and_relu"])
def test_rows(name, columns):
    (node,) = CASES[name](5, columns)
    assert lower(node).spec.stages
    runner.check(node, list(arguments(node)), rng=np.random.default_rng(columns), exact=False)


@pytest.mark.parametrize("shape", [(70, 131), (8, 8), (3, 130, 70), (300, 64), (64, 300), (570, 600)])
def test_transposed_operands_tile_by_tile_in_shells(shape):
    rng = np.random.default_rng(8)
    *outer, rows, columns = shape
    b = Builder()
    x, y = b.input(ArrayType(shape, F4)), b.input(ArrayType((*outer, columns, rows), F4))
    swap = [*range(len(outer)), len(outer) + 1, len(outer)]
    turned = b.emit(ops.view, y, view=View.of_shape(y.type.shape).permute(swap))
    (node,) = kernels(b.graph([b.emit(ops.subtract, x, turned)]))
    assert lower(node).spec.tiles
    assert lower(node).spec.stages
    runner.check(node, [bodies.random_array(rng, v.type) for v in node.inputs], rng=rng)


def test_far_tiles_ask_for_those_to_come():
    (node,) = CASES["symmetric"](300)
    source = emit(lower(node).spec)
    assert (
        "position = tile_position((unit + 2) % (column_tiles * row_tiles), row_tiles, column_tiles)" in source
    )
    assert ", next0 + next1 * s1_1)" in source  # across
    along = "prefetch_rows(x0, (next0 + band - a0) * s0_0 + next1, s0_0, stop - band, b1 - a1)"
    assert along in source
    runner.check(node, list(arguments(node)), rng=np.random.default_rng(5))


def test_rows_of_a_far_tile_are_streamed_together():
    assert BAND * tuning_of(CPU).units.tile_side <= BLOCK  # of a stage
    (node,) = CASES["symmetric"](300)
    source = emit(lower(node).spec)
    assert "stream_rows(x1, band * s0_0 + a1, s0_0, stage0, columns, stop - band, b1 - a1)" in source


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "bool"])
@pytest.mark.parametrize("rows", [8, 16, 63, 64, 65, 81])
def test_rows_of_far_tiles_wherever_their_lines_begin(rows, dtype):
    """Several results, one of another dtype; rows begin anywhere in a line."""
    rng = np.random.default_rng(rows)
    b = Builder()
    x, y = (b.input(ArrayType(shape, np.dtype(dtype))) for shape in ((rows, 77), (77, rows)))
    turned = b.emit(ops.view, y, view=View.of_shape((77, rows)).permute((1, 0)))
    results = [b.emit(ops.multiply, x, turned), b.emit(ops.less, x, turned)]
    node = runner.fused_node(b.graph(results))
    assert lower(node).spec.stages == (dtype, "bool")
    runner.check(node, [bodies.random_array(rng, v.type) for v in node.inputs], rng=rng)


@pytest.mark.parametrize("columns", [7, 1024, 2048, 5000])
@pytest.mark.parametrize("name", ["softmax", "layer_norm"])
def test_rows_are_stored_along_with_the_next_one_computed(name, columns):
    """The last loop of a row is part of the second one of the next row. Sums do not depend on where a row
    stands in a chunk.
    """
    (node,) = CASES[name](7, columns)
    values = [np.tile(v[:1], (7, 1)) if np.ndim(v) == 2 else v for v in arguments(node)]
    source = emit(lower(node).spec)
    _, after = source.split("            if unit == lo:\n")
    both, _ = after.split("        elif unit > lo:\n")
    (loop,) = re.findall(r"( +)for i1 in independent\(.*\):\n((?:\1    .*\n)+)", both)
    assert "stage0[i1 - start] = " in loop[1]
    assert "add_reassoc" in loop[1]
    (result,), _ = runner.run(node, values, rng=np.random.default_rng(columns))
    np.testing.assert_array_equal(result, result[:1].repeat(7, axis=0))
    runner.check(node, list(arguments(node)), rng=np.random.default_rng(columns), exact=False)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_the_first_row_of_a_chunk_divides_what_lies_in_scratch_memory(dtype):
    """It has no row before it: whatever it divides there, by zero too, goes nowhere."""
    rng = np.random.default_rng(2)
    b = Builder()
    shape = 6, 300
    x = b.input(ArrayType(shape, np.dtype(dtype)))
    top = spread(b, b.emit(ops.max, x, axes=(1,)), (1,), shape)
    e = b.emit(ops.floor_divide, top, x)
    total = spread(b, b.emit(ops.sum, e, axes=(1,)), (1,), shape)
    (node,) = kernels(b.graph([b.emit(ops.floor_divide, total, b.emit(ops.subtract, e, top))]))
    assert "if unit == lo:" in emit(lower(node).spec)
    array = rng.integers(-3, 3, shape).astype(dtype)
    runner.check(node, [array], rng=rng)


def test_memory_that_is_read_too_is_stored_as_usual():
    """In place, and where a later loop reads an output again."""
    b = Builder()
    x = b.input(ArrayType((4000,), F4))
    (node,) = kernels(b.graph([], [Effect(x, b.emit(ops.square, x))]))
    assert not lower(node, [(0, 0)]).spec.stages
    b = Builder()
    x = b.input(ArrayType((4, 3000), F4))
    e = b.emit(ops.exp, x)
    total = b.emit(
        ops.view, b.emit(ops.sum, e, axes=(1,)), view=View.of_shape((4,)).expand(1).broadcast((4, 3000))
    )
    (node,) = kernels(b.graph([e, b.emit(ops.divide, e, total)]))
    assert lower(node).spec.stages == ("float32",)  # of the two results
    runner.check(node, list(arguments(node)), rng=np.random.default_rng(1), exact=False)


def test_what_caches_hold_is_stored_as_usual(monkeypatch):
    tune(monkeypatch, streamed=8 * 4000)
    for n, streamed in ((4000, ()), (4001, ("float32",))):
        (node,) = CASES["silu"](n)
        assert lower(node).spec.stages == streamed


def test_lines_are_stored_around_the_caches():
    (node,) = CASES["silu"](4000)
    built = build_object([EntryPoint("kernel", load_source(emit(lower(node).spec)))])
    assert "!nontemporal" in built.llvm_ir


def test_cuda_stores_as_usual():
    (node,) = CASES["softmax"](5, 3000)
    text = emit(lower(node).spec, "gpu")
    assert "stage" not in text
    assert "x1[p0 + i1] = v" in text
