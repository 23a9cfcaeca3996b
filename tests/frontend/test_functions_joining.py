"""Arrays joined, split, repeated, turned, against NumPy: in all modes, on views, through its functions."""

import numpy as np
import pytest

import tracejit as tj

A = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)
M = np.arange(12).reshape(3, 4)
V = np.array([3, 1, 2], dtype=np.int16)
Z = (M[:, :2] + 1j).astype(np.complex64)

CASES = {
    "concat": lambda f, x, m, v: (
        f.concatenate([m, m[:1]], axis=0, dtype=np.float32),
        f.concatenate((x, x), axis=None),
        f.concatenate([[1, 2], v]),
        f.stack([v, v * 2], axis=1, dtype=np.int64),
    ),
    "atleast": lambda f, x, m, v: (
        f.atleast_1d(v[0]),
        *f.atleast_1d(v, m),
        f.atleast_2d(v),
        *f.atleast_2d(v[0], x),
        *f.atleast_3d(v[0], v, m, x),
    ),
    "stacks": lambda f, x, m, v: (
        f.vstack([m, m[::-1]]),
        f.vstack((v, v * 2)),
        f.vstack([m, [[1, 2, 3, 4]]]),
        f.hstack([v, v[:1]]),
        f.hstack([m, m[:, 1:2]], dtype=np.float64),
        f.hstack(x),
        f.dstack([v, v]),
        f.dstack((m, m * 2)),
        f.column_stack([v, m, v]),
    ),
    "block": lambda f, x, m, v: (
        f.block([[m, m * 2], [m[:1], m[1:2]]]),
        f.block([v, v]),
        f.block([[v], [v]]),
        f.block([x, x]),
        f.block(m),
        f.block([[[m]], [[m]]]),
    ),
    "append": lambda f, x, m, v: (f.append(m, m), f.append(m, [[9, 9, 9, 9]], axis=0), f.append(v, 2)),
    "insert": lambda f, x, m, v: (
        f.insert(m, 1, 5),
        f.insert(m, 1, 5, axis=1),
        f.insert(m, 1, [5, 6, 7], axis=1),
        f.insert(m, [1], [[5], [6], [7]], axis=1),
        f.insert(m, [2, 0, 2], [[7], [8], [9]], axis=0),
        f.insert(m, [-1, 3], 4, axis=0),
        f.insert(v, slice(0, 3), [10, 11, 12]),
        f.insert(v, [0, 1], [6, 7.9]),
        f.insert(v, 3, [6, 7, 8]),
        f.insert(v, [], 3),
        f.insert(v, np.array([True, False, True]), 3),
    ),
    "delete": lambda f, x, m, v: (
        f.delete(m, 1, axis=0),
        f.delete(m, [0, -1, 0], 1),
        f.delete(m, slice(None, None, 2), axis=1),
        f.delete(m, 5),
        f.delete(v, np.array([True, False, True])),
        f.delete(v, []),
    ),
    "split": lambda f, x, m, v: (
        *f.split(m, 2, axis=1),
        *f.split(m, [1, 1, 9], axis=0),
        *f.array_split(m, 3, axis=1),
        *f.array_split(v, 5),
        *f.array_split(m, [1, -1], 1),
        *f.hsplit(m, 2),
        *f.hsplit(v, 3),
        *f.vsplit(m, [2]),
        *f.dsplit(x, 2),
    ),
    "repeat": lambda f, x, m, v: (
        f.repeat(m, 2),
        f.repeat(m, 3, axis=1),
        f.repeat(m, [2, 0, 1], axis=0),
        f.repeat(v, [2]),
        f.repeat(x, 0, axis=-1),
    ),
    "tile": lambda f, x, m, v: (f.tile(m, 2), f.tile(v, (2, 3)), f.tile(x, (2, 1)), f.tile(m, (0, 2))),
    "resize": lambda f, x, m, v: (f.resize(m, (5, 4)), f.resize(m, 3), f.resize(v, (0, 2))),
    "turned": lambda f, x, m, v: (
        *(f.rot90(m, k) for k in (-1, 0, 1, 2, 3, 5)),
        f.rot90(x, 1, (1, 2)),
        f.rot90(x, axes=(2, 0)),
        f.fliplr(m),
        f.flipud(x),
    ),
    "take": lambda f, x, m, v: (
        f.take(m, [5, -7, 1], axis=1, mode="wrap"),
        f.take(m, [[5, -7], [1, 2]], mode="clip"),
        f.take(m, 2, 0),
        f.roll(m, (1, -2), (0, 1)),
        f.roll(m, 5),
    ),
}


def same(got, expected):
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("layout", ["plain", "transposed", "reversed"])
def test_results(name, layout, run):
    if run.mode != "evaluator" and layout == "plain":
        return
    turn = {"plain": lambda x: x, "transposed": lambda x: x.T.copy().T, "reversed": lambda x: x[::-1]}[layout]

    def computed(*arrays):
        return CASES[name](np, *map(turn, arrays))

    got = run(computed, tj.asarray(A), tj.asarray(M), tj.asarray(V))
    for ours, numpys in zip(got, computed(A, M, V), strict=True):
        same(ours, np.asarray(numpys))


@pytest.mark.parametrize("name", CASES)
def test_traced_code_replays(name):
    traced = tj.jit(lambda *arrays: CASES[name](tj, *arrays))
    for _ in range(2):
        traced(tj.asarray(A), tj.asarray(M), tj.asarray(V))
    assert "piecewise" not in traced.explain()


