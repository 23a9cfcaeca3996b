"""tj.nn's functions of images against SciPy and PyTorch's definitions in NumPy; gradients by differences."""

import numpy as np
import pytest
import scipy.signal

import tracejit as tj
from tests.frontend.samples import assert_close, laid_out, sample
from tests.ops.test_images import by_scipy, places

F32, F64 = np.float32, np.float64


def convolution(rng, dtype):
    """(x, weight, bias, options) of a convolution with everything in it."""
    options = {"stride": (2, 1), "padding": ((1, 0), (2, 1)), "dilation": (1, 2), "groups": 2}
    shapes = [(2, 4, 7, 9), (6, 2, 3, 2), (6,)]
    return *(sample(rng, shape, dtype) for shape in shapes), options


@pytest.mark.parametrize("dtype", [F32, F64])
def test_conv2d(dtype, run):
    rng = np.random.default_rng(1)
    x, w, b, options = convolution(rng, dtype)
    got = run(lambda x, w, b: tj.nn.conv2d(x, w, b, **options), *(laid_out(rng, a) for a in (x, w, b)))
    expected = by_scipy(x.astype(F64), w.astype(F64), **options) + b.astype(F64)[:, None, None]
    assert_close(got, expected.astype(dtype), ulps=64, scale=10)


def test_conv2d_of_plain_numbers(run):
    x, w = np.arange(75).reshape(1, 3, 5, 5), np.arange(54).reshape(2, 3, 3, 3)
    full = np.stack(
        [sum(scipy.signal.correlate2d(a, k, "same") for a, k in zip(x[0], o, strict=True)) for o in w]
    )
    same = run(lambda x, w: tj.nn.conv2d(x, w, padding="same"), tj.asarray(x), tj.asarray(w))
    np.testing.assert_array_equal(same, full[None].astype(F64))
    one = run(lambda x, w: tj.nn.conv2d(x, w, padding=1, stride=2), tj.asarray(x), tj.asarray(w))
    np.testing.assert_array_equal(one, full[None, :, ::2, ::2].astype(F64))
    wide = run(lambda x, w: tj.nn.conv2d(x, w, padding="same"), tj.asarray(x), tj.asarray(w[:, :, :2, :2]))
    assert wide.shape == (1, 2, 5, 5)


def by_loops(function, x, window, stride, padding, empty=0.0):
    shape = [
        (n + sum(p) - k) // s + 1 for n, k, s, p in zip(x.shape[2:], window, stride, padding, strict=True)
    ]
    result = np.full((*x.shape[:2], *shape), empty)
    for place, seen in places(x.shape, window, stride, padding):
        result[place] = function(x[seen])
    return result


@pytest.mark.parametrize("dtype", [F32, F64])
def test_pooling(dtype, run):
    rng = np.random.default_rng(2)
    x = sample(rng, (2, 3, 7, 8), dtype)
    cases = [
        ((3, 2), {"stride": (2, 1), "padding": (1, 0)}, (2, 1), ((1, 1), (0, 0))),
        (2, {}, (2, 2), ((0, 0), (0, 0))),
        ((3, 3), {"stride": 2, "padding": ((0, 1), (1, 2))}, (2, 2), ((0, 1), (1, 2))),
    ]
    for window, options, stride, padding in run.some(cases):
        pair = (window, window) if isinstance(window, int) else window
        got = run(lambda x, w=window, o=options: tj.nn.max_pool2d(x, w, **o), laid_out(rng, x))
        np.testing.assert_array_equal(got, by_loops(np.max, x, pair, stride, padding).astype(dtype))
        got = run(lambda x, w=window, o=options: tj.nn.avg_pool2d(x, w, **o), laid_out(rng, x))
        size = pair[0] * pair[1]
        expected = by_loops(lambda part, size=size: part.sum() / size, x.astype(F64), pair, stride, padding)
        assert_close(got, expected.astype(dtype), ulps=16, scale=1)


