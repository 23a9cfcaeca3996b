"""Elements picked and placed by position, by mask, along an axis and on diagonals, against NumPy."""

import numpy as np
import pytest

import tracejit as tj

M = np.array([[3, 1, 2, 7], [9, 4, 8, 6], [5, 0, 11, 10]])
X = np.linspace(-1, 1, 24).reshape(2, 3, 4)


def changed(change, x, *args, **options):
    """A copy of `x`, in another memory layout, that `change` has changed."""
    y = x.T.copy().T
    assert change(y, *args, **options) is None
    return y


CASES = {
    "put": lambda f, x, m: (
        changed(f.put, m, [0, -1, 0], [1, 2, 3]),
        changed(f.put, m, [[0, 5], [7, 2]], -1),
        changed(f.put, m, [1, 3, 5], [7, 8]),
        changed(f.put, m, [1, -20, 25], 3, mode="wrap"),
        changed(f.put, x, [1, -20, 25], 3, mode="clip"),
        changed(f.put, m, [], 3),
    ),
    "place": lambda f, x, m: (
        changed(f.place, m, m > 4, [1, 2, 3]),
        changed(f.place, x, x > 0, [1.5]),
        changed(f.putmask, m, m % 2 == 0, [10, 20, 30, 40, 50]),
        changed(f.putmask, x, x < 0, x * x),
    ),
    "copyto": lambda f, x, m: (
        changed(f.copyto, m, 5),
        changed(f.copyto, m, m[0]),
        changed(f.copyto, x, m, where=m > 4),
        changed(f.copyto, m, x[0], casting="unsafe"),
        changed(f.copyto, m, [1, 2, 3, 4], where=[True, False, True, False]),
    ),
    "along an axis": lambda f, x, m: (
        f.take_along_axis(m, f.argsort(m, axis=1), axis=1),
        f.take_along_axis(x, f.argmax(x, axis=1)[:, None], 1),
        f.take_along_axis(x, np.array([[[-1], [0]]]), axis=1),
        f.take_along_axis(m, f.argsort(m, axis=-1)),
        f.take_along_axis(m, np.array([5, -1]), axis=None),
        changed(f.put_along_axis, m, f.argmax(m, axis=1)[:, None], 99, axis=1),
        changed(f.put_along_axis, x, np.array([[[0, 1, 2, -1]]]), f.abs(x[:, :1]), axis=1),
    ),
    "compressed": lambda f, x, m: (
        f.compress([True, False, True], m, axis=0),
        f.compress([True, False, True], m),
        f.extract(np.array(M > 5), m),
    ),
    "diagonals": lambda f, x, m: (
        *(f.diagonal(m, k) for k in (-4, -2, 0, 1, 3, 4)),
        f.diagonal(x, 1, 0, 2),
        f.diagonal(x, axis1=-1, axis2=0),
        *(f.diag(m, k) for k in (-1, 0, 2)),
        *(f.diag(m[0], k) for k in (-1, 0, 2)),
        f.diagflat(m, 1),
    ),
    "filled": lambda f, x, m: (
        changed(f.fill_diagonal, m, 0),
        changed(f.fill_diagonal, m.T, [7, 8]),
        changed(f.fill_diagonal, f.concatenate([m.T, m.T, m.T]), [7, 8, 9, 10], wrap=True),
        changed(f.fill_diagonal, x[:, :2, 1:3], 5.0),
    ),
}


def same(got, expected):
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("name", CASES)
def test_results(name, run):
    got = run(lambda x, m: CASES[name](np, x, m), tj.asarray(X), tj.asarray(M))
    for ours, numpys in zip(got, CASES[name](np, X, M), strict=True):
        same(ours, numpys)


@pytest.mark.parametrize("name", CASES)
def test_traced_code_replays(name):
    traced = tj.jit(lambda x, m: CASES[name](tj, x, m))
    for _ in range(2):
        traced(tj.asarray(X), tj.asarray(M))
    assert "piecewise" not in traced.explain()


