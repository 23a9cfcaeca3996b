"""Convolution by tiles against NumPy's meaning of the convolution; the same bits in any split."""

import numpy as np
import pytest

from tests.kernels.native import address, random_ranges, run
from tracejit.ir.op import OPS
from tracejit.ir.types import ArrayType
from tracejit.kernels.gemm.tiles import tiles_are_profitable
from tracejit.kernels.images import winograd_plan
from tracejit.kernels.images.winograd_plan import CALLS, KERNELS, SCHEMES, Winograd, winograd_call

FLOATS = ["float32", "float64"]
ONE = ((1, 1), (1, 1))


@pytest.fixture(scope="module")
def addresses():
    """The addresses of all kernels for both dtypes."""
    return {f"{name}_{dtype}": address(name, dtype, "IMAGES") for name in KERNELS for dtype in FLOATS}


class Native:
    """Calls operators by their kernels, with units in random ranges on `threads` threads."""

    def __init__(self, addresses, rng, threads=1):
        self.addresses, self.rng, self.threads = addresses, rng, threads

    def __call__(self, name, *arrays, **attrs):
        dtype = arrays[0].dtype
        type = OPS[name].infer(*(ArrayType(a.shape, a.dtype) for a in arrays), **attrs)
        result = np.full(type.shape, np.nan, dtype)
        operands = [np.ascontiguousarray(a) for a in (*arrays, result)]
        call = winograd_call(name, [a.shape for a in operands], attrs, str(dtype))
        block = np.array([*call.words, *(a.ctypes.data for a in operands)], np.int64)
        assert len(block) <= len(Winograd)
        ranges = random_ranges(self.rng, call.units)
        run(self.addresses[f"{call.kernel}_{dtype}"], block, ranges, self.threads, call.scratch)
        return operands[-1]

    def all(self, x, w, y, padding, stride=1):
        """A convolution and its two gradients; that to the images with a stride is for one of padding."""
        u, v = (self("winograd_weights", w, x, transposed=flag, stride=stride) for flag in (False, True))
        sums = self("winograd_weight_sums", x, y, padding=padding, stride=stride)
        if stride == 1:
            back = tuple(tuple(2 - n for n in pair) for pair in padding)
            image = self("winograd_conv2d", y, v, padding=back, filters=w.shape[1], stride=1)
        else:
            attrs = {"padding": padding, "extents": x.shape[2:], "filters": w.shape[1]}
            image = self("winograd_input_gradient", y, v, **attrs)
        return (
            self("winograd_conv2d", x, u, padding=padding, filters=w.shape[0], stride=stride),
            image,
            self("winograd_weight_gradient", sums, filters=w.shape[0], stride=stride),
        )


def attrs_of(stride, padding):
    """The attributes of a convolution."""
    return {"stride": (stride, stride), "padding": padding, "dilation": (1, 1), "groups": 1}


def operands(rng, dtype, images, channels, filters, extents, padding, stride=1):
    """(x, w, y, what NumPy makes of them in float64)."""
    attrs = attrs_of(stride, padding)
    x = rng.normal(size=(images, channels, *extents)).astype(dtype)
    w = rng.normal(size=(filters, channels, 3, 3)).astype(dtype)
    exact = OPS["conv2d"].evaluate(x.astype(float), w.astype(float), **attrs)
    y = rng.normal(size=exact.shape).astype(dtype)
    image = OPS["conv2d_input_gradient"].evaluate(y.astype(float), w.astype(float), extents=extents, **attrs)
    weight = OPS["conv2d_weight_gradient"].evaluate(x.astype(float), y.astype(float), window=(3, 3), **attrs)
    return x, w, y, (exact, image, weight)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("stride", SCHEMES)
