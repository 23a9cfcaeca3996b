"""Operators that have kernels of their own on GPUs, against NumPy or the CPU's kernels."""

import numpy as np
import pytest

import tracejit as tj
from tracejit.codegen.gpu.product import TILE, product_source
from tracejit.ir.op import OPS, Trait
from tracejit.kernels.gpu.plan import BLOCKS, CALLS, gpu_call
from tracejit.ops.communicate import BETWEEN_RANKS

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def check(function, *arrays, rtol=1e-5, atol=1e-5, gpu):
    """`function` of arrays there and here."""
    there = function(*(tj.asarray(a, device=gpu) for a in arrays))
    here = function(*map(tj.asarray, arrays))
    assert there.device == gpu
    assert there.dtype == here.dtype
    np.testing.assert_allclose(there.numpy(), here.numpy(), rtol=rtol, atol=atol)


@pytest.mark.parametrize(
    ("m", "k", "n"), [(3, 4, 5), (TILE + 6, 33, TILE + 1), (1, 70, 1), (2, 0, 3), (0, 2, 2)]
)
def test_products_of_operands_that_lie_in_any_way(m, k, n, gpu):
    a, b = normal(m, k), normal(k, n)
    for left, right in ((False, False), (True, False), (False, True), (True, True)):
        x = tj.asarray(a.T.copy() if left else a, device=gpu)
        y = tj.asarray(b.T.copy() if right else b, device=gpu)
        result = (x.T if left else x) @ (y.T if right else y)
        np.testing.assert_allclose(result.numpy(), a @ b, rtol=1e-4, atol=1e-5)


def test_products_of_batches_and_of_strided_operands(gpu):
    a, b = normal(2, 3, 4, 5), normal(2, 3, 5, 2)
    check(lambda x, y: x @ y, a, b, gpu=gpu)
    check(lambda x, y: x[:, ::2, ::2] @ y[:, :2], a, b, gpu=gpu)  # a stride in both dimensions
    check(lambda x, y: x.transpose(1, 0, 2, 3) @ y.transpose(1, 0, 2, 3), a, b, gpu=gpu)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "uint32"])
def test_products_of_dtypes(dtype, gpu):
    a, b = ((RNG.normal(size=shape) * 50).astype(dtype) for shape in ((5, 7), (7, 3)))
    check(lambda x, y: x @ y, a, b, rtol=2e-3 if dtype == "float16" else 1e-12, gpu=gpu)


def test_a_product_that_is_added(gpu):
    @tj.jit
    def step(total, x, y):
        total += x @ y
        return total.sum()

    total, x, y = normal(5, 6), normal(5, 4), normal(4, 6)
    there = tj.asarray(total, device=gpu)
    for turn in range(3):
        step(there, tj.asarray(x, device=gpu), tj.asarray(y, device=gpu))
        np.testing.assert_allclose(there.numpy(), total + (turn + 1) * (x @ y), rtol=1e-4, atol=1e-5)


SPECIAL = np.array([[3, np.nan, -0.5, np.inf, 2, -np.inf, 2], [0, 1, np.nan, 1, 0, np.nan, 1]], np.float32)


def test_sorting(gpu):
    for x in (SPECIAL, RNG.integers(-4, 4, (2, 65)), RNG.random((3, 300)) < 0.5, np.zeros((3, 0))):
        for axis in (0, 1):
            there = tj.asarray(x, device=gpu)
            np.testing.assert_array_equal(tj.sort(there, axis=axis).numpy(), np.sort(x, axis))
            wanted = np.argsort(x, axis, kind="stable")
            np.testing.assert_array_equal(tj.argsort(there, axis=axis).numpy(), wanted)


def test_sorting_and_searching_complex_numbers(gpu):
    """By real parts, then imaginary ones; nan in either last, in NumPy's order."""
    parts = np.array([0, 1, -1, np.nan, np.inf, -0.0])
    x = (parts[:, None] + 1j * np.zeros(6)).ravel()
    x.imag = np.tile(parts, 6)
    x = RNG.permutation(x)
    there = tj.asarray(x, device=gpu)
    np.testing.assert_array_equal(tj.sort(there).numpy(), np.sort(x))
    np.testing.assert_array_equal(tj.argsort(there).numpy(), np.argsort(x, kind="stable"))
    for side in ("left", "right"):
        found = tj.searchsorted(tj.sort(there), there, side=side)
        np.testing.assert_array_equal(found.numpy(), np.searchsorted(np.sort(x), x, side))
    z = (RNG.integers(-3, 3, (4, 50)) + 1j * RNG.integers(-3, 3, (4, 50))).astype(np.complex64)
    np.testing.assert_array_equal(tj.sort(tj.asarray(z, device=gpu), axis=0).numpy(), np.sort(z, axis=0))


