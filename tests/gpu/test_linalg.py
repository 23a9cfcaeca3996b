"""Linear algebra on GPUs, against NumPy and the CPU."""

import numpy as np
import pytest

import tracejit as tj
from tracejit.errors import LinAlgError
from tracejit.kernels.gpu.plan import BLOCKS, MOST_SCRATCH, gpu_call

DTYPES = ("float32", "float64", "complex64", "complex128")
SHAPES = [((), 1, 1), ((3,), 5, 3), ((), 33, 2), ((2, 2), 17, 20), ((0,), 3, 2), ((2,), 0, 2), ((2,), 3, 0)]


def matrix(rng, dtype, *shape):
    x = rng.normal(size=shape)
    return (x + 1j * rng.normal(size=shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def definite(x):
    return x @ x.conj().swapaxes(-1, -2) + x.shape[-1] * np.eye(x.shape[-1], dtype=x.dtype)


def close(found, wanted):
    tolerance = 2e-3 if wanted.dtype.itemsize <= 4 * (1 + (wanted.dtype.kind == "c")) else 1e-9
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found.numpy(), wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("batch", "n", "m"), SHAPES)
def test_systems_and_factors(batch, n, m, dtype, gpu):
    rng = np.random.default_rng(n)
    a, b = matrix(rng, dtype, *batch, n, n), matrix(rng, dtype, *batch, n, m)
    there, right = (tj.asarray(x, device=gpu) for x in (a, b))
    close(tj.linalg.solve(there, right), np.linalg.solve(a, b))
    close(tj.linalg.inv(there), np.linalg.inv(a))
    for found, wanted in zip(tj.linalg.slogdet(there), np.linalg.slogdet(a), strict=True):
        close(found, np.asarray(wanted))
    close(tj.linalg.det(there), np.asarray(np.linalg.det(a)))
    factor = tj.linalg.cholesky(tj.asarray(definite(a), device=gpu))
    close(factor, np.linalg.cholesky(definite(a)))
    assert not np.triu(factor.numpy(), 1).any()


@pytest.mark.parametrize("traced", [False, True])
def test_operands_that_lie_in_any_way(traced, gpu):
    rng = np.random.default_rng(1)
    big = rng.normal(size=(4, 12, 14))
    wide = tj.asarray(big, device=gpu)

    def results(x, xp):
        a, b = x[::2, 1:11, 2:12].swapaxes(1, 2), x[::2, :10, -3:]
        return xp.linalg.solve(a, b), xp.linalg.inv(a[0].T), xp.linalg.cholesky(a @ a.swapaxes(1, 2))

    there = (tj.jit(results) if traced else results)(wide, tj)
    for found, wanted in zip(there, results(big, np), strict=True):
        close(found, wanted)


def test_gradients(gpu):
    rng = np.random.default_rng(2)
    a, b = definite(rng.normal(size=(2, 6, 6))), rng.normal(size=(2, 6, 2))

    def loss(a, b):
        factor = tj.linalg.cholesky(a)
        half = tj.linalg.solve(factor, b)
        return (half**2).sum() + tj.linalg.slogdet(a)[1].sum() + (tj.linalg.inv(a) ** 2).sum()

    slopes = tj.jit(lambda a, b: tj.grad(loss, (0, 1))(a, b))
    here = slopes(tj.asarray(a), tj.asarray(b))
    for _ in range(2):
        there = slopes(tj.asarray(a, device=gpu), tj.asarray(b, device=gpu))
        for found, wanted in zip(there, here, strict=True):
            assert found.device == gpu
            np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-9, atol=1e-9)


SINGULAR = np.array([[1.0, 2, 3], [2, 4, 6], [1, 1, 1]])


@pytest.mark.parametrize("traced", [False, True])
def test_what_has_no_result_is_an_error_of_linear_algebra(traced, gpu):
    good = np.eye(3) + 1
    both = tj.asarray(np.stack([good, SINGULAR, good]), device=gpu)
    count = tj.zeros(3, device=gpu)

    def checked(function, message):
        def step(x, count):
            y = function(x)
            count += 1
            return y + 1

        step = tj.jit(step) if traced else step
        step(both[:1], count).numpy()
        before = count.numpy()
        with pytest.raises(LinAlgError, match=message):
            step(both, count).numpy()
        assert traced <= (count.numpy() == before).all()  # a traced call that fails changes nothing
        step(both[2:], count).numpy()

    checked(tj.linalg.inv, "inv: singular matrix")
    checked(lambda x: tj.linalg.solve(x, x[..., :1]), "solve: singular matrix")
    checked(tj.linalg.cholesky, "cholesky: matrix is not positive definite")


def test_determinants_of_singular_matrices_and_nan(gpu):
    for x in (SINGULAR, np.zeros((2, 2)), np.array([[1, np.nan], [2, 3]])):
        with np.errstate(invalid="ignore"):
            wanted = np.linalg.slogdet(x)
        found = tj.linalg.slogdet(tj.asarray(x, device=gpu))
        np.testing.assert_array_equal([y.numpy() for y in found], wanted)
    assert np.isnan(tj.linalg.inv(tj.asarray([[1, np.nan], [2, 3]], device=gpu)).numpy()).any()
    with pytest.raises(LinAlgError):
        tj.linalg.cholesky(tj.asarray([[np.nan, 1], [1, 3]], device=gpu)).numpy()


def test_rows_are_exchanged_for_the_largest_element(gpu):
    """Elimination without that has no correct digit here."""
    a = np.array([[1e-20, 1, 0], [1, 1, 1], [0, 1, 1e-20]])
    b = np.array([[1.0], [2], [3]])
    close(tj.linalg.solve(tj.asarray(a, device=gpu), tj.asarray(b, device=gpu)), np.linalg.solve(a, b))


def test_many_small_matrices_and_large_ones_are_within_bounds():
    for shape in ((1 << 20, 2, 2), (64, 4000, 4000)):
        call = gpu_call("inv", [shape, shape], {}, "complex128")
        assert call.units == shape[0]
        assert 1 <= call.blocks <= BLOCKS
        assert call.blocks * call.scratch <= max(MOST_SCRATCH, call.scratch)