@pytest.mark.parametrize("seed", range(8))
def test_tiles_give_the_convolution_and_its_gradients(addresses, dtype, stride, seed, monkeypatch):
    rng = np.random.default_rng(seed)
    if seed % 2:  # several blocks, of one row of tiles each, and parts
        monkeypatch.setattr(winograd_plan, "BLOCK_TILES", 1)
        monkeypatch.setattr(winograd_plan, "SUM_TILES", 4)
        monkeypatch.setattr(winograd_plan, "SUM_CHANNELS", 16)
        monkeypatch.setattr(winograd_plan, "MIN_SLIVERS", 1)
        monkeypatch.setattr(winograd_plan, "WEIGHTS", 256)
    padding = tuple(tuple(int(n) for n in rng.integers(0, 3, 2)) for _ in range(2))
    if stride > 1:
        padding = tuple((1, after) for _, after in padding)
    extents = tuple(int(n) for n in rng.integers(2 + stride, 20, 2))
    images, channels, filters = int(rng.integers(1, 4)), int(rng.integers(1, 40)), int(rng.integers(1, 140))
    x, w, y, expected = operands(rng, dtype, images, channels, filters, extents, padding, stride)
    for found, exact in zip(Native(addresses, rng).all(x, w, y, padding, stride), expected, strict=True):
        assert np.abs(found - exact).max() <= 20 * np.finfo(dtype).eps * np.abs(exact).max()


@pytest.mark.parametrize(
    ("name", "stride"),
    [(n, s) for n in CALLS for s in SCHEMES if s > 1 or n != "winograd_input_gradient"],
)
def test_kernels_equal_the_meaning_of_their_operators(addresses, name, stride):
    rng, padding = np.random.default_rng(1), ((1, 0), (2, 1))
    x, w, y, _ = operands(rng, "float64", 3, 17, 40, (9, 8), padding, stride)
    straight, turned = (
        OPS["winograd_weights"].evaluate(w, x, transposed=flag, stride=stride) for flag in (False, True)
    )
    cases = {
        "winograd_weights": ([w, x], {"transposed": True, "stride": stride}),
        "winograd_conv2d": ([x, straight], {"padding": padding, "filters": 40, "stride": stride}),
        "winograd_weight_sums": ([x, y], {"padding": padding, "stride": stride}),
        "winograd_weight_gradient": (
            [rng.normal(size=(3, 2, SCHEMES[stride].points, 17, 32))],
            {"filters": 40, "stride": stride},
        ),
    }
    if name == "winograd_input_gradient":
        y = rng.normal(size=(3, 40, 5, 4))
        cases[name] = ([y, turned], {"padding": ONE, "extents": (9, 8), "filters": 17})
    arrays, attrs = cases[name]
    found = Native(addresses, rng)(name, *arrays, **attrs)
    np.testing.assert_allclose(found, OPS[name].evaluate(*arrays, **attrs), rtol=0, atol=1e-11)


@pytest.mark.parametrize("stride", SCHEMES)
def test_bits_do_not_depend_on_threads_or_ranges(addresses, stride):
    rng = np.random.default_rng(2)
    x, w, y, _ = operands(rng, "float32", 6, 70, 130, (16, 14), ONE, stride)
    expected = [a.tobytes() for a in Native(addresses, rng).all(x, w, y, ONE, stride)]
    for threads in (2, 5):
        found = Native(addresses, rng, threads).all(x, w, y, ONE, stride)
        assert [a.tobytes() for a in found] == expected


@pytest.mark.parametrize(("channels", "extent"), [(64, 16), (256, 8), (512, 6)])
@pytest.mark.parametrize("stride", SCHEMES)
def test_error_is_at_most_twice_that_of_a_sum(addresses, channels, extent, stride):
    """Against float64; the sums are those of BLAS, over columns, in float32. With vectors of 32 bytes, BLAS
    adds in an order with less error: there, tiles may have 2.2 times as much.
    """
    most = 2 if tiles_are_profitable() else 2.2
    rng, extent = np.random.default_rng(channels), extent * stride
    x, w, y, _ = operands(rng, "float32", 2, channels, 64, (extent, extent), ONE, stride)
    x, y = np.maximum(x, 0), np.maximum(y, 0)
    attrs = attrs_of(stride, ONE)
    cases = [
        ("conv2d", (x, w), {}),
        ("conv2d_input_gradient", (y, w), {"extents": (extent, extent)}),
        ("conv2d_weight_gradient", (x, y), {"window": (3, 3)}),
    ]
    results = Native(addresses, rng).all(x, w, y, ONE, stride)
    for (name, arrays, more), found in zip(cases, results, strict=True):
        exact = OPS[name].evaluate(*(a.astype(float) for a in arrays), **attrs, **more)
        plain = OPS[name].evaluate(*arrays, **attrs, **more)
        error, usual = (np.sqrt(np.mean((a - exact) ** 2)) for a in (found, plain))
        assert error <= most * usual, name
