"""Elementwise kernels against the evaluator, bit for bit; indices that fail; transposed tiles."""

import functools

import numpy as np
import pytest

from tests.codegen import bodies, runner
from tests.codegen.cases import CASES, kernels
from tests.thorough import some
from tracejit import ops
from tracejit.codegen.cpu.map import MANY_ARRAYS
from tracejit.codegen.lower import lower
from tracejit.codegen.objects.build import EntryPoint, build_object
from tracejit.codegen.objects.listing import vector_width
from tracejit.codegen.text import load_source
from tracejit.codegen.units import chunk_size
from tracejit.ir.graph import Builder
from tracejit.ir.types import CPU, ArrayType
from tracejit.ir.view import View
from tracejit.targets import emit
from tracejit.tuning import tuning_of

F4 = np.dtype("float32")


@pytest.mark.parametrize("seed", some(range(60), 20))
def test_random_bodies(seed):
    body = bodies.random_body(seed)
    runner.check(
        runner.fused_node(body), bodies.random_arguments(body, seed), rng=np.random.default_rng(seed)
    )


@pytest.mark.parametrize("seed", range(60, 75))
def test_random_bodies_after_fusion_and_in_place(seed):
    body = bodies.random_body(seed)
    rng = np.random.default_rng(seed)
    values = dict(zip(body.inputs, bodies.random_arguments(body, seed), strict=True))
    for node in kernels(body):
        if all(v in values for v in node.inputs):
            outputs, inputs = [], []
            for output, source in node.attrs["inplace"]:
                if output not in outputs and source not in inputs:
                    outputs.append(output)
                    inputs.append(source)
            shared = list(zip(outputs, inputs, strict=True))
            runner.check(node, [values[v] for v in node.inputs], shared, rng=rng)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "bool"])
@pytest.mark.parametrize("shape", [(70, 131), (8, 8), (3, 65, 9), (200, 64)])
def test_transposed_operands(shape, dtype):
    rng = np.random.default_rng(8)
    *outer, rows, columns = shape
    b = Builder()
    x = b.input(ArrayType(shape, np.dtype(dtype)))
    y = b.input(ArrayType((*outer, columns, rows), np.dtype(dtype)))
    swap = [*range(len(outer)), len(outer) + 1, len(outer)]
    turned = b.emit(ops.view, y, view=View.of_shape(y.type.shape).permute(swap))
    (node,) = kernels(b.graph([b.emit(ops.equal, x, turned)]))
    assert lower(node).spec.tiles
    runner.check(node, [bodies.random_array(rng, v.type) for v in node.inputs], rng=rng)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gather_along_any_axis(axis):
    rng = np.random.default_rng(9)
    shape = (4, 5, 6)
    b = Builder()
    x, index = b.input(ArrayType(shape, F4)), b.input(ArrayType((2, 7), np.dtype("int64")))
    checked = b.emit(ops.check_index, index, extent=shape[axis], axis=axis)
    picked = b.emit(ops.gather, b.emit(ops.negative, x), checked, axis=axis)
    nodes = kernels(b.graph([b.emit(ops.square, picked)]))
    values = {x: bodies.random_array(rng, x.type), index: rng.integers(-shape[axis], shape[axis], (2, 7))}
    for node in nodes:
        inputs = [values[v] for v in node.inputs]
        runner.check(node, inputs, rng=rng)
        values.update(zip(node.outputs, runner.expected(node, inputs), strict=True))


def test_an_index_out_of_range_is_reported():
    (node,) = CASES["embedding"](9, 6, 5)
    table = np.arange(54, dtype=F4).reshape(9, 6)
    for bad, position in ((9, 3), (-10, 0), (1 << 40, 4)):
        index = np.array([0, 8, -9, 1, 2])
        index[position] = bad
        _, status = runner.run(node, [index, table])
        assert status == 1 + position


@pytest.mark.parametrize("step", [3, -2])
@pytest.mark.parametrize("name", ["exp", "sqrt", "negative"])
def test_costly_functions_of_strided_operands_are_vectorised(name, step):
    """Cheap ones are not: their time is that of collecting elements."""
    size = 37
    places = View((size - 1) * -step if step < 0 else 0, (size,), (step,))
    b = Builder()
    x = b.input(ArrayType((size * abs(step),), F4))
    body = b.graph([b.emit(getattr(ops, name), b.emit(ops.view, x, view=places))])
    node = runner.fused_node(body)
    spec = lower(node).spec
    found = build_object([EntryPoint("kernel", load_source(emit(spec)))]).llvm_ir
    assert vector_width(found) > 1
    only_for_stride_1 = "%ident.check" in found  # LLVM's name of the question
    assert only_for_stride_1 == (name == "negative")
    runner.check(node, [np.random.default_rng(3).random(size * abs(step)).astype(F4)], exact=name != "exp")


@pytest.mark.parametrize("count", [5, MANY_ARRAYS - 1])
def test_offsets_of_many_arrays_are_opaque(count):
    """Of `count` operands and one result."""
    rng = np.random.default_rng(11)
    b = Builder()
    arrays = [b.input(ArrayType((9, 14), F4)) for _ in range(count)]
    parts = [b.emit(ops.view, x, view=View(3, (9, 7), (14, 1))) for x in arrays]
    node = runner.fused_node(b.graph([functools.reduce(functools.partial(b.emit, ops.add), parts)]))
    assert ("p0 = opaque(i0 * s0_0)" in emit(lower(node).spec)) == (count > 5)
    runner.check(node, [bodies.random_array(rng, x.type) for x in arrays], rng=rng)


def test_empty_arrays_have_no_units():
    (node,) = CASES["bias_and_relu"](0, 7)
    assert lower(node).units == 0


def test_addition_is_not_contracted():
    """x * y + z rounds twice, as NumPy does."""
    rng = np.random.default_rng(10)
    b = Builder()
    x, y, z = (b.input(ArrayType((1000,), F4)) for _ in range(3))
    (node,) = kernels(b.graph([b.emit(ops.add, b.emit(ops.multiply, x, y), z)]))
    runner.check(node, [rng.normal(size=1000).astype(F4) for _ in range(3)])


def test_many_units_are_taken_more_at_once():
    assert [
        chunk_size(tuning_of(CPU), units, 4) for units in (1, 8, 40, 1024, 2048, 4096, 16384, 1 << 20)
    ] == [
        *(1, 1, 4, 4, 8, 16, 64, 64),
    ]
    assert chunk_size(tuning_of(CPU), 10_000, 0) == 1
