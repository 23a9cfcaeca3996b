"""Convolution of lines and volumes, transposes, pooling, resampling: against loops and SciPy in float64."""

import itertools

import numpy as np
import pytest
import scipy.signal

import tracejit as tj
from tests.frontend.samples import laid_out
from tests.frontend.test_functions_gradients import away_from_kinks, check
from tests.thorough import some

nn = tj.nn
RNG = np.random.default_rng(1)
LINES, IMAGES, VOLUMES = (RNG.normal(size=s) for s in [(2, 4, 9), (2, 4, 5, 7), (2, 4, 5, 6, 4)])
BIAS = RNG.normal(size=6)
KERNELS = {1: (6, 2, 3), 2: (6, 2, 3, 2), 3: (6, 2, 2, 3, 2)}
WEIGHTS = {n: RNG.normal(size=s) for n, s in KERNELS.items()}


def convolved(x, w, b, stride, padding, dilation, groups):
    """Convolution of any number of dimensions, one window after the other."""
    x = np.pad(x, ((0, 0), (0, 0), *padding))
    n = x.ndim - 2
    spread = np.zeros((*w.shape[:2], *(d * (k - 1) + 1 for d, k in zip(dilation, w.shape[2:], strict=True))))
    spread[(slice(None), slice(None), *(slice(None, None, d) for d in dilation))] = w
    shape = [(e - k) // s + 1 for e, k, s in zip(x.shape[2:], spread.shape[2:], stride, strict=True)]
    result = np.zeros((x.shape[0], w.shape[0], *shape))
    each_in, each_out = w.shape[1], w.shape[0] // groups
    for place in np.ndindex(*shape):
        window = tuple(
            slice(i * s, i * s + k) for i, s, k in zip(place, stride, spread.shape[2:], strict=True)
        )
        for g in range(groups):
            part = x[(slice(None), slice(g * each_in, (g + 1) * each_in), *window)]
            out = slice(g * each_out, (g + 1) * each_out)
            axes = tuple(range(1, n + 2))
            result[(slice(None), out, *place)] = np.tensordot(part, spread[out], (axes, axes))
    return result + (0 if b is None else b.reshape(-1, *(1,) * n))


CONVOLUTIONS = {  # x, options of the library, and the same written out
    "conv1d": (LINES, {"stride": 2, "padding": ((1, 2),), "dilation": 2}, ((2,), ((1, 2),), (2,))),
    "conv1d_same": (LINES, {"padding": "same"}, ((1,), ((1, 1),), (1,))),
    "conv3d": (
        VOLUMES,
        {"stride": (2, 1, 2), "padding": (1, (0, 1), 0), "dilation": (2, 1, 1)},
        ((2, 1, 2), ((1, 1), (0, 1), (0, 0)), (2, 1, 1)),
    ),
    "conv3d_plain": (VOLUMES, {}, ((1,) * 3, ((0, 0),) * 3, (1,) * 3)),
}


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolution(case, run):
    x, options, written = CONVOLUTIONS[case]
    function, w = getattr(nn, case.split("_")[0]), WEIGHTS[x.ndim - 2]
    arrays = [laid_out(RNG, a) for a in (x, w, BIAS)]
    got = run(lambda x, w, b: function(x, w, b, groups=2, **options), *arrays)
    np.testing.assert_allclose(got, convolved(x, w, BIAS, *written, 2), rtol=1e-11, atol=1e-12)


TRANSPOSED = {
    "conv_transpose1d": (LINES, {}),
    "conv_transpose1d_all": (LINES, {"stride": 3, "padding": ((1, 2),), "output_padding": 2, "dilation": 2}),
    "conv_transpose2d": (IMAGES, {}),
    "conv_transpose2d_all": (
        IMAGES,
        {"stride": (2, 3), "padding": (1, (0, 1)), "output_padding": (1, 2), "dilation": (1, 2)},
    ),
    "conv_transpose3d": (VOLUMES, {}),
    "conv_transpose3d_all": (
        VOLUMES,
        {"stride": (2, 1, 3), "padding": ((1, 2), 1, 0), "output_padding": (1, 0, 2), "dilation": (3, 1, 2)},
    ),
}


def transposed(x, w, b, stride=1, padding=0, output_padding=0, dilation=1):
    """Every element adds its product with the window."""
    n = x.ndim - 2
    many = [v if isinstance(v, tuple) else (v,) * n for v in (stride, dilation, output_padding, padding)]
    steps, gaps, ends, sides = many
    sides = [s if isinstance(s, tuple) else (s, s) for s in sides]
    each, out = w.shape[0] // 2, w.shape[1]
    extents = [
        (e - 1) * s + g * (k - 1) + 1 + end
        for e, s, g, k, end in zip(x.shape[2:], steps, gaps, w.shape[2:], ends, strict=True)
    ]
    result = np.zeros((x.shape[0], 2 * out, *extents))
    for place in itertools.product(*map(range, x.shape[2:])):
        window = tuple(
            slice(i * s, i * s + g * (k - 1) + 1, g)
            for i, s, g, k in zip(place, steps, gaps, w.shape[2:], strict=True)
        )
        for group in range(2):
            channels = slice(group * each, (group + 1) * each)
            product = np.tensordot(x[(slice(None), channels, *place)], w[channels], (1, 0))
            result[(slice(None), slice(group * out, (group + 1) * out), *window)] += product
    kept = tuple(slice(first, result.shape[i] - last) for i, (first, last) in enumerate(sides, 2))
    return result[(slice(None), slice(None), *kept)] + b.reshape(-1, *(1,) * n)


@pytest.mark.parametrize("case", TRANSPOSED)
def test_transposed_convolution(case, run):
    x, options = TRANSPOSED[case]
    function, w = getattr(nn, case.removesuffix("_all")), RNG.normal(size=(4, 3, 3, 2, 2)[: x.ndim])
    got = run(lambda x, w, b: function(x, w, b, groups=2, **options), *map(tj.asarray, (x, w, BIAS)))
    np.testing.assert_allclose(got, transposed(x, w, BIAS, **options), rtol=1e-11, atol=1e-12)


def test_transposed_convolution_agrees_with_a_product_of_polynomials(evaluator):
    x, w = RNG.normal(size=(1, 1, 4, 5)), RNG.normal(size=(1, 1, 3, 2))
    np.testing.assert_allclose(
        nn.conv_transpose2d(x, w).numpy()[0, 0], scipy.signal.convolve2d(x[0, 0], w[0, 0])
    )


# ---- pooling


def windows_of(x, window, stride, padding, value):
    wide = np.pad(x, ((0, 0), (0, 0), padding), constant_values=value)
    return np.lib.stride_tricks.sliding_window_view(wide, window, axis=2)[:, :, ::stride]


def adaptive(x, size, axis, function=np.mean):
    n = x.shape[axis]
    parts = [x.take(range(i * n // size, -(-(i + 1) * n // size)), axis) for i in range(size)]
    return np.stack([function(p, axis) for p in parts], axis)


def volumes_of(x, window, stride, padding, value):
    """The windows of volumes, with their elements along the last axis."""
    wide = np.pad(x, ((0, 0), (0, 0), *padding), constant_values=value)
    seen = np.lib.stride_tricks.sliding_window_view(wide, window, axis=(2, 3, 4))
    seen = seen[(slice(None), slice(None), *(slice(None, None, s) for s in stride))]
    return seen.reshape(*seen.shape[:5], -1)


POOLING = {
    "max_pool1d": (
        *(LINES, lambda x: nn.max_pool1d(x, 3, stride=2, padding=((0, 1),))),
        lambda x: windows_of(x, 3, 2, (0, 1), -np.inf).max(-1),
    ),
    "avg_pool1d": (
        *(LINES, lambda x: nn.avg_pool1d(x, 2, padding=1)),
        lambda x: windows_of(x, 2, 2, (1, 1), 0).mean(-1),
    ),
    "adaptive1d": (LINES, lambda x: nn.adaptive_avg_pool1d(x, 4), lambda x: adaptive(x, 4, 2)),
    "adaptive2d": (
        *(IMAGES, lambda x: nn.adaptive_avg_pool2d(x, (7, 3))),
        lambda x: adaptive(adaptive(x, 7, 2), 3, 3),
    ),
    "adaptive3d": (
        *(VOLUMES, lambda x: nn.adaptive_avg_pool3d(x, (2, 6, 3))),
        lambda x: adaptive(adaptive(x, 2, 2), 3, 4),
    ),
    "adaptive_max1d": (
        *(LINES, lambda x: nn.adaptive_max_pool1d(x, 4)),
        lambda x: adaptive(x, 4, 2, np.max),
    ),
    "adaptive_max2d": (
        *(IMAGES, lambda x: nn.adaptive_max_pool2d(x, (7, 3))),
        lambda x: adaptive(adaptive(x, 7, 2, np.max), 3, 3, np.max),
    ),
    "adaptive_max3d": (
        *(VOLUMES, lambda x: nn.adaptive_max_pool3d(x, 2)),
        lambda x: adaptive(adaptive(adaptive(x, 2, 2, np.max), 2, 3, np.max), 2, 4, np.max),
    ),
    "max_pool3d": (
        *(VOLUMES, lambda x: nn.max_pool3d(x, (2, 3, 2), stride=(1, 2, 2), padding=((1, 0), (0, 1), 0))),
        lambda x: volumes_of(x, (2, 3, 2), (1, 2, 2), ((1, 0), (0, 1), (0, 0)), -np.inf).max(-1),
    ),
    "avg_pool3d": (
        *(VOLUMES, lambda x: nn.avg_pool3d(x, 2, padding=1)),
        lambda x: volumes_of(x, (2, 2, 2), (2, 2, 2), ((1, 1),) * 3, 0).mean(-1),
    ),
    "global_avg": (VOLUMES, nn.global_avg_pool, lambda x: x.mean((2, 3, 4))),
    "global_max": (VOLUMES, nn.global_max_pool, lambda x: x.max((2, 3, 4))),
}

# ---- resampling


def linear(x, size, axis, align_corners):
    """Linear interpolation between the centres of elements, which the first and last continue."""
    n = x.shape[axis]
    at = np.linspace(0, n - 1, size) if align_corners else (np.arange(size) + 0.5) * n / size - 0.5
    return np.apply_along_axis(lambda line: np.interp(at, np.arange(n), line), axis, x)


def squares(x, r):
    batch, channels, height, width = x.shape
    result = np.zeros((batch, channels // r**2, height * r, width * r), x.dtype)
    for c, i, j in itertools.product(range(channels // r**2), range(r), range(r)):
        result[:, c, i::r, j::r] = x[:, c * r * r + i * r + j]
    return result


def columns(x):
    """Windows of (2, 3) with stride 2, padding 1 and dilation (2, 1)."""
    wide = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    seen = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), axis=(2, 3))[:, :, ::2, ::2, ::2]
    return np.moveaxis(seen, (4, 5), (2, 3)).reshape(2, 4 * 6, -1)


RESAMPLING = {
    "nearest": (
        *(IMAGES, lambda x: nn.interpolate(x, (8, 3))),
        lambda x: x[:, :, np.arange(8) * 5 // 8][..., np.arange(3) * 7 // 3],
    ),
    "nearest_scale": (
        VOLUMES,
        lambda x: nn.interpolate(x, scale=2),
        lambda x: x.repeat(2, 2).repeat(2, 3).repeat(2, 4),
    ),
    "bilinear": (
        *(IMAGES, lambda x: nn.interpolate(x, (8, 3), mode="bilinear")),
        lambda x: linear(linear(x, 8, 2, False), 3, 3, False),
    ),
    "corners": (
        *(IMAGES, lambda x: nn.interpolate(x, (8, 3), mode="linear", align_corners=True)),
        lambda x: linear(linear(x, 8, 2, True), 3, 3, True),
    ),
    "one_element": (LINES[..., :1], lambda x: nn.interpolate(x, 3, mode="linear"), lambda x: x.repeat(3, 2)),
    "pixel_shuffle": (IMAGES, lambda x: nn.pixel_shuffle(x, 2), lambda x: squares(x, 2)),
    "pixel_unshuffle": (
        *(IMAGES[:, :, :4, :6], lambda x: nn.pixel_shuffle(nn.pixel_unshuffle(x, 2) * 2, 2)),
        lambda x: 2 * x,
    ),
    "unfold": (
        *(IMAGES, lambda x: nn.unfold(x, (2, 3), stride=2, padding=1, dilation=(2, 1))),
        columns,
    ),
    "pad": (
        *(IMAGES, lambda x: nn.pad(x, (1, (0, 2)), value=2.5)),
        lambda x: np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 2)), constant_values=2.5),
    ),
    **{
        mode: (
            *(IMAGES, lambda x, m=mode: nn.pad(x, ((1, 2), (4, 0)), mode=m)),
            lambda x, m=name: np.pad(x, ((0, 0), (0, 0), (1, 2), (4, 0)), m),
        )
        for mode, name in {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}.items()
    },
}


@pytest.mark.parametrize("table", [POOLING, RESAMPLING], ids=["pooling", "resampling"])
def test_pooling_and_resampling(table, run):
    inputs = {name: tj.asarray(x) for name, (x, _, _) in table.items()}
    found = run(lambda inputs: {name: table[name][1](x) for name, x in inputs.items()}, inputs)
    for name, (x, _, oracle) in table.items():
        np.testing.assert_allclose(found[name], oracle(x), rtol=1e-12, atol=1e-14, err_msg=name)


GRADIENTS = {
    **{name: (x[:1], function) for name, (x, function, _) in {**POOLING, **RESAMPLING}.items()},
    "conv1d": (LINES[:1], lambda x: nn.conv1d(x, WEIGHTS[1], BIAS, groups=2, padding="same")),
    "conv1d_weight": (WEIGHTS[1], lambda w: nn.conv1d(LINES, w, groups=2, dilation=2)),
    "conv3d": (
        VOLUMES[:1, :, :3, :4],
        lambda x: nn.conv3d(x, WEIGHTS[3], BIAS, groups=2, stride=2, padding=1),
    ),
    "conv_transpose3d": (
        VOLUMES[:1, :, :3, :3, :2],
        lambda x: nn.conv_transpose3d(x, WEIGHTS[3][:4], BIAS[:4], groups=2, stride=2, padding=1),
    ),
    "conv_transpose3d_weight": (
        WEIGHTS[3][:4],
        lambda w: nn.conv_transpose3d(VOLUMES[:, :, :2, :2, :2], w, groups=2),
    ),
    "max_pool3d": (VOLUMES, lambda x: nn.max_pool3d(x, 2, stride=1)),
    "adaptive_max2d": (IMAGES, lambda x: nn.adaptive_max_pool2d(x, (2, 3))),
    "conv3d_weight": (WEIGHTS[3], lambda w: nn.conv3d(VOLUMES, w, groups=2)),
    "transposed": (IMAGES[:1], lambda x: nn.conv_transpose2d(x, WEIGHTS[2][:4], stride=2, padding=1)),
    "transposed_weight": (WEIGHTS[2][:4], lambda w: nn.conv_transpose2d(IMAGES, w, w[0, :, 0, 0])),
}


@pytest.mark.parametrize("name", some(GRADIENTS, 16))
def test_gradients(name, evaluator):
    x, function = GRADIENTS[name]
    rng = np.random.default_rng(2)
    x = x[:, :, ..., :4] if x.shape[-1] > 5 and name not in ("circular", "reflect") else x
    check(function, [away_from_kinks(rng, x.shape, -2, 2)], rng, rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: nn.conv1d(IMAGES, WEIGHTS[1]), tj.errors.ShapeError, "x needs 3 dimensions"),
        (lambda: nn.conv3d(VOLUMES, WEIGHTS[3], dilation=9), tj.errors.ShapeError, "does not fit"),
        (lambda: nn.conv_transpose1d(LINES, WEIGHTS[1]), tj.errors.ShapeError, "channels of x"),
        (
            lambda: nn.conv_transpose2d(IMAGES, WEIGHTS[2][:4], output_padding=1),
            tj.errors.ArgumentError,
            "less than the stride",
        ),
        (lambda: nn.conv_transpose3d(VOLUMES, VOLUMES[:1]), tj.errors.ShapeError, "channels of x"),
        (
            lambda: nn.conv_transpose3d(VOLUMES, VOLUMES[:, :, :1, :1, :1].swapaxes(0, 1), padding=9),
            *(tj.errors.ShapeError, "leaves nothing"),
        ),
        (
            lambda: nn.conv_transpose3d(VOLUMES, WEIGHTS[3][:4], groups=2, padding=(9, 0, 0)),
            *(tj.errors.ShapeError, "leaves nothing: the depth is 6"),
        ),
        (
            lambda: nn.conv_transpose2d(IMAGES, WEIGHTS[2][:4], padding=9),
            tj.errors.ShapeError,
            "leaves nothing",
        ),
        (lambda: nn.max_pool3d(LINES, 2), tj.errors.ShapeError, "depth, height, width"),
        (lambda: nn.max_pool3d(VOLUMES, 9), tj.errors.ShapeError, "window"),
        (lambda: nn.max_pool1d(LINES, (1, 2)), tj.errors.ArgumentError, "window: expected an integer"),
        (lambda: nn.adaptive_avg_pool2d(IMAGES, 0), tj.errors.ArgumentError, "positive"),
        (lambda: nn.global_avg_pool(np.ones((2, 3))), tj.errors.ShapeError, "three or more"),
        (lambda: nn.interpolate(IMAGES), tj.errors.ArgumentError, "either size or scale="),
        (lambda: nn.interpolate(IMAGES, 3, mode="cubic"), tj.errors.ArgumentError, "mode is"),
        (lambda: nn.pixel_shuffle(IMAGES, 3), tj.errors.ShapeError, "not a multiple"),
        (lambda: nn.pad(LINES, (9,), mode="reflect"), tj.errors.ShapeError, "at most 8"),
        (lambda: nn.pad(LINES, (-1,)), tj.errors.ArgumentError, "must not be negative"),
        (lambda: nn.pad(LINES, 1), tj.errors.ArgumentError, "a tuple of pairs"),
        (lambda: nn.unfold(IMAGES, 9), tj.errors.ShapeError, "larger than the padded"),
    ],
)
def test_errors_name_the_line(call, error, message):
    with pytest.raises(error, match=rf"{message}(?s:.*)test_nn_windows.py"):
        call()
