"""Assignments through integer arrays, masks and mixtures of them, against NumPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tracejit as tj
from tests.frontend.test_indexing import _evaluator, examples, filled  # noqa: F401


def drawn_index(data, shape, mask_too):
    """An index with at least one integer array or mask."""
    common = data.draw(st.sampled_from([(), (3,), (2, 1), (0,), (2, 3), (7,)]))
    parts, axis = [], 0  # an ellipsis that comes in later may put an index out of range
    kinds = ["array", "array", "slice", "int", *(["mask"] if mask_too else [])]
    while axis < len(shape) and (axis == 0 or data.draw(st.booleans())):
        kind, extent = data.draw(st.sampled_from(kinds)), shape[axis]
        if kind == "array":
            wanted = tuple(data.draw(st.sampled_from([n, 1])) if n else n for n in common)
            parts.append(data.draw(hnp.arrays(np.int64, wanted, elements=st.integers(-extent, extent - 1))))
        elif kind == "slice":
            parts.append(slice(data.draw(st.integers(-2, 2)), None, data.draw(st.sampled_from([1, 2, -1]))))
        elif kind == "int":
            parts.append(data.draw(st.integers(-extent, extent - 1)))
        else:
            ndim = data.draw(st.integers(1, len(shape) - axis))
            parts.append(data.draw(hnp.arrays(bool, shape[axis : axis + ndim])))
            axis += ndim - 1
            kinds.remove("mask")
        axis += 1
    if data.draw(st.booleans()):
        parts.insert(data.draw(st.integers(0, len(parts))), None)
    if data.draw(st.booleans()):
        parts.insert(data.draw(st.integers(0, len(parts))), Ellipsis)
    return tuple(parts)


def drawn_value(data, shape):
    """An array that broadcasts to `shape`."""
    kept = shape[data.draw(st.integers(0, len(shape))) :]
    value = -filled(tuple(data.draw(st.sampled_from([n, 1])) for n in kept)) - 1
    return value[None] if data.draw(st.integers(0, 5)) == 0 else value


def wrapped(data, index):
    """The index with some of its arrays as arrays of this package."""
    return tuple(
        tj.asarray(p) if isinstance(p, np.ndarray) and data.draw(st.booleans()) else p for p in index
    )


def by_numpy(array, index, value):
    """NumPy's result in `array`; False where it takes neither index nor value."""
    try:
        array[index] = value
    except (IndexError, TypeError, ValueError):
        return False
    return True


@examples
@given(st.data())
def test_random_indices(data):
    array = filled(data.draw(hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=4)))
    x = tj.asarray(array)
    alias = x.T
    for _ in range(2):
        index = drawn_index(data, array.shape, mask_too=True)
        try:
            value = drawn_value(data, array[index].shape)
        except IndexError:
            continue
        if not by_numpy(array, index, value):
            continue
        x[wrapped(data, index)] = tj.asarray(value) if data.draw(st.booleans()) else value
    np.testing.assert_array_equal(x.numpy(), array)
    np.testing.assert_array_equal(alias.numpy(), array.T)


@pytest.mark.parametrize("value", [-1, np.int64(-1), np.array(-1), tj.asarray(-1)])
def test_what_numpy_gives_in_another_order_is_updated(value):
    """NumPy's ``a[None, 1::-1, i]`` is not in C order."""
    array, index = filled((2, 2, 1)), np.array([0, 1, 1])
    x = tj.asarray(array)
    array[None, 1::-1, index] += int(value)
    x[None, 1::-1, index] += value
    np.testing.assert_array_equal(x.numpy(), array)


@examples
@given(st.data())
def test_random_updates(data):
    array = filled(data.draw(hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4)))
    x = tj.asarray(array)
    index = drawn_index(data, array.shape, mask_too=False)
    try:
        part = array[index]
    except IndexError:
        return
    value = drawn_value(data, part.shape)
    if value.ndim > part.ndim:
        return
    array[index] += value
    x[wrapped(data, index)] += value
    np.testing.assert_array_equal(x.numpy(), array)


def updated(xp, x, index, values):
    x = x.copy()
    x[index] = values
    x[index] += values * 2
    x[:, [0, 2, 2]] = xp.asarray([1.0, 2.0, 3.0], dtype=xp.float32)
    x[[1, 1], [0, 2]] -= 5
    x.T[[3]] *= 2
    x[index, 1] = 7
    x[[0, 3], ::2] = 0.5
    return x


def test_all_modes(run):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(5, 4)).astype(np.float32)
    index, values = np.array([4, 0, 4]), rng.normal(size=(3, 4)).astype(np.float32)
    got = run(lambda *a: updated(tj, *a), *map(tj.asarray, (x, index, values)))
    np.testing.assert_array_equal(got, updated(np, x, index, values))