def test_positions_in_arrays():
    v, at = tj.asarray(V), np.array([3, 0, 3])
    same(tj.insert(v, tj.asarray(at), [7, 8, 9]).numpy(), np.insert(V, at, [7, 8, 9]))
    same(tj.delete(v, tj.asarray([0, 2])).numpy(), np.delete(V, [0, 2]))
    same(tj.repeat(v, tj.asarray(at)).numpy(), np.repeat(V, at))
    traced = tj.jit(lambda x, at: tj.insert(x, at, [7, 8, 9]))
    same(traced(v, tj.asarray(at)).numpy(), np.insert(V, at, [7, 8, 9]))
    same(traced(v, tj.asarray(at - at)).numpy(), np.insert(V, at - at, [7, 8, 9]))
    assert "piecewise" not in traced.explain()


def test_parts_are_views():
    x = tj.zeros((4, 4))
    tj.hsplit(x, 2)[1][...] = 1
    tj.vsplit(x, [1])[0][...] = 2
    tj.rot90(x)[0, 0] = 3
    tj.atleast_3d(x)[1, 1] = 4
    expected = np.zeros((4, 4), np.float32)
    expected[:, 2:] = 1
    expected[0], expected[0, 3], expected[1, 1] = 2, 3, 4
    same(x.numpy(), expected)


GRADIENTS = {
    "joined": lambda x, y: tj.block([[x, y], [y, x]]),
    "inserted": lambda x, y: tj.insert(x, [1, 1, 0], y, axis=0),
    "deleted": lambda x, y: tj.delete(x, [0, 2], 1) * tj.delete(y, 1, 1)[:, :1],
    "repeated": lambda x, y: tj.repeat(x, [2, 0, 1], axis=1) + tj.tile(y, (1, 1)),
    "tiled": lambda x, y: tj.tile(x, (2, 2)) * tj.resize(y, (6, 6)),
    "split": lambda x, y: tj.hsplit(x, 3)[1] * tj.array_split(y, 2, axis=1)[0],
    "turned": lambda x, y: tj.rot90(x) * tj.fliplr(y),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name):
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(2, 3, 3))
    weights = tj.asarray(rng.normal(size=GRADIENTS[name](tj.asarray(x), tj.asarray(y)).shape))

    def loss(x, y):
        return (GRADIENTS[name](x, y) * weights).sum()

    gradients = tj.grad(loss, (0, 1))(tj.asarray(x), tj.asarray(y))
    for place, gradient in enumerate(gradients):
        expected = np.zeros((3, 3))
        for at in np.ndindex(3, 3):
            step = np.zeros((2, 3, 3))
            step[(place, *at)] = 1e-6
            up = loss(tj.asarray(x + step[0]), tj.asarray(y + step[1]))
            expected[at] = float(up - loss(tj.asarray(x - step[0]), tj.asarray(y - step[1]))) / 2e-6
        np.testing.assert_allclose(gradient.numpy(), expected, rtol=1e-6, atol=1e-8)


def test_complex_numbers():
    same(tj.vstack([tj.asarray(Z), Z]).numpy(), np.vstack([Z, Z]))
    same(tj.repeat(tj.asarray(Z).T, 2, axis=0).numpy(), np.repeat(Z.T, 2, axis=0))
    same(tj.insert(tj.asarray(Z), 1, 2j, axis=1).numpy(), np.insert(Z, 1, 2j, axis=1))


ERRORS = [
    (lambda x: tj.vstack([x, x[:, :2]]), ValueError, "must agree except along axis 0"),
    (lambda x: tj.hstack([]), TypeError, "non-empty list"),
    (lambda x: tj.concat([x, x], dtype=tj.int8), TypeError, "float32 cannot become int8"),
    (lambda x: tj.block([]), TypeError, "must not be empty"),
    (lambda x: tj.block([x, [x]]), TypeError, "of one depth"),
    (lambda x: tj.insert(x, 7, 1, axis=0), IndexError, "index 7 is out of bounds for extent 3"),
    (lambda x: tj.insert(x, [0, 1], [1, 2, 3]), ValueError, "broadcast"),
    (lambda x: tj.insert(x, 1.5, 0), IndexError, "integers or booleans"),
    (lambda x: tj.delete(x, -4, axis=0), IndexError, "index -4 is out of bounds for extent 3"),
    (lambda x: tj.delete(x, [True], axis=0), ValueError, "a mask of shape"),
    (lambda x: tj.split(x, 2), ValueError, "extent 3 is no multiple of 2"),
    (lambda x: tj.array_split(x, 0), ValueError, "must be positive"),
    (lambda x: tj.hsplit(x[0, 0], 1), ValueError, "at least 1 dimensions"),
    (lambda x: tj.dsplit(x, 1), ValueError, "at least 3 dimensions"),
    (lambda x: tj.repeat(x, [1, 2], axis=0), ValueError, "expected 1 or 3 numbers"),
    (lambda x: tj.repeat(x, -1), ValueError, "from 0 on"),
    (lambda x: tj.tile(x, -1), ValueError, "negative"),
    (lambda x: tj.rot90(x, axes=(0, 0)), IndexError, "repeat a dimension"),
    (lambda x: tj.rot90(x, axes=(0,)), TypeError, "two axes"),
    (lambda x: tj.take(x, [0], mode="other"), TypeError, "mode is"),
    (lambda x: np.concatenate([x, x], casting="unsafe"), TypeError, "casting"),
]


@pytest.mark.parametrize("case", range(len(ERRORS)))
def test_errors(case):
    call, error, match = ERRORS[case]
    with pytest.raises(error, match=rf"{match}(?s:.*)test_functions_joining") as raised:
        call(tj.ones((3, 4)))
    assert isinstance(raised.value, tj.TracejitError)
