"""Linear algebra on GPUs, against NumPy and the CPU."""

import numpy as np
import pytest

import tracejit as tj
from tests.thorough import some, thorough
from tracejit.errors import LinAlgError
from tracejit.kernels.gpu.plan import BLOCKS, MAX_SCRATCH, gpu_call

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


@pytest.mark.parametrize(
    ("batch", "n", "m", "dtype"),
    some(
        [(*shape, dtype) for i, shape in enumerate(SHAPES) for dtype in (DTYPES if i < 3 else DTYPES[1:3])],
        7,
        unpack=True,
    ),
)
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


DECOMPOSED = [((), 1, 1), ((3,), 5, 3), ((2,), 3, 5), ((), 20, 33), ((2,), 6, 6), ((2,), 0, 2), ((2,), 3, 0)]


def hermitian(x):
    return x.conj().swapaxes(-1, -2)


def near(found, wanted, scale=1):
    """Equal to a part of the largest element that is usual for the dtype of `wanted`."""
    wanted = np.asarray(wanted)
    assert found.shape == wanted.shape
    epsilon = np.finfo(wanted.dtype).eps
    np.testing.assert_allclose(found, wanted, rtol=0, atol=200 * epsilon * max(1, scale))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("batch", "m", "n"), DECOMPOSED)
def test_reflections_have_the_signs_of_lapack(batch, m, n, dtype, gpu):
    a = matrix(np.random.default_rng(m), dtype, *batch, m, n)
    for mode in ("reduced", "complete"):
        found = tj.linalg.qr(tj.asarray(a, device=gpu), mode)
        for x, wanted in zip(found, np.linalg.qr(a, mode), strict=True):
            near(x.numpy(), wanted, n)


KINDS = [
    *(("full", dtype) for dtype in DTYPES),
    ("less", "float64"),
    ("less", "complex64"),
    ("none", "float32"),
]


@pytest.mark.parametrize(
    ("batch", "m", "n", "rank", "dtype"),
    some(
        [
            (*s, *kind)
            for i, s in enumerate(DECOMPOSED)
            for kind in (KINDS if i in (1, 3) else KINDS[i % 2 :: 3])
        ],
        9,
        unpack=True,
    ),
)
def test_singular_values_and_vectors(batch, m, n, dtype, rank, gpu):
    a = matrix(np.random.default_rng(n), dtype, *batch, m, n)
    if rank != "full" and n > 0:
        a[..., -1] = 0
        a[..., 0] = 2 * a[..., n // 2]
    if rank == "none":
        a[:] = 0
    there, least = tj.asarray(a, device=gpu), min(m, n)
    values = np.linalg.svd(a, compute_uv=False)
    near(tj.linalg.svdvals(there).numpy(), values, m + n)
    for full in (False, True):
        u, s, vh = (x.numpy() for x in tj.linalg.svd(there, full_matrices=full))
        assert s.dtype == values.dtype
        near(s, values, m + n)
        for columns in (u, hermitian(vh)):
            unit = np.broadcast_to(np.eye(columns.shape[-1], dtype=dtype), (*batch, *2 * columns.shape[-1:]))
            near(hermitian(columns) @ columns, unit)
        near(u[..., :least] * s[..., None, :] @ vh[..., :least, :], a, m + n)


@pytest.mark.parametrize("dtype", some(DTYPES, 2))
@pytest.mark.parametrize(("batch", "n"), [((), 1), ((2,), 2), ((3,), 7), ((), 24), ((2,), 0)])
def test_eigenvalues_and_eigenvectors_of_hermitian_matrices(batch, n, dtype, gpu):
    a = matrix(np.random.default_rng(n), dtype, *batch, n, n)
    for uplo, triangle in (("L", np.tril), ("U", np.triu)):
        half = triangle(a)
        whole = half + hermitian(half)
        whole[..., range(n), range(n)] = a[..., range(n), range(n)].real  # the imaginary parts are not read
        wanted = np.linalg.eigvalsh(whole)
        there = tj.asarray(a, device=gpu)
        near(tj.linalg.eigvalsh(there, uplo).numpy(), wanted, n)
        values, vectors = (x.numpy() for x in tj.linalg.eigh(there, uplo))
        near(values, wanted, n)
        near(whole @ vectors, vectors * values[..., None, :], n)
        near(hermitian(vectors) @ vectors, np.broadcast_to(np.eye(n, dtype=dtype), (*batch, n, n)))


def test_eigenvalues_that_are_equal_or_cancel(gpu):
    crossed = np.kron([[0, 1], [1, 0]], np.eye(3))
    for x in (np.eye(4), np.diag([1.0, -1, 1, -1]), np.ones((5, 5)), np.zeros((3, 3)), crossed):
        values, vectors = (y.numpy() for y in tj.linalg.eigh(tj.asarray(x, device=gpu)))
        near(values, np.linalg.eigvalsh(x), 5)
        near(x @ vectors, vectors * values, 5)
        near(vectors.T @ vectors, np.eye(len(x)))


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e30, 1e200])
def test_magnitudes_whose_squares_are_no_numbers(scale, gpu):
    x = np.random.default_rng(3).normal(size=(5, 4)) * scale
    u, s, vh = (y.numpy() for y in tj.linalg.svd(tj.asarray(x, device=gpu), full_matrices=False))
    np.testing.assert_allclose(s, np.linalg.svd(x, compute_uv=False), rtol=1e-13)
    np.testing.assert_allclose(u * s @ vh, x, rtol=1e-12, atol=1e-13 * scale)
    q, r = (y.numpy() for y in tj.linalg.qr(tj.asarray(x, device=gpu)))
    np.testing.assert_allclose(r, np.linalg.qr(x)[1], rtol=1e-12, atol=1e-13 * scale)
    np.testing.assert_allclose(q @ r, x, rtol=1e-12, atol=1e-13 * scale)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_decompositions_of_what_is_not_finite_raise(bad, gpu):
    there = tj.asarray([[1.0, bad], [bad, 2.0]], device=gpu)
    for function in (tj.linalg.svd, tj.linalg.svdvals, tj.linalg.eigh, tj.linalg.eigvalsh):
        with pytest.raises(LinAlgError, match="does not converge"):
            tj.tree.leaves(function(there))[0].numpy()


