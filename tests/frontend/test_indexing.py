"""Indexing and assignment against NumPy: basic indices (views that alias), arrays of integers, masks."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tracejit as tj
from tests.frontend.conftest import run_on_evaluator
from tests.frontend.samples import sample
from tracejit.errors import OutOfBoundsError
from tracejit.frontend.recording import eager

SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)


@pytest.fixture(autouse=True, params=["recorded", "at once"])
def _evaluator(request, monkeypatch):
    """Everything here is about the frontend, except for what takes `run`: recorded, or left to NumPy."""
    if "run" not in request.fixturenames:
        monkeypatch.setattr(eager, "run", run_on_evaluator)
        if request.param == "recorded":
            monkeypatch.setattr(eager, "SMALL", -1)
    elif request.param == "at once":
        pytest.skip("the modes of `run` record everything")


def examples(test):
    """Many examples; the fixture above is the same for all of them."""
    return settings(
        max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )(test)


def filled(shape, dtype=np.int64):
    return np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape)


@examples
@given(st.data())
def test_basic_indices(data):
    array = filled(data.draw(SHAPES))
    index = data.draw(hnp.basic_indices(array.shape, allow_newaxis=True))
    got = tj.asarray(array)[index]
    expected = array[index]
    assert got.shape == np.shape(expected)
    np.testing.assert_array_equal(got.numpy(), expected)


@examples
@given(st.data())
def test_basic_assignment_and_aliases(data):
    array = filled(data.draw(SHAPES))
    x = tj.asarray(array)
    alias = x.T
    for _ in range(2):
        index = data.draw(hnp.basic_indices(array.shape, allow_newaxis=True))
        part = array[index]
        shape = data.draw(st.sampled_from([(), np.shape(part), np.shape(part)[1:]]))
        value = -filled(shape) - 1
        array[index] = value
        x[index] = tj.asarray(value) if data.draw(st.booleans()) else value
    np.testing.assert_array_equal(x.numpy(), array)
    np.testing.assert_array_equal(alias.numpy(), array.T)


@examples
@given(st.data())
def test_views_of_views_alias(data):
    array = filled(data.draw(SHAPES))
    x = tj.asarray(array)
    first = data.draw(hnp.basic_indices(array.shape))
    a, y = array[first], x[first]
    if np.ndim(a) == 0:
        return
    second = data.draw(hnp.basic_indices(a.shape))
    a[second] = -7
    y[second] = -7
    np.testing.assert_array_equal(x.numpy(), array)


def drawn_index(data, array):
    """An index with arrays of integers, or without any, beside integers, slices, None and an ellipsis."""
    shape = data.draw(st.sampled_from([(), (3,), (2, 1), (0,), (2, 3)]))
    parts = []
    for extent in array.shape[: data.draw(st.integers(1, array.ndim))]:
        kind = data.draw(st.sampled_from(["array", "array", "slice", "int"]))
        if kind == "array":
            broadcast = tuple(data.draw(st.sampled_from([n, 1])) if n else n for n in shape)
            parts.append(
                data.draw(hnp.arrays(np.int64, broadcast, elements=st.integers(-extent, extent - 1)))
            )
        elif kind == "slice":
            parts.append(slice(data.draw(st.integers(-2, 2)), None, data.draw(st.sampled_from([1, 2, -1]))))
        else:
            parts.append(data.draw(st.integers(-extent, extent - 1)))
    if data.draw(st.booleans()):
        parts.insert(data.draw(st.integers(0, len(parts))), None)
    if data.draw(st.booleans()):
        parts.append(Ellipsis)
    return tuple(parts)


def wrapped(data, index):
    """The index with some of its arrays as arrays of ours."""
    return tuple(
        tj.asarray(part) if isinstance(part, np.ndarray) and data.draw(st.booleans()) else part
        for part in index
    )


@examples
@given(st.data())
def test_integer_arrays(data):
    array = filled(data.draw(hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=4)))
    index = drawn_index(data, array)
    if not any(isinstance(part, np.ndarray) for part in index):
        return
    expected = array[index]
    got = tj.asarray(array)[wrapped(data, index)]
    assert got.shape == expected.shape
    np.testing.assert_array_equal(got.numpy(), expected)


@examples
@given(st.data())
def test_assignment_by_integer_arrays(data):
    """Where an element is named twice, the last value counts, as in NumPy."""
    array = filled(data.draw(hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=4)))
    x = tj.asarray(array)
    for _ in range(2):
        index = drawn_index(data, array)
        part = array[index]
        shape = data.draw(st.sampled_from([(), part.shape, part.shape[1:]]))
        value = -1 - filled(shape)
        array[index] = value
        x[wrapped(data, index)] = value
        np.testing.assert_array_equal(x.numpy(), array)
        array[index] += 3
        x[wrapped(data, index)] += 3
        np.testing.assert_array_equal(x.numpy(), array)


def test_integers_beside_arrays_choose_a_part(run):
    """They are checked while the call is recorded, and are no part of the elements' positions."""
    pick = tj.jit(lambda x, rows: x[-1, rows, 2])
    graph = pick.graph(tj.spec((3, 4, 5)), tj.spec((2,), "int64"))
    assert [node.op.name for node in graph.nodes] == ["check_index", "view", "gather"]
    with pytest.raises(
        OutOfBoundsError, match=r"index 5 is out of bounds for axis 2[\s\S]*test_indexing\.py"
    ):
        run(lambda x: x[0, [1, 2], 5], tj.zeros((3, 4, 5)))


