"""Creation, rearrangement, products and dtypes against NumPy."""

import numpy as np
import pytest

import tracejit as tj
from tests.frontend.samples import DTYPES, SHAPES, assert_close, laid_out, sample

NUMERIC = DTYPES[1:]


def same(got, expected):
    """The same dtype, shape and elements."""
    got = got.numpy() if isinstance(got, tj.NDArray) else got
    assert got.dtype == expected.dtype, (got.dtype, expected.dtype)
    assert got.shape == expected.shape, (got.shape, expected.shape)
    np.testing.assert_array_equal(got, expected)


# -- creation


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_filled_arrays(dtype, evaluator):
    for shape in (*SHAPES, 3):
        same(tj.zeros(shape, dtype=dtype), np.zeros(shape, dtype))
        same(tj.ones(shape, dtype=dtype), np.ones(shape, dtype))
        same(tj.full(shape, 1, dtype=dtype), np.full(shape, 1, dtype))
        assert tj.empty(shape, dtype=dtype).shape == np.empty(shape).shape
        x = tj.zeros(shape, dtype=dtype)
        same(tj.full_like(x, 1), np.full(shape, 1, dtype))
        same(tj.ones_like(x), np.ones(shape, dtype))
        same(tj.zeros_like(x, dtype=tj.int8), np.zeros(shape, np.int8))
        assert tj.empty_like(x).dtype == dtype


def test_dtypes_of_data(evaluator):
    assert tj.asarray(1.5).dtype == np.float32
    assert tj.asarray([1, 2]).dtype == np.int64
    assert tj.asarray([1, 2.0]).dtype == np.float32
    assert tj.asarray(True).dtype == np.bool_
    assert tj.asarray(np.array([1.5])).dtype == np.float64
    assert tj.asarray([np.float64(1.5)]).dtype == np.float64
    assert tj.full(2, 1.5).dtype == np.float32
    assert tj.zeros(2).dtype == np.float32
    same(tj.asarray([[1, 2], [3, 4]], dtype=tj.uint8), np.array([[1, 2], [3, 4]], np.uint8))
    same(tj.asarray([tj.ones(2), tj.zeros(2)]), np.array([[1, 1], [0, 0]], np.float32))
    same(tj.asarray([tj.asarray(1), 2.5]), np.array([1, 2.5]))
    same(tj.full((2, 2), tj.asarray([1, 2])), np.array([[1, 2], [1, 2]]))


def test_asarray_copies_numpy_and_keeps_ndarrays(evaluator):
    array = np.arange(3)
    x = tj.asarray(array)
    array[0] = 9
    same(x, np.arange(3))
    assert tj.asarray(x) is x
    y = tj.asarray(x, copy=True)
    y[0] = 7
    same(x, np.arange(3))
    with pytest.raises(tj.errors.ArgumentError, match="from_dlpack"):
        tj.asarray(array, copy=False)
    with pytest.raises(tj.errors.ArgumentError, match="needs a copy"):
        tj.asarray(x, dtype=tj.float32, copy=False)
    same(tj.array(x, dtype=tj.int8), np.arange(3, dtype=np.int8))


@pytest.mark.parametrize("dtype", ["clongdouble", "datetime64[s]", "U3", "object"])
def test_dtypes_that_do_not_exist_here(dtype):
    with pytest.raises(tj.errors.TracejitError, match=r"not supported(?s:.*)test_functions_arrays"):
        tj.asarray(np.zeros(2).astype(dtype))


def test_arange(evaluator):
    cases = [(5,), (0,), (2, 9), (9, 2, -2), (2, 9, 3), (3, 3), (0.0, 1.0, 0.25), (1, 0, -0.3), (2.5,), (-3,)]
    for case in cases:
        expected = np.arange(*case)
        if expected.dtype.kind == "f":
            assert_close(tj.arange(*case).numpy(), expected.astype(np.float32))
        else:
            same(tj.arange(*case), expected)
        assert_close(tj.arange(*case, dtype=tj.float64).numpy(), np.arange(*case, dtype=np.float64), scale=4)
    for dtype in NUMERIC:
        same(tj.arange(1, 7, 2, dtype=dtype), np.arange(1, 7, 2, dtype=dtype))
    with pytest.raises(tj.errors.ArgumentError, match="step"):
        tj.arange(1, 2, 0)


