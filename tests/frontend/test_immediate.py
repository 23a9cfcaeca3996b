"""Small operations that NumPy computes at once: the values, the order and the errors of recorded ones."""

import itertools
import math
import operator
import threading
import time

import numpy as np
import pytest

import tracejit as tj
from tests.frontend.samples import DTYPES, sample
from tests.thorough import some
from tracejit import engine
from tracejit.errors import DTypeError, ReadOnlyError, ShapeError
from tracejit.frontend.arrays import at_hand, immediate
from tracejit.frontend.recording import eager

OPERATORS = [
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "lt",
    "le",
    "eq",
    "ne",
    "and_",
    "xor",
    "lshift",
]
NUMBERS = [0, 1, 7, -3, 0.0, -0.0, 0.1, float("inf"), float("nan"), 1e300, True, False]


def is_computed(x):
    return x._storage.pending is None


def same_bits(a, b):
    """Equal dtype, shape and bits; any nan is like any other."""
    a, b = np.asarray(a), np.asarray(b)
    alike = a.dtype == b.dtype and a.shape == b.shape
    return (
        alike and np.array_equal(a, b, equal_nan=a.dtype.kind == "f") and np.array_equal(_signs(a), _signs(b))
    )


def _signs(a):
    return np.signbit(np.where(np.isnan(a), 0, a)) if a.dtype.kind == "f" else a < 0


def outcome(function):
    """The result of `function`, or the type of the error that it raises."""
    try:
        return function()
    except tj.TracejitError as error:
        return type(error)


@pytest.fixture
def recorded(monkeypatch):
    """``recorded(fn)``: the outcome of `fn`, where everything is recorded and compiled."""

    def run(function):
        with monkeypatch.context() as patch:
            patch.setattr(eager, "SMALL", -1)
            result = outcome(function)
            return result.numpy() if isinstance(result, tj.NDArray) else result

    return run


@pytest.mark.parametrize("name", some(OPERATORS, 7))
def test_results_are_those_of_kernels(name, recorded):
    apply, rng = getattr(operator, name), np.random.default_rng(0)
    dtypes = ("bool", "int8", "int64", "uint64", "float32", "float64")
    for dtype in map(np.dtype, dtypes[OPERATORS.index(name) % 2 :: 2]):
        array = sample(rng, (3, 4), dtype, special=True)
        x = tj.asarray(array)
        others = [tj.asarray(sample(rng, (4,), dtype, special=True)), *NUMBERS]
        for other, (a, b) in itertools.product(others, ((0, 1), (1, 0))):
            pair = (x, other)
            got = outcome(lambda p=pair, a=a, b=b: apply(p[a], p[b]))
            wanted = recorded(lambda p=pair, a=a, b=b: apply(p[a], p[b]))
            if isinstance(got, tj.NDArray):
                assert same_bits(got.numpy(), wanted), (dtype, other, a)
            else:
                assert got is wanted, (dtype, other, a)


@pytest.mark.parametrize("name", ["iadd", "imul", "isub", "itruediv", "ifloordiv"])
def test_in_place_results_are_those_of_kernels(name, recorded):
    apply, rng = getattr(operator, name), np.random.default_rng(1)
    for dtype in DTYPES:
        array = sample(rng, (3, 4), dtype)
        for other in (tj.asarray(sample(rng, (4,), dtype)), *NUMBERS):
            got = outcome(lambda a=array, other=other: apply(tj.asarray(a), other))
            wanted = recorded(lambda a=array, other=other: apply(tj.asarray(a), other))
            if isinstance(got, tj.NDArray):
                assert same_bits(got.numpy(), wanted), (dtype, other)
            else:
                assert got is wanted, (dtype, other)


def test_operations_on_small_arrays_are_computed_at_once():
    x = tj.asarray(np.arange(6.0).reshape(2, 3))
    for y in (
        x + 1,
        2 - x,
        x * x,
        -x,
        x < 3,
        x[0] / 3,
        tj.sqrt(x),
        x[:, None] * x[0],
        x.astype("int32"),
        x[1, 2],
        tj.tanh(x),
        x.sum(axis=0),
        x @ x.T,
        tj.where(x > 2, x, 0.0),
    ):
        assert is_computed(y)
    assert not is_computed(tj.asarray(np.zeros(eager.SMALL + 1)) + 1)


@pytest.mark.parametrize("shape", [(50, 50), (eager.SMALL,), (4, 4, 4)])
@pytest.mark.parametrize("dtype", ["float64", "complex128", "uint8"])
def test_elements_of_numpy_data_are_read_and_written_at_once(shape, dtype):
    wanted = (np.arange(math.prod(shape)).reshape(shape) % 100).astype(dtype)
    x = tj.asarray(wanted)
    assert is_computed(x)
    for n in range(1, 4):
        index = (n,) * len(shape)
        x[index] = x[(n - 1,) * len(shape)]
        wanted[index] = wanted[(n - 1,) * len(shape)]
        assert is_computed(x)
        assert is_computed(x[index])
    np.testing.assert_array_equal(x.numpy(), wanted)