def test_no_values_for_no_place():
    x = tj.asarray(M)
    tj.place(x, x > 40, [])
    same(x.numpy(), M)


def test_put_along_the_flattened_array():
    x, a = tj.asarray(M.T).T, M.copy()
    tj.put_along_axis(x, [5, -1], [7, 8], axis=None)
    np.put(a, [5, -1], [7, 8])
    same(x.numpy(), a)


def test_methods():
    x, a = tj.asarray(M), M.copy()
    x.put([1, 2], 7)
    a.put([1, 2], 7)
    same(x.numpy(), a)
    same(x.repeat(2, axis=0).numpy(), a.repeat(2, axis=0))
    same(x.diagonal(1).numpy(), a.diagonal(1))
    same(x.compress([True, False], axis=1).numpy(), a.compress([True, False], axis=1))
    same(x.take([1, 9], mode="wrap").numpy(), a.take([1, 9], mode="wrap"))


def test_a_diagonal_is_a_view_that_cannot_be_written():
    x = tj.asarray(M)
    line = x.diagonal(1)
    x[0, 1] = 77
    assert line.tolist()[0] == 77
    with pytest.raises(tj.errors.ReadOnlyError):
        line[0] = 5


def test_scatter_add(run):
    index = np.array([4, 0, 4, -1])
    values = np.linspace(0, 1, 12).reshape(4, 3)
    x = np.ones((5, 3))
    expected = x.copy()
    np.add.at(expected, index, values)
    got = run(tj.scatter_add, *map(tj.asarray, (x, index, values)))
    np.testing.assert_allclose(got, expected, rtol=1e-15)
    np.testing.assert_array_equal(x, 1)
    twice = tj.scatter_add(tj.zeros((2, 2), dtype=tj.complex64), (0, [1, 1]), 1j)
    same(twice.numpy(), np.array([[0, 2j], [0, 0]], np.complex64))


GRADIENTS = {
    "scatter_add": lambda x, y: tj.scatter_add(x * x, [0, 2, 0], y),
    "take_along_axis": lambda x, y: tj.take_along_axis(x, tj.asarray([[2, 0], [1, 1], [0, 0]]), 1) * y[:, :2],
    "put_along_axis": lambda x, y: changed(
        tj.put_along_axis, x * y, tj.asarray([[1], [2], [1]]), y[:, :1], axis=1
    ),
    "place": lambda x, y: changed(tj.place, x * y, tj.asarray(M[:, :3] > 4), y),
    "put": lambda x, y: changed(tj.put, x * 1.0, [0, 4, 0], y[0]),
    "diagonals": lambda x, y: tj.diag(tj.diagonal(x * y), 1),
    "fill_diagonal": lambda x, y: changed(tj.fill_diagonal, x * y, y[0]),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name):
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(2, 3, 3))
    weights = tj.asarray(rng.normal(size=GRADIENTS[name](tj.asarray(x), tj.asarray(y)).shape))

    def loss(x, y):
        return (GRADIENTS[name](x, y) * weights).sum()

    for place, gradient in enumerate(tj.grad(loss, (0, 1))(tj.asarray(x), tj.asarray(y))):
        expected = np.zeros((3, 3))
        for at in np.ndindex(3, 3):
            step = np.zeros((2, 3, 3))
            step[(place, *at)] = 1e-6
            up = loss(tj.asarray(x + step[0]), tj.asarray(y + step[1]))
            expected[at] = float(up - loss(tj.asarray(x - step[0]), tj.asarray(y - step[1]))) / 2e-6
        np.testing.assert_allclose(gradient.numpy(), expected, rtol=1e-6, atol=1e-8)


