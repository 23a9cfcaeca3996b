"""Sorting, searching and sets against NumPy."""

import functools

import numpy as np
import pytest

import tracejit as tj
from tests.frontend.samples import DTYPES, assert_close, sample
from tests.frontend.test_functions_arrays import same
from tests.frontend.test_functions_gradients import check

SHAPES = [(7,), (1,), (0,), (5, 4), (3, 0), (2, 3, 6)]
FLOATS = [dtype for dtype in DTYPES if dtype.kind == "f"]


def with_ties(shape, dtype, seed=0):
    """Few distinct values, so that many are equal; of floats, some are nan."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 4, shape).astype(dtype)
    if dtype.kind == "f" and x.size:
        x.reshape(-1)[rng.integers(0, x.size, x.size // 4)] = np.nan
    return x


def traced(function, *arrays, **options):
    """The result of a replay."""
    step = tj.jit(lambda *xs: function(*xs, **options), strict=True)
    for _ in range(3):
        result = step(*map(tj.asarray, arrays))
    assert step.cache_info().traces == 1
    return result


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sort_and_argsort(dtype, shape):
    x = with_ties(shape, dtype)
    for axis in (None, *range(-len(shape), len(shape))):
        ordered, order = np.sort(x, axis), np.argsort(x, axis, stable=True)
        for call in (lambda f, x, **o: f(tj.asarray(x), **o), traced):
            same(call(tj.sort, x, axis=axis), ordered)
            same(call(tj.argsort, x, axis=axis), order)
        same(np.sort(tj.asarray(x), axis), ordered)
        same(np.argsort(tj.asarray(x), axis, kind="stable"), order)
        same(tj.asarray(x).argsort(axis), order)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_descending_order_is_stable(dtype):
    x = with_ties((6, 50), dtype)
    for axis in (0, 1):
        order = np.argsort(-x, axis, stable=True)
        present = np.where(np.isnan(np.take_along_axis(x, order, axis)), 1, 0)
        order = np.take_along_axis(order, np.argsort(-present, axis, stable=True), axis)  # nan comes first
        same(tj.argsort(tj.asarray(x), axis=axis, descending=True), order)
        same(tj.sort(tj.asarray(x), axis=axis, descending=True), np.take_along_axis(x, order, axis))


def test_large_arrays_and_views_are_sorted_as_small_ones():
    x = np.random.default_rng(1).normal(size=(300, 400)).astype("f4")
    array = tj.asarray(x)
    for view, expected in ((array.T, x.T), (array[::-2, 5:], x[::-2, 5:])):
        same(tj.sort(view + 0, axis=0), np.sort(expected, 0))
        same(tj.sort(view, axis=1), np.sort(expected, 1))
        same(tj.argsort(view, axis=1), np.argsort(expected, 1, stable=True))


def test_sorting_in_place_is_seen_by_aliases_and_replayed():
    content = np.random.default_rng(2).normal(size=(5, 6))

    def step(x):
        x[1:, ::2].sort(axis=0)
        return x.sum(1)

    expected = content.copy()
    part = expected[1:, ::2].copy()
    part.sort(axis=0)
    expected[1:, ::2] = part
    for function in (step, tj.jit(step, strict=True)):
        for _ in range(3):
            x = tj.asarray(content)
            total = function(x)
            same(x, expected)
            assert_close(total.numpy(), expected.sum(1))


def test_gradient_of_sort():
    rng = np.random.default_rng(3)
    x = rng.permutation(24).reshape(4, 6) / 7.0
    for axis in (0, 1):
        check(lambda x, axis=axis: tj.sort(x, axis=axis), [x], rng)
        check(lambda x, axis=axis: tj.sort(x, axis=axis, descending=True) ** 2, [x], rng)
        check(lambda x, axis=axis: tj.top_k(x, 3, axis=axis)[0], [x], rng)
    check(lambda x: tj.sort(x, axis=None), [x], rng, call=lambda f, *a: tj.jit(f)(*a))


def test_lexsort():
    rng = np.random.default_rng(4)
    for shape in ((9,), (4, 5), (0,)):
        keys = [rng.integers(0, 3, shape) for _ in range(3)]
        for axis in range(len(shape)):
            same(tj.lexsort([tj.asarray(k) for k in keys], axis=axis), np.lexsort(keys, axis))
            same(tj.lexsort(tj.asarray(np.stack(keys)), axis=axis), np.lexsort(keys, axis))
    same(np.lexsort(tj.asarray(np.stack(keys))), np.lexsort(keys))


@pytest.mark.parametrize("kth", [0, 3, -1, (1, 4)])
def test_partition(kth):
    x = np.random.default_rng(5).normal(size=(3, 9))
    for axis in (0, 1):
        if axis == 0 and kth not in (0, -1):
            continue
        wanted = np.take(np.sort(x, axis), kth, axis)
        same(tj.take(tj.partition(tj.asarray(x), kth, axis), np.asarray(kth), axis=axis), wanted)
        order = np.partition(tj.asarray(x), kth, axis=axis), np.argpartition(tj.asarray(x), kth, axis=axis)
        same(order[0], np.take_along_axis(x, order[1].numpy(), axis))
        array = tj.asarray(x)
        array.partition(kth, axis=axis)
        same(tj.take(array, np.asarray(kth), axis=axis), wanted)


def test_top_k():
    x = np.random.default_rng(6).permutation(60).reshape(3, 4, 5).astype("f4")
    for axis in range(3):
        for largest in (True, False):
            for k in (0, 1, x.shape[axis]):
                order = np.argsort(-x if largest else x, axis, stable=True)
                order = np.take(order, range(k), axis)
                pick = functools.partial(
                    lambda x, k, **o: tj.top_k(x, k, **o), k=k, axis=axis, largest=largest
                )
                values, positions = traced(pick, x)
                same(positions, order)
                same(values, np.take_along_axis(x, order, axis))


@pytest.mark.parametrize("side", ["left", "right"])
def test_searchsorted(side):
    rng = np.random.default_rng(7)
    for dtype in DTYPES:
        keys = np.sort(sample(rng, (20,), dtype))
        for shape in ((), (5,), (3, 4), (0,)):
            values = sample(rng, shape, dtype)
            expected = np.asarray(np.searchsorted(keys, values, side))
            same(tj.searchsorted(tj.asarray(keys), tj.asarray(values), side=side), expected)
            same(traced(tj.searchsorted, keys, values, side=side), expected)
    keys = rng.normal(size=30)
    order = np.argsort(keys)
    expected = np.asarray(np.searchsorted(keys, 0.25, sorter=order))
    same(tj.searchsorted(tj.asarray(keys), 0.25, sorter=order), expected)
    same(np.searchsorted(tj.asarray([1, 2, 3]), 2.5), np.asarray(2))
    assert np.searchsorted(tj.asarray([1, 2]), tj.asarray([1.5])).numpy().tolist() == [1]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_nonzero(shape):
    for dtype in DTYPES:
        x = with_ties(shape, dtype, 8)
        array, found = tj.asarray(x), np.nonzero(x)
        for result in (tj.nonzero(array), np.nonzero(array), array.nonzero()):
            for part, wanted in zip(result, found, strict=True):
                same(part, wanted)
        same(tj.argwhere(array), np.argwhere(x))
        same(np.argwhere(array), np.argwhere(x))
        same(tj.flatnonzero(array), np.flatnonzero(x))
        for size in (0, 2, x.size + 3):
            count = min(size, len(found[0]))
            padded = [np.r_[part[:count], np.full(size - count, -1)] for part in found]
            for part, wanted in zip(traced(tj.nonzero, x, size=size, fill_value=-1), padded, strict=True):
                same(part, wanted)
            same(traced(tj.argwhere, x, size=size, fill_value=-1), np.stack(padded, 1))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_unique(shape):
    for dtype in DTYPES:
        x = with_ties(shape, dtype, 9)
        array = tj.asarray(x)
        for axis in (None, *range(len(shape))):
            for equal_nan in (True, False):
                flags = {"return_index": True, "return_inverse": True, "return_counts": True, "axis": axis}
                expected = np.unique(x, **flags, equal_nan=equal_nan)
                for function in (tj.unique, np.unique):
                    got = function(array, **flags, equal_nan=equal_nan)
                    for part, wanted in zip(got, expected, strict=True):
                        same(part, wanted)
        for name in ("unique_all", "unique_counts", "unique_inverse"):
            got, expected = getattr(tj, name)(array), getattr(np, name)(x)
            assert got._fields == expected._fields
            for part, wanted in zip(got, expected, strict=True):
                same(part, wanted)
        same(tj.unique_values(array), np.unique(x, equal_nan=False))


def test_sets():
    rng = np.random.default_rng(10)
    for dtype in DTYPES:
        a, b = with_ties((8,), dtype, 11), rng.integers(2, 6, (2, 3)).astype(dtype)
        x, y = tj.asarray(a), tj.asarray(b)
        for name in ("intersect1d", "union1d", "setdiff1d", "setxor1d"):
            expected = getattr(np, name)(a, b)
            same(getattr(tj, name)(x, y), expected)
            same(getattr(np, name)(x, y), expected)
        for invert in (False, True):
            same(traced(tj.isin, a, b, invert=invert), np.isin(a, b, invert=invert))
            same(np.isin(x, y, invert=invert), np.isin(a, b, invert=invert))
            same(tj.isin(x, y[:0], invert=invert), np.isin(a, b[:0], invert=invert))
    same(tj.isin(3, tj.asarray([1, 3])), np.asarray(True))
    for part, wanted in zip(
        tj.intersect1d(tj.asarray([3, 1, 3]), tj.asarray([3, 2]), return_indices=True),
        np.intersect1d([3, 1, 3], [3, 2], return_indices=True),
        strict=True,
    ):
        same(part, wanted)


def test_shapes_that_depend_on_values_make_a_function_piecewise():
    step = tj.jit(lambda x: tj.unique(x))
    same(step(tj.asarray([3, 1, 3])), np.array([1, 3]))
    assert "runs piecewise" in step.explain()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: tj.sort(x, kind="bubble"), "sort: kind 'bubble' is none of"),
        (lambda x: tj.sort(x, order="name"), "sort: order is for fields"),
        (lambda x: tj.sort(x, axis=2), "sort: axis 2 is out of range"),
        (lambda x: tj.argsort(tj.asarray(1.0)), "argsort: axis -1 is out of range"),
        (lambda x: tj.partition(x, 3), "partition: kth 3 is out of range for an axis with extent 3"),
        (lambda x: tj.top_k(x, 4), "top_k: k 4 is out of range"),
        (lambda x: tj.searchsorted(x, 1), "searchsorted: the sorted array has shape"),
        (lambda x: tj.searchsorted(x[0], 1, side="up"), 'side is "left" or "right"'),
        (lambda x: tj.nonzero(x, size=-1), "nonzero: size -1 is negative"),
        (lambda x: tj.nonzero(tj.asarray(1)), "nonzero: the array has no dimensions"),
        (lambda x: tj.lexsort([]), "lexsort: expected at least one key"),
        (lambda x: tj.lexsort([x, x[0]]), "lexsort: keys of shapes"),
    ],
)
def test_errors(call, message):
    with pytest.raises(tj.TracejitError, match=message) as caught:
        call(tj.ones((2, 3)))
    assert __file__ in str(caught.value)


def test_where_with_one_argument_is_nonzero():
    x = with_ties((4, 5), np.dtype("int64"))
    for function in (tj.where, np.where):
        for part, wanted in zip(function(tj.asarray(x)), np.where(x), strict=True):
            same(part, wanted)
    with pytest.raises(tj.TracejitError, match="where: give both x1 and x2"):
        tj.where(tj.asarray(x), 1)
