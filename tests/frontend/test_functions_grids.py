"""Grids of positions, indices of parts, and what is indexed to make arrays, against NumPy."""

import numpy as np
import pytest

import tracejit as tj

M = np.arange(12).reshape(3, 4)
V = np.array([5, 1, 3])


def same(got, expected):
    """Equal; floats in our default precision."""
    got = got.numpy() if isinstance(got, tj.NDArray) else got
    expected = np.asarray(expected)
    wanted = {np.dtype("float64"): np.dtype("float32")}.get(expected.dtype, expected.dtype)
    assert (got.dtype, got.shape) == (wanted, expected.shape)
    np.testing.assert_allclose(got, expected.astype(wanted), rtol=1e-6)


CASES = {
    "indices": lambda f: (
        f.indices((2, 3)),
        f.indices((2, 0, 1)),
        f.indices(()),
        f.indices((2, 3), dtype=np.float32),
        *f.indices((3, 4), sparse=True),
    ),
    "fromfunction": lambda f: (
        f.fromfunction(lambda i, j: i + 10 * j, (2, 3)),
        f.fromfunction(lambda i, j, k: i * j + k, (2, 3), dtype=int, k=4),
        f.fromfunction(lambda i: i, (3,)),
    ),
    "matrices": lambda f: (
        f.identity(3),
        f.identity(2, dtype=int),
        *(f.tri(3, 4, k, dtype=np.int8) for k in (-4, -1, 0, 2, 5)),
        f.tri(2),
        f.eye(2, 3, 1),
        f.eye(3, k=-1, dtype=bool),
    ),
    "triangles": lambda f: (
        *f.tril_indices(3),
        *f.tril_indices(3, 1, 5),
        *f.triu_indices(4, -1, 2),
        *f.triu_indices(3, k=1),
        *f.diag_indices(3),
        *f.diag_indices(2, 3),
    ),
    "mgrid": lambda f: (
        f.mgrid[0:3, 1:2],
        f.mgrid[:4],
        f.mgrid[0:1:3j],
        f.mgrid[0:5:2, 0:1:5j, -1:1],
        *f.ogrid[0:3, 1:9:3],
        *f.ogrid[0:1:5j, :3],
        f.ogrid[2:5],
    ),
    "r_": lambda f: (
        f.r_[1:4, 0, 7],
        f.r_[0:1:5j, 3],
        f.r_["0,2", [1, 2], [3, 4]],
        f.r_["1,2,0", [1, 2], [3, 4]],
        f.r_["0,3,1", [1, 2], [3, 4]],
        f.r_["-1", [[1], [2]], [[3], [4]]],
        f.r_["0,2,0", 1:3, [5]],
        f.c_[[1, 2], [3, 4], 5:7],
        f.c_[[[1, 2]], [[3]]],
    ),
    "spaced": lambda f: (
        f.linspace(0, 1, 5),
        f.linspace(0, 10, 4, False),
        f.linspace(0, 10, 4, endpoint=False, retstep=True)[0],
        f.linspace(2, 3, 1),
        f.linspace(0, 5, 4, dtype=int),
        f.logspace(0, 2, 5),
        f.logspace(0, 3, 4, base=2.0, endpoint=False),
        f.geomspace(1, 256, 9),
        f.geomspace(1000, 1, 4),
        f.geomspace(-1, -16, 3),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_results(name, run):
    for ours, numpys in zip(run(lambda: CASES[name](tj)), CASES[name](np), strict=True):
        same(ours, numpys)


OF_ARRAYS = {
    "triangles": lambda f, m, v: (*f.tril_indices_from(m, 1), *f.triu_indices_from(m)),
    "diagonals": lambda f, m, v: (
        *f.diag_indices_from(m[:, :3]),
        *f.diag_indices_from(f.stack([m[:2, :2], m[:2, :2]])),
    ),
    "ix_": lambda f, m, v: (*f.ix_(v, v[:2]), m[f.ix_(v % 3, [0, 3])]),
    "flat": lambda f, m, v: (
        *f.unravel_index(m, (3, 4)),
        *f.unravel_index(m, (2, 2, 3), order="F"),
        f.ravel_multi_index((v % 3, v % 4), (3, 4)),
        f.ravel_multi_index((v % 3, v % 4), (3, 4), order="F"),
        f.ravel_multi_index((v, v - 3), (3, 4), mode="wrap"),
        f.ravel_multi_index((v, v - 3), (3, 4), mode=("wrap", "clip")),
    ),
    "meshgrid": lambda f, m, v: (
        *f.meshgrid(v, v[:2]),
        *f.meshgrid(v, v[:2], sparse=True),
        *f.meshgrid(v, m[0], v[:1], indexing="ij", copy=False),
        *f.meshgrid(v, m[0], v[:1], indexing="ij", sparse=True),
        *f.meshgrid(v),
    ),
    "spaced": lambda f, m, v: (
        f.linspace(v, 10, 4),
        f.linspace(0.0, m, 3, axis=-1),
        f.linspace(v, v * 2, 3, endpoint=False, retstep=True)[1],
        f.logspace(v, 2, 3),
        f.geomspace(v, 64, 4, axis=1),
    ),
}


@pytest.mark.parametrize("name", OF_ARRAYS)
def test_results_of_arrays(name, run):
    got = run(lambda m, v: OF_ARRAYS[name](tj, m, v), tj.asarray(M), tj.asarray(V))
    for ours, numpys in zip(got, OF_ARRAYS[name](np, M, V), strict=True):
        assert ours.shape == np.shape(numpys)
        np.testing.assert_allclose(ours, numpys, rtol=1e-6)


@pytest.mark.parametrize("name", {**CASES, **OF_ARRAYS})
def test_traced_code_replays(name):
    traced = tj.jit(
        (lambda m, v: CASES[name](tj)) if name in CASES else lambda m, v: OF_ARRAYS[name](tj, m, v)
    )
    for _ in range(2):
        traced(tj.asarray(M), tj.asarray(V))
    assert "piecewise" not in traced.explain()


def test_other_objects():
    assert list(tj.ndindex((2, 2))) == list(np.ndindex(2, 2))
    assert tj.s_[1:, ::2] == (slice(1, None), slice(None, None, 2))
    x = tj.asarray(M)
    same(x[tj.ix_([True, False, True], [0, 1])], M[np.ix_([True, False, True], [0, 1])])
    same(x[tj.triu_indices_from(x)], M[np.triu_indices_from(M)])
    assert np.linspace(x[0], x[1], 3).dtype == np.float64
    for ours, numpys in zip(tj.mask_indices(3, tj.triu, 1), np.mask_indices(3, np.triu, 1), strict=True):
        same(ours, numpys)
    same(tj.r_[x[0], 0, x[1, :2]], np.r_[M[0], 0, M[1, :2]])


ERRORS = [
    (lambda x: tj.indices((-1, 2)), ValueError, "negative extent"),
    (lambda x: tj.tril_indices_from(x[0]), ValueError, "expected 2 dimensions"),
    (lambda x: tj.diag_indices_from(x), ValueError, "equal extents"),
    (lambda x: tj.ix_(x), ValueError, "one dimension"),
    (lambda x: tj.unravel_index(99, (3, 4))[0].numpy(), IndexError, "99 is out of bounds"),
    (lambda x: tj.unravel_index(1, (3, 4), order="A"), TypeError, "order is one of"),
    (lambda x: tj.ravel_multi_index(([0],), (3, 4)), ValueError, "1 arrays for the shape"),
    (lambda x: tj.ravel_multi_index(([3], [0]), (3, 4)).numpy(), IndexError, "3 is out of bounds"),
    (lambda x: tj.ravel_multi_index(([3], [0]), (3, 4), mode="no"), TypeError, "mode is"),
    (lambda x: tj.mgrid[3:], TypeError, "needs an end"),
    (lambda x: tj.r_["r", 1], TypeError, "expected integers"),
    (lambda x: tj.geomspace(0, 1), ValueError, "must not be 0"),
    (lambda x: tj.linspace(0, 1, -1), ValueError, "must not be negative"),
    (lambda x: tj.linspace(x, tj.ones(5)), ValueError, "broadcast"),
    (lambda x: tj.meshgrid(x), ValueError, "one dimension"),
]


@pytest.mark.parametrize("case", range(len(ERRORS)))
def test_errors(case):
    call, error, match = ERRORS[case]
    with pytest.raises(error, match=rf"{match}(?s:.*)test_functions_grids") as raised:
        call(tj.ones((3, 4)))
    assert isinstance(raised.value, tj.TracejitError)