def test_linspace(evaluator):
    for case in [(0, 1, 5), (0.1, 0.7, 7), (3, -2, 11), (2, 2, 3), (0, 1, 1), (0, 1, 0), (1e-3, 1e3, 50)]:
        for endpoint in (True, False):
            assert_close(
                tj.linspace(*case, dtype=tj.float64, endpoint=endpoint).numpy(),
                np.linspace(*case, endpoint=endpoint),
                ulps=2,
                scale=abs(case[0]) + abs(case[1]),
            )
            assert tj.linspace(*case, endpoint=endpoint).dtype == np.float32
    same(tj.linspace(0, 10, 4, dtype=tj.int32), np.linspace(0, 10, 4, dtype=np.int32))
    assert tj.linspace(0, 0.7, 8)[-1].item() == np.float32(0.7)


def test_eye_and_triangles(evaluator):
    rng = np.random.default_rng(1)
    for rows, columns, k in [(3, 3, 0), (2, 4, 1), (4, 2, -1), (3, 3, 5), (0, 2, 0)]:
        same(tj.eye(rows, columns, k=k, dtype=tj.int16), np.eye(rows, columns, k, np.int16))
        for dtype in ("bool", "float32", "uint8"):
            array = sample(rng, (2, rows, columns), dtype)
            same(tj.tril(laid_out(rng, array), k), np.tril(array, k))
            same(tj.triu(laid_out(rng, array), k), np.triu(array, k))
    with pytest.raises(tj.errors.ShapeError, match="tril: needs at least 2"):
        tj.tril(tj.ones(3))


@pytest.mark.parametrize("k", [-(2**70), -3, -2, 3, 4, 2**63])
def test_diagonals_outside_of_the_matrix(evaluator, k):
    near = max(min(k, 9), -9)
    x = np.ones((2, 3))
    np.testing.assert_array_equal(tj.eye(2, 3, k=k), np.eye(2, 3, near))
    np.testing.assert_array_equal(tj.tri(2, 3, k), np.tri(2, 3, near))
    np.testing.assert_array_equal(tj.tril(tj.asarray(x), k), np.tril(x, near))
    np.testing.assert_array_equal(tj.triu(tj.asarray(x), k), np.triu(x, near))


def test_triangles_hold_no_nan_of_the_other_half(run):
    array = np.full((5, 5), np.nan, np.float32)
    same(run(lambda x: tj.nn.relu(tj.triu(x, 9)), tj.asarray(array)), np.zeros((5, 5), np.float32))


@pytest.mark.parametrize("indexing", ["xy", "ij"])
def test_meshgrid(indexing, evaluator):
    lines = [np.arange(3), np.arange(4.0), np.arange(2)]
    for count in (0, 1, 2, 3):
        expected = np.meshgrid(*lines[:count], indexing=indexing)
        got = tj.meshgrid(*map(tj.asarray, lines[:count]), indexing=indexing)
        assert len(got) == count
        for a, b in zip(got, expected, strict=True):
            same(a, b)


# -- rearrangement

