"""Which gradients to weights fall into sums; they are those of NumPy, and the same bits for any workers."""

import numpy as np
import pytest

import tracejit as tj
from tracejit.ir.graph import Builder
from tracejit.ir.op import OPS
from tracejit.ir.types import CPU, ArrayType
from tracejit.passes.weight_sums import weight_sums

PLAIN = {"stride": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "groups": 1}


def after(x, y, window, dtype="float32", **attrs):
    """The graph of a gradient to a weight after the pass."""
    builder = Builder()
    x, y = (builder.input(ArrayType(shape, np.dtype(dtype), CPU)) for shape in (x, y))
    output = builder.emit(OPS["conv2d_weight_gradient"], x, y, window=window, **PLAIN | attrs)
    return weight_sums(builder.graph([output]))


def test_few_channels_fall_into_sums():
    graph = after((8, 64, 56, 56), (8, 256, 56, 56), (1, 1))
    sums, total = graph.nodes
    assert (sums.op.name, total.op.name) == ("conv2d_weight_sums", "sum")
    assert sums.output.type.shape == (16, 256, 64, 1, 1)
    assert graph.outputs[0].type.shape == (256, 64, 1, 1)


@pytest.mark.parametrize(
    ("x", "y", "window", "attrs"),
    [
        ((2, 64, 7, 7), (2, 64, 7, 7), (1, 1), {}),  # too few places
        ((8, 2048, 14, 14), (8, 2048, 14, 14), (1, 1), {}),  # sums of 16 MB, and parts of the depth
        ((8, 32, 32, 32), (8, 32, 30, 30), (3, 3), {"groups": 32}),  # single channels
        ((0, 64, 56, 56), (0, 64, 56, 56), (1, 1), {}),
        ((8, 64, 56, 56), (8, 64, 56, 56), (1, 1), {"dtype": "float16"}),
    ],
)
def test_others_stay_as_they_are(x, y, window, attrs):
    assert [node.op.name for node in after(x, y, window, **attrs).nodes] == ["conv2d_weight_gradient"]


def gradient(x, w, y):
    """The gradient to a weight, and a step along it."""
    found = tj.grad(lambda w: (tj.nn.conv2d(x, w, stride=2, padding=1) * y).sum())(w)
    return found, w - 0.5 * found


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_gradients_are_those_of_numpy(dtype):
    rng, attrs = np.random.default_rng(0), PLAIN | {"stride": (2, 2), "padding": ((1, 1), (1, 1))}
    x, w, y = (rng.normal(size=shape) for shape in ((3, 3, 61, 64), (20, 3, 3, 3), (3, 20, 31, 32)))
    operands = [a.astype(dtype) for a in (x, w, y)]
    x, w, y = (a.astype(float) for a in operands)
    exact = OPS["conv2d_weight_gradient"].evaluate(x, y, window=(3, 3), **attrs)
    step = tj.jit(gradient)
    for run in (gradient, step, step):
        found, stepped = run(*(tj.asarray(a) for a in operands))
        assert found.dtype == dtype
        most = 20 * np.finfo(dtype).eps * np.abs(exact).max()
        assert np.abs(found.numpy() - exact).max() <= most
        assert np.abs(stepped.numpy() - (w - 0.5 * exact)).max() <= most
    shapes = (x.shape, y.shape)
    assert len(after(*shapes, (3, 3), **attrs).nodes) == 2


def test_error_is_at_most_that_of_one_sum():
    """Against float64, beside a sum over columns in float32."""
    rng = np.random.default_rng(1)
    x, y = (np.maximum(rng.normal(size=(4, n, 56, 56)), 0).astype(np.float32) for n in (32, 48))
    w = tj.zeros((48, 32, 1, 1))
    images, places = tj.asarray(x), tj.asarray(y)
    found = tj.jit(lambda w: tj.vjp(lambda w: tj.nn.conv2d(images, w), w)[1](places)[0])(w).numpy()
    exact = np.einsum("nchw,nohw->oc", x.astype(float), y.astype(float))[:, :, None, None]
    plain = OPS["conv2d_weight_gradient"].evaluate(x, y, window=(1, 1), **PLAIN)
    error, usual = (np.sqrt(np.mean((a - exact) ** 2)) for a in (found, plain))
    assert error <= 2 * usual


def test_bits_do_not_depend_on_workers():
    rng, before, found = np.random.default_rng(2), tj.engine.workers.count, set()
    operands = [
        tj.asarray(rng.normal(size=shape).astype(np.float32))
        for shape in ((3, 3, 61, 64), (20, 3, 3, 3), (3, 20, 31, 32))
    ]
    step = tj.jit(gradient)
    try:
        for count in (0, 1, 3, 8):
            tj.engine.set_workers(count)
            found.add(tuple(a.numpy().tobytes() for a in step(*operands)))
    finally:
        tj.engine.set_workers(before)
    assert len(found) == 1
