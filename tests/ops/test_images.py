"""Convolutions and pooling: NumPy's meaning against SciPy and plain loops, and how the three are related."""

import math

import numpy as np
import pytest
import scipy.signal
from hypothesis import given, settings
from hypothesis import strategies as st

from tracejit import ops


@st.composite
def convolutions(draw):
    """(x, w, attributes) of a random convolution in float64."""
    groups, batch, channels, filters = (draw(st.integers(1, 3)) for _ in range(4))
    window, stride, dilation = (draw(st.tuples(*[st.integers(1, 3)] * 2)) for _ in range(3))
    padding = draw(st.tuples(*[st.tuples(*[st.integers(0, 2)] * 2)] * 2))
    spans = [(n - 1) * d + 1 for n, d in zip(window, dilation, strict=True)]
    extents = [draw(st.integers(max(1, s - sum(p)), s + 5)) for s, p in zip(spans, padding, strict=True)]
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    x = rng.normal(size=(batch, groups * channels, *extents))
    w = rng.normal(size=(groups * filters, channels, *window))
    return x, w, {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}


def by_scipy(x, w, stride, padding, dilation, groups):
    """The same by `scipy.signal.correlate`, one pair of channels at a time."""
    spread = np.zeros((*w.shape[:2], *((n - 1) * d + 1 for n, d in zip(w.shape[2:], dilation, strict=True))))
    spread[:, :, :: dilation[0], :: dilation[1]] = w
    wide = np.pad(x, ((0, 0), (0, 0), *padding))
    result = []
    for image in wide:
        for o, kernel in enumerate(spread):
            first = o // (len(w) // groups) * w.shape[1]
            planes = zip(image[first : first + w.shape[1]], kernel, strict=True)
            total = sum(scipy.signal.correlate(a, k, "valid", "direct") for a, k in planes)
            result.append(total[:: stride[0], :: stride[1]])
    return np.stack(result).reshape(len(x), len(w), *result[0].shape)


@settings(deadline=None, max_examples=80)
@given(convolutions())
def test_conv2d_equals_scipy(case):
    x, w, attrs = case
    np.testing.assert_allclose(ops.conv2d.evaluate(x, w, **attrs), by_scipy(x, w, **attrs), atol=1e-12)


@settings(deadline=None, max_examples=80)
@given(convolutions())
def test_gradients_are_adjoint_to_the_convolution(case):
    x, w, attrs = case
    y = np.random.default_rng(1).normal(size=by_scipy(x, w, **attrs).shape)
    back = ops.conv2d_input_gradient.evaluate(y, w, extents=x.shape[2:], **attrs)
    weight = ops.conv2d_weight_gradient.evaluate(x, y, window=w.shape[2:], **attrs)
    assert back.shape == x.shape
    assert weight.shape == w.shape
    number = np.vdot(y, by_scipy(x, w, **attrs))
    assert math.isclose(np.vdot(back, x), number, abs_tol=1e-10)
    assert math.isclose(np.vdot(weight, w), number, abs_tol=1e-10)
    # The form is linear in each operand, so equal for all x and all w: try others than those above.
    other = np.random.default_rng(2)
    x2, w2 = other.normal(size=x.shape), other.normal(size=w.shape)
    assert math.isclose(np.vdot(back, x2), np.vdot(y, by_scipy(x2, w, **attrs)), abs_tol=1e-10)
    assert math.isclose(np.vdot(weight, w2), np.vdot(y, by_scipy(x, w2, **attrs)), abs_tol=1e-10)


@st.composite
def pools(draw):
    """(x, attributes) of a random pooling; x has ties, nan and infinities."""
    window, stride = (draw(st.tuples(*[st.integers(1, 3)] * 2)) for _ in range(2))
    padding = tuple(tuple(draw(st.integers(0, n - 1)) for _ in range(2)) for n in window)
    extents = [draw(st.integers(max(1, n - sum(p)), n + 5)) for n, p in zip(window, padding, strict=True)]
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    x = rng.integers(-3, 3, (2, 2, *extents)).astype(float)
    special = rng.choice([np.nan, np.inf, -np.inf, -0.0], x.shape)
    x = np.where(rng.random(x.shape) < draw(st.sampled_from([0, 0.1, 0.9])), special, x)
    return x, {"window": window, "stride": stride, "padding": padding}


def places(shape, window, stride, padding):
    """For each window its index, and the slices of the image that it covers."""
    (top, _), (left, _) = padding
    counts = [
        (n + sum(p) - k) // s + 1 for n, k, s, p in zip(shape[2:], window, stride, padding, strict=True)
    ]
    for n, c, r, q in np.ndindex(*shape[:2], *counts):
        i, j = r * stride[0] - top, q * stride[1] - left
        seen = slice(max(i, 0), min(i + window[0], shape[2])), slice(max(j, 0), min(j + window[1], shape[3]))
        yield (n, c, r, q), (n, c, *seen)


@settings(deadline=None, max_examples=80)
@given(pools())
def test_pooling_equals_loops(case):
    x, attrs = case
    with np.errstate(invalid="ignore"):
        largest, mean = (op.evaluate(x, **attrs) for op in (ops.max_pool, ops.average_pool))
    y = np.random.default_rng(0).normal(size=largest.shape)
    put, shared = np.zeros(x.shape), np.zeros(x.shape)
    numbers = np.arange(x.size, dtype=float).reshape(x.shape)
    first = np.zeros(y.shape)
    for place, seen in places(x.shape, **attrs):
        part = x[seen]
        flat = part.reshape(-1)
        position = np.flatnonzero(np.isnan(flat))[0] if np.isnan(flat).any() else flat.argmax()
        np.testing.assert_equal(largest[place], flat[position])
        with np.errstate(invalid="ignore"):
            np.testing.assert_allclose(mean[place], part.sum() / math.prod(attrs["window"]))
        rows, columns = np.unravel_index(position, part.shape)
        put[seen][rows, columns] += y[place]
        shared[seen] += y[place] / math.prod(attrs["window"])
        first[place] = numbers[seen].reshape(-1)[position]
    np.testing.assert_allclose(ops.max_pool_gradient.evaluate(x, y, **attrs), put)
    np.testing.assert_array_equal(ops.max_pool_select.evaluate(x, numbers, **attrs), first)
    extents = {"extents": x.shape[2:]}
    np.testing.assert_allclose(ops.average_pool_gradient.evaluate(y, **extents, **attrs), shared, atol=1e-12)


@pytest.mark.parametrize("op", [ops.conv2d, ops.max_pool, ops.average_pool])
def test_an_empty_batch_gives_an_empty_result(op):
    x, w = np.ones((0, 2, 5, 5)), np.ones((3, 2, 3, 3))
    pairs = {"stride": (1, 1), "padding": ((0, 0), (0, 0))}
    if op is ops.conv2d:
        y = op.evaluate(x, w, **pairs, dilation=(1, 1), groups=1)
        assert y.shape == (0, 3, 3, 3)
        weight = ops.conv2d_weight_gradient.evaluate(x, y, **pairs, dilation=(1, 1), groups=1, window=(3, 3))
        np.testing.assert_array_equal(weight, np.zeros_like(w))
    else:
        assert op.evaluate(x, window=(3, 3), **pairs).shape == (0, 2, 3, 3)