VIEWS = {
    "reshape": [
        ((2, 3, 4), (6, 4)),
        ((2, 3, 4), (-1,)),
        ((2, 3, 4), (4, -1, 2)),
        ((), (1, 1)),
        ((0, 3), (3, 0, 2)),
    ],
    "expand_dims": [((2, 3), 0), ((2, 3), -1), ((2, 3), (0, 2)), ((), 0), ((4,), (-1, 0))],
    "squeeze": [((1, 3, 1), None), ((1, 3, 1), 0), ((1, 3, 1), (0, -1)), ((2,), ())],
    "flip": [((2, 3), None), ((2, 3), 1), ((2, 3), (0, 1)), ((), None), ((0, 2), 0)],
    "transpose": [((2, 3, 4), None), ((2, 3, 4), (1, 2, 0)), ((2, 3), (-1, 0)), ((), None)],
    "broadcast_to": [((3,), (2, 3)), ((1, 3), (4, 3)), ((), (2, 0)), ((2, 3), (2, 3))],
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_of_one_argument(name, evaluator):
    rng = np.random.default_rng(2)
    for shape, argument in VIEWS[name]:
        for dtype in ("float32", "int64", "bool"):
            array = sample(rng, shape, dtype)
            same(getattr(tj, name)(laid_out(rng, array), argument), getattr(np, name)(array, argument))


WINDOWS = [
    ((6,), 3, None),
    ((4, 5), (2, 3), None),
    ((4, 5), 5, 1),
    ((4, 5), (2, 2), (0, 0)),
    ((3, 4, 5), (2, 4), (-1, 1)),
    ((), (), None),
    ((3, 4), (), ()),
]


@pytest.mark.parametrize(("shape", "window", "axis"), WINDOWS)
def test_sliding_windows(shape, window, axis, evaluator):
    rng = np.random.default_rng(2)
    array = sample(rng, shape, "float32")
    x, expected = laid_out(rng, array), np.lib.stride_tricks.sliding_window_view(array, window, axis)
    same(tj.sliding_window_view(x, window, axis), expected)
    same(np.lib.stride_tricks.sliding_window_view(x, window, axis=axis), expected)
    with pytest.raises(tj.errors.ReadOnlyError):
        tj.sliding_window_view(x, window, axis)[...] = 0


def test_gradient_of_sliding_windows():
    """The windows of a moving average overlap."""
    x = tj.asarray([1.0, 2.0, 3.0, 4.0])
    slope = tj.grad(
        lambda x: (tj.sliding_window_view(x, 2).sum(axis=1) * tj.asarray([1.0, 10.0, 100.0])).sum()
    )
    same(slope(x), np.float32([1, 11, 110, 100]))


def test_other_orders_of_dimensions(evaluator):
    rng = np.random.default_rng(3)
    array = sample(rng, (2, 3, 4, 5), np.float64)
    x = laid_out(rng, array)
    same(tj.permute_dims(x, (3, 1, 0, 2)), array.transpose(3, 1, 0, 2))
    same(tj.matrix_transpose(x), np.matrix_transpose(array))
    same(x.mT, np.matrix_transpose(array))
    same(x.T, array.T)
    same(tj.swapaxes(x, 0, -1), array.swapaxes(0, -1))
    for source, destination in [(0, -1), ((0, 1), (2, 0)), ((-1, 0), (0, 1))]:
        same(tj.moveaxis(x, source, destination), np.moveaxis(array, source, destination))
    same(tj.ravel(x), array.ravel())
    same(x.transpose(1, 0, 2, 3), array.transpose(1, 0, 2, 3))
    same(x.reshape(6, -1), array.reshape(6, -1))
    for got, expected in zip(tj.unstack(x, axis=1), np.unstack(array, axis=1), strict=True):
        same(got, expected)


def test_views_alias(evaluator):
    x = tj.zeros((2, 3, 1))
    views = [
        tj.reshape(x, (3, 2)),
        tj.permute_dims(x, (2, 1, 0)),
        tj.squeeze(x),
        tj.flip(x),
        x.T,
        tj.expand_dims(x, 0),
    ]
    for number, view in enumerate(views, 1):
        view[...] = number
        assert (x == number).all()
    same(tj.flip(tj.squeeze(x, 2)[:, :2]), np.full((2, 2), 6, np.float32))
    with pytest.raises(tj.errors.ReadOnlyError):
        tj.broadcast_to(x, (4, 2, 3, 1))[...] = 1
    with pytest.raises(tj.errors.ArgumentError, match="needs a copy"):
        tj.reshape(tj.zeros((2, 3)).T, (6,), copy=False)
    copied = tj.reshape(x, (6,), copy=True)
    copied[...] = 0
    assert (x == 6).all()


def test_broadcast_arrays(evaluator):
    arrays = [np.arange(3), np.ones((2, 1)), np.array(5)]
    for got, expected in zip(
        tj.broadcast_arrays(*map(tj.asarray, arrays)), np.broadcast_arrays(*arrays), strict=True
    ):
        same(got, expected)


def test_concat_and_stack(run):
    rng = np.random.default_rng(4)
    cases = [([(2, 3), (2, 0), (2, 2)], -1), ([(4,), (2, 3)], None), ([(2, 3), (1, 3)], 0), ([(3,)], 0)]
    for shapes, axis in run.some(cases):
        arrays = [sample(rng, s, d) for s, d in zip(shapes, ("float32", "int16", "uint8"), strict=False)]
        inputs = [laid_out(rng, a) for a in arrays]
        same(run(lambda *xs, axis=axis: tj.concat(xs, axis=axis), *inputs), np.concat(arrays, axis=axis))
    arrays = [sample(rng, (2, 3), d) for d in ("int8", "uint8")]
    for axis in run.some((1, 0, -1), 1):
        inputs = [laid_out(rng, a) for a in arrays]
        same(run(lambda *xs, axis=axis: tj.stack(xs, axis=axis), *inputs), np.stack(arrays, axis=axis))


def test_roll(run):
    rng = np.random.default_rng(5)
    array = sample(rng, (3, 5), np.int32)
    cases = [(2, None), ((1, 2), (0, 1)), (-1, 0), (7, 1), (0, 1), (1, (0, 1)), (-13, None)]
    for shift, axis in run.some(cases):
        got = run(lambda x, shift=shift, axis=axis: tj.roll(x, shift, axis), laid_out(rng, array))
        same(got, np.roll(array, shift, axis))
    same(tj.roll(tj.ones((0,)), 3), np.ones(0, np.float32))


def test_take(run):
    rng = np.random.default_rng(6)
    array = sample(rng, (4, 5, 3), np.float32)
    for axis in run.some((1, None, 0, -1)):
        extent = array.size if axis is None else array.shape[axis]
        for shape in run.some([(2, 3), (), (3,), (2, 0)]):
            index = rng.integers(-extent, extent, shape).astype(rng.choice(["int8", "int64"]))
            got = run(
                lambda x, i, axis=axis: tj.take(x, i, axis=axis), laid_out(rng, array), tj.asarray(index)
            )
            same(got, np.take(array, index, axis))
    same(run(lambda x: tj.take(x, [2, 0], axis=1), tj.asarray(array)), array[:, [2, 0]])
    same(run(lambda x: x.take(-1, 0), tj.asarray(array)), array[-1])


def test_take_out_of_range(run):
    def look(x, i):
        return tj.take(x, i, axis=0).numpy()

    with pytest.raises(IndexError, match=r"test_functions_arrays"):
        run(look, tj.ones((3, 2)), tj.asarray([0, 3]))


def test_errors_of_rearrangement():
    x = tj.zeros((2, 3))
    for call, match in [
        (lambda: tj.reshape(x, (4,)), r"reshape: cannot reshape \(2, 3\) \(6 elements\) to \(4,\)"),
        (lambda: tj.reshape(x, (-1, -1)), "reshape"),
        (lambda: tj.reshape(x, (2, -3)), "reshape"),
        (lambda: tj.permute_dims(x, (0,)), "no permutation"),
        (lambda: tj.permute_dims(x, (0, 0)), "repeat"),
        (lambda: tj.squeeze(x, 0), "extent 2, expected 1"),
        (lambda: tj.concat([x, tj.zeros((3, 2))]), "must agree except along axis 0"),
        (lambda: tj.stack([x, x[0]]), "must be equal"),
        (lambda: tj.broadcast_to(x, (3, 3)), "broadcast_to"),
        (lambda: tj.sliding_window_view(x, (3, 1)), "larger than the array"),
        (lambda: tj.sliding_window_view(x, 2), "1 extents of a window for 2 axes"),
        (lambda: tj.sliding_window_view(x, 2, 2), "axis 2"),
        (lambda: tj.zeros((2, -1)), "negative extent"),
        (lambda: tj.matrix_transpose(tj.zeros(2)), "at least 2"),
        (lambda: tj.moveaxis(x, (0, 1), 0), "differ in length"),
    ]:
        with pytest.raises(tj.errors.TracejitError, match=rf"{match}(?s:.*)test_functions_arrays"):
            call()


# -- products


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_matmul_dtypes(dtype, evaluator):
    rng = np.random.default_rng(7)
    a, b = sample(rng, (3, 4), dtype), sample(rng, (4, 2), dtype)
    assert_close(tj.matmul(laid_out(rng, a), laid_out(rng, b)).numpy(), a @ b, scale=40)


MATMULS = [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4))]
MATMULS += [
    ((3,), (5, 3, 2)),
    ((5, 1, 2, 3), (4, 3, 2)),
    ((0, 3), (3, 2)),
    ((2, 0), (0, 3)),
    ((4, 2, 3), (3,)),
]


