"""Elements picked by numbers that a body has found in arrays, or counts its rounds with: one path serves all
places, and what NumPy's views would show is shown.
"""

import math
import types

import numpy as np
import pytest

import tracejit as tj
from tests.semantics.test_tree import bits
from tests.semantics.test_ways import outcomes

CALLS = 30


def calls_of(seed, rows=12, columns=3):
    """Arguments of some calls: a matrix, a vector, chances; sums and products of few of them are exact."""
    rng = np.random.default_rng(seed)
    return [
        (
            tj.asarray(rng.integers(-8, 9, (rows, columns)) / 8),
            tj.asarray(rng.integers(-8, 9, columns) / 8),
            tj.asarray(rng.permutation(rows) / rows),
        )
        for _ in range(CALLS)
    ]


def hill_climb(noise, x, chances):
    best, accepted = (x * x).sum(), 0
    for k in range(noise.shape[0]):
        y = x + 0.25 * noise[k]
        new = (y * y).sum()
        if float(new) < float(best):
            x, best = y, new
            accepted += 1
    return x, best, accepted


def metropolis(noise, x, chances):
    energy, temperature = float((x * x).sum()), 2.0
    for k in range(len(noise)):
        y = x + noise[k]
        new = float((y * y).sum())
        if float(chances[k]) < math.exp(min(0.0, (energy - new) / temperature)):
            x, energy = y, new
        temperature *= 0.9
    return x, energy


def perceptron(rows, w, chances):
    wrong = 0
    for i in range(rows.shape[0]):
        if float(rows[i] @ w) <= 0.0:
            w = w + rows[i]
            wrong += 1
    return w, wrong


def columns_and_none(rows, w, chances):
    k = 0
    while k < 3:
        if float(rows[:, k].sum()) > float(rows[k, None, :].sum()) + float(rows[k, k]):
            w = w + rows[::2, k].max()
        k += 1
    return w


def from_the_end(rows, w, chances):
    k = -1
    while k > -9:
        if float(rows[k].sum()) > 0.0:
            w = w - rows[k]
        k -= 1
    return w


def by_value(rows, w, chances):
    k = int(chances.argmax())
    return w + rows[k] * chances[k] + rows[k, 1]


