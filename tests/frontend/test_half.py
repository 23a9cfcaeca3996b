"""float16 and bfloat16 against NumPy and ml_dtypes, whose arithmetic is the meaning of them."""

from __future__ import annotations

import os
import pickle

import ml_dtypes
import numpy as np
import pytest

import tracejit as tj
from tracejit.config import config
from tracejit.errors import DTypeError
from tracejit.ir.op import OPS
from tracejit.ir.types import DTYPES

HALVES = [tj.float16, tj.bfloat16]
BITS = np.arange(1 << 16, dtype=np.uint16)
EVERY_DTYPE = list(DTYPES)

pytestmark = [
    pytest.mark.parametrize("dtype", HALVES, ids=str),
    pytest.mark.filterwarnings("ignore:.*encountered in"),
]


def numbers(dtype, *shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def assert_same(result, expected):
    """The same dtype, shape and numbers; nan equals nan, and zeros have signs."""
    result, expected = np.asarray(result), np.asarray(expected)
    assert result.dtype == expected.dtype
    wide = result.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_array_equal(*wide)
    np.testing.assert_array_equal(*(np.signbit(x) & ~np.isnan(x) for x in wide))


def each_way(function, *arrays):
    """The results of eager code, of a first call and of a replay."""
    given = [tj.asarray(x) for x in arrays]
    traced = tj.jit(function)
    return [call(*given).numpy() for call in (function, traced, traced)]


def ulps(a, b):
    """The distance of half numbers in units of the last place."""
    a, b = (x.view(np.int16).astype(int) for x in (a, b))
    return np.abs(np.where(a < 0, -(1 << 15) - a, a) - np.where(b < 0, -(1 << 15) - b, b))


SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, np.inf, -np.inf, np.nan, 1e-7, -1e-40, 6e4, 1e30]
UNARY = [n for n, op in OPS.items() if op.arity == 1 and tj.float16 in op.admits and op.promotion]
BINARY = [n for n, op in OPS.items() if op.arity == 2 and tj.float16 in op.admits and op.promotion]


@pytest.mark.parametrize("name", UNARY + BINARY)
def test_operators_on_every_number(name, dtype):
    """Exactly rounded operators are NumPy's bit for bit, others within one unit in the last place."""
    op = OPS[name]
    others = np.random.default_rng(len(name)).permutation(BITS)
    special = np.meshgrid(SPECIAL, SPECIAL)
    operands = [
        np.concatenate([bits.view(dtype), grid.reshape(-1).astype(dtype)])
        for bits, grid in zip((BITS, others), special, strict=True)
    ][: op.arity]
    expected = op.evaluate(*operands)
    eager, *others = each_way(getattr(tj, name), *operands)
    for result in others:
        assert_same(result, eager)
    if op.is_exact((dtype,)):
        assert_same(eager, expected)
        return
    assert eager.dtype == expected.dtype
    isnan = np.isnan(expected.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(eager.astype(np.float32)), isnan)
    assert ulps(eager, expected)[~isnan].max() <= 1


def test_intermediate_results_are_rounded(dtype):
    """A fused kernel gives the bits of one operator after the other."""
    x = numbers(dtype, 3000)
    three = dtype.type(3)
    expected = ((x * x + dtype.type(1)) / three - x) * three
    for result in each_way(lambda a: ((a * a + 1) / 3 - a) * 3, x):
        assert_same(result, expected)


def test_casts_among_all_dtypes(dtype):
    rng = np.random.default_rng(3)
    for other in EVERY_DTYPE:
        given = (rng.normal(size=40) * 60 if other.kind != "u" else rng.uniform(0, 200, 40)).astype(other)
        if other.kind != "c":
            for result in each_way(lambda a: a.astype(dtype), given):
                assert_same(result, given.astype(dtype))
        halves = given.real.astype(dtype)
        for result in each_way(lambda a, other=other: a.astype(other), halves):
            if other.kind == "c":
                np.testing.assert_array_equal(result, halves.astype(other))
            else:
                assert_same(result, halves.astype(other))