@pytest.mark.parametrize(("first", "second"), MATMULS)
def test_matmul_shapes(first, second, run):
    rng = np.random.default_rng(8)
    a, b = sample(rng, first, np.float64), sample(rng, second, np.float64)
    assert_close(run(lambda a, b: a @ b, laid_out(rng, a), laid_out(rng, b)), a @ b, scale=30)


def test_other_products(run):
    rng = np.random.default_rng(9)
    a, b = sample(rng, (2, 3, 4), np.float64), sample(rng, (4, 3, 5), np.float64)
    cases = [
        (lambda a, b: tj.tensordot(a, b, axes=1), np.tensordot(a, b, axes=1)),
        (lambda a, b: tj.tensordot(a, b, axes=((1, 2), (1, 0))), np.tensordot(a, b, axes=((1, 2), (1, 0)))),
        (lambda a, b: tj.tensordot(a, b, axes=0), np.tensordot(a, b, axes=0)),
        (lambda a, b: tj.dot(a, b[:, 0]), np.dot(a, b[:, 0])),
        (lambda a, b: tj.outer(a[0], b[0]), np.outer(a[0], b[0])),
        (
            lambda a, b: tj.vecdot(a[:, :, None, :3], b[None, 0, :, :3]),
            np.vecdot(a[:, :, None, :3], b[None, 0, :, :3]),
        ),
        (lambda a, b: tj.vecdot(a, a, axis=0), np.vecdot(a, a, axis=0)),
        (lambda a, b: tj.dot(a, 2.0), a * 2),
    ]
    for function, expected in run.some(cases, 6):
        assert_close(run(function, laid_out(rng, a), laid_out(rng, b)), expected, scale=30)


