"""Transforms by NumPy's inner loops have the bits of NumPy's functions."""

import ctypes

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.native import address, random_ranges, run
from tracejit.kernels.library import inner_loops
from tracejit.kernels.library.plan import TRANSFORM_LINE, routine_call

SHAPES = st.lists(st.integers(1, 40), min_size=1, max_size=3).map(tuple)


def transformed(name, x, out, attrs, rng):
    """The result of a kernel, in random ranges of units."""
    call = routine_call(name, [x.shape, out.shape], attrs, str(x.dtype))
    block = np.array([*call.words, x.ctypes.data, out.ctypes.data])
    run(address(name, str(x.dtype)), block, random_ranges(rng, call.units), 2, room=call.scratch)
    return out


def complex_numbers(rng, shape, dtype):
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@settings(max_examples=15, deadline=None)
@given(shape=SHAPES, data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_complex_transforms(dtype, inverse, shape, data, seed):
    rng = np.random.default_rng(seed)
    x = complex_numbers(rng, shape, dtype)
    axes = tuple(data.draw(st.lists(st.sampled_from(range(x.ndim)), min_size=1, unique=True)))
    expected = np.fft.ifftn(x, axes=axes, norm="forward") if inverse else np.fft.fftn(x, axes=axes)
    result = transformed("fft", x, np.empty_like(x), {"axes": axes, "inverse": inverse}, rng)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@settings(max_examples=15, deadline=None)
@given(shape=SHAPES, data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_transforms_of_real_numbers(dtype, shape, data, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape).astype(dtype)
    axis = data.draw(st.sampled_from(range(x.ndim)))
    expected = np.fft.rfft(x, axis=axis)
    y = transformed("rfft", x, np.empty_like(expected), {"axis": axis}, rng)
    np.testing.assert_array_equal(y, expected)
    attrs = {"axis": axis, "size": shape[axis]}
    back = transformed("irfft", y, np.empty_like(x), attrs, rng)
    np.testing.assert_array_equal(back, np.fft.irfft(y, shape[axis], axis, norm="forward"))


def test_long_lines_and_other_layouts_are_left_to_numpy(monkeypatch):
    attrs = {"axes": (0,), "inverse": False}
    shapes = [(TRANSFORM_LINE,)] * 2
    assert routine_call("fft", shapes, attrs, "complex128") is not None
    assert routine_call("fft", [(TRANSFORM_LINE + 1,)] * 2, attrs, "complex128") is None
    assert inner_loops.inner_loop("fft", "dd->d") is None
    assert inner_loops.inner_loop("no transform", "Dd->D") is None

    class Moved(ctypes.Structure):
        _fields_ = [("inserted", ctypes.c_int), *inner_loops._Ufunc._fields_]

    monkeypatch.setattr(inner_loops, "_Ufunc", Moved)
    assert inner_loops.inner_loop.__wrapped__("fft", "Dd->D") is None
