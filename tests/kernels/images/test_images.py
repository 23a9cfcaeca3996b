"""Kernels over images against NumPy's meaning, in every split, by any number of threads, to the same bits."""

import threading

import numpy as np
import pytest

from tests.kernels.native import SIGNATURE, address, random_ranges
from tests.thorough import some
from tracejit.ir.op import OPS
from tracejit.kernels.images import windows
from tracejit.kernels.images.table import IMAGES
from tracejit.kernels.images.window_blocks import Convolution, Pooling
from tracejit.kernels.images.windows import WINDOWS, window_call
from tracejit.kernels.images.winograd_plan import KERNELS

FLOATS = ["float32", "float64"]
CONVOLUTIONS = [name for name in WINDOWS if name.startswith("conv2d")]
ALONE = [name for name in CONVOLUTIONS if name != "conv2d_weight_sums"]
"""Those with kernels of their own for single channels."""


@pytest.fixture(scope="module")
def kernels():
    """All kernels, as functions that release Python's lock."""
    return {key: SIGNATURE(address(*key, "IMAGES")) for key in IMAGES}


def attributes(name, rng):
    """Random attributes, and extents of images and weights that fit them."""
    window, stride, dilation = (tuple(map(int, rng.integers(1, 4, 2))) for _ in range(3))
    padding = tuple(tuple(int(rng.integers(0, n)) for _ in range(2)) for n in window)
    attrs = {"stride": stride, "padding": padding}
    if name in CONVOLUTIONS:
        attrs |= {"dilation": dilation, "groups": int(rng.choice([1, 1, 2, 3]))}
    else:
        attrs["window"], dilation = window, (1, 1)
    extents = [int((n - 1) * d + 1 + rng.integers(0, 30)) for n, d in zip(window, dilation, strict=True)]
    return attrs, extents, window


def operands(name, rng, dtype):
    """(operands, attributes) of the operator `name`."""
    attrs, extents, window = attributes(name, rng)
    batch, channels, filters = (int(n) for n in rng.integers(1, 6, 3))
    if rng.random() < 0.3:
        channels = filters = 1
    groups = attrs.get("groups", 1)
    x = rng.normal(size=(batch, channels * groups, *extents)).astype(dtype)
    w = rng.normal(size=(filters * groups, channels, *window)).astype(dtype)
    if name not in CONVOLUTIONS:
        x = np.round(x)
        y = rng.normal(size=OPS["max_pool"].evaluate(x, **attrs).shape).astype(dtype)
        extra = {"extents": tuple(extents)} if name == "average_pool_gradient" else {}
        of = {"x": x, "y": y}
    else:
        y = rng.normal(size=OPS["conv2d"].evaluate(x, w, **attrs).shape).astype(dtype)
        extra = {"extents": tuple(extents)} if name == "conv2d_input_gradient" else {}
        extra |= {"window": window} if "weight" in name else {}
        extra |= {"rows": int(rng.integers(1, 9))} if name == "conv2d_weight_sums" else {}
        of = {"x": x, "w": w, "y": y}
    return [of[role] for role in WINDOWS[name].roles[:-1]], attrs | extra