def test_dot_of_many_dimensions(evaluator):
    rng = np.random.default_rng(10)
    a, b = sample(rng, (2, 3, 4), np.float64), sample(rng, (5, 4, 2), np.float64)
    assert_close(tj.dot(tj.asarray(a), tj.asarray(b)).numpy(), np.dot(a, b), scale=30)


def test_errors_of_products():
    a, b = tj.ones((2, 3)), tj.ones((2, 3))
    for call, match in [
        (lambda: a @ b, r"matmul: \(2, 3\) @ \(2, 3\): the last extent of the first \(3\)"),
        (lambda: tj.matmul(a, 2.0), "at least one dimension"),
        (lambda: tj.tensordot(a, b, axes=3), "tensordot: axes 3 do not fit"),
        (lambda: tj.tensordot(a, b, axes=((0,), (1,))), "do not agree"),
        (lambda: tj.vecdot(a, tj.ones(2)), "vectors of 3 and 2 elements"),
    ]:
        with pytest.raises(tj.errors.ShapeError, match=rf"{match}(?s:.*)test_functions_arrays"):
            call()


# -- dtypes


def test_astype_converts_as_numpy(evaluator):
    rng = np.random.default_rng(11)
    for first in DTYPES:
        for second in DTYPES:
            low = 0 if second.kind == "u" else -3
            array = np.abs(sample(rng, (20,), first)) if low == 0 else sample(rng, (20,), first)
            same(tj.astype(laid_out(rng, array), second), array.astype(second))
    x = tj.ones(2)
    assert x.astype(tj.float32, copy=False) is x
    assert x.astype(tj.float32) is not x


def test_questions_about_dtypes():
    assert tj.result_type(tj.ones(2), 1.5, tj.int16) == np.float32
    assert tj.can_cast(tj.ones(2), tj.float64)
    assert not tj.can_cast(tj.int64, tj.int32)
    assert tj.isdtype(tj.ones(2).dtype, "real floating")
    assert tj.finfo(tj.ones(2)).eps == np.finfo(np.float32).eps
    assert tj.iinfo(tj.uint8).max == 255
    assert tj.bool == np.dtype(bool)
    assert tj.newaxis is None
    assert [tj.pi, tj.e, tj.inf] == [np.pi, np.e, np.inf]