def test_masks_without_dimensions():
    for array in (np.arange(6).reshape(2, 3), np.array(5)):
        for truth in (True, False):
            mask, x, a = np.array(truth), tj.asarray(array), array.copy()
            for index in (mask, tj.asarray(mask)):
                np.testing.assert_array_equal(x[index].numpy(), array[mask])
                np.testing.assert_array_equal(x[..., index].numpy(), array[..., mask])
            a[mask], x[tj.asarray(mask)] = 7, 7
            np.add.at(a, mask, 1), np.add.at(x, mask, 1)
            np.testing.assert_array_equal(x.numpy(), a)


def test_other_indices(run):
    rng = np.random.default_rng(1)
    array = sample(rng, (5, 6, 7), np.float32)
    x = tj.asarray(array)
    for index in (
        [0, 2],
        ([0, 1], [2, 3]),
        (slice(None), np.uint8([1, 2])),
        tj.asarray(3),
        (..., [1]),
        (None, [4, 0]),
    ):
        expected = array[index.numpy() if isinstance(index, tj.NDArray) else index]
        np.testing.assert_array_equal(run(lambda x, i=index: x[i], x), expected)
    np.testing.assert_array_equal(tj.asarray(array)[[]].numpy(), array[[]])


def test_masks():
    rng = np.random.default_rng(2)
    array = sample(rng, (5, 6), np.float64)
    x = tj.asarray(array)
    for mask in (array > 0, array[:, 0] > 0, np.zeros((5, 6), bool)):
        np.testing.assert_array_equal(x[mask].numpy(), array[mask])
        np.testing.assert_array_equal(x[tj.asarray(mask)].numpy(), array[mask])
    rows, columns = array[:, 0] > 0, np.array([1])
    np.testing.assert_array_equal(x[rows, columns].numpy(), array[rows, columns])
    array[array < 0], x[x < 0] = 0, 0
    np.testing.assert_array_equal(x.numpy(), array)
    array[array[:, 1] > 1], x[x[:, 1] > 1] = 5.0, tj.asarray([5.0])
    np.testing.assert_array_equal(x.numpy(), array)


