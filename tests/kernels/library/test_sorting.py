"""The kernels that sort and search against NumPy."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.native import address, block_of, random_ranges, run
from tracejit.kernels.library.blocks import Lines, Pairs, Search
from tracejit.kernels.library.plan import CHUNK_WORK, ORDERED, SORTED_BYTES, pairs_call, routine_call
from tracejit.kernels.library.sorting import RUN
from tracejit.kernels.library.table import INTEGERS

LENGTHS = st.one_of(st.integers(0, 5 * RUN), st.integers(0, 700))
SEEDS = st.integers(0, 2**32 - 1)


def elements(rng, shape, dtype):
    """Random elements, often equal ones; nan, infinities and zeros of both signs if the dtype has them."""
    dtype = np.dtype(dtype)
    few = rng.integers(0, max(2, rng.integers(2, 300)), shape)
    if dtype.kind not in "fc":
        return few.astype(dtype) if dtype.kind == "b" or rng.random() < 0.5 else (few * 37 - 99).astype(dtype)

    def parts():
        special = rng.choice([np.nan, np.inf, -np.inf, -0.0, 0.0], shape)
        return np.where(rng.random(shape) < 0.2, special, few - 7.5)

    if dtype.kind == "f":
        return parts().astype(dtype)
    x = np.empty(shape, dtype)
    x.real, x.imag = parts(), parts()
    return x


def kernel_result(name, x, axis, out, rng):
    call = routine_call(name, [x.shape, out.shape], {"axis": axis}, str(x.dtype))
    slots = dict(zip(list(Lines)[:4], call.words, strict=True))
    block = block_of(Lines, {**slots, Lines.X: x.ctypes.data, Lines.OUT: out.ctypes.data})
    run(address(name, str(x.dtype)), block, random_ranges(rng, call.units), 2, room=call.scratch)
    return out


@pytest.mark.parametrize("dtype", sorted(ORDERED))
@settings(max_examples=12, deadline=None)
@given(outer=st.integers(0, 3), count=LENGTHS, inner=st.integers(1, 3), seed=SEEDS)
def test_lines(dtype, outer, count, inner, seed):
    rng = np.random.default_rng(seed)
    x = elements(rng, (outer, count, inner), dtype)
    if rng.random() < 0.3:
        x = np.sort(x, 1)  # runs in order are copied
    ordered = kernel_result("sort", x, 1, np.empty_like(x), rng)
    np.testing.assert_array_equal(ordered, np.sort(x, 1))
    order = kernel_result("argsort", x, 1, np.empty(x.shape, np.int64), rng)
    np.testing.assert_array_equal(order, np.argsort(x, 1, kind="stable"))


@pytest.mark.parametrize("dtype", sorted(ORDERED))
@settings(max_examples=12, deadline=None)
@given(batch=st.integers(1, 3), count=LENGTHS, each=st.integers(1, 30), seed=SEEDS)
def test_positions_of_values(dtype, batch, count, each, seed):
    rng = np.random.default_rng(seed)
    x, values = np.sort(elements(rng, (batch, count), dtype)), elements(rng, (batch, each), dtype)
    for side in ("left", "right"):
        out = np.full(values.shape, -1)
        shapes = [x.shape, values.shape, out.shape]
        call = routine_call("search_sorted", shapes, {"side": side}, dtype)
        slots = dict(zip(list(Search)[:4], call.words, strict=True))
        addresses = {Search.X: x.ctypes.data, Search.VALUES: values.ctypes.data, Search.OUT: out.ctypes.data}
        block = block_of(Search, slots | addresses)
        run(address("search_sorted", dtype), block, random_ranges(rng, call.units), 2)
        for row, sought, found in zip(x, values, out, strict=True):
            np.testing.assert_array_equal(found, np.searchsorted(row, sought, side))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_common_divisors_also_of_extreme_numbers(dtype):
    """The remainder of the smallest integer and -1 is a trap of the processor."""
    bounds = np.iinfo(dtype)
    some = np.array([*range(13), bounds.max, bounds.max - 1], dtype)
    numbers = np.concatenate([some, np.array([bounds.min], dtype), np.negative(some)])
    a, b = (np.ascontiguousarray(x.ravel()) for x in np.meshgrid(numbers, numbers))
    out = np.zeros_like(a)
    call = pairs_call("gcd", [a.shape, b.shape, out.shape], {}, dtype)
    addresses = {Pairs.FIRST: a.ctypes.data, Pairs.SECOND: b.ctypes.data, Pairs.OUT: out.ctypes.data}
    block = block_of(Pairs, {Pairs.COUNT: call.words[0], **addresses})
    run(address("gcd", dtype), block, random_ranges(np.random.default_rng(0), call.units), 2)
    np.testing.assert_array_equal(out, np.gcd(a, b))


@pytest.mark.parametrize("count", [0, 1, 2, 100, 5_000, 1 << 20])
@pytest.mark.parametrize("name", ["sort", "argsort"])
def test_long_lines_and_many_are_left_to_numpy(name, count):
    for n_lines in (1, 2, 1000):
        call = routine_call(name, [(n_lines, count)], {"axis": 1}, "float32")
        if call is None:
            assert n_lines * count >= 2_000
            continue
        assert call.units == (n_lines if count else 0)
        assert call.scratch <= SORTED_BYTES
        assert call.chunk == 1 or call.chunk * count * math.log2(max(count, 2)) <= CHUNK_WORK