def test_traced_code_replays_with_other_indices():
    @tj.jit
    def step(x, index, values):
        x[index] = values

    rng = np.random.default_rng(2)
    for _ in range(4):
        x, values = rng.normal(size=(6, 3)), rng.normal(size=(5, 3))
        index = rng.integers(-6, 6, 5)
        y = tj.asarray(x.copy())
        step(y, tj.asarray(index), tj.asarray(values))
        x[index] = values
        np.testing.assert_array_equal(y.numpy(), x)
    assert "piecewise" not in step.explain()


def test_gradients_pass_to_what_was_written_last():
    def loss(x, values):
        y = x * 1.0
        y[[0, 2, 2]] = values
        return tj.sum(y * tj.asarray([1.0, 10.0, 100.0, 1000.0], dtype=tj.float64))

    gradients = tj.grad(loss, (0, 1))(tj.ones(4, dtype=tj.float64), tj.ones(3, dtype=tj.float64))
    np.testing.assert_array_equal(gradients[0].numpy(), [0, 10, 0, 1000])
    np.testing.assert_array_equal(gradients[1].numpy(), [1, 0, 100])


def squared_where(xp, x):
    x = x.copy()
    m = x > 0
    x[m] = x[m] ** 2
    x[m[:, 0], 1] = xp.asarray([9, 8], dtype=x.dtype)
    x[m] += 1
    return x


def test_masks_with_an_array_of_values(run):
    x = np.array([[1.0, -2.0, 3.0], [-4.0, 5.0, 6.0], [7.0, -8.0, -9.0]])
    np.testing.assert_array_equal(run(lambda x: squared_where(tj, x), tj.asarray(x)), squared_where(np, x))


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float32", "complex64"])
def test_values_are_cast_to_the_dtype_of_the_array(dtype):
    x, y = np.zeros(5, dtype), tj.zeros(5, dtype=dtype)
    for array in (x, y):
        array[[0, 3]] = 1
        array[[1, 1]] = np.array([0.0, 1.0])
    np.testing.assert_array_equal(y.numpy(), x)
    assert y.numpy().dtype == x.dtype


ERRORS = [
    (lambda x: x.__setitem__([0, 1], tj.ones(3)), ValueError, "does not fit the shape"),
    (lambda x: x.__setitem__(x > 0, tj.ones(3)), ValueError, "does not fit the shape"),
    (lambda x: x.__setitem__(np.zeros(2, bool), 0), IndexError, "mask of shape"),
    (lambda x: x.__setitem__(True, 0), TypeError, "single bool"),
    (lambda x: x.__setitem__(tj.ones(2), 0), IndexError, "must hold integers or booleans"),
    (lambda x: x.__setitem__([0, 1], 1j), TypeError, "complex"),
]


@pytest.mark.parametrize("case", range(len(ERRORS)))
def test_errors(case):
    call, error, match = ERRORS[case]
    with pytest.raises(error, match=rf"{match}(?s:.*)test_assignment") as raised:
        call(tj.ones((3, 4)))
    assert isinstance(raised.value, tj.TracejitError)


def test_an_index_out_of_range_leaves_the_array_as_it_was():
    def store(index):
        x[index] = 2
        x.numpy()

    x = tj.ones((3, 4))
    x.numpy()
    with pytest.raises(IndexError, match="7 is out of bounds for axis 0 with extent 3"):
        store([0, 7])
    np.testing.assert_array_equal(x.numpy(), np.ones((3, 4)))


def stores_sequences(x, y):
    """Lists and tuples, also of elements."""
    z = x * 0
    for i in range(3):
        z[i] = x[i, 0], y[i] * 2
    x[:2] = [[y[0], 7], (1, 2)]
    x[[0, 2]] = [1.5, x[1, 1]]
    y[1:] = (x[0, 0] + 1, 2.5)
    y[y != y[0]] = [0]
    return z


@pytest.mark.parametrize("dtype", ["float64", "float32", "int32", "complex128"])
@pytest.mark.parametrize("traced", [False, True])
def test_lists_and_tuples(dtype, traced):
    function = tj.jit(stores_sequences, strict=True) if traced else stores_sequences
    for k in range(3):
        x, y = np.arange(6).reshape(3, 2).astype(dtype) + k, np.array([4, 5, 8]).astype(dtype)
        ours = tj.asarray(x.copy()), tj.asarray(y.copy())
        results = function(*ours), *ours
        for result, expected in zip(results, (stores_sequences(x, y), x, y), strict=True):
            np.testing.assert_array_equal(result.numpy(), expected)
            assert result.dtype == expected.dtype
    for wrong in ([1, 2, 3], [[1], [2, 3]], ["a", "b"]):
        with pytest.raises((ValueError, TypeError)):
            ours[0][0] = wrong