def test_assignment_in_all_modes(run):
    def body(x, y):
        x = x.copy()
        x[1:, ::2] = y
        x[0] += x[-1] * 2
        x[..., 1] = 5
        x.T[2:] *= 3
        x[x > 60] = -1
        return x, x[::-1, 1:].copy()

    array, y = filled((4, 6)), filled((3, 3)) * 10
    for got, expected in zip(run(body, tj.asarray(array), tj.asarray(y)), body(array, y), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_assignment_of_overlapping_views(run):
    def body(x):
        x = x.copy()
        x[1:] = x[:-1]
        x[::2], x[1::2] = x[1::2], x[::2]
        x[:] = x[::-1]
        return x

    def by_numpy(x):
        x = x.copy()
        x[1:] = x[:-1].copy()
        x[::2] = x[1::2].copy()
        x[1::2] = x[::2].copy()
        x[:] = x[::-1].copy()
        return x

    np.testing.assert_array_equal(run(body, tj.arange(8)), by_numpy(np.arange(8)))


def test_iteration_and_length():
    x = tj.asarray([[1, 2], [3, 4]])
    assert [row.tolist() for row in x] == [[1, 2], [3, 4]]
    assert len(x) == 2
    assert 3 in x
    _, second = x
    second[...] = 0
    assert x.tolist() == [[1, 2], [0, 0]]
    with pytest.raises(TypeError):
        len(tj.ones(()))
    with pytest.raises(TypeError):
        iter(tj.ones(()))


def test_casts_of_assignment():
    x = tj.zeros(3)
    x[...] = tj.asarray([1, 2, 3])
    x[0] = np.float64(0.5)
    assert x.tolist() == [0.5, 2, 3]
    integers = tj.zeros(3, dtype=tj.int32)
    with pytest.raises(tj.errors.DTypeError, match=r"cannot store float(?s:.*)astype"):
        integers += 1.5
    with pytest.raises(tj.errors.DTypeError, match="300 does not fit into uint8"):
        tj.zeros(3, dtype=tj.uint8)[0] = 300


ERRORS = [
    (lambda x: x[3], IndexError, "index 3 is out of bounds for axis 0 with extent 3"),
    (lambda x: x[0, -5], IndexError, "index -5 is out of bounds for axis 1"),
    (lambda x: x[0, 0, 0], IndexError, "3 indices for an array of 2 dimensions"),
    (lambda x: x[..., ...], IndexError, "one ellipsis"),
    (lambda x: x[1.5], TypeError, "float 1.5 is no index"),
    (lambda x: x["a"], TypeError, "str 'a' is no index"),
    (lambda x: x[::0], TypeError, "step cannot be zero"),
    (lambda x: x[True], TypeError, "single bool"),
    (lambda x: x[tj.ones(2)], IndexError, "must hold integers or booleans, not float32"),
    (lambda x: x[[0, 1], [0, 1, 2]], ValueError, "do not broadcast"),
    (lambda x: x[np.zeros(2, bool)], IndexError, "mask of shape"),
    (lambda x: x[[0, 7]].numpy(), IndexError, "out of bounds for axis 0 with extent 3"),
    (lambda x: x.__setitem__([0, 1], tj.ones(3)), ValueError, "does not fit the shape"),
    (lambda x: x.__setitem__(0, tj.ones(3)), ValueError, "do not broadcast"),
    (lambda x: x.__setitem__((0, 0), tj.ones(3)), ValueError, "does not fit"),
    (lambda x: x.__setitem__(x > 0, tj.ones(3)), ValueError, "does not fit the shape"),
]


@pytest.mark.parametrize("case", range(len(ERRORS)))
def test_errors(case):
    call, error, match = ERRORS[case]
    with pytest.raises(error, match=rf"{match}(?s:.*)test_indexing") as raised:
        call(tj.ones((3, 4)))
    assert isinstance(raised.value, tj.TracejitError)


def test_windows_that_overlap_cut_the_recording_between_operands():
    """A storage is written in part, then read in an overlapping part next to other pending operands."""
    x = tj.asarray(np.arange(8))
    expected = np.arange(8)
    x[2:5] = 1
    expected[2:5] = 1
    pending = tj.arange(3) * 2
    total = pending + x[0:3] + pending
    np.testing.assert_array_equal(total.numpy(), np.arange(3) * 4 + expected[0:3])
    x[3:6] = pending * x[1:4]
    expected[3:6] = np.arange(3) * 2 * expected[1:4]
    np.testing.assert_array_equal(x.numpy(), expected)
    x[1:] = x[:-1]
    expected[1:] = expected[:-1].copy()
    x[:-1] += x[1:]
    expected[:-1] += expected[1:].copy()
    x[0:4] = tj.matmul(tj.ones((4, 3), dtype=tj.int64), x[2:5])
    expected[0:4] = np.ones((4, 3), int) @ expected[2:5]
    np.testing.assert_array_equal(x.numpy(), expected)


def assigned(xp, number):
    """Assignments that cast, as NumPy's do."""
    a, b, c = xp.arange(6), xp.zeros(4, dtype=bool), xp.ones(3, dtype=np.uint8)
    a[1] = number
    a[2:4] = xp.asarray([2.7, -3.9])
    a[a > 3] = 1.5
    b[0], b[1:3], b[3] = 1, number, xp.asarray(0)
    c[...] = number
    return a, b, c


@pytest.mark.parametrize("number", [1.5, 2, 2.25])
def test_assignment_casts_as_numpy_does(run, number):
    for ours, numpys in zip(run(lambda: assigned(tj, number)), assigned(np, number), strict=True):
        np.testing.assert_array_equal(ours, numpys)


def test_an_empty_ellipsis_separates_integer_arrays(run):
    array = np.arange(24).reshape(2, 3, 4)
    for index in (
        (slice(None), [0, 1], ..., [1, 0]),
        (slice(None), 1, ..., [1, 0]),
        (slice(None), [0, 1], [1, 0], ...),
        (slice(None), ..., [0, 1], [1, 0]),
        ([0, 1], ..., [1, 0]),
    ):
        got = run(lambda x, index=index: x[index], tj.asarray(array))
        assert got.shape == array[index].shape
        np.testing.assert_array_equal(got, array[index])