def run(kernels, name, arrays, attrs, result, ranges=None, threads=1):
    """Call a kernel by ranges of units, each thread with scratch memory of its own."""
    dtype = str(result.dtype)
    call = window_call(name, [a.shape for a in (*arrays, result)], attrs, dtype)
    kernel = kernels[call.kernel, dtype]
    assert all(a.flags.c_contiguous for a in arrays)
    block = np.array([*call.words, *(a.ctypes.data for a in (*arrays, result))], np.int64)
    assert len(block) <= len(Convolution if name in CONVOLUTIONS else Pooling)
    ranges = [(0, call.units)] if ranges is None else ranges(call.units)

    def work(mine):
        scratch = np.full(call.scratch + 8, 255, np.uint8)
        for lo, hi in mine:
            assert kernel(block.ctypes.data, lo, hi, scratch.ctypes.data) == 0
        assert (scratch[call.scratch :] == 255).all()

    workers = [threading.Thread(target=work, args=(ranges[i::threads],)) for i in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return result


def test_there_is_a_kernel_for_every_role():
    alone = [f"{kind}_{name}" for kind in ("depthwise", "channelwise") for name in ALONE]
    names = [*(name for name in WINDOWS if name != "conv2d_weight_sums"), *alone]
    assert set(IMAGES) == {(name, dtype) for name in (*names, *KERNELS) for dtype in FLOATS}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("seed", some(range(12), 4))
def test_kernel_equals_numpy(kernels, name, dtype, seed, monkeypatch):
    rng = np.random.default_rng([seed, len(name)])
    if seed % 3 == 2:  # several images in a product
        monkeypatch.setattr(windows, "UNITS", 1)
    if seed % 2:  # small panels and parts, also of small images
        monkeypatch.setattr(windows, "COLUMNS", 8)
        monkeypatch.setattr(windows, "COLUMN_BYTES", 64)
        monkeypatch.setattr(windows, "TILE_BYTES", 8)
        monkeypatch.setattr(windows, "MIN_CHANNELS", 1)
        monkeypatch.setattr(windows, "PLANE_WORK", 100)
    arrays, attrs = operands(name, rng, dtype)
    expected = OPS[name].evaluate(*arrays, **attrs)
    result = np.full(expected.shape, np.nan, dtype)
    run(kernels, name, arrays, attrs, result, lambda units: random_ranges(rng, units))
    scale = np.abs(expected).max()
    np.testing.assert_allclose(result, expected, rtol=0, atol=200 * np.finfo(dtype).eps * max(scale, 1))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("seed", range(6))
def test_columns_in_slivers_equal_numpy(kernels, dtype, seed):
    """Depths of several pieces, rows of several chunks, places before and behind the image."""
    rng = np.random.default_rng(seed)
    pair = {
        "stride": (1 + seed // 2 % 2, 1 + seed % 2),
        "dilation": tuple(int(n) for n in rng.integers(1, 3, 2)),
    }
    attrs = pair | {"padding": tuple(tuple(int(n) for n in rng.integers(0, 5, 2)) for _ in range(2))}
    attrs["groups"] = groups = 1 + seed % 2
    window = [int(n) for n in rng.integers(1, 4, 2)]
    x = rng.normal(size=(2, 40 * groups, *(int(n) for n in rng.integers(33, 60, 2)))).astype(dtype)
    w = rng.normal(size=(9 * groups, 40, *window)).astype(dtype)
    expected = OPS["conv2d"].evaluate(x.astype(float), w.astype(float), **attrs)
    result = np.full(expected.shape, np.nan, dtype)
    run(kernels, "conv2d", [x, w], attrs, result, lambda units: random_ranges(rng, units))
    np.testing.assert_allclose(
        result, expected, rtol=0, atol=100 * np.finfo(dtype).eps * np.abs(expected).max()
    )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ALONE)
@pytest.mark.parametrize("lanes", ["channels", "places"])
@pytest.mark.parametrize("seed", range(8))
def test_single_channels_equal_numpy(kernels, name, dtype, lanes, seed, monkeypatch):
    rng = np.random.default_rng([seed, len(name)])
    monkeypatch.setattr(windows, "MIN_GROUPS", 1 if lanes == "channels" else 100)
    monkeypatch.setattr(windows, "MIN_POSITIONS", 1000)
    if seed % 2:  # one row in a panel
        monkeypatch.setattr(windows, "PATCH_BYTES", 1)
    attrs, extents, window = attributes(name, rng)
    if seed % 4 == 3:
        attrs["padding"] = tuple(tuple(int(n) for n in rng.integers(0, 9, 2)) for _ in range(2))
        attrs["stride"] = tuple(int(n) for n in rng.integers(1, 5, 2))
    groups = attrs["groups"] = int(rng.integers(1, 40))
    x = rng.normal(size=(2, groups, *extents)).astype(dtype)
    w = rng.normal(size=(groups, 1, *window)).astype(dtype)
    y = rng.normal(size=OPS["conv2d"].evaluate(x, w, **attrs).shape).astype(dtype)
    attrs |= {"extents": tuple(extents)} if name == "conv2d_input_gradient" else {}
    attrs |= {"window": window} if name == "conv2d_weight_gradient" else {}
    arrays = [{"x": x, "w": w, "y": y}[role] for role in WINDOWS[name].roles[:-1]]
    expected = OPS[name].evaluate(*arrays, **attrs)
    result = np.full(expected.shape, np.nan, dtype)
    run(kernels, name, arrays, attrs, result, lambda units: random_ranges(rng, units))
    scale = np.abs(expected).max()
    np.testing.assert_allclose(result, expected, rtol=0, atol=100 * np.finfo(dtype).eps * max(scale, 1))


def test_a_window_of_one_element_reads_images_in_place(kernels):
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(3, 4, 6, 7)), rng.normal(size=(5, 4, 1, 1))
    attrs = {"stride": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (2, 3), "groups": 1}
    y = np.einsum("nchw,oc->nohw", x, w[:, :, 0, 0])
    call = window_call("conv2d", [x.shape, w.shape, y.shape], attrs, "float64")
    assert call.words[Convolution.DIRECT] == 1
    assert call.words[Convolution.PACKED] == 0  # no columns
    cases = [
        ("conv2d", [x, w], {}, y),
        ("conv2d_input_gradient", [y, w], {"extents": (6, 7)}, np.einsum("nohw,oc->nchw", y, w[:, :, 0, 0])),
        ("conv2d_weight_gradient", [x, y], {"window": (1, 1)}, np.einsum("nohw,nchw->oc", y, x)),
    ]
    for name, arrays, extra, expected in cases:
        shape = w.shape if name == "conv2d_weight_gradient" else expected.shape
        result = run(kernels, name, arrays, attrs | extra, np.full(shape, np.nan))
        np.testing.assert_allclose(result, expected.reshape(shape), rtol=1e-12)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("groups", "least"), [(2, 6), (12, 6), (12, 100)])
