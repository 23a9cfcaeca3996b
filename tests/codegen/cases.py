"""Named fused nodes, one of each kind: for golden sources, CUDA and the simulator."""

import numpy as np

from tests.graphs import fuse
from tracejit import ops
from tracejit.ir.graph import Builder, Effect
from tracejit.ir.types import CPU, HOST, ArrayType
from tracejit.ir.view import View

F4, I8 = np.dtype("float32"), np.dtype("int64")
NUMBER = ArrayType((), F4, HOST)


def kernels(graph):
    """The fused nodes of a graph."""
    return [node for node in fuse(graph).nodes if node.op is ops.fused]


def array(b, *shape, dtype=F4):
    return b.input(ArrayType(shape, dtype))


def spread(b, value, axes, shape):
    """`value`, reduced over `axes`, broadcast back to `shape`."""
    view = View.of_shape(value.type.shape)
    for axis in axes:
        view = view.expand(axis)
    return b.emit(ops.view, value, view=view.broadcast(shape))


def silu(n=100):
    b = Builder()
    x = array(b, n)
    return kernels(b.graph([b.emit(ops.multiply, x, b.emit(ops.sigmoid, x))]))


def bias_and_relu(rows=5, columns=7):
    b = Builder()
    x, bias, zero = array(b, rows, columns), array(b, columns), b.input(NUMBER)
    total = b.emit(
        ops.add, x, b.emit(ops.view, bias, view=View.of_shape((columns,)).broadcast((rows, columns)))
    )
    return kernels(b.graph([b.emit(ops.maximum, total, zero), b.emit(ops.greater, total, zero)]))


def symmetric(n=20):
    b = Builder()
    x = array(b, n, n)
    return kernels(
        b.graph([b.emit(ops.add, x, b.emit(ops.view, x, view=View.of_shape((n, n)).permute((1, 0))))])
    )


def softmax(rows=4, columns=30):
    b = Builder()
    shape = rows, columns
    x = array(b, *shape)
    top = spread(b, b.emit(ops.max, x, axes=(1,)), (1,), shape)
    e = b.emit(ops.exp, b.emit(ops.subtract, x, top))
    return kernels(b.graph([b.emit(ops.divide, e, spread(b, b.emit(ops.sum, e, axes=(1,)), (1,), shape))]))


def layer_norm(rows=4, columns=30):
    b = Builder()
    shape = rows, columns
    x, scale, count, tiny = array(b, *shape), array(b, columns), b.input(NUMBER), b.input(NUMBER)
    mean = b.emit(ops.divide, b.emit(ops.sum, x, axes=(1,)), count)
    centred = b.emit(ops.subtract, x, spread(b, mean, (1,), shape))
    variance = b.emit(ops.divide, b.emit(ops.sum, b.emit(ops.square, centred), axes=(1,)), count)
    deviation = b.emit(ops.sqrt, b.emit(ops.add, variance, tiny))
    y = b.emit(ops.divide, centred, spread(b, deviation, (1,), shape))
    scales = b.emit(ops.view, scale, view=View.of_shape((columns,)).broadcast(shape))
    return kernels(b.graph([b.emit(ops.multiply, y, scales)]))


def bias_gradient(rows=6, columns=40):
    b = Builder()
    g, bias, rate = array(b, rows, columns), array(b, columns), b.input(NUMBER)
    total = b.emit(ops.sum, g, axes=(0,))
    return kernels(b.graph([b.emit(ops.subtract, bias, b.emit(ops.multiply, rate, total)), total]))


def long_sum(n=1 << 18):
    b = Builder()
    return kernels(b.graph([b.emit(ops.sum, b.emit(ops.square, array(b, n)), axes=(0,))]))


def positions(rows=3, columns=20):
    b = Builder()
    return kernels(b.graph([b.emit(ops.argmax, array(b, rows, columns), axis=1)]))


def running_sum(rows=3, columns=20):
    b = Builder()
    total = b.emit(ops.cumulative_sum, array(b, rows, columns), axis=1)
    return kernels(b.graph([b.emit(ops.square, total)]))


def any_positive(rows=3, columns=20):
    b = Builder()
    truth = b.emit(ops.greater, array(b, rows, columns), b.input(NUMBER))
    return kernels(b.graph([b.emit(ops.any, truth, axes=(1,))]))


def embedding(words=9, width=6, count=5):
    b = Builder()
    table, index = array(b, words, width), array(b, count, dtype=I8)
    checked = b.emit(ops.check_index, index, extent=words, axis=0)
    return kernels(b.graph([b.emit(ops.gather, table, checked, axis=0)]))


def assign_slice(rows=6, columns=8):
    b = Builder()
    base, x = array(b, rows, columns), array(b, rows, 3)
    view = View.of_shape((rows, columns)).slice_axis(1, 1, 7, 2)
    return kernels(b.graph([b.emit(ops.update, base, b.emit(ops.negative, x), view=view)]))


def index_grid(rows=3, columns=5):
    b = Builder()
    grid = b.emit(ops.iota, size=columns, device=CPU)
    grid = b.emit(ops.view, grid, view=View.of_shape((columns,)).broadcast((rows, columns)))
    x = b.emit(ops.astype, grid, dtype=F4)
    return kernels(b.graph([b.emit(ops.multiply, x, array(b, rows, columns))]))


def momentum(rows=20, inputs=8, columns=9):
    """The gradient of a weight goes to scratch memory: only its velocity needs it."""
    b = Builder()
    x, dy, velocity, rate = (
        array(b, rows, inputs),
        array(b, rows, columns),
        array(b, inputs, columns),
        b.input(NUMBER),
    )
    turned = b.emit(ops.view, x, view=View.of_shape((rows, inputs)).permute((1, 0)))
    new = b.emit(ops.add, b.emit(ops.multiply, velocity, rate), b.emit(ops.matmul, turned, dy))
    return kernels(b.graph([], [Effect(velocity, new)]))


CASES = {
    function.__name__: function
    for function in (
        silu,
        bias_and_relu,
        symmetric,
        softmax,
        layer_norm,
        bias_gradient,
        long_sum,
        positions,
        running_sum,
        any_positive,
        embedding,
        assign_slice,
        index_grid,
        momentum,
    )
}


def arguments(node, seed=0):
    """Arrays and numbers for the inputs of `node`."""
    rng = np.random.default_rng(seed)
    for value in node.inputs:
        if value.type.dtype.kind == "f":
            yield (rng.normal(size=value.type.shape) * (1 if value.type.shape else 0.1)).astype(
                value.type.dtype
            )
        else:
            yield rng.integers(-4, 5, value.type.shape).astype(value.type.dtype)