def test_operands_that_are_not_there_are_recorded(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(eager, "SMALL", -1)
        x = tj.tanh(tj.asarray([1.0, 2.0]))
    y = x * 2
    assert not is_computed(y)
    np.testing.assert_array_equal(y.numpy(), x.numpy() * 2)
    assert is_computed(x + 1)


def test_order_of_recorded_reads_and_writes_at_once():
    x = tj.asarray(np.float32([1, 2, 3]))
    before = tj.tanh(x)  # recorded, reads x as it is
    x += 1
    x[0] = 9
    assert x.tolist() == [9, 3, 4]
    np.testing.assert_allclose(before.numpy(), np.tanh(np.float32([1, 2, 3])), rtol=1e-6)
    x *= 2  # nothing is open now
    assert x.tolist() == [18, 6, 8]


def test_order_with_tasks_of_the_engine():
    x, seen = tj.asarray(np.float32([1, 2, 3])), []

    def look():
        time.sleep(0.05)
        seen.append(x.tolist())

    engine.push(look, reads=[x])
    x += 1  # after the task
    y = x * 2
    assert (x.tolist(), y.tolist()) == ([2, 3, 4], [4, 6, 8])
    assert seen == [[1, 2, 3]]

    def change():
        time.sleep(0.05)
        x[1] = 50

    engine.push(change, writes=[x])
    assert (x + 1).tolist() == [3, 51, 5]


def test_views_alias_and_overlapping_operands_are_read_first():
    x, n = tj.asarray(np.arange(8)), np.arange(8)
    x[1:] += x[:-1]
    n[1:] += n[:-1]
    x[::-1][:3] = x[:3]
    n[::-1][:3] = n[:3].copy()
    x.reshape(2, 4).T[1] *= 3
    n.reshape(2, 4).T[1] *= 3
    x[2:] = x[:-2]
    n[2:] = n[:-2].copy()
    assert x.tolist() == n.tolist()


def test_results_are_no_views():
    x = tj.asarray([1, 2, 3])
    copies = [x.copy(), x.astype("int64"), +x, tj.asarray(x, copy=True), x[1]]
    x += 10
    assert [c.tolist() for c in copies] == [[1, 2, 3]] * 4 + [2]


def test_a_step_reads_and_writes_what_was_computed_at_once():
    @tj.jit
    def step(w, x):
        w -= x * 0.5
        return w + 1

    w = tj.asarray(np.float32([1, 2])) * 2
    for i in range(3):
        result = step(w, w * 0 + i)
        w += 1
        assert result.tolist() == (w.numpy()).tolist()
    address = w._storage.address
    w *= 0
    assert w._storage.address == address


def test_gradients_see_operations_on_small_arrays():
    def loss(x):
        y = x * 3
        y += x
        return (y * y).sum()

    np.testing.assert_allclose(tj.grad(loss)(tj.asarray([1.0, 2.0])).numpy(), [32, 64])


def test_memory_that_python_sees(recorded):
    x = tj.asarray(np.float32([1, 2]))
    view = x.numpy(copy=False)
    x += 1
    assert view.tolist() == [2, 3]
    outside = np.zeros(3)
    shared = tj.from_dlpack(outside)
    shared[1] = 4
    outside[0] = 7
    assert (shared + 1).tolist() == [8, 5, 1]


def test_errors_are_those_of_the_recorder():
    x = tj.asarray(np.float32([1, 2, 3]))
    with pytest.raises(ShapeError, match=r"add: shapes \(3,\) and \(2,\)(?s:.*)test_immediate"):
        x + tj.ones(2)
    with pytest.raises(ShapeError, match=r"shape(?s:.*)test_immediate"):
        x[...] = tj.asarray(np.float32([1, 2]))
    with pytest.raises(ShapeError, match=r"test_immediate"):
        x += tj.asarray(np.ones((2, 3), np.float32))
    with pytest.raises(DTypeError, match="does not fit into int8"):
        tj.asarray(np.int8([1])) + 300
    with pytest.raises(DTypeError, match="without losing"):
        tj.asarray([1, 2]).__iadd__(0.5)
    wide = tj.broadcast_to(x, (2, 3))
    with pytest.raises(ReadOnlyError, match="broadcast view"):
        wide += 1
    assert x.tolist() == [1, 2, 3]


def test_numpy_arrays_are_operands_as_they_are_now():
    x, n = tj.asarray(np.float32([1, 2, 3])), np.arange(12, dtype=np.float32).reshape(3, 4)[:, 1]
    results = [x + n, n + x, x < n, tj.multiply(n, n)]
    x -= n
    wanted = [[2, 7, 12], [2, 7, 12], [False, True, True], [1, 25, 81]]
    n[:] = 0
    assert [r.tolist() for r in results] == wanted
    assert all(isinstance(r, tj.NDArray) for r in results)
    assert x.tolist() == [0, -3, -6]
    for odd in (np.array([1, 2, 3], ">f4"), np.float16([1, 2, 3]), np.array([1, 2, 3], object)):
        first, second = (outcome(lambda a=a, odd=odd: a + odd) for a in (x, tj.tanh(x)))
        assert first is second if isinstance(first, type) else first.dtype == second.dtype


def test_threads_that_ask_for_the_variable_get_one():
    for _ in range(50):
        x, found, gate = tj.asarray([1.0]) + 1, [], threading.Barrier(4)

        def ask(x=x, found=found, gate=gate):
            gate.wait()
            found.append((x._storage.variable, x._storage.address))

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert len({id(variable) for variable, _ in found}) == 1
        assert {address for _, address in found} == {x._storage.buffer.ctypes.data}


def test_zeros_keep_their_sign_and_numbers_their_type():
    assert np.signbit((tj.asarray([1.0]) * -0.0).numpy()[0])
    assert not np.signbit((tj.asarray([1.0]) * 0.0).numpy()[0])
    assert at_hand.literal(1, np.dtype("float32")).dtype == np.float32
    assert at_hand.literal(2**60 + 1, np.dtype("float32")) is None


@pytest.mark.parametrize("size", [3, 1500])
def test_no_write_is_lost_between_threads(size):
    @tj.jit
    def step(x):
        x += 1

    x, y, gate, torn = tj.asarray(np.zeros(size, np.float32)), tj.ones(size), threading.Barrier(4), []
    step(tj.zeros(size))

    def traced():
        gate.wait()
        for _ in range(200):
            step(x)

    def plain():
        mine = x
        gate.wait()
        for _ in range(200):
            mine += y
            seen = (mine * 2).numpy()
            if (seen != seen[0]).any():
                torn.append(seen)

    threads = [threading.Thread(target=f) for f in (traced, plain, traced, plain)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert x.numpy().tolist() == [800] * size
    assert not torn


class Slow:
    """Stands for `immediate.QUIET`: once, something else happens while NumPy computes."""

    def __init__(self, action):
        self.action = action

    def copy(self):
        return self

    def run(self, function, *operands):
        *given, out = operands
        result, action = function(*given), self.action
        self.action = lambda: None
        action()
        out[...] = result


def test_another_thread_launches_on_what_is_written(monkeypatch):
    @tj.jit
    def step(x):
        x += 10

    step(tj.zeros(3, dtype=tj.int32))
    x = tj.asarray(np.int32([1, 2, 3]))
    other = threading.Thread(target=step, args=(x,))

    def launch():
        other.start()
        time.sleep(0.05)  # it has to wait for the operation

    monkeypatch.setattr(immediate, "QUIET", Slow(launch))
    x += 1
    other.join()
    assert x.tolist() == [12, 13, 14]
    assert x._writable() is None  # it has been used by a launch: from now on writes are recorded


def test_another_thread_writes_what_is_read(monkeypatch):
    @tj.jit
    def step(x):
        x += 10

    x = tj.asarray(np.float32([1, 2, 3]))
    step(x)
    x.wait()
    other = threading.Thread(target=step, args=(x,))

    def launch():
        other.start()
        other.join()

    monkeypatch.setattr(immediate, "QUIET", Slow(launch))
    y = x * 2  # cannot tell what it has read: reads again
    assert y.tolist() == [42, 44, 46]


@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.parametrize("target", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_floats_that_do_not_fit_an_integer_give_the_nearest_one_everywhere(source, target):
    numbers = np.array([2463758071, -3e9, 1e20, -1e20, np.nan, np.inf, 5.7, 300, -5, -0.5], source)
    limits = np.iinfo(target)
    expected = [0 if np.isnan(x) else int(max(limits.min, min(limits.max, x))) for x in numbers.tolist()]
    small, large = tj.asarray(numbers), tj.asarray(np.tile(numbers, 1000))
    assert small.astype(target).tolist() == expected
    assert large.astype(target).tolist() == expected * 1000
    assert tj.jit(lambda x: x.astype(target))(small).tolist() == expected
    assert tj.jit(lambda: tj.full((10,), float("-inf")).astype(target))().tolist() == [limits.min] * 10


def test_arrays_without_dimensions_stay_so():
    yes, x = tj.asarray(True), tj.asarray(2.0)
    for result in (tj.where(yes, x, x), x + x, tj.minimum(x, 1), tj.where(yes, x, 0.0)):
        assert result.shape == ()


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8", "float32"])
def test_negative_and_large_numbers_with_arrays_of_nothing(dtype):
    x = tj.asarray(np.zeros((0, 3), dtype))
    for number in (-1, 100) if dtype != "uint8" else (200,):
        assert tj.minimum(x, number).shape == tj.maximum(number, x).shape == (0, 3)
        assert tj.minimum(x, number).dtype == np.dtype(dtype)
