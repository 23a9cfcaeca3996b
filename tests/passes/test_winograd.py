"""Which convolutions are done by tiles; their results and gradients, eager and jitted, in the same bits."""

import numpy as np
import pytest

import tracejit as tj
from tracejit.ir.graph import Builder
from tracejit.ir.op import OPS
from tracejit.ir.types import CPU, ArrayType
from tracejit.passes.winograd import winograd

PLAIN = {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1}


def names(x, w, times=1, dtype="float32", **attrs):
    """The operators of `times` convolutions after the pass."""
    builder = Builder()
    x, w = (builder.input(ArrayType(shape, np.dtype(dtype), CPU)) for shape in (x, w))
    outputs = [builder.emit(OPS["conv2d"], x, w, **PLAIN | attrs) for _ in range(times)]
    return [node.op.name for node in winograd(builder.graph(outputs)).nodes]


def test_weights_are_transformed_once():
    parts = ["winograd_weights", "winograd_conv2d", "winograd_conv2d"]
    assert names((2, 16, 8, 8), (16, 16, 3, 3), times=2) == parts


def test_a_stride_of_two_has_weights_of_its_own():
    builder = Builder()
    shapes = [(4, 16, 16, 16), (16, 16, 3, 3), (4, 16, 8, 9)]
    x, w, y = (builder.input(ArrayType(shape, np.dtype("float32"), CPU)) for shape in shapes)
    attrs = PLAIN | {"stride": (2, 2), "padding": ((1, 0), (1, 2))}
    outputs = [
        builder.emit(OPS["conv2d"], x, w, **attrs),
        builder.emit(OPS["conv2d"], x, w, **PLAIN),
        builder.emit(OPS["conv2d_input_gradient"], y, w, extents=(16, 16), **attrs),
        builder.emit(OPS["conv2d_weight_gradient"], x, y, window=(3, 3), **attrs),
    ]
    assert [node.op.name for node in winograd(builder.graph(outputs)).nodes] == [
        *("winograd_weights", "winograd_conv2d", "winograd_weights", "winograd_conv2d"),
        *("winograd_weights", "winograd_input_gradient"),
        *("winograd_weight_sums", "winograd_weight_gradient"),
    ]


def test_a_gradient_to_images_with_other_padding_stays():
    builder = Builder()
    y, w = (builder.input(ArrayType(s, np.dtype("float32"), CPU)) for s in [(8, 16, 8, 8), (16, 16, 3, 3)])
    attrs = PLAIN | {"stride": (2, 2), "padding": ((2, 1), (1, 1))}
    image = builder.emit(OPS["conv2d_input_gradient"], y, w, extents=(15, 16), **attrs)
    assert [node.op.name for node in winograd(builder.graph([image])).nodes] == ["conv2d_input_gradient"]


@pytest.mark.parametrize(
    ("x", "w", "attrs"),
    [
        ((2, 16, 8, 8), (16, 16, 3, 3), {"stride": (1, 2)}),
        ((8, 16, 24, 24), (16, 16, 3, 3), {"stride": (3, 3)}),
        ((8, 16, 14, 14), (16, 16, 3, 3), {"stride": (2, 2)}),  # 7 x 7 places: a quarter is beyond them
        ((2, 16, 8, 8), (16, 16, 3, 3), {"dilation": (2, 1)}),
        ((2, 32, 8, 8), (16, 16, 3, 3), {"groups": 2}),
        ((2, 16, 8, 8), (16, 16, 3, 1), {}),
        ((2, 16, 8, 8), (16, 16, 3, 3), {"padding": ((3, 1), (1, 1))}),
        ((2, 3, 8, 8), (16, 3, 3, 3), {}),  # too few channels
        ((1, 16, 8, 8), (16, 16, 3, 3), {}),  # too few tiles
        ((64, 16, 1, 8), (16, 16, 3, 3), {}),  # half of each tile is beyond the image
        ((0, 16, 8, 8), (16, 16, 3, 3), {}),
        ((1, 16, 8, 600), (16, 16, 3, 3), {}),
    ],
)
def test_others_stay_as_they_are(x, w, attrs):
    assert names(x, w, **attrs) == ["conv2d"]


def gradients(x, w, weight, padding=((1, 0), (2, 1)), stride=1):
    """A convolution and its gradients, of a sum with weights."""

    def total(x, w):
        y = tj.nn.conv2d(x, w, padding=padding, stride=stride)
        return (y * weight).sum(), y

    (_, y), found = tj.value_and_grad(total, argnums=(0, 1), has_aux=True)(x, w)
    return y, *found


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(("padding", "stride"), [(((1, 0), (2, 1)), 1), (((1, 1), (1, 0)), 2)])
def test_results_and_gradients_are_those_of_numpy(dtype, padding, stride):
    rng = np.random.default_rng(3)
    attrs = PLAIN | {"padding": padding, "stride": (stride, stride)}
    x, w = rng.normal(size=(3, 20, 9 * stride, 12 * stride)), rng.normal(size=(18, 20, 3, 3))
    x, w = x.astype(dtype).astype(float), w.astype(dtype).astype(float)
    y = OPS["conv2d"].evaluate(x, w, **attrs)
    weight = rng.normal(size=y.shape).astype(dtype).astype(float)
    expected = (
        y,
        OPS["conv2d_input_gradient"].evaluate(weight, w, extents=x.shape[2:], **attrs),
        OPS["conv2d_weight_gradient"].evaluate(x, weight, window=(3, 3), **attrs),
    )
    operands = [tj.asarray(a.astype(dtype)) for a in (x, w, weight)]
    step = tj.jit(gradients)
    for run in (gradients, step, step):
        for found, exact in zip(run(*operands, padding, stride), expected, strict=True):
            assert found.dtype == dtype
            assert np.abs(np.asarray(found) - exact).max() <= 8 * np.finfo(dtype).eps * np.abs(exact).max()


@pytest.mark.parametrize("stride", [1, 2])
def test_bits_do_not_depend_on_workers(stride):
    rng, before, found = np.random.default_rng(4), tj.engine.workers.count, set()
    shapes = [(4, 40, 14 * stride, 13 * stride), (140, 40, 3, 3), (4, 140, 14, 13)]
    operands = [tj.asarray(rng.normal(size=shape).astype(np.float32)) for shape in shapes]
    step = tj.jit(gradients)
    try:
        for count in (0, 1, 3, 8):
            tj.engine.set_workers(count)
            found.add(tuple(np.asarray(a).tobytes() for a in step(*operands, ((1, 1), (1, 1)), stride)))
    finally:
        tj.engine.set_workers(before)
    assert len(found) == 1
