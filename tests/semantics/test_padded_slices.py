"""Slices between numbers that the body reads from arrays, whose lengths vary (`arrays.padded_slices`).

Elements are small integers, so that sums are exact in any order, and results are compared bit for bit with
those of NumPy.
"""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest

import tracejit as tj
from tests.thorough import some
from tracejit.errors import OutOfBoundsError, ShapeError


def head(x, n):
    part = x[: int(n)]
    return (part * 2 + 1).sum() + part.max() - part.min(), part.mean(), (part > 3).any()


def between(x, n):
    lo, hi = int(n) // 2, int(n)
    part = x[lo:hi]
    return part.sum(), abs(part).sum() + (part * x[lo:hi]).sum()


def shifted(x, n):
    k = int(n) // 2
    return (x[:k] * x[k : 2 * k]).sum(), x[:k] @ x[k : 2 * k], np.dot(x[:k], x[1 : k + 1])


def taken(x, n):
    order = (x * 3 % 7).astype("int64")[: int(n)]
    return x[order].sum(), (x[order] * x[: int(n)]).sum()


def tail(x, n):
    return x[int(n) :].sum(), (x[int(n) :] > 2).sum()


def rows(x, n):
    table = x.reshape((-1, 4))
    part = table[: int(n) // 4]
    return part.sum(axis=0), (part * table[0]).sum(), part.sum()


def of_row(x, n):
    table, k = x.reshape((4, -1)), int(n) // 4
    return table[1, :k].sum(), (table[int(n) % 4, :k] * table[3, :k]).sum(), table[2, k:].sum()


def returned(x, n):
    part = x[: int(n)] * 2
    return part, part.sum()


def written(x, n):
    y = x * 1
    y[: int(n)] = 5
    part = y[: int(n)]
    part += 1
    before = y[: int(n)]
    y[0] = 100
    return y, part.sum(), before.sum()


def beyond(x, n):
    k = int(n)
    ends = x[-k:].sum(), x[-2 * k : -k].sum(), x[k + 99 :].sum()
    return x[k - 12 : k].sum(), x[: 3 * k].sum(), x[k:5].sum(), *ends


def with_shape(x, n):
    part = x[: int(n)]
    return part.sum() / len(part), part.sum() * part.shape[0]


def assigned(x, n):
    """Values of the same length, whose buckets may be larger than the array, and single ones."""
    y, z, k = x * 1, x * 2, int(n)
    half = k // 2
    y[k:] = np.maximum(y[k:], y[: y.shape[0] - k] + 2)
    y[:k] = 3
    z[half : 2 * half] = z[:half]
    z[half - 4 : half] = x[0]
    z[k + 30 :] = -1
    return y, z, y.sum()


def assigned_rows(x, n):
    table, k = x.reshape((-1, 4)) * 1, int(n) // 4
    table[:k] = table[0] + 1
    table[k:] = x[:4].reshape((1, 4))
    table[2, : k // 2] = 7
    table[:k] = table[:k] * 2
    return table, table.astype("int32")


def assigned_casts(x, n):
    y = (x * 2).astype("int32")
    y[: int(n)] = 2.75
    y[int(n) :] = x[int(n) :] + 0.5
    return y


BODIES = [head, between, shifted, taken, tail, rows, of_row, returned, written, beyond, with_shape]
BODIES += [assigned, assigned_rows, assigned_casts]


def numbers(rng, count):
    return rng.integers(0, 9, count).astype("float64")


def assert_equal(results, expected):
    results, expected = (r if isinstance(r, tuple) else (r,) for r in (results, expected))
    for result, other in zip(results, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(result), np.asarray(other))


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_lengths(body):
    """Each length gives NumPy's results, in first calls and in replays."""
    rng, step = np.random.default_rng(1), tj.jit(body)
    lengths = [7, 3, 12, 1, 16, 31, 40, 2, *rng.integers(2, 41, 12).tolist()]
    for n in [*lengths, *lengths]:
        x = numbers(rng, 40)
        assert_equal(step(tj.asarray(x), tj.asarray(n)), body(x, np.int64(n)))


@pytest.mark.parametrize(
    "body",
    [head, between, shifted, taken, tail, rows, of_row, assigned_casts],
    ids=lambda body: body.__name__,
)
def test_few_paths(body):
    """A path is recorded for each bucket of lengths, not for each length."""
    rng, step = np.random.default_rng(2), tj.jit(body)
    for n in [*range(8, 200, 4), *range(200, 8, -4)]:
        step(tj.asarray(numbers(rng, 200)), tj.asarray(n))
    traces = step.cache_info().traces
    for n in range(8, 200):
        step(tj.asarray(numbers(rng, 200)), tj.asarray(n))
    assert traces <= 16
    assert step.cache_info().traces <= traces + 2


def test_a_constant_length_is_a_gather():
    """Windows of one length at varying places have that shape."""
    step = tj.jit(lambda x, k: x[int(k) : int(k) + 3].reshape((3, 1)) * 2)
    x = np.arange(20.0)
    for k in (4, 2, 9, 17):
        assert_equal(step(tj.asarray(x), tj.asarray(k)), x[k : k + 3].reshape((3, 1)) * 2)
    assert step.cache_info().traces == 1


def test_nothing_has_no_maximum():
    step = tj.jit(lambda x, n: x[: int(n)].max())
    x = tj.ones(10)
    for n in (3, 4, 5):
        assert float(step(x, tj.asarray(n))) == 1
    with pytest.raises(ShapeError, match="max of nothing"):
        step(x, tj.asarray(0))
    assert float(step(x, tj.asarray(7))) == 1


@pytest.mark.parametrize("dtype", ["int32", "uint8", "float32", "bool", "complex64"])
def test_dtypes(dtype):
    def body(x, n):
        return x[: int(n)].sum(), x[: int(n)] @ x[: int(n)]

    rng, step = np.random.default_rng(3), tj.jit(body)
    for n in (3, 9, 4, 20, 0, 1):
        x = rng.integers(0, 3, 24).astype(dtype)
        results, expected = step(tj.asarray(x), tj.asarray(n)), body(x, n)
        for result, other in zip(results, expected, strict=True):
            assert result.dtype == tj.asarray(other).dtype
            np.testing.assert_array_equal(result.numpy(), other)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_products_of_half_numbers(dtype):
    """They are summed in float32, as in all products."""
    step, x = tj.jit(lambda x, m, n: (x[m] @ x[m], x[: int(n)] @ x[: int(n)])), tj.full(600, 1.09375, dtype)
    for n in (500, 300, 70, 600):
        for result in step(x, tj.arange(600) < n, tj.asarray(n)):
            assert result.dtype == x.dtype
            assert abs(float(result) / (n * 1.09375**2) - 1) < 0.004


def test_a_slice_is_a_view():
    """A slice that is returned or written is a view of the array, as in NumPy."""
    whole = tj.jit(lambda x, n: x[: int(n)])

    @tj.jit
    def changed(x, n):
        part = x[: int(n)]
        part *= 2
        x[1] = 7
        return part.sum()

    for n in (3, 5, 2, 9, 3, 1):
        x = tj.zeros(20)
        whole(x, tj.asarray(n))[0] = 100
        assert float(x[0]) == 100
        x, expected = tj.ones(20), np.ones(20)
        expected[:n], expected[1] = 2, 7
        assert float(changed(x, tj.asarray(n))) == expected[:n].sum()
        np.testing.assert_array_equal(x.numpy(), expected)


def test_gradients_of_assignments():
    """What an assignment replaces has no gradient, and what it stores has that of its place."""

    def loss(x, v, n):
        y = x * 2
        y[: int(n)] = v[: int(n)] * 3
        return (y * y).sum()

    step = tj.jit(tj.grad(loss, argnums=(0, 1)))
    for n in (2, 5, 3, 4, 0, 6):
        x, v, inside = np.arange(1.0, 7), np.arange(2.0, 8), np.arange(6) < n
        of_x, of_v = step(tj.asarray(x), tj.asarray(v), tj.asarray(n))
        np.testing.assert_array_equal(of_x.numpy(), np.where(inside, 0, 8 * x))
        np.testing.assert_array_equal(of_v.numpy(), np.where(inside, 18 * v, 0))


def test_an_assignment_of_another_length():
    """It raises as in NumPy, and changes nothing."""

    @tj.jit
    def step(x, y, n):
        x[: int(n)] = y[: int(n) + 1]

    x, y = tj.zeros(20), tj.ones(20)
    for n in (3, 4, 5, 9):
        with pytest.raises(ShapeError):
            step(x, y, tj.asarray(n))
    assert not x.numpy().any()


def test_gradients():
    """Elements outside of the slice have no gradient, although they are computed with."""
    step = tj.jit(tj.grad(lambda x, n: (1 / x[: int(n)]).sum()))
    for n in (2, 5, 3, 4):
        x = np.array([1.0, 2.0, 4.0, 0.5, 0.25, 0.0, 0.0, 0.0, 0.0, 0.0])
        expected = np.where(np.arange(10) < n, -1 / np.where(x == 0, 1, x) ** 2, 0)
        np.testing.assert_array_equal(step(tj.asarray(x), tj.asarray(n)).numpy(), expected)


# -- loops over looks ----------------------------------------------------------------------------------------


def segments(first, x):
    out = np.zeros(first.size - 1)
    for k in range(first.size - 1):
        out[k] = x[first[k] : first[k + 1]].sum()
    return out


def product(first, x):
    """A sparse matrix times a vector, with columns derived from the elements."""
    columns = (x * 5 % 11).astype("int64")
    out = np.zeros(first.size - 1)
    for k in range(first.size - 1):
        part = columns[first[k] : first[k + 1]]
        values = x[first[k] : first[k + 1]]
        out[k] = values @ x[part]
    return out


def until(first, x):
    total = 0.0
    for k in range(first.size - 1):
        total += float(x[first[k] : first[k + 1]].sum())
        if total > 60:
            break
    return total, k


def carried(first, x):
    """The results of an iteration are the next one's operands; a large array is replaced as a whole."""
    state, seen = x * 0, np.zeros(3)
    for k in range(first.size - 1):
        part = x[first[k] : first[k + 1]]
        state = state + part.sum()
        seen = seen[::-1] + part.sum() * np.arange(3)
    return state, seen


def two_writes(first, x):
    out, last = np.zeros(first.size), np.zeros(first.size)
    for k in range(first.size - 1):
        out[k] = x[first[k] : first[k + 1]].sum()
        last[k] = x[first[k] : first[k + 1]].sum() - out[k]
        out[k + 1] = last[k]
    return out, last


def knapsack(first, x):
    """Items whose weights are the lengths of the segments."""
    best = np.zeros(60)
    for k in range(first.size - 1):
        weight = int(first[k + 1] - first[k]) + 1
        best[weight:] = np.maximum(best[weight:], best[: 60 - weight] + x[k])
    return best


def repeated(first, x):
    """Each segment contains its number."""
    out = x * 0
    for k in range(first.size - 1):
        out[first[k] : first[k + 1]] = k
    return out


LOOPS = [segments, product, until, carried, two_writes, knapsack, repeated]


def bounds(rng, count, longest):
    return np.concatenate([[0], np.cumsum(rng.integers(0, longest + 1, count))])


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("body", LOOPS, ids=lambda body: body.__name__)
def test_loops(body, large):
    rng, step = np.random.default_rng(4), tj.jit(body)
    count, size = (1500, 6000) if large else (40, 200)
    for _ in range(6):
        first, x = bounds(rng, count, 4), numbers(rng, size)
        assert_equal(step(tj.asarray(first), tj.asarray(x)), body(first, x))


def test_longer_segments_later():
    """A bucket grows in a call, and in a later one."""
    rng, step = np.random.default_rng(5), tj.jit(segments)
    for longest in (3, 3, 12, 12, 50, 3, 150, 150, 3):
        first = np.minimum(bounds(rng, 40, longest), 2000)
        x = numbers(rng, 2000)
        assert_equal(step(tj.asarray(first), tj.asarray(x)), segments(first, x))


def test_iterations_are_one_launch():
    rng, step = np.random.default_rng(6), tj.jit(product)
    for _ in range(3):
        step(tj.asarray(bounds(rng, 300, 5)), tj.asarray(numbers(rng, 1500)))
    assert "one launch" in step.explain(), step.explain()
    assert step.cache_info().traces == 1


def performed(step, *arguments):
    step(*arguments)
    tj.wait_all()


def test_an_index_out_of_range():
    """An error names the line, and nothing is changed."""

    @tj.jit
    def step(first, places, x, out):
        for k in range(first.size - 1):
            out[k] = x[places[first[k] : first[k + 1]]].sum()

    rng = np.random.default_rng(7)
    x = numbers(rng, 30)
    for bad in (False, False, True, False):
        first, places = bounds(rng, 50, 4), rng.integers(0, 30, 220)
        places[100] = 30 if bad else 3
        first[-1] = max(first[-1], 120)
        out = tj.zeros(50)
        arguments = *map(tj.asarray, (first, places, x)), out
        if bad:
            with pytest.raises(OutOfBoundsError, match="test_padded_slices"):
                performed(step, *arguments)
            continue
        step(*arguments)
        expected = [x[places[a:b]].sum() for a, b in itertools.pairwise(first)]
        np.testing.assert_array_equal(out.numpy(), np.float32(expected))


def test_a_mask_without_elements():
    """NumPy lets a mask of extent 0 index any extent; `x[:0] > 0` is one."""

    def body(x, table, mask):
        x, table = x * 1, table * 1
        x[mask] = 5
        table[mask] = table[mask] + 1
        return x[mask], x, table[mask], table[:, mask], table[mask].sum(axis=0), table

    arrays = np.arange(12.0), np.arange(12.0).reshape(3, 4), np.zeros(0, dtype=bool)
    step, given = tj.jit(body), tuple(map(tj.asarray, arrays))
    for function in (body, step, step):
        assert_equal(function(*given), body(*arrays))
    with pytest.raises(OutOfBoundsError, match="a mask of shape"):
        step(*given[:2], tj.asarray([True]))


OUT_OF_MEMORY = """
import numpy as np
import tracejit as tj

def sums(x, first):
    y = x[:24] * 0
    for k in range(24):
        y[k] = x[first[k] : first[k + 1]].sum()
    return y

traced, rng = tj.jit(sums), np.random.default_rng(0)
x = rng.integers(0, 9, 100) / 2
for call in range(12):
    first = np.minimum(np.cumsum(rng.integers(0, 6, 25)), 90)
    if call >= 6:
        first[call] = START
    assert np.array_equal(traced(tj.asarray(x), tj.asarray(first)).numpy(), sums(x.copy(), first)), call
assert traced.cache_info().replays >= 6
assert "one launch" in traced.explain()
"""


@pytest.mark.parametrize("start", some([-(10**13), 10**13, -(2**63), 2**63 - 1], 2))
def test_a_start_far_outside_of_the_array_in_a_native_loop(start):
    """The iteration whose check fails has read there, and the process crashed."""
    program = OUT_OF_MEMORY.replace("START", str(start))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