ERRORS = [
    (lambda x: tj.put(np.ones(3), [0], 1), TypeError, "changes an NDArray in place"),
    (lambda x: tj.put(x, [99], 1) or x.numpy(), IndexError, "99 is out of bounds"),
    (lambda x: tj.put(x, [0], 1, mode="other"), TypeError, "mode is"),
    (lambda x: tj.place(x, [True], 1), ValueError, "a mask of shape"),
    (lambda x: tj.place(x, x > 0, []), ValueError, "no values"),
    (lambda x: tj.putmask(x, [True], 1), ValueError, "a mask of shape"),
    (lambda x: tj.copyto(x, tj.ones(5)), ValueError, "broadcast"),
    (lambda x: tj.copyto(x, tj.ones(4, dtype=tj.complex64)), TypeError, "cannot become float32"),
    (lambda x: tj.copyto(x, 1, where=tj.ones(5)), ValueError, "broadcast"),
    (lambda x: tj.take_along_axis(x, [0, 1], axis=0), ValueError, "indices of shape"),
    (lambda x: tj.take_along_axis(x, [[5]], axis=0).numpy(), IndexError, "5 is out of bounds"),
    (lambda x: tj.compress(x > 0, x), ValueError, "one dimension"),
    (lambda x: tj.extract([False] * 12 + [True], x).numpy(), IndexError, "12 is out of bounds"),
    (lambda x: tj.diagonal(x[0]), ValueError, "at least 2 dimensions"),
    (lambda x: tj.diagonal(x, axis1=1), IndexError, "repeat a dimension"),
    (lambda x: tj.diag(x[None]), ValueError, "1 or 2 dimensions"),
    (lambda x: tj.fill_diagonal(x[None], 0), ValueError, "equal extents"),
    (lambda x: tj.scatter_add(x, [7], 1.0).numpy(), IndexError, "7 is out of bounds"),
    (lambda x: tj.scatter_add(x > 0, [0], True), TypeError, "not defined for bool"),
]


@pytest.mark.parametrize("case", range(len(ERRORS)))
def test_errors(case):
    call, error, match = ERRORS[case]
    with pytest.raises(error, match=rf"{match}(?s:.*)test_functions_placing") as raised:
        call(tj.ones((3, 4)))
    assert isinstance(raised.value, tj.TracejitError)


def flattened(x):
    x = x.T.copy().T
    x.flat[3] = 50
    x.flat[1:8:3] = [7, 8]
    x.flat[[0, -1]] = x.flat[::-1][:2]
    first = x.flat[2]
    x.flat = x[:2]
    return (
        x,
        first,
        x.flat[[1, 1]],
        x.flat[x.flat[::1] > 4] if isinstance(x, np.ndarray) else x.flat[x.ravel() > 4],
    )


def test_flat():
    for ours, numpys in zip(flattened(tj.asarray(M)), flattened(M), strict=True):
        same(ours.numpy(), np.asarray(numpys))
    assert [int(n) for n in tj.asarray(M.T).flat] == list(M.T.flat)
    assert len(tj.asarray(M).flat) == 12


def test_setting_the_shape():
    base = tj.zeros((2, 6))
    x = base[:]
    x.numpy()
    x.shape = (3, -1)
    x[2, 3] = 5
    assert base.tolist()[1][5] == 5
    assert x.numpy().shape == (3, 4)
    x.shape = 12
    assert x.shape == (12,)
    with pytest.raises(tj.errors.ShapeError, match=r"cannot reshape(?s:.*)test_functions_placing"):
        x.shape = (5, 2)
    with pytest.raises(tj.errors.ArgumentError, match=r"needs a copy(?s:.*)test_functions_placing"):
        base.T.shape = 12

    @tj.jit
    def step(x):
        y = x * 2
        y.shape = (4, 3)
        return y

    for _ in range(2):
        assert step(base).shape == (4, 3)
    assert "piecewise" not in step.explain()

    @tj.jit
    def refused(x):
        x.shape = (4, 3)

    with pytest.raises(tj.errors.ReplayError, match=r"use reshape(?s:.*)test_functions_placing"):
        refused(base)