def test_casts_round_as_numpy_does(dtype):
    """float64 to float16 is rounded once; integers go by way of float32."""
    rng = np.random.default_rng(4)
    wide = np.concatenate(
        [
            rng.normal(size=4000) * 10.0 ** rng.integers(-9, 6, 4000),
            [1 + 2**-11 + 2**-40, 1 + 2**-11 - 2**-40, 65519.999, 65520, 2**-25, 2**-25 * (1 + 1e-15)],
            [5e-324, 1e300, -1e300, np.inf, -np.inf, np.nan, -0.0],
        ]
    )
    whole = np.array([2**62 + 1, 257, 2049, 2**24 + 1, -4097, 65520, 70000])
    for given in (wide, whole, wide.astype(np.float32)):
        for result in each_way(lambda a: a.astype(dtype), given):
            assert_same(result, given.astype(dtype))
    for result in each_way(lambda a: a.astype(np.float64).astype(dtype), whole.astype(np.int32)):
        assert_same(result, whole.astype(np.int32).astype(np.float64).astype(dtype))


def test_casts_to_integers_saturate(dtype):
    x = tj.asarray([300.0, -300.0, np.inf, -np.inf, np.nan, -1.5], dtype=dtype)
    assert x.astype(tj.int8).tolist() == [127, -128, 127, -128, 0, -1]


def test_promotion(dtype):
    x = tj.ones(3, dtype=dtype)
    expected = {
        "bool": dtype,
        "int8": dtype,
        "uint8": dtype,
        "int16": tj.float32,
        "int64": tj.float64,
        "float32": tj.float32,
        "float64": tj.float64,
        "complex64": tj.complex64,
        "float16": dtype if dtype == tj.float16 else tj.float32,
        "bfloat16": dtype if dtype == tj.bfloat16 else tj.float32,
    }
    for name, wanted in expected.items():
        other = tj.ones(3, dtype=name)
        assert (x + other).dtype == (other * x).dtype == tj.result_type(dtype, other) == wanted
    for number in (2, 2.5, True, dtype.type(2)):
        assert (x * number).dtype == (number - x).dtype == dtype
    assert (x * np.ones(3, dtype)).dtype == (np.ones(3, dtype) * x).dtype == dtype
    assert tj.jit(lambda a, s: a * s)(x, 0.5).dtype == dtype


def test_numbers_of_a_call(dtype):
    """A run-time number is rounded to the dtype, infinite beyond it."""
    x = numbers(dtype, 500)
    scaled = tj.jit(lambda a, s: a * s + s)
    for number in (0.1, 1 / 3, 70000.0, 3):
        s = dtype.type(number)
        assert_same(scaled(tj.asarray(x), number).numpy(), x * s + s)


def test_reductions_add_up_in_float32(dtype):
    """NumPy's sum of float16 rounds after each row along an outer axis; here it is rounded once."""
    x = numbers(dtype, 37, 300)
    wide = x.astype(np.float64)
    for axis in (None, 0, 1):
        for function, exact in (
            (tj.sum, wide.sum(axis)),
            (tj.mean, wide.mean(axis)),
            (tj.var, wide.var(axis)),
        ):
            for result in each_way(lambda a, f=function, axis=axis: f(a, axis=axis), x):
                assert result.dtype == dtype
                assert ulps(result, exact.astype(dtype)).max() <= 1
        for result in each_way(lambda a, axis=axis: tj.cumsum(a, axis=axis), x):
            assert result.dtype == dtype
            near = float(ml_dtypes.finfo(dtype).eps)
            np.testing.assert_allclose(result.astype(np.float64), wide.cumsum(axis), rtol=near, atol=1e-4)
        for name in ("max", "min", "argmax", "argmin"):
            for result in each_way(lambda a, n=name, axis=axis: getattr(tj, n)(a, axis=axis), x):
                expected = getattr(np, name)(wide, axis)
                assert_same(result, expected if name.startswith("arg") else expected.astype(dtype))
    large = tj.full(100_000, 60000, dtype=dtype)
    assert float(large.mean()) == float(dtype.type(60000))
    assert float(tj.sum(tj.ones(4096, dtype=dtype))) == 4096
    assert tj.sum(large, dtype=tj.float32).dtype == tj.float32


def test_products_are_rounded_once(dtype):
    a, b = numbers(dtype, 33, 70), numbers(dtype, 70, 18, seed=1)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    near = 2 * float(ml_dtypes.finfo(dtype).eps)
    for result in each_way(lambda x, y: x @ y, a, b):
        assert result.dtype == dtype
        np.testing.assert_allclose(result.astype(np.float64), exact, rtol=near, atol=1e-5)
    images, filters = numbers(dtype, 2, 3, 9, 9), numbers(dtype, 4, 3, 3, 3)
    single = tj.nn.conv2d(tj.asarray(images.astype("f4")), tj.asarray(filters.astype("f4")))
    for result in each_way(tj.nn.conv2d, images, filters):
        assert_same(result, single.numpy().astype(dtype))