def by_computed_value(rows, w, chances):
    k = int(chances.argmin())
    return w + rows[(k + 1) % 12] - rows[k // 2]


def histogram(rows, w, chances):
    counts = tj.zeros(4)
    for k in range(12):
        if float(chances[k]) > 0.5:
            counts[int(chances[k] * 4.0)] += 1.0
    return counts


def stores(rows, w, chances):
    seen = tj.zeros(12)
    for k in range(12):
        s = rows[k].sum()
        seen[k] = s
        if float(s) > 1.0:
            rows[k] = w
            rows[k, 0] = 5.0
    return seen


def running_best(rows, w, chances):
    best, place = -1e9, -1
    for k in range(rows.shape[0]):
        v = float(rows[k] @ w)
        if v > best:
            best, place = v, k
    return best, place


def pulls(rows, w, chances):
    """Rows are updated in place after an inner loop with looks."""
    speed = rows * 0.5
    for i in range(6):
        force = w * 0
        for j in range(6):
            d = rows[j] - rows[i]
            if d[0] * d[0] > 0.25:
                force += d
        speed[i] += force * 0.125
        speed[i, 1] -= 0.5
        rows[i, :2] *= 0.5
    return speed


def scales_with_integers(rows, w, chances):
    """The result has another dtype than the row."""
    counts = tj.zeros((12, 3), dtype="int64")
    for k in range(12):
        if float(chances[k]) > 0.5:
            counts[k] += k
            counts[k] *= 2
    return counts


BODIES = [
    pulls, scales_with_integers, hill_climb, metropolis, perceptron, columns_and_none, from_the_end, by_value,
    by_computed_value, histogram, stores, running_best,
]  # fmt: skip


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_what_the_body_does_is_done(body):
    f = tj.jit(body)
    for seed in range(3):
        assert outcomes(body, calls_of(seed)) == outcomes(f, calls_of(seed))
    assert f.cache_info().traces <= 12, f.explain()


# -- views ---------------------------------------------------------------------------------------------------


def writes_to_a_row(x, scores):
    row = x[int(scores.argmax())]
    row += 1.0
    return x.sum()


def adds_to_rows(x, scores):
    for k in range(4):
        if float(scores[k]) > 0.5:
            x[k] += 1.0
    return x * 2.0


def adds_to_a_named_row(x, scores):
    for k in range(4):
        if float(scores[k]) > 0.5:
            row = x[k]
            row += 1.0
    return x * 2.0


def adds_to_a_row_in_a_list(x, scores):
    rows = [x[int(scores.argmax())], x[int(scores.argmin())]]
    rows[0] += 1.0
    rows[1] *= 2.0
    return x * 2.0


def adds_to_a_row_in_an_object(x, scores):
    holder = types.SimpleNamespace(row=x[int(scores.argmax())])
    holder.row -= 1.0
    return x * 2.0


def adds_to_a_row_that_a_function_returns(x, scores):
    row = x[int(scores.argmax())]
    rows = Rows(row)
    rows[0] += 1.0
    return x * 2.0


class Rows:
    """Returns the same array each time."""

    def __init__(self, row):
        self.row = row

    def __getitem__(self, index):
        return self.row

    def __setitem__(self, index, value):
        pass


def sees_later_writes(x, scores):
    row = x[int(scores.argmax())]
    x *= 2.0
    return row + 0.0


def sees_later_writes_in_a_round(x, scores):
    row = x[0]
    for k in range(4):
        if float(scores[k]) > 0.5:
            row = x[k]
        else:
            x += 1.0
    return row * 1.0


def sees_later_writes_through_two_picks(x, scores):
    cube = x.reshape(2, 2, 3)
    part = cube[int(scores.argmax()) % 2][int(scores.argmin()) % 2]
    x *= 2.0
    return part + 0.0


def returns_a_row(x, scores):
    return x[int(scores.argmax())]


def keeps_a_row(x, scores):
    return {"row": x[int(scores.argmax()), 1:], "sum": x.sum()}


def of_its_own_array(x, scores):
    y = x * 2.0
    return y[int(scores.argmax())], y


VIEWS = [
    writes_to_a_row, adds_to_rows, adds_to_a_named_row, adds_to_a_row_in_a_list, adds_to_a_row_in_an_object,
    adds_to_a_row_that_a_function_returns, sees_later_writes, sees_later_writes_in_a_round, returns_a_row,
    keeps_a_row, of_its_own_array, sees_later_writes_through_two_picks,
]  # fmt: skip


@pytest.mark.parametrize("body", VIEWS, ids=lambda body: body.__name__)
def test_views_stay_views(body):
    f = tj.jit(body)
    for seed in range(12):
        found = []
        for function in (body, f):
            rng = np.random.default_rng(seed)
            x, scores = tj.asarray(rng.standard_normal((4, 3))), tj.asarray(rng.random(4))
            result = function(x, scores)
            told = bits(result), bits(x)
            for leaf in tj.tree.leaves(result):  # does the caller see them as parts of the argument?
                leaf += 1.0
            found.append((told, bits(result), bits(x)))
        assert found[0] == found[1], seed


# -- numbers among the arguments -----------------------------------------------------------------------------


def row(x, i):
    return x[i] * 2.0


def batch(x, i, n=3):
    return x[i * n : (i + 1) * n].sum(0)


def block(x, i):
    return x[i : i + 3, i % 2 : i % 2 + 2] * x[i, 1] + x[i % 4, None, :2]


def from_there_on(x, i):
    return x[i:, 1].sum() + x[: i + 1, 0].sum()


def steps_backwards(x, i):
    return x[i::-1].sum(0) - x[-i - 1]


def writes_there(x, i):
    x[i] = x[i] + 1.0
    x[i, 0] *= 2.0
    return x.sum()


def slope(x, i):
    return tj.grad(lambda w: ((x[i : i + 2] * w).sum() * w[i % 4]) ** 2)(x[0])


def is_a_view(x, i):
    return x[i : i + 2]


@pytest.mark.parametrize(
    ("body", "traces"),
    [
        (row, 2), (batch, 2), (block, 2), (from_there_on, 6), (steps_backwards, 6), (writes_there, 2),
        (slope, 2), (is_a_view, 6),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
def test_numbers_among_arguments_pick_once_they_have_varied(body, traces):
    f = tj.jit(body)
    for i in (0, 1, 2, 3, 4, 5, 1, 0, 5):
        found = []
        for function in (body, f):
            x = tj.arange(72.0).reshape(18, 4)
            result = function(x, i)
            told = bits(result), bits(x)
            result += 1.0
            found.append((told, bits(x)))
        assert found[0] == found[1], i
    assert f.cache_info().traces <= traces, f.explain()


def test_a_number_that_stays_is_guarded():
    f = tj.jit(row)
    for n in (3, 4, 5):
        f(tj.ones((n, 2)), 1)
    assert "i: 1" in f.explain().splitlines()[1]


def test_slices_that_leave_the_array_are_those_of_python():
    f = tj.jit(batch)
    for i in (0, 1, 2, 4, 5, 9, -1, -3, 3):
        x = tj.arange(56.0).reshape(14, 4)
        assert bits(f(x, i)) == bits(batch(x, i)), i


# -- errors --------------------------------------------------------------------------------------------------


def test_places_out_of_range_raise_and_change_nothing():
    @tj.jit
    def pick(x, place):
        x += 1.0
        return x[int(place.sum())] * 2.0

    x = tj.zeros((4, 3))
    for place in (1, 3, -4):
        assert pick(x, tj.asarray([place])).shape == (3,)
    traces = pick.cache_info().traces
    for place in (4, -5, 1 << 40):
        before = x.tolist()
        with pytest.raises(tj.errors.OutOfBoundsError, match="axis 0 with extent 4"):
            pick(x, tj.asarray([place])).numpy()
        assert x.tolist() == before
    assert pick(x, tj.asarray([2])).tolist() == [8.0] * 3
    assert traces == 1


def test_gradients_follow_what_is_picked():
    def loss(w, x, scores):
        k = int(scores.argmax())
        return (w * x[k]).sum() + w[k % 3] ** 2

    @tj.jit
    def step(w, x, scores):
        return tj.grad(loss)(w, x, scores)

    for seed in range(8):
        rng = np.random.default_rng(seed)
        w, x, scores = (tj.asarray(rng.standard_normal(s)) for s in (3, (4, 3), 4))
        np.testing.assert_allclose(
            step(w, x, scores).numpy(), tj.grad(loss)(w, x, scores).numpy(), rtol=1e-12
        )


def eliminated(a, b):
    """Gaussian elimination with pivots."""
    a, b, n = a.copy(), b.copy(), len(b)
    for k in range(n):
        p = k + np.argmax(np.abs(a[k:, k]))
        a[[k, p]] = a[[p, k]]
        b[[k, p]] = b[[p, k]]
        for i in range(k + 1, n):
            f = a[i, k] / a[k, k]
            a[i] -= f * a[k]
            b[i] -= f * b[k]
    x = np.zeros(n)
    for i in range(n - 1, -1, -1):
        x[i] = (b[i] - a[i, i + 1 :] @ x[i + 1 :]) / a[i, i]
    return x


def test_lists_of_computed_indices():
    f, rng = tj.jit(eliminated, strict=True), np.random.default_rng(7)
    for _ in range(5):
        a, b = rng.standard_normal((8, 8)), rng.standard_normal(8)
        np.testing.assert_allclose(f(a, b), np.linalg.solve(a, b), rtol=1e-8)
    assert f.cache_info()[:2] == (1, 4)


def listed(x, i, k):
    return (
        x[[0, i, k.argmax()]],
        x[[k.argmin(), -1]],
        x[1:, [k.argmax(), 0]],
        x[[i, True]],
        x[[[i, 0], [1, 1]]],
    )


def test_lists_of_numbers_and_elements_index_as_in_numpy():
    f, rng = tj.jit(listed), np.random.default_rng(8)
    for i in (1, 2, -1, 1):
        x, k = rng.standard_normal((3, 3)), rng.standard_normal(3)
        for function in (f, listed):
            for got, expected in zip(function(tj.asarray(x), i, tj.asarray(k)), listed(x, i, k), strict=True):
                np.testing.assert_array_equal(got, expected)
    with pytest.raises(IndexError, match="index 3 is out of bounds"):
        tj.jit(lambda x, k: x[[0, k.argmax() + 1]])(tj.asarray(x), tj.asarray([0.0, 1, 2])).wait()


def beside(x, w, k, rows):
    """Numbers that were looked at, beside arrays of integers."""
    a = int(w.argmax())
    y = x.copy()
    y[k, a] = 7
    y[a, :, rows] += 1
    y[rows, a - 3] -= w
    return x[k, a], x[a, k], x[rows, a], x[a, :, rows], x[:, rows, a], x[a, rows[0], None], y


def test_numbers_beside_arrays_index_as_in_numpy():
    f, rng = tj.jit(beside, strict=True), np.random.default_rng(9)
    for _ in range(8):
        x, w = rng.standard_normal((3, 3, 3)), rng.standard_normal(3)
        k, rows = rng.integers(-3, 3), rng.permutation(3)
        ours = [tj.asarray(each) for each in (x, w, k, rows)]
        for function in (f, beside):
            for got, expected in zip(function(*ours), beside(x, w, k, rows), strict=True):
                np.testing.assert_array_equal(np.asarray(got), expected)
    assert f.cache_info().traces == 1
    with pytest.raises(IndexError, match="out of bounds"):
        tj.jit(lambda x, w, k: x[k, int(w.argmax()) + 3])(x, w, k)


def learned(q, moves, rewards, draws):
    """Q-learning: the state is an element of an array of integers."""
    q, state = q.copy(), 0
    for explores, draw in draws:
        action = int(draw * 3) if explores < 0.2 else int(np.argmax(q[state]))
        following = moves[state, action]
        q[state, action] += 0.5 * (rewards[state, action] + 0.5 * q[following].max() - q[state, action])
        state = following
    return q


def test_q_learning_is_one_launch():
    f, rng = tj.jit(learned, strict=True), np.random.default_rng(10)
    for _ in range(6):
        given = np.zeros((9, 3)), rng.integers(0, 9, (9, 3)), rng.random((9, 3)), rng.random((80, 2))
        np.testing.assert_array_equal(f(*given), learned(*given))
    assert f.cache_info().replays >= 3
    assert "are one launch" in f.explain()
    assert "launch each" not in f.explain()
