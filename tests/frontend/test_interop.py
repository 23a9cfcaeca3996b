"""NumPy's protocols, NumPy conversion, DLPack and pickling."""

import copy
import pickle

import numpy as np
import pytest

import tracejit as tj
from tests.frontend.samples import DTYPES, laid_out, sample


def is_array_with(got, expected):
    assert isinstance(got, tj.NDArray)
    assert got.dtype == expected.dtype
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-14)


# -- NumPy's protocols


def test_ufuncs_give_ndarrays(evaluator):
    a = np.linspace(0.1, 0.9, 6).reshape(2, 3)
    x = tj.asarray(a)
    for ufunc in (
        np.sin,
        np.arcsin,
        np.absolute,
        np.rint,
        np.sqrt,
        np.logical_not,
        np.isnan,
        np.negative,
        np.positive,
    ):
        is_array_with(ufunc(x), ufunc(a))
    for ufunc in (np.add, np.true_divide, np.power, np.mod, np.arctan2, np.maximum, np.less, np.logaddexp):
        is_array_with(ufunc(x, a), ufunc(a, a))
        is_array_with(ufunc(a, x), ufunc(a, a))
    is_array_with(np.matmul(a, x.T), a @ a.T)
    is_array_with(np.vecdot(x, a), np.vecdot(a, a))
    is_array_with(np.add.reduce(x), a.sum(0))
    is_array_with(np.maximum.reduce(x, axis=1, keepdims=True), a.max(1, keepdims=True))
    is_array_with(np.add(x, 1, dtype=np.float32), np.add(a, 1, dtype=np.float32))


def test_ufuncs_compute_in_the_dtype_that_is_asked_for():
    small, wide = np.array([100, 100, -128], np.int8), np.array([1e30, 2], np.float32)
    unsigned = np.array([200, 3], np.uint8)
    for ufunc, inputs, dtype in [
        (np.add, (small, small), np.int64),
        (np.add, (small, 100), np.int16),
        (np.add, (2.5, wide), np.float64),
        (np.square, (wide,), np.float64),
        (np.negative, (unsigned,), np.int64),
        (np.less, (small, 3), np.bool_),
        (np.divide, (small, small), np.float64),
    ]:
        ours = [tj.asarray(x) if isinstance(x, np.ndarray) else x for x in inputs]
        is_array_with(ufunc(*ours, dtype=dtype), ufunc(*inputs, dtype=dtype))
    for ufunc, x, dtype in [(np.maximum, unsigned, np.int8), (np.multiply, wide, np.float64)]:
        is_array_with(ufunc.reduce(tj.asarray(x), dtype=dtype), ufunc.reduce(x, dtype=dtype))
    for ufunc, dtype in [(np.less, np.int64), (np.divide, np.int64), (np.left_shift, np.float64)]:
        with pytest.raises(TypeError):
            ufunc(tj.asarray(small), tj.asarray(small), dtype=dtype)


def test_ufuncs_with_out(evaluator):
    a = np.arange(3.0)
    x, out = tj.asarray(a), tj.zeros(3, dtype=tj.float64)
    assert np.multiply(x, 2, out=out) is out
    is_array_with(out, a * 2)
    target = np.zeros(3)
    assert np.add(x, x, out=target) is target
    np.testing.assert_array_equal(target, a * 2)
    target += x
    assert type(target) is np.ndarray
    np.testing.assert_array_equal(target, a * 3)
    small = np.zeros(3, np.int32)
    with pytest.raises(TypeError):
        small += x


def test_what_does_not_exist_is_refused():
    x = tj.ones(3)
    for call, name in [
        (lambda: np.isnat(x), "isnat"),
        (lambda: np.copy(x, subok=True), "subok"),
        (lambda: np.busday_count(x, x), "busday_count"),
    ]:
        with pytest.raises(tj.errors.ArgumentError, match=rf"{name}(?s:.*)test_interop"):
            call()