def test_indexing_and_writing(dtype):
    x = numbers(dtype, 6, 8)

    def change(y):
        y[0] = 1.5
        y[1:3] += 1
        y[[0, 3]] = y[[1, 2]]
        y[:, ::2] *= 2
        return y

    expected = change(x.copy())
    for result in each_way(lambda a: change(a.copy()), x):
        assert_same(result, expected)
    for index in ((slice(1, 3), slice(None, None, -2)), ([0, 2],), (Ellipsis, 1), (x > dtype.type(0),)):
        assert_same(tj.asarray(x)[index].numpy(), x[index])
    for function in (
        lambda n, a: n.concatenate([a, a]),
        lambda n, a: n.where(a > 0.5, a, 0),
        lambda n, a: n.pad(a, 1),
        lambda n, a: n.roll(a, 1),
        lambda n, a: n.take(a, n.asarray([1, 0]), axis=0),
    ):
        assert_same(function(tj, tj.asarray(x)).numpy(), function(np, x).astype(dtype))


def test_sorting(dtype):
    x = numbers(dtype, 4, 50)
    x[0, :3] = np.nan, -np.inf, -0.0
    wide = x.astype(np.float32)
    for result in each_way(tj.sort, x):
        assert_same(result, np.sort(wide).astype(dtype))
    order = tj.argsort(tj.asarray(x), stable=True).numpy()
    np.testing.assert_array_equal(order, np.argsort(wide, stable=True))
    assert_same(tj.unique(tj.asarray(x[1])).numpy(), np.unique(wide[1]).astype(dtype))


def test_creation(dtype):
    for made in (
        tj.zeros(3, dtype=dtype),
        tj.full(3, 2.5, dtype=dtype),
        tj.arange(0, 2, 0.5, dtype=dtype),
        tj.linspace(0, 1, 5, dtype=dtype),
        tj.eye(3, dtype=dtype.name),
        tj.asarray([1, 2.5], dtype=dtype.type),
        tj.ones_like(tj.zeros(2, dtype=dtype)),
    ):
        assert made.dtype == dtype
        assert made.numpy().dtype == dtype
    assert tj.arange(0, 2, 0.5, dtype=dtype).tolist() == [0, 0.5, 1, 1.5]
    assert tj.asarray(numbers(dtype, 3)).dtype == dtype


def test_random_numbers(dtype):
    tj.random.seed(1)
    uniform = tj.random.uniform(shape=20_000, dtype=dtype)
    normal = tj.random.normal(1.0, 2.0, shape=20_000, dtype=dtype)
    assert uniform.dtype == normal.dtype == dtype
    wide = uniform.numpy().astype(np.float64)
    assert 0 <= wide.min() < 0.01
    assert 0.99 < wide.max() < 1
    assert abs(wide.mean() - 0.5) < 0.02
    assert abs(normal.numpy().astype(np.float64).std() - 2) < 0.05


def test_questions(dtype):
    assert tj.isdtype(dtype, "real floating")
    assert tj.isdtype(dtype, ("bool", dtype))
    assert not tj.isdtype(dtype, ("integral", "complex floating"))
    assert float(tj.finfo(dtype).eps) == float(ml_dtypes.finfo(dtype).eps)
    assert tj.can_cast(dtype, tj.float32)
    assert not tj.can_cast(tj.float32, dtype)
    assert dtype.name not in tj.__array_namespace_info__().dtypes()  # the suite of the standard asks for that
    x = tj.asarray([0.5, -2.0], dtype=dtype)
    assert repr(x).endswith(f"dtype={dtype})")
    assert x.tolist() == [0.5, -2.0]
    assert float(x[1]) == -2


def test_files_and_exchange(dtype, tmp_path):
    x = numbers(dtype, 3, 4)
    path = os.fspath(tmp_path / "half.npz")
    tj.save(path, {"x": tj.asarray(x)})
    assert_same(tj.load(path)["x"].numpy(), x)
    assert_same(pickle.loads(pickle.dumps(tj.asarray(x))).numpy(), x)


