"""`scan`, `fori_loop`, `while_loop`, `cond`, `switch` against the same in NumPy: eager, traced, gradients."""

from typing import Any, NamedTuple

import numpy as np
import pytest

import tracejit as tj
from tracejit.errors import ArgumentError, DTypeError, ShapeError

RNG = np.random.default_rng(0)
W = RNG.normal(size=(3, 3))
H = RNG.normal(size=(2, 3))
X = RNG.normal(size=(20, 2, 3))


def calls(function):
    """The function itself, and twice a traced one: recorded and replayed."""
    traced = tj.jit(function, strict=True)
    return function, traced, traced


def recurrent(w, h, xs, reverse=False):
    """The last state, and of each round the state's sums."""

    def cell(carry, x):
        h = tj.tanh(carry["h"] @ w + x)
        return {"h": h, "rounds": carry["rounds"] + 1}, h.sum(1)

    return tj.scan(cell, {"h": h, "rounds": 0}, xs, reverse=reverse)


def known_recurrent(reverse):
    h, sums = H, {}
    for i in range(20)[:: -1 if reverse else 1]:
        h = np.tanh(h @ W + X[i])
        sums[i] = h.sum(1)
    return h, np.stack([sums[i] for i in range(20)])


@pytest.mark.parametrize("reverse", [False, True])
def test_scan(reverse):
    last, sums = known_recurrent(reverse)
    for call in calls(lambda w, h, xs: recurrent(w, h, xs, reverse)):
        carry, ys = call(*map(tj.asarray, (W, H, X)))
        np.testing.assert_allclose(carry["h"], last, rtol=1e-12)
        np.testing.assert_allclose(ys, sums, rtol=1e-12)
        assert int(carry["rounds"]) == 20


def test_scan_without_arrays_to_loop_over():
    for call in calls(lambda x: tj.scan(lambda x, _: (x * 2, {"x": x, "none": None}), x, length=5)):
        carry, ys = call(tj.ones(2))
        assert carry.tolist() == [32.0, 32.0]
        np.testing.assert_array_equal(ys["x"][:, 0], [1, 2, 4, 8, 16])
        assert ys["none"] is None


def test_the_gradient_of_a_scan():
    def loss(w, h, xs):
        carry, ys = recurrent(w, h, xs)
        return (carry["h"] ** 2).sum() + (ys * ys).sum()

    def known(w):
        return float(loss(*map(tj.asarray, (w, H, X))))

    for call in calls(tj.grad(loss)):
        gradient = call(*map(tj.asarray, (W, H, X)))
        for place in ((0, 0), (1, 2)):
            step = np.zeros((3, 3))
            step[place] = 1e-5
            expected = (known(W + step) - known(W - step)) / 2e-5
            np.testing.assert_allclose(float(gradient[place]), expected, rtol=1e-6)


@pytest.mark.parametrize("count", [0, 1, 2, 40])
def test_fori_loop(count):
    known = np.ones(2)
    for i in range(3, 3 + count):
        known = known * 0.5 + i
    for call in calls(lambda x, n: tj.fori_loop(3, 3 + n, lambda i, x: x * 0.5 + i, x)):
        np.testing.assert_allclose(call(tj.ones(2, dtype="float64"), count), known, rtol=1e-12)


def test_while_loop_of_any_number_of_rounds_is_one_trace():
    def power(x, limit):
        def below(carry):
            return carry[0].sum() < limit

        return tj.while_loop(below, lambda carry: (carry[0] * 2, carry[1] + 1), (x, 0))

    traced = tj.jit(power, strict=True)
    for limit in (10.0, 1000.0, 1.0, 1e5, 50.0, 4.0):
        for call in (power, traced):
            x, count = call(tj.ones(2), limit)
            expected = 0
            while 2 * 2**expected < limit:
                expected += 1
            assert (x.tolist(), int(count)) == ([2.0**expected] * 2, expected)
    assert traced.cache_info().traces <= 2  # no round is a path of its own


def test_a_while_loop_has_a_gradient():
    def root(a):  # Newton's iteration
        def far(x):
            return abs(x * x - a) > 1e-12

        return tj.while_loop(far, lambda x: (x + a / x) / 2, a)

    a = tj.asarray(2.0, dtype="float64")
    np.testing.assert_allclose(float(root(a)), np.sqrt(2), rtol=1e-12)
    np.testing.assert_allclose(float(tj.grad(root)(a)), 0.5 / np.sqrt(2), rtol=1e-6)


def test_cond_and_switch():
    def clipped(x, place):
        x = tj.cond(tj.linalg.norm(x) > 1, lambda x: x / tj.linalg.norm(x), lambda x: x, x)
        return tj.switch(place, [lambda x: x, tj.sin, tj.cos], x)

    traced = tj.jit(clipped, strict=True)
    for scale in (0.1, 2.0, 0.1, 3.0):
        for place, function in ((0, np.positive), (1, np.sin), (2, np.cos), (9, np.cos), (-4, np.positive)):
            x = np.array([3.0, 4.0]) * scale / 5
            known = function(x / max(1, np.linalg.norm(x)))
            for call in (clipped, traced):
                np.testing.assert_allclose(call(tj.asarray(x), tj.asarray(place)), known, rtol=1e-12)
    assert traced.cache_info().traces <= 10
    assert traced.cache_info().replays >= 10
    assert tj.cond(True, lambda: 1, lambda: 2) == 1


def test_bodies_may_write_in_place():
    def count(x):
        def add(i, carry):
            x[i] += i
            return carry

        tj.fori_loop(0, 3, add, 0)

    for call in calls(count):
        x = tj.zeros(3)
        call(x)
        assert x.tolist() == [0.0, 1.0, 2.0]


