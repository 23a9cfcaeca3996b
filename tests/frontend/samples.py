"""Random arrays for tests: all dtypes, special values, layouts, and how close is close."""

import numpy as np

import tracejit as tj

DTYPES = [
    np.dtype(d)
    for d in [
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float32",
        "float64",
    ]
]
FLOATS = DTYPES[-2:]
INTEGERS = DTYPES[1:-2]
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, -2.5, 1e-30, 1e30]

SHAPES = [(), (0,), (1,), (5,), (3, 4), (2, 0, 3), (2, 3, 4), (1, 5, 1)]


def sample(rng, shape, dtype, *, special=False, low=-3.0, high=3.0):
    """Random elements of `dtype`: floats from low to high, integers and bools over a range with its ends."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        small = rng.integers(max(bounds.min, -9), 10, shape).astype(dtype)
        extreme = rng.choice(np.array([bounds.min, bounds.max, 0, 1], dtype), shape)
        return np.where(rng.random(shape) < (0.2 if special else 0), extreme, small).astype(dtype)
    values = rng.uniform(low, high, shape).astype(dtype)
    if special:
        values = np.where(rng.random(shape) < 0.3, rng.choice(SPECIAL, shape).astype(dtype), values)
    return values.astype(dtype)


def laid_out(rng, array):
    """An NDArray of these elements: contiguous, transposed, cut from a larger one, or reversed."""
    choice = rng.integers(4)
    if choice == 1 and array.ndim > 1:
        return tj.asarray(np.ascontiguousarray(array.T)).T
    if choice == 2 and array.ndim:
        larger = np.zeros([n + 3 for n in array.shape], array.dtype)
        inside = tuple(slice(1, n + 1) for n in array.shape)
        larger[inside] = array
        return tj.asarray(larger)[inside]
    if choice == 3 and array.ndim:
        backwards = (slice(None, None, -1),) * array.ndim
        return tj.asarray(np.ascontiguousarray(array[backwards]))[backwards]
    return tj.asarray(array)


def assert_close(got, expected, *, ulps=8, scale=None):
    """Equal dtype and shape; floats within `ulps` last places of their own or of `scale`'s magnitude."""
    expected = np.asarray(expected)
    assert isinstance(got, np.ndarray), type(got)
    assert got.dtype == expected.dtype, (got.dtype, expected.dtype)
    assert got.shape == expected.shape, (got.shape, expected.shape)
    if got.dtype.kind != "f":
        np.testing.assert_array_equal(got, expected)
        return
    epsilon = np.finfo(got.dtype).eps
    np.testing.assert_allclose(
        got, expected, rtol=ulps * epsilon, atol=ulps * epsilon * (scale or np.finfo(got.dtype).tiny)
    )


def same_tree(given, expected):
    """Fail unless arrays and numbers are those expected, of the same shapes and dtypes."""
    if isinstance(expected, tuple | list):
        assert len(given) == len(expected)
        for one, other in zip(given, expected, strict=True):
            same_tree(one, other)
        return
    mine = given.numpy() if isinstance(given, tj.NDArray) else np.asarray(given)
    theirs = np.asarray(expected)
    assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
    np.testing.assert_allclose(mine, theirs, rtol=1e-12, atol=1e-15)