@thorough
def test_what_is_made_of_decompositions_and_their_gradients(gpu):
    rng = np.random.default_rng(4)
    x, square = rng.normal(size=(2, 6, 4)), definite(rng.normal(size=(5, 5)))

    def loss(x, square):
        q, r = tj.linalg.qr(x)
        u, s, _ = tj.linalg.svd(x, full_matrices=False)
        values, vectors = tj.linalg.eigh(square)
        projected = (vectors * (vectors[0] ** 2)).sum()
        of_x = (r**2 * 0.3).sum() + (q[..., 0] ** 3).sum() + (u * s[..., None, :]).sum() ** 2
        return of_x + projected**2 + (values**3).sum()

    slopes = tj.jit(lambda x, square: tj.grad(loss, (0, 1))(x, square))
    pinv = tj.linalg.pinv(tj.asarray(x, device=gpu))
    np.testing.assert_allclose(pinv.numpy(), np.linalg.pinv(x), rtol=1e-9, atol=1e-9)
    assert tj.linalg.matrix_rank(tj.asarray(x, device=gpu)).tolist() == [4, 4]
    right = rng.normal(size=(6, 2))
    found = tj.linalg.lstsq(tj.asarray(x[0], device=gpu), tj.asarray(right, device=gpu))[0]
    np.testing.assert_allclose(
        found.numpy(), np.linalg.lstsq(x[0], right, rcond=None)[0], rtol=1e-9, atol=1e-9
    )
    here = tj.asarray(x), tj.asarray(square)
    there = tj.asarray(x, device=gpu), tj.asarray(square, device=gpu)
    step = 1e-6
    for found, at in zip(slopes(*there), range(2), strict=True):
        assert found.device == gpu
        moved = [v.numpy().copy() for v in here]
        direction = rng.normal(size=moved[at].shape)
        if at == 1:
            direction = direction + direction.T
        ends = []
        for sign in (1, -1):
            sides = [v + sign * step * direction if k == at else v for k, v in enumerate(moved)]
            ends.append(float(loss(*[tj.asarray(v, device=gpu) for v in sides])))
        slope = (found.numpy() * direction).sum()
        np.testing.assert_allclose(slope, (ends[0] - ends[1]) / (2 * step), rtol=1e-5)


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
        assert call.blocks * call.scratch <= max(MAX_SCRATCH, call.scratch)
