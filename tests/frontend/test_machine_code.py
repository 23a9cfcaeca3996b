"""Operators and indexing of small arrays by machine code: NumPy's values; Python's methods for the rest."""

import gc
import sys
import threading

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import tracejit as tj
from tracejit.config import config
from tracejit.frontend.arrays import machine_code
from tracejit.frontend.recording import eager
from tracejit.frontend.recording.recording import recorders
from tracejit.frontend.recording.storage import ComputedStorage
from tracejit.kernels.arrays import layout


@pytest.fixture(autouse=True, scope="module")
def installed():
    machine_code.install(tj.NDArray)
    assert "__getitem__" not in vars(tj.NDArray)


PARTS = st.one_of(
    st.integers(-5, 4),
    st.slices(4),
    st.sampled_from([None, slice(None, None, -1), np.int64(1)]),
)
OPERATORS = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "divide": lambda x, y: x / y,
    "floor_divide": lambda x, y: x // y,
}
NUMBERS = st.sampled_from([0, 3, -2, 0.1, -0.0, float("nan"), float("inf"), 1 << 53, True])


def outcome(function):
    """The value, or an error: NumPy's have the builtin classes from which ours are made."""
    try:
        with np.errstate(all="ignore"):
            return function()
    except (IndexError, ValueError, TypeError) as error:
        return next(kind for kind in (IndexError, TypeError, ValueError) if isinstance(error, kind))


def check(found, wanted):
    if isinstance(wanted, type):
        assert found is wanted
    else:
        wanted = np.asarray(wanted)
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_array_equal(found.numpy(), wanted)


def matrix(dtype):
    return np.arange(20).reshape(4, 5).astype(dtype) / np.dtype(dtype).type(4)