def test_dlpack(dtype):
    class Exporter:
        """Another library's array."""

        def __init__(self, array):
            self.array = array

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

    x = numbers(dtype, 3, 4)
    given = tj.asarray(x)
    shared = tj.from_dlpack(Exporter(given))
    assert_same(shared.numpy(), x)
    shared += 1
    assert_same(given.numpy(), x + dtype.type(1))
    assert_same(tj.asarray(Exporter(given)).numpy(), given.numpy())


def test_gradients(dtype):
    """Cotangents have the dtype of their arrays; a cast hands them on."""
    x, w = tj.asarray(numbers(dtype, 6, 8)), tj.asarray(numbers(dtype, 8, 5, seed=2))

    def loss(w, x):
        return (tj.tanh(x @ w).astype(tj.float32) ** 2).mean()

    def wide(w, x):
        return (tj.tanh(x @ w) ** 2).mean()

    expected = tj.grad(wide)(w.astype(tj.float32), x.astype(tj.float32)).numpy()
    for gradient in (tj.grad(loss)(w, x), *[tj.jit(tj.grad(loss))(w, x) for _ in range(2)]):
        assert gradient.dtype == dtype
        np.testing.assert_allclose(gradient.numpy().astype("f4"), expected, rtol=0.1, atol=2e-2)
    index = tj.asarray([0, 0, 1])
    assert tj.grad(lambda a: (a[index] * 2).sum())(tj.ones(3, dtype=dtype)).tolist() == [4, 2, 0]
    master = tj.grad(lambda a: tj.sum(a.astype(dtype) * 3).astype(tj.float32))(tj.ones(4))
    assert master.dtype == tj.float32
    assert master.tolist() == [3, 3, 3, 3]


@pytest.mark.parametrize("name", ["relu", "gelu", "silu", "softplus", "softmax", "log_softmax", "logsumexp"])
def test_layers(name, dtype):
    x = numbers(dtype, 5, 40)
    function = getattr(tj.nn, name)
    wide = function(tj.asarray(x.astype(np.float32))).numpy()
    near = 4 * float(ml_dtypes.finfo(dtype).eps)
    for result in each_way(function, x):
        assert result.dtype == dtype
        np.testing.assert_allclose(result.astype(np.float32), wide, rtol=near, atol=near)
    gradient = tj.grad(lambda a: function(a).astype(tj.float32).sum())(tj.asarray(x))
    assert gradient.dtype == dtype


def test_layers_that_need_the_range_of_float32(dtype):
    """Squares beyond 65504 are added up in float32."""
    x = (numbers(dtype, 3, 64).astype(np.float32) * 500).astype(dtype)
    wide = tj.nn.layer_norm(tj.asarray(x.astype(np.float32))).numpy()
    result = tj.nn.layer_norm(tj.asarray(x))
    assert result.dtype == dtype
    np.testing.assert_allclose(result.numpy().astype(np.float32), wide, atol=0.05)
    scores, labels = tj.asarray(numbers(dtype, 6, 8)), tj.asarray([0, 1, 2, 3, 4, 5])
    assert tj.nn.cross_entropy(scores, labels).dtype == dtype


def test_a_signature_has_its_dtype(dtype):
    double = tj.jit(lambda a: a * 2)
    for given in (tj.float32, dtype, tj.float32, dtype):
        assert double(tj.ones(3, dtype=given)).dtype == given
    assert len(double.explain().splitlines()) > 1


def test_checked_launches(dtype, monkeypatch):
    monkeypatch.setattr(config, "check", True)
    x = tj.asarray(numbers(dtype, 30, 30))
    result, _ = tj.jit(lambda a: ((a * 2 + 1) / 3, tj.exp(a @ a / 16).sum(0)))(x)
    assert result.dtype == dtype


def test_what_has_no_half_numbers(dtype):
    square = tj.ones((3, 3), dtype=dtype)
    with pytest.raises(DTypeError, match="imaginary parts would be lost"):
        tj.ones(3, dtype=tj.complex64).astype(dtype)
    assert tj.fft.fft(square).dtype == tj.complex64


def test_small_integers_become_half_numbers_as_in_numpy(dtype):
    for small in ("int8", "uint8", "bool"):
        assert tj.sqrt(tj.ones(3, dtype=small)).dtype == np.sqrt(np.ones(3, small)).dtype == tj.float16
    assert tj.nn.gelu(tj.ones(3, dtype="int8")).dtype == tj.float32
