"""`tj.fft` against NumPy: values, extents, norms, dtypes, dispatch, replays, gradients, errors."""

import numpy as np
import pytest

import tracejit as tj
from tests.frontend.samples import laid_out

ONE = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"]
MANY = ["fftn", "ifftn", "rfftn", "irfftn", "fft2", "ifft2", "rfft2", "irfft2"]
OPTIONS = [{}, {"n": 4}, {"n": 9}, {"axis": 0, "norm": "ortho"}, {"axis": 1, "n": 3, "norm": "forward"}]
SEVERAL = [
    {},
    {"s": (4, 9), "axes": (0, 2)},
    {"axes": (1, 0), "norm": "ortho"},
    {"axes": (-1, 1), "norm": "forward"},
]


def data(dtype, shape=(3, 4, 6)):
    rng = np.random.default_rng(0)
    values = rng.normal(size=shape) * 5
    return (values + 1j * rng.normal(size=shape) if "c" in dtype[0] else values).astype(dtype)


def takes(name, dtype):
    return not (name in ("rfft", "rfftn", "rfft2", "ihfft") and "c" in dtype[0])


def check(name, dtype, options):
    x = data(dtype)
    y = laid_out(np.random.default_rng(1), x)
    ours, theirs = getattr(tj.fft, name), getattr(np.fft, name)
    expected = theirs(x, **options)
    traced = tj.jit(lambda x: ours(x, **options))
    tolerance = 1e-4 if dtype in ("float32", "complex64") else 1e-12
    for got in (ours(y, **options), theirs(y, **options), traced(y), traced(y)):
        np.testing.assert_allclose(got.numpy(), expected, rtol=tolerance, atol=tolerance)
        assert got.dtype == expected.dtype
    assert "piecewise" not in traced.explain()


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128", "int32"])
@pytest.mark.parametrize("name", ONE)
def test_one_axis(name, dtype):
    for options in OPTIONS if takes(name, dtype) else ():
        check(name, dtype, options)


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize("name", MANY)
def test_several_axes(name, dtype):
    for options in SEVERAL if takes(name, dtype) else ():
        check(name, dtype, options)


def test_frequencies_and_shifts():
    for n in (1, 4, 5):
        for d in (1.0, 0.25):
            np.testing.assert_allclose(tj.fft.fftfreq(n, d).numpy(), np.fft.fftfreq(n, d), rtol=1e-6)
            np.testing.assert_allclose(tj.fft.rfftfreq(n, d).numpy(), np.fft.rfftfreq(n, d), rtol=1e-6)
    x = data("float64")
    for axes in (None, 0, (0, 2)):
        np.testing.assert_array_equal(np.fft.fftshift(tj.asarray(x), axes).numpy(), np.fft.fftshift(x, axes))
        np.testing.assert_array_equal(
            tj.fft.ifftshift(tj.asarray(x), axes).numpy(), np.fft.ifftshift(x, axes)
        )


@pytest.mark.parametrize("name", ["rfft", "fft", "ifft", "hfft", "ihfft", "irfft", "rfftn", "fftn", "irfft2"])
@pytest.mark.parametrize("extent", [5, 6])
def test_gradients_of_real_operands(name, extent):
    x, step = data("float64", (2, extent)), 1e-6
    weights = tj.asarray(data("complex128", (2, 12)))

    def loss(v):
        y = getattr(tj.fft, name)(v * v)
        return tj.real(y * weights[:, : y.shape[1]]).sum() + (tj.abs(y) ** 2).sum() * 0.01

    expected = np.zeros_like(x)
    for index in np.ndindex(*x.shape):
        moved = [x.copy(), x.copy()]
        moved[0][index] += step
        moved[1][index] -= step
        expected[index] = (float(loss(tj.asarray(moved[0]))) - float(loss(tj.asarray(moved[1])))) / (2 * step)
    np.testing.assert_allclose(tj.grad(loss)(tj.asarray(x)).numpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["fft", "ifft", "irfft", "hfft"])
@pytest.mark.parametrize("size", [8, 9])
def test_gradients_of_complex_operands(name, size):
    x, step = data("complex128", (5,)), 1e-6
    weights = tj.asarray(data("complex128", (12,)))

    def loss(v):
        y = getattr(tj.fft, name)(v, size)
        return tj.real(y * weights[: y.shape[0]]).sum() + (tj.abs(y) ** 2).sum() * 0.01

    slope = tj.grad(loss)(tj.asarray(x)).numpy()
    for index in range(5):
        parts = []
        for turn in (1, 1j):
            moved = [x.copy(), x.copy()]
            moved[0][index] += turn * step
            moved[1][index] -= turn * step
            parts.append((float(loss(tj.asarray(moved[0]))) - float(loss(tj.asarray(moved[1])))) / (2 * step))
        np.testing.assert_allclose(slope[index], parts[0] - 1j * parts[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: tj.fft.fft(x, norm="no"), tj.errors.ArgumentError, "fft: norm is"),
        (lambda x: tj.fft.fft(x, 0), tj.errors.ShapeError, "fft: a transform of 0 elements"),
        (lambda x: tj.fft.rfft(x * 1j), tj.errors.DTypeError, "rfft: takes real numbers"),
        (lambda x: tj.fft.fft(x, axis=4), tj.errors.AxisError, "fft"),
        (lambda x: tj.fft.fftn(x, (1, 2), (0,)), tj.errors.ArgumentError, "2 extents for 1 axes"),
        (lambda x: tj.fft.fft(x[:0]), tj.errors.ShapeError, "there are no elements"),
    ],
)
def test_errors_name_function_and_line(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call(tj.ones(3))
    assert "test_fft.py" in str(caught.value)