def test_searching(gpu):
    x, values = np.sort(SPECIAL[0]), SPECIAL.ravel()
    for side in ("left", "right"):
        there = tj.searchsorted(tj.asarray(x, device=gpu), tj.asarray(values, device=gpu), side=side)
        np.testing.assert_array_equal(there.numpy(), np.searchsorted(x, values, side))


@pytest.mark.parametrize("dtype", ["int16", "uint8"])
def test_common_divisors(dtype, gpu):
    x, y = (RNG.integers(0, 99, 50).astype(dtype) for _ in range(2))
    x[:3], y[1:4] = 0, 0
    check(tj.gcd, x, y, gpu=gpu)


def test_scattering_adds_in_order(gpu):
    """Gradients of indexing, by rows and by columns, with places that occur again and again."""
    x, index = normal(7, 5), RNG.integers(0, 7, 200)

    def gradient(x):
        return tj.grad(lambda x: (x[index] ** 2).sum() + (x[:, index % 5] ** 3).sum())(x)

    check(gradient, x, gpu=gpu, rtol=1e-4, atol=1e-3)
    bits = {gradient(tj.asarray(x, device=gpu)).numpy().tobytes() for _ in range(3)}
    assert len(bits) == 1


WINDOWS = [
    {"stride": 1, "padding": 1},
    {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 2)},
    {"groups": 2, "padding": (1, 2)},
]


@pytest.mark.parametrize("options", WINDOWS, ids=str)
def test_convolutions_and_their_gradients(options, gpu):
    x, w = normal(2, 4, 7, 6), normal(6, 4 // options.get("groups", 1), 3, 2)

    def slopes(x, w):
        return tj.grad(lambda x, w: (tj.nn.conv2d(x, w, **options) ** 2).sum(), (0, 1))(x, w)

    check(lambda x, w: tj.nn.conv2d(x, w, **options), x, w, gpu=gpu, rtol=1e-4, atol=1e-4)
    for number in range(2):
        check(lambda x, w, n=number: slopes(x, w)[n], x, w, gpu=gpu, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("pool", ["max_pool2d", "avg_pool2d"])
def test_pooling_and_its_gradients(pool, gpu):
    x = RNG.integers(0, 4, (2, 3, 7, 5)).astype(np.float32)  # with equal elements in a window
    x[0, 0, 2, 2] = np.nan if pool == "max_pool2d" else 1

    def pooled(x):
        return getattr(tj.nn, pool)(x, 3, stride=2, padding=1)

    check(pooled, x, gpu=gpu)
    check(lambda x: tj.grad(lambda x: (pooled(x) * pooled(x * 0.5)).sum())(x), x, gpu=gpu)


def test_a_jacobian_selects_what_was_largest(gpu):
    x = normal(1, 1, 4, 4)
    check(
        lambda x: tj.jvp(lambda x: tj.nn.max_pool2d(x, 2), (x,), (x * 2,))[1],
        x,
        gpu=gpu,
    )


def test_every_operator_runs_or_is_said_to_be_missing():
    from tracejit.assembly.gpu_jobs import has_kernel

    routines = {name for name in CALLS if Trait.HOST in OPS[name].traits}
    assert routines == {
        *("sort", "argsort", "search_sorted", "gcd"),
        *("solve", "inv", "slogdet", "cholesky", "fft", "rfft", "irfft"),
        *("qr", "svd", "singular_values", "eigh", "eigenvalues_hermitian"),
    }
    assert {name for name, op in OPS.items() if not has_kernel(op)} == {
        *("constant", "empty", "fused", "copy_to"),  # no tasks, or tasks of another form
        *("callback", "loop", "case", "eig", "conv2d_weight_sums", "attention", "attention_gradient"),
        *("winograd_weights", "winograd_conv2d", "winograd_input_gradient"),
        *("winograd_weight_sums", "winograd_weight_gradient"),
        *(op.name for op in BETWEEN_RANKS),
    }


def test_calls_are_within_bounds():
    shapes = {"sort": [(3, 1 << 20)] * 2, "scatter_add": [(1 << 22, 8), (1 << 22,), (5, 8)]}
    attrs = {"sort": {"axis": 1}, "scatter_add": {"axis": 0, "extent": 5}}
    for name, of in shapes.items():
        call = gpu_call(name, of, attrs[name], "float32")
        assert 1 <= call.blocks <= BLOCKS
        assert 1 <= call.threads <= 256


def test_the_source_of_a_product_can_be_read():
    assert "multiply_add_reassoc(x0, y0, t00)" in product_source("float32", False, False)