FUNCTIONS = {
    "sum": lambda f, x: (f.sum(x), f.sum(x, 0), f.sum(x, axis=1, keepdims=True), f.sum(x, 0, np.float32)),
    "extremes": lambda f, x: (f.max(x, 1), f.amin(x, axis=0), f.argmax(x), f.argmin(x, 1)),
    "moments": lambda f, x: (f.mean(x, axis=0), f.std(x, ddof=1), f.var(x, 1), f.prod(x)),
    "truth": lambda f, x: (f.all(x > 0), f.any(x > 2, axis=0)),
    "join": lambda f, x: (
        f.concatenate([x, x], axis=1),
        f.concatenate((x, x), axis=None),
        f.stack([x, x], axis=-1),
    ),
    "shape": lambda f, x: (
        f.reshape(x, (6,)),
        f.ravel(x),
        f.transpose(x),
        f.expand_dims(x, 0),
        f.squeeze(x[None]),
    ),
    "order": lambda f, x: (f.moveaxis(x, 0, 1), f.swapaxes(x, 0, 1), f.flip(x, 0), f.roll(x, 1, axis=1)),
    "pick": lambda f, x: (f.take(x, [1, 0], axis=0), f.where(x > 1, x, 0.0), f.clip(x, 0.5, 2), f.tril(x)),
    "products": lambda f, x: (f.dot(x, b=x.T), f.tensordot(x, x, axes=2), f.outer(x[0], x[1])),
    "sums": lambda f, x: (
        f.cumsum(x),
        f.cumsum(x, 1),
        f.cumulative_sum(x, axis=0),
        f.count_nonzero(x, axis=0),
    ),
    "new": lambda f, x: (
        f.zeros_like(x),
        f.ones_like(x, dtype=np.int8),
        f.full_like(x, 3),
        f.copy(x),
        f.round(x, 1),
    ),
    "grid": lambda f, x: (
        *f.meshgrid(x[0], x[1]),
        *f.broadcast_arrays(x, x[0]),
        f.broadcast_to(x, (2, 2, 3)),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_give_ndarrays(name, evaluator):
    a = np.linspace(0.3, 2.7, 6).reshape(2, 3)
    for got, expected in zip(FUNCTIONS[name](np, tj.asarray(a)), FUNCTIONS[name](np, a), strict=True):
        is_array_with(got, np.asarray(expected))


def test_functions_about_arrays():
    x = tj.ones((2, 3))
    assert np.shape(x) == (2, 3)
    assert np.ndim(x) == 2
    assert np.size(x) == 6
    assert np.result_type(x, np.float64) == np.float64
    assert np.array_equal(x, np.ones((2, 3)))
    out = np.zeros(3)
    assert np.sum(x, axis=0, out=out) is out
    np.testing.assert_array_equal(out, [2, 2, 2])
    np.testing.assert_allclose(x, 1)


# -- NumPy conversion


def test_numpy_is_a_snapshot():
    x = tj.arange(3)
    seen = x.numpy()
    x[0] = 9
    assert seen.tolist() == [0, 1, 2]
    seen[1] = 7
    assert x.tolist() == [9, 1, 2]
    view = x.numpy(copy=False)
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1
    x[0] = 5
    x.wait()
    assert view.tolist() == [5, 1, 2]


def test_conversions_to_python():
    assert tj.asarray([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]
    assert float(tj.asarray(1.5)) == 1.5
    assert int(tj.asarray([7])) == 7
    assert [10, 20, 30][tj.asarray(1)] == 20
    assert bool(tj.asarray(3))
    assert f"{tj.asarray(1.5):.2f}" == "1.50"
    assert np.asarray(tj.arange(3)).tolist() == [0, 1, 2]
    with pytest.raises(TypeError, match="expected one"):
        float(tj.ones(2))
    with pytest.raises(TypeError, match="0-d integer"):
        [1][tj.ones(())]


# -- DLPack


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_from_dlpack_shares(dtype):
    a = sample(np.random.default_rng(1), (3, 4), dtype)
    x = tj.from_dlpack(a)
    np.testing.assert_array_equal(x.numpy(), a)
    a[1, 2] = 1
    assert x.numpy()[1, 2] == 1
    x[0] = False
    x.wait()
    assert not a[0].any()


@pytest.mark.parametrize(
    "index", [np.s_[::2, 1:], np.s_[::-1, ::-2], np.s_[1], np.s_[:, 0], np.s_[2:2], np.s_[...], np.s_[1, 1]]
)
@pytest.mark.parametrize("order", ["C", "F"])
def test_from_dlpack_of_views(index, order):
    a = np.asarray(np.arange(20.0).reshape(4, 5), order=order)
    part = a[index] if not np.isscalar(a[index]) else a[index[0], index[1] : index[1] + 1].reshape(())
    x = tj.from_dlpack(part)
    np.testing.assert_array_equal(x.numpy(), part)
    x += 100
    x.wait()
    np.testing.assert_array_equal(x.numpy(), part)
    expected = np.asarray(np.arange(20.0).reshape(4, 5), order=order)
    expected[index] += 100
    np.testing.assert_array_equal(a, expected)


def test_dlpack_both_ways():
    x = tj.arange(6).reshape(2, 3).T
    seen = np.from_dlpack(x)
    x[0, 0] = 50
    x.wait()
    np.testing.assert_array_equal(seen, [[50, 3], [1, 4], [2, 5]])
    assert tj.from_dlpack(x) is x
    assert x.__dlpack_device__() == (1, 0)


class UnspeakableError(ValueError, BufferError):
    def __str__(self):
        raise RuntimeError("no text")


class Unspeakable:
    def __array__(self, dtype=None, copy=None):
        raise UnspeakableError

    def __dlpack__(self, **options):
        raise UnspeakableError


def test_foreign_errors_without_a_text_are_told():
    x = Unspeakable()
    with pytest.raises(tj.errors.ArgumentError, match=r"from_dlpack: .*UnspeakableError"):
        tj.from_dlpack(x)
    del Unspeakable.__dlpack__
    with pytest.raises(tj.errors.ShapeError, match=r"asarray: .*UnspeakableError"):
        tj.asarray(x)


def test_dlpack_copies_when_it_must():
    a = np.arange(3)
    a.flags.writeable = False
    x = tj.from_dlpack(a)
    x[0] = 9
    assert x.tolist() == [9, 1, 2]
    assert a.tolist() == [0, 1, 2]
    with pytest.raises(tj.errors.ArgumentError, match=r"read-only(?s:.*)test_interop"):
        tj.from_dlpack(a, copy=False)
    b = np.arange(3)
    copied = tj.from_dlpack(b, copy=True)
    copied[0] = 9
    assert copied.tolist() == [9, 1, 2]
    assert b[0] == 0
    with pytest.raises(tj.errors.ArgumentError, match="no __dlpack__"):
        tj.from_dlpack([1, 2])


def test_shared_memory_outlives_its_exporter():
    x = tj.from_dlpack(np.full(1000, 3.0))
    junk = [np.zeros(1000) for _ in range(50)]
    assert (x == 3).all()
    del junk


# -- pickling and copying


def test_pickling_and_copying():
    rng = np.random.default_rng(2)
    for dtype in DTYPES:
        a = sample(rng, (2, 3), dtype)
        for again in (
            pickle.loads(pickle.dumps(laid_out(rng, a))),
            copy.copy(tj.asarray(a)),
            copy.deepcopy({"x": tj.asarray(a)})["x"],
        ):
            assert again.dtype == a.dtype
            np.testing.assert_array_equal(again.numpy(), a)
    assert pickle.loads(pickle.dumps(tj.sin)) is tj.sin


# -- inside traced functions


def test_numpy_functions_are_traced():
    a = np.linspace(0, 1, 6).reshape(2, 3)
    traced = tj.jit(lambda x: np.concatenate([np.sum(np.sin(x), axis=0), np.add(a[0], x[1])]), strict=True)
    for _ in range(2):
        np.testing.assert_allclose(
            traced(tj.asarray(a)).numpy(), np.concatenate([np.sin(a).sum(0), a[0] + a[1]])
        )


def test_the_namespace_protocol():
    assert tj.ones(2).__array_namespace__() is tj


def test_arguments_of_numpy_functions_find_their_places_in_every_call():
    """The places are kept for a function and the names that are given; what stands there is not."""
    x = np.arange(6.0).reshape(2, 3)
    a = tj.asarray(x)
    for axis in (0, 1, None):
        for keep in (True, False):
            np.testing.assert_array_equal(
                np.sum(a, axis, keepdims=keep).numpy(), np.sum(x, axis, keepdims=keep)
            )
            np.testing.assert_array_equal(np.sum(axis=axis, a=a).numpy(), np.sum(x, axis))
    for out in (None, tj.zeros(3, dtype=tj.float64)):
        found = np.sum(a, 0, out=out)
        assert out is None or found is out
        np.testing.assert_array_equal(found.numpy(), x.sum(0))
    for _ in range(2):
        with pytest.raises(TypeError, match="axes"):
            np.sum(a, axes=0)
    for parts in ((a, a), (a, 2 * a)):
        np.testing.assert_array_equal(
            np.concatenate(parts, 1).numpy(), np.concatenate([p.numpy() for p in parts], 1)
        )