def test_batch_norm(run):
    rng = np.random.default_rng(3)
    x, w, b = (sample(rng, s, F64) for s in [(4, 3, 2, 5), (3,), (3,)])
    mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3))

    def normal(mean, var):
        deviation = (x - mean[:, None, None]) / np.sqrt(var + 1e-3)[:, None, None]
        return deviation * w[:, None, None] + b[:, None, None]

    def train(x, m, v, w, b):
        return tj.nn.batch_norm(x, m, v, w, b, training=True, momentum=0.25, epsilon=1e-3)

    arrays = [tj.asarray(a) for a in (x, np.ones(3), np.zeros(3), w, b)]
    assert_close(run(train, *arrays), normal(mean, var), ulps=64, scale=4)
    calls = 2 if run.mode == "jit" else 1
    now = np.ones(3), np.zeros(3)
    for _ in range(calls):
        now = now[0] + 0.25 * (mean - now[0]), now[1] + 0.25 * (var * 40 / 39 - now[1])
    assert_close(arrays[1].numpy(), now[0], ulps=32, scale=2)
    assert_close(arrays[2].numpy(), now[1], ulps=32, scale=4)
    known = [tj.asarray(a) for a in (x, mean, var, w, b)]
    got = run(lambda *a: tj.nn.batch_norm(*a, epsilon=1e-3), *known)
    assert_close(got, normal(mean, var), ulps=64, scale=4)
    plain = run(lambda x: tj.nn.batch_norm(x, training=True, epsilon=0.0), tj.asarray(x))
    assert_close(plain, (x - mean[:, None, None]) / np.sqrt(var)[:, None, None], ulps=64, scale=4)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_local_response_norm(size, run):
    rng = np.random.default_rng(4)
    x = sample(rng, (2, 6, 3, 2), F64)
    wide = np.pad(x**2, ((0, 0), (size // 2, (size - 1) // 2), (0, 0), (0, 0)))
    sums = sum(wide[:, i : i + 6] for i in range(size))
    expected = x / (2 + 0.5 * sums / size) ** 0.75
    got = run(lambda x: tj.nn.local_response_norm(x, size, alpha=0.5, k=2.0), laid_out(rng, x))
    assert_close(got, expected, ulps=32, scale=1)


# ---- gradients


def relu_of_conv(x, w, b):
    return tj.nn.relu(
        tj.nn.conv2d(x, w, b, stride=(2, 1), padding=((1, 0), (0, 2)), dilation=(1, 2), groups=2)
    )


NETS = {
    "conv2d": relu_of_conv,
    "max_pool2d": lambda x, w, b: tj.nn.max_pool2d(tj.nn.conv2d(x, w, b, groups=2), 3, stride=2, padding=1),
    "avg_pool2d": lambda x, w, b: tj.nn.avg_pool2d(tj.nn.conv2d(x, w, b, groups=2), 2, stride=1, padding=1),
    "batch_norm": lambda x, w, b: tj.nn.batch_norm(
        tj.nn.conv2d(x, w, groups=2), None, None, b, b * b, training=True
    ),
    "local_response_norm": lambda x, w, b: tj.nn.local_response_norm(
        tj.nn.conv2d(x, w, b, groups=2), 3, alpha=1.0
    ),
}


@pytest.mark.parametrize("name", NETS)
def test_gradients_equal_central_differences(name, run):
    rng = np.random.default_rng(5)
    arrays = [rng.normal(size=s) for s in [(2, 4, 5, 6), (4, 2, 2, 2), (4,)]]
    weights = rng.normal(size=NETS[name](*map(tj.asarray, arrays)).shape)

    def loss(arrays):
        return (NETS[name](*arrays) * weights).sum()

    value, gradients = run(tj.value_and_grad(loss), [tj.asarray(a) for a in arrays])
    assert np.isfinite(value)
    traced, h = tj.jit(loss), 1e-6
    for position, (array, gradient) in enumerate(zip(arrays, gradients, strict=True)):
        for _ in range(4):  # along random directions
            direction = rng.normal(size=array.shape)
            sides = []
            for sign in (h, -h):
                moved = list(arrays)
                moved[position] = array + sign * direction
                sides.append(float(traced([tj.asarray(a) for a in moved])))
            expected = (sides[0] - sides[1]) / (2 * h)
            np.testing.assert_allclose(np.vdot(gradient, direction), expected, rtol=1e-5, atol=1e-6)


def test_second_derivatives(run):
    """The gradient of a penalty on the norm of a gradient, along a direction."""
    rng = np.random.default_rng(6)
    x, w, v = (rng.normal(size=s) for s in [(2, 2, 6, 5), (3, 2, 3, 2), (3, 2, 3, 2)])

    def loss(x, w):
        y = tj.nn.max_pool2d(tj.tanh(tj.nn.conv2d(x, w, padding=1)), 2)
        return (y * y).sum()

    def penalty(w, x):
        gradient = tj.grad(loss)(x, w)
        return (gradient * gradient).sum()

    found = run(tj.grad(penalty), tj.asarray(w), tj.asarray(x))
    traced, h = tj.jit(penalty), 1e-6
    sides = [float(traced(tj.asarray(w + sign * v), tj.asarray(x))) for sign in (h, -h)]
    np.testing.assert_allclose(np.vdot(found, v), (sides[0] - sides[1]) / (2 * h), rtol=1e-5)


def test_running_statistics_take_no_gradient_and_are_written_inside_one(run):
    x, mean, var = tj.asarray(np.arange(6.0).reshape(3, 2)), tj.zeros(2, dtype=tj.float64), tj.ones(2)

    def loss(x, mean, var):
        return (tj.nn.batch_norm(x, mean, var, training=True) ** 3).sum()

    run(tj.grad(loss), x, mean, var)
    share = 1 - 0.9 ** (2 if run.mode == "jit" else 1)
    np.testing.assert_allclose(mean.numpy(), np.array([2.0, 3.0]) * share)


def test_training_gives_the_same_bits_for_any_number_of_workers():
    """Sixteen images, several units of every kernel; three steps of convolution, norm, pooling, product."""
    rng = np.random.default_rng(7)
    shapes = {"c1": (12, 3, 5, 5), "c2": (24, 6, 3, 3), "one": (20, 24, 1, 1), "w": (320, 10)}
    start = {name: sample(rng, shape, F32, low=-0.2, high=0.2) for name, shape in shapes.items()}
    x, y = sample(rng, (16, 3, 32, 32), F32), rng.integers(0, 10, 16)

    def loss(p, x, y):
        h = tj.nn.max_pool2d(tj.nn.relu(tj.nn.conv2d(x, p["c1"], padding=2)), 3, stride=2, padding=1)
        h = tj.nn.batch_norm(tj.nn.conv2d(h, p["c2"], padding=1, groups=2), training=True)
        h = tj.nn.avg_pool2d(tj.nn.relu(tj.nn.conv2d(h, p["one"])), 4)
        return tj.nn.cross_entropy(h.reshape((16, -1)) @ p["w"], y)

    @tj.jit
    def step(p, x, y):
        value, gradients = tj.value_and_grad(loss)(p, x, y)
        tj.optim.sgd(p, gradients, 0.1)
        return value

    before, found = tj.engine.workers.count, []
    try:
        for count in (1, 2, 3, 8):
            tj.engine.set_workers(count)
            params = {name: tj.asarray(value) for name, value in start.items()}
            losses = [step(params, tj.asarray(x), tj.asarray(y)).numpy() for _ in range(3)]
            found.append([a.tobytes() for a in (*losses, *(p.numpy() for p in params.values()))])
    finally:
        tj.engine.set_workers(before)
    assert all(bits == found[0] for bits in found)
    assert len(set(found[0][:3])) == 3  # it moves


# ---- errors


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x, w: tj.nn.conv2d(x, w[:, :1]), tj.errors.ShapeError, r"groups \* 1 = 1 channels"),
        (lambda x, w: tj.nn.conv2d(x[0], w), tj.errors.ShapeError, "four dimensions"),
        (lambda x, w: tj.nn.conv2d(x, w, dilation=3), tj.errors.ShapeError, "larger than the padded input"),
        (lambda x, w: tj.nn.conv2d(x, w, stride=0), tj.errors.ArgumentError, "stride .* positive"),
        (lambda x, w: tj.nn.conv2d(x, w, stride=(1, 2, 3)), tj.errors.ArgumentError, "stride: .* a pair"),
        (lambda x, w: tj.nn.conv2d(x, w, padding=1.5), tj.errors.ArgumentError, "padding: .* integer"),
        (lambda x, w: tj.nn.conv2d(x, w, padding="same", stride=2), tj.errors.ArgumentError, "stride 1"),
        (lambda x, w: tj.nn.conv2d(x, w, tj.ones(3)), tj.errors.ShapeError, r"bias has shape \(3,\)"),
        (lambda x, w: tj.nn.max_pool2d(x, 2, padding=2), tj.errors.ArgumentError, "smaller than the window"),
        (lambda x, w: tj.nn.avg_pool2d(x, 9), tj.errors.ShapeError, "larger than the padded array"),
        (lambda x, w: tj.nn.batch_norm(x), tj.errors.ArgumentError, "needs running_mean and running_var"),
        (
            lambda x, w: tj.nn.batch_norm(x, tj.ones(3), tj.ones(2), training=True),
            tj.errors.ShapeError,
            r"running_mean must be an NDArray of shape \(2,\)",
        ),
        (lambda x, w: tj.nn.local_response_norm(x[0], 3), tj.errors.ShapeError, "four dimensions"),
    ],
)
def test_errors_name_the_line(call, error, message):
    with pytest.raises(error, match=rf"{message}(?s:.*)test_images.py"):
        call(tj.ones((1, 2, 5, 5)), tj.ones((4, 2, 3, 3)))