def x():
    return tj.ones((2, 3))


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: tj.scan(3, x(), x()), ArgumentError, "scan: expected a function, got int"),
        (lambda: tj.scan(lambda c, a: c, x(), x()), ArgumentError, r"\(carry, y\), got float32\[2, 3\]"),
        (lambda: tj.scan(lambda c, a: (c, a), 0.0), ArgumentError, "the number of iterations"),
        (lambda: tj.scan(lambda c, a: (c, a), 0.0, x(), length=3), ShapeError, "xs 2, length 3"),
        (lambda: tj.scan(lambda c, a: (c, a), 0.0, [x(), tj.ones(3)]), ShapeError, r"xs\[0\] 2, xs\[1\] 3"),
        (lambda: tj.scan(lambda c, a: (c, a), 0.0, tj.ones(())), ArgumentError, "xs must be an array with a"),
        (lambda: tj.scan(lambda c, a: (c, a), 0.0, tj.ones(0)), ArgumentError, "0 iterations"),
        (lambda: tj.scan(lambda c, a: ((c, c), a), 0.0, x()), ArgumentError, "its structure must stay"),
        (lambda: tj.scan(lambda c, a: (a, None), 0.0, x()), ShapeError, r"the shape \(\), and then \(3,\)"),
        (lambda: tj.fori_loop(0, 2, lambda i, c: c + 0.5, 0), DTypeError, "int64, and then float64"),
        (lambda: tj.fori_loop(0, 2.5, lambda i, c: c, 0), ArgumentError, "fori_loop: upper"),
        (lambda: tj.while_loop(lambda c: c > 0, lambda c: c, x()), ShapeError, "must have one element"),
        (lambda: tj.while_loop(lambda c: [c], lambda c: c, 1), ArgumentError, "must be a bool"),
        (lambda: tj.cond("yes", lambda: 1, lambda: 2), ArgumentError, "cond: pred must be a bool"),
        (lambda: tj.cond(x(), lambda: 1, lambda: 2), ShapeError, "must have one element"),
        (lambda: tj.switch(0.5, [lambda: 1]), ArgumentError, "switch: index"),
        (lambda: tj.switch(0, []), ArgumentError, "no branch"),
    ],
)
def test_mistakes(call, kind, message):
    with pytest.raises(kind, match=f"(?s){message}.*test_control.py"):
        call()


class Named(NamedTuple):
    x: Any
    count: Any


def scans(w, h, xs):
    """A scan of scans, with random numbers, over a named tuple."""

    def row(carry, x):
        def element(h, x):
            h = tj.sin(h * w[0, 0] + x)
            return h, {"half": h * 0.5, "none": None}

        h, ys = tj.scan(element, carry.x, x)
        return Named(h * 0.5 + tj.random.uniform(shape=3), carry.count + 1), (ys, carry.count)

    return tj.scan(row, Named(h[0], 0), xs)


def test_a_scan_is_recorded_a_few_times_and_equals_the_loop_of_all_rounds():
    arrays = [tj.asarray(a, dtype="float32") for a in (W, H, X.reshape(8, 5, 3))]
    found, counters = [], []
    traced = tj.jit(scans, strict=True)
    for call in (scans, traced, traced):
        tj.random.seed(3)
        found.append(tj.tree.leaves(call(*arrays)))
        counters.append(tj.random.stream().counter)
    for one, *others in zip(*found, strict=True):
        for other in others:
            np.testing.assert_array_equal(one, other)
    assert len(set(counters)) == 1
    assert "loop [" in traced.explain()
    assert "not rolled" not in traced.explain()
    few, many = (len(traced.graph(*arrays[:2], tj.zeros((count, 5, 3))).nodes) for count in (6, 600))
    assert few == many


def test_the_gradient_of_a_rolled_scan():
    def loss(w, h, xs):
        carry, ys = recurrent(w, h, xs, reverse=True)
        return (carry["h"] ** 2).sum() + (ys * ys).sum()

    arrays = [tj.asarray(a) for a in (W, H, X)]
    traced = tj.jit(tj.grad(loss, argnums=(0, 1, 2)))
    for one, other in zip(traced(*arrays), tj.grad(loss, argnums=(0, 1, 2))(*arrays), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)
    assert "loop [" in traced.explain()
    few, many = (len(traced.graph(W, H, np.zeros((count, 2, 3))).nodes) for count in (6, 600))
    assert few == many


def test_a_scan_without_ys_has_a_run_time_number_of_rounds():
    def decay(x, n):
        return tj.scan(lambda x, _: (x * 0.5 + 1, None), x, length=n)[0]

    traced = tj.jit(decay)
    for n in (9, 30, 6):
        np.testing.assert_array_equal(traced(tj.zeros(2), n), decay(tj.zeros(2), n))
    assert traced.cache_info().traces == 1
    with pytest.raises(ArgumentError, match="0 iterations"):
        traced(tj.zeros(2), 0)


def test_ys_of_different_types_are_stacked_as_ever():
    def widens(x):
        kinds = ["float32"] * 3 + ["float64"] * 9
        return tj.scan(lambda x, _: (x + 1, x.astype(kinds.pop())), x, length=8)[1]

    def known(x):
        return tj.scan(lambda x, _: (x + 1, x), x, length=8)[1]

    for call in calls(lambda x: (widens(x), known(x))):
        wide, plain = call(tj.zeros(2))
        assert wide.dtype == tj.float64
        np.testing.assert_array_equal(wide, plain)