@pytest.mark.parametrize("name", WINDOWS)
def test_bits_do_not_depend_on_threads_or_ranges(kernels, name, groups, least, dtype, monkeypatch):
    rng = np.random.default_rng(3)
    monkeypatch.setattr(windows, "MIN_GROUPS", least)  # of single channels in lanes
    x = rng.normal(size=(5, 12, 40, 30)).astype(dtype)
    pairs = {"stride": (1, 2), "padding": ((1, 0), (1, 1))}
    attrs = pairs | ({"dilation": (1, 1), "groups": groups} if name in CONVOLUTIONS else {"window": (3, 3)})
    w = rng.normal(size=(24 if groups == 2 else 12, 12 // groups, 3, 3)).astype(dtype)
    if name in CONVOLUTIONS:
        y = np.ascontiguousarray(OPS["conv2d"].evaluate(x, w, **attrs))
    else:
        y = OPS["max_pool"].evaluate(x, **attrs)
    of = {"x": x, "w": w, "y": y, "s": np.empty((28, *w.shape), dtype)}
    attrs |= {"rows": 7} if name == "conv2d_weight_sums" else {}
    expected = run(
        kernels,
        name,
        [of[r] for r in WINDOWS[name].roles[:-1]],
        attrs,
        np.empty_like(of[WINDOWS[name].roles[-1]]),
    )
    for threads in (1, 2, 3, 8):
        result = np.full_like(expected, np.nan)
        arrays = [of[r] for r in WINDOWS[name].roles[:-1]]
        run(kernels, name, arrays, attrs, result, lambda n: random_ranges(rng, n), threads)
        assert result.tobytes() == expected.tobytes()


def test_small_images_are_multiplied_together(kernels, monkeypatch):
    rng = np.random.default_rng(0)
    monkeypatch.setattr(windows, "UNITS", 4)
    attrs = {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 2}
    x, w = rng.normal(size=(11, 8, 7, 7)), rng.normal(size=(6, 4, 3, 3))
    y = np.ascontiguousarray(OPS["conv2d"].evaluate(x, w, **attrs))
    back = OPS["conv2d_input_gradient"].evaluate(y, w, extents=(7, 7), **attrs)
    for name, arrays, expected in (("conv2d", [x, w], y), ("conv2d_input_gradient", [y, w], back)):
        call = window_call(name, [a.shape for a in (*arrays, expected)], attrs, "float64")
        assert call.words[Convolution.TOGETHER] == 5  # so the last unit has one image only
        assert call.units == 6
        result = run(kernels, name, arrays, attrs, np.full(expected.shape, np.nan))
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("extents", [(7, 7), (14, 14), (3, 5), (1, 81)])
def test_small_images_share_the_weights_of_a_unit(kernels, dtype, extents):
    rng = np.random.default_rng(2)
    attrs = {"stride": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "groups": 2}
    x = rng.normal(size=(11, 2 * 129, *extents)).astype(dtype)
    w = rng.normal(size=(2 * 515, 129, 1, 1)).astype(dtype)
    groups = (array.reshape(11, 2, -1, *extents) for array in (x, rng.normal(size=(11, 2 * 515, *extents))))
    x_groups, y_groups = (array.astype(float) for array in groups)
    weights = w.reshape(2, 515, 129).astype(float)
    y = np.einsum("ngchw,goc->ngohw", x_groups, weights).reshape(11, -1, *extents)
    back = np.einsum("ngohw,goc->ngchw", y_groups, weights).reshape(x.shape)
    gradient = y_groups.reshape(y.shape).astype(dtype)
    cases = (("conv2d", [x, w], {}, y), ("conv2d_input_gradient", [gradient, w], {"extents": extents}, back))
    for name, arrays, extra, expected in cases:
        call = window_call(name, [a.shape for a in (*arrays, expected)], attrs | extra, str(x.dtype))
        assert call.words[Convolution.TOGETHER] > 1
        assert call.units >= windows.UNITS
        result = np.full(expected.shape, np.nan, dtype)
        run(kernels, name, arrays, attrs | extra, result, lambda units: random_ranges(rng, units), threads=2)
        scale = np.abs(expected).max()
        np.testing.assert_allclose(result, expected, rtol=0, atol=100 * np.finfo(dtype).eps * scale)


def test_work_is_shared_out():
    attrs = {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1}

    def units(name, batch, channels, filters, extent):
        shapes = {
            "x": (batch, channels, extent, extent),
            "w": (filters, channels, 3, 3),
            "y": (batch, filters, extent, extent),
        }
        rows = windows.weight_sum_rows(shapes["x"], shapes["w"], shapes["y"], attrs, "float32")
        shapes["s"] = (-(-batch * extent // rows), *shapes["w"]) if batch else (0, *shapes["w"])
        attrs["rows"] = rows
        return window_call(name, [shapes[r] for r in WINDOWS[name].roles], attrs, "float32").units

    for name in CONVOLUTIONS:
        assert units(name, 1, 64, 64, 56) >= 4
        assert units(name, 64, 512, 512, 7) >= 16
        assert units("conv2d", 0, 3, 3, 7) == 0