def test_everything_public_is_documented_and_named():
    for name in tj.__all__:
        member = getattr(tj, name)
        if callable(member) and not isinstance(member, type):
            assert member.__doc__, name
            assert getattr(tj, member.__name__) is member, name


# -- numbers of traced calls

OF_A_NUMBER = {
    "full": lambda x, n: tj.full((2, 3), n),
    "full_like": lambda x, n: tj.full_like(x, n),
    "asarray": lambda x, n: tj.asarray([n, 1.0]) + tj.asarray(n),
    "where": lambda x, n: tj.where(x > n, x, n),
    "clip": lambda x, n: tj.clip(x, -n, n),
    "linspace": lambda x, n: tj.linspace(0.0, n, 5),
    "pow": lambda x, n: tj.pow(tj.abs(x), n),
    "mean": lambda x, n: tj.mean(x * n) / n,
    "uniform": lambda x, n: tj.random.uniform(0.0, n, (3,)).max() < n,
    "setitem": lambda x, n: assigned_number(x, n),
}


def assigned_number(x, n):
    y = x.copy()
    y[0] = n
    y += n * 2 - 1
    return y


@pytest.mark.parametrize("name", OF_A_NUMBER)
def test_numbers_stay_run_time_inputs(name):
    x = tj.linspace(-1, 1, 6).reshape(2, 3)
    function = OF_A_NUMBER[name]
    traced = tj.jit(function, strict=True)
    for number in (0.25, 0.75, 2.5):  # half as an exponent would be the square root
        np.testing.assert_allclose(traced(x, number).numpy(), function(x, number).numpy(), rtol=1e-6)
    assert traced.cache_info().traces == 1


def test_a_batch_times_one_matrix_is_one_product():
    """Rows of all batches are stacked: gradients are products of matrices, without a sum over the batch."""

    @tj.jit
    def step(x, w):
        return tj.value_and_grad(lambda w: ((x @ w) ** 2).sum())(w)

    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((4, 6, 8)), rng.standard_normal((8, 5))
    value, gradient = step(tj.asarray(x), tj.asarray(w))
    np.testing.assert_allclose(value.numpy(), ((x @ w) ** 2).sum(), rtol=1e-12)
    np.testing.assert_allclose(gradient.numpy(), 2 * np.einsum("btk,btn->kn", x, x @ w), rtol=1e-12)
    (product,) = [n for n in step.graph(tj.asarray(x), tj.asarray(w)).nodes[:2] if n.op.name == "matmul"]
    assert product.output.type.shape == (24, 5)


LAYOUTS = {
    "plain": lambda x: x,
    "reversed": lambda x: x.T,
    "permuted": lambda x: x.transpose(1, 0, 2),
    "backwards": lambda x: x[::-1].transpose(2, 0, 1),
    "stepped": lambda x: x[:, ::2],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_orders_of_elements(layout, run):
    def reordered(x):
        x = LAYOUTS[layout](x)
        lines = [f for order in "CFAK" for f in (np.ravel(x, order), x.flatten(order))]
        shapes = [
            f for order in "CFA" for f in (np.reshape(x, (4, -1), order), x.reshape(-1, 2, order=order))
        ]
        return *lines, *shapes

    array = np.arange(24).reshape(2, 3, 4)
    for got, expected in zip(run(reordered, tj.asarray(array)), reordered(array), strict=True):
        np.testing.assert_array_equal(got, expected)
    for call in (tj.ravel, lambda x, order: tj.reshape(x, (-1,), order)):
        with pytest.raises(tj.errors.ArgumentError, match="order is one of"):
            call(tj.asarray(array), "B")


def test_rollaxis_and_broadcast_shapes():
    array = np.zeros((2, 3, 4))
    x = tj.asarray(array)
    for axis in range(-3, 3):
        for start in range(-3, 4):
            assert np.rollaxis(x, axis, start).shape == np.rollaxis(array, axis, start).shape
    with pytest.raises(tj.errors.AxisError):
        tj.rollaxis(x, 0, 4)
    assert tj.broadcast_shapes((2, 1), 3, ()) == (2, 3)
    with pytest.raises(tj.errors.ShapeError, match="do not broadcast"):
        tj.broadcast_shapes((2,), (3,))