@settings(max_examples=60, deadline=None)
@given(
    st.one_of(PARTS, st.just(...), st.lists(PARTS, max_size=3).map(tuple)),
    st.sampled_from(["float32", "float64", "int8"]),
)
def test_indexing_is_numpys(index, dtype):
    a = matrix(dtype)
    x = tj.asarray(a)
    check(outcome(lambda: x[index]), outcome(lambda: a[index]))
    seen = outcome(lambda: a[index])
    if not isinstance(seen, type):
        values = np.full(np.shape(seen), 9, dtype)
        a[index], x[index] = values, tj.asarray(values)
        check(x, a)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(OPERATORS)),
    st.sampled_from(["float32", "float64"]),
    st.sampled_from([(), (slice(1, 3),), (slice(None), slice(1, 4)), (slice(None, None, 2), 3), (0, 0)]),
    st.one_of(NUMBERS, st.sampled_from(["same", "row", "point"])),
    st.booleans(),
)
def test_operators_are_numpys(name, dtype, index, other, swapped):
    a = matrix(dtype)
    x = tj.asarray(a)
    if isinstance(other, str):
        part = {"same": index, "row": (*index, 0)[:2], "point": (2, 2)}[other]
        b, y = np.asarray(a[::-1][part]), x[::-1][part]
    else:
        b, y = other, other
    apply = OPERATORS[name]
    if swapped:
        check(outcome(lambda: apply(y, x[index])), outcome(lambda: apply(b, np.asarray(a[index]))))
    else:
        check(outcome(lambda: apply(x[index], y)), outcome(lambda: apply(np.asarray(a[index]), b)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_in_place_operators_write_through_views(dtype):
    a = matrix(dtype) + 1
    x = tj.asarray(a)
    for module in (a, x):
        module[1:3, 1:4] += module[0, 1:4]
        module[0] *= 2
        module[:, 1] -= 0.25
        module[2] /= module[3]
        module[1:] += module[:-1]  # the same memory, moved: left to Python
        module[1, 2] -= module[0, 0]
        module[3] -= module[3]
    check(x, a)


@pytest.mark.parametrize(
    "shapes", [((5,), (5,)), ((3, 5), (5,)), ((5,), (5, 2)), ((3, 5), (5, 2)), ((3, 0), (0, 2))]
)
def test_products_have_the_bits_of_launches(shapes, monkeypatch):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype("float32") for shape in shapes)
    x, y = tj.asarray(a), tj.asarray(b)
    found = [x @ y for _ in range(3)]
    with monkeypatch.context() as patch:
        patch.setattr(eager, "SMALL", -1)
        wanted = (tj.asarray(a) @ tj.asarray(b)).numpy()
    assert all(f.numpy().tobytes() == wanted.tobytes() and f.shape == wanted.shape for f in found)
    monkeypatch.setattr(config, "check", True)
    assert (x @ y).shape == wanted.shape


def test_errors_are_those_of_methods():
    x = tj.ones((2, 3))
    with pytest.raises(tj.errors.OutOfBoundsError, match=r"(?s)test_machine"):
        x[2]
    with pytest.raises(tj.errors.ShapeError, match=r"(?s)add.*test_machine"):
        x + tj.ones(2)
    with pytest.raises(AttributeError, match="__delitem__"):
        del x[0]
    with pytest.raises(TypeError):
        x + "a"
    with pytest.raises(tj.errors.ReadOnlyError):
        tj.broadcast_to(tj.ones(1), (3,))[0] = tj.asarray(2.0)


def test_what_records_is_told():
    x = tj.asarray([1.0, 2.0])
    assert not recorders

    @tj.jit
    def step(x):
        return x[1:] * 2.0 + x[0]

    def loss(x):
        assert threading.get_ident() in recorders
        return (x[1:] * x[0]).sum()

    assert step(x).tolist() == step(x).tolist() == [5]
    assert not recorders
    assert tj.grad(loss)(x).tolist() == [2, 1]
    assert not recorders


def test_what_a_launch_has_used_is_recorded():
    x = tj.asarray([1.0, 2.0])
    x._storage.initialise()
    assert x._storage.variable is not None
    x += 1
    assert (x * 2)[1:].tolist() == [6]


def test_views_become_views_when_somebody_asks():
    x = tj.asarray(np.arange(12, dtype="float32").reshape(3, 4))
    y = x[1:, ::2]
    assert type(y._storage) is ComputedStorage
    assert (y._view.offset, y._view.shape, y._view.strides) == (4, (2, 2), (4, 2))
    assert (y + 0)._view.strides == (2, 1)
    assert tj.jit(lambda y: y * 2)(y).tolist() == [[8, 12], [16, 20]]


def test_nothing_is_left_behind():
    x, y = tj.asarray(np.ones((4, 5), "float32")), tj.asarray(np.ones(5, "float32"))
    known = [x, y, x._memory, x._memory.dtype, x._storage, 3.5]

    def work():
        for _ in range(50):
            z = x[1, :3] * 2.0 - x[0, 1:4]
            x[1, :3] = z
            x[2, 2] = z[0]
            x[3] += y
            float((x @ y)[0] / 2)
            with pytest.raises(IndexError):
                x[9]

    work()
    gc.collect()
    before = [sys.getrefcount(thing) for thing in known]
    work()
    gc.collect()
    assert [sys.getrefcount(thing) for thing in known] == before


def test_another_layout_leaves_python_alone(monkeypatch):
    class Arrays:
        def __getitem__(self, index):
            return index

    method = Arrays.__getitem__
    monkeypatch.setattr(machine_code.objects, "knows_layout", lambda: False)
    monkeypatch.setattr(machine_code, "_methods", {})
    monkeypatch.setattr(machine_code, "AFTER", 0)
    machine_code.watch(Arrays)
    assert Arrays.__getitem__ is not method
    assert Arrays()[3] == 3
    assert Arrays.__getitem__ is method


def test_a_full_state_has_room_for_all_methods():
    assert layout.METHODS + 8 * len(machine_code.METHODS) <= layout.STATE_BYTES
    assert machine_code.METHODS[layout.GETITEM] == "__getitem__"
    assert machine_code.METHODS[layout.TO_FLOAT] == "__float__"
