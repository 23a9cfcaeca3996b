"""Loops that sort, search, transform and solve are rolled: kernels compute these operators."""

import subprocess
import sys

import numpy as np
import pytest

import tracejit as tj

RNG = np.random.default_rng(3)


def beam_search(scores, steps, width):
    total, states = np.zeros(width), np.zeros(width, np.int64)
    for _ in range(steps):
        every = (total[:, None] + scores[states]).reshape(-1)
        best = np.argsort(-every, kind="stable")[:width]
        total, states = every[best], best % scores.shape[1]
    return total, states


def bootstrap(x, picks):
    medians = np.empty(len(picks))
    for i in range(len(picks)):
        medians[i] = np.sort(x[picks[i]])[x.shape[0] // 2]
    return medians


def particle_filter(x, seen, noise):
    means = np.empty(len(seen))
    for t in range(len(seen)):
        x = x * 0.9 + noise[t]
        weights = np.exp(-0.5 * (seen[t] - x) ** 2)
        total = np.cumsum(weights)
        places = (np.arange(x.shape[0]) + 0.5) / x.shape[0] * total[-1]
        x = x[np.minimum(np.searchsorted(total, places), x.shape[0] - 1)]
        means[t] = x.mean()
    return means


def heat(u, steps):
    waves = 2 * np.pi * np.fft.fftfreq(u.shape[0])
    decay = np.exp(-(waves**2) * 0.1)
    for _ in range(steps):
        u = np.fft.ifft(np.fft.fft(u) * decay).real
    return u


def real_heat(u, steps):
    waves = 2 * np.pi * np.fft.rfftfreq(u.shape[0])
    decay = np.exp(-(waves**2) * 0.1)
    for _ in range(steps):
        u = np.fft.irfft(np.fft.rfft(u) * decay, u.shape[0])
    return u


def covariances(p, steps):
    total = 0.0
    for _ in range(steps):
        factor = np.linalg.cholesky(p)
        p = factor @ factor.T * 0.9 + 0.1 * np.eye(p.shape[0])
        total = total + factor.sum()
    return total, p


def orthogonal_iteration(a, steps):
    for _ in range(steps):
        q, r = np.linalg.qr(a)
        a = r @ q
    return a, q


def self_consistent(h, steps):
    density = np.zeros(h.shape)
    for _ in range(steps):
        energies, orbitals = np.linalg.eigh(h + 0.5 * np.diag(np.diag(density)))
        density = 0.5 * density + 0.5 * orbitals[:, :2] @ orbitals[:, :2].T
    return energies, density


def divisors(a, b, steps):
    for _ in range(steps):
        a, b = np.gcd(a, b) + b, a + 1
    return a, b


PROGRAMS = {
    "beam_search": (beam_search, (RNG.standard_normal((12, 12)), 20, 4)),
    "bootstrap": (bootstrap, (RNG.standard_normal(40), RNG.integers(0, 40, (30, 40)))),
    "particle_filter": (
        particle_filter,
        (RNG.standard_normal(30), RNG.standard_normal(25), RNG.standard_normal((25, 30))),
    ),
    "heat": (heat, (RNG.standard_normal(33), 20)),
    "real_heat": (real_heat, (RNG.standard_normal(32), 20)),
    "covariances": (covariances, (np.cov(RNG.standard_normal((4, 9))), 20)),
    "orthogonal_iteration": (orthogonal_iteration, (np.cov(RNG.standard_normal((6, 20))), 20)),
    "self_consistent": (self_consistent, (np.cov(RNG.standard_normal((6, 20))), 20)),
    "divisors": (divisors, (RNG.integers(1, 999, 7), RNG.integers(1, 999, 7), 20)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_routines_in_loops(name):
    body, arguments = PROGRAMS[name]
    expected = body(*arguments)
    traced = tj.jit(body, strict=True)
    given = [tj.asarray(a) if isinstance(a, np.ndarray) else a for a in arguments]
    for _ in range(3):
        found = traced(*given)
        for ours, theirs in zip(
            *(x if isinstance(x, tuple) else (x,) for x in (found, expected)), strict=True
        ):
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
    assert traced.cache_info().traces == 1
    assert "loop" in [task.name for task in traced.schedule(*given).tasks]


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (3, 17, 17), (0, 2, 2), (2, 2, 60, 60)], ids=str)
def test_small_factors(dtype, shape):
    a = RNG.standard_normal(shape) + (1j * RNG.standard_normal(shape) if dtype.startswith("c") else 0)
    a = a @ np.conj(np.swapaxes(a, -1, -2)) + shape[-1] * np.eye(shape[-1])
    a = (a + np.triu(np.full(shape[-2:], 7), 1)).astype(dtype)  # what is above the diagonal is not read
    traced = tj.jit(tj.linalg.cholesky)
    tolerance = 1e-4 if np.finfo(dtype).eps > 1e-10 else 1e-12
    for _ in range(2):
        np.testing.assert_allclose(
            traced(tj.asarray(a)), np.linalg.cholesky(a), rtol=tolerance, atol=tolerance
        )


@pytest.mark.parametrize("mode", ["reduced", "complete"])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5, 3), (3, 5), (0, 2, 2), (0, 3), (60, 20), (20, 60)], ids=str)
def test_small_orthogonal_factors(dtype, mode, shape):
    a = RNG.standard_normal(shape) + (1j * RNG.standard_normal(shape) if dtype.startswith("c") else 0)
    traced = tj.jit(lambda a: tuple(tj.linalg.qr(a, mode)))
    for _ in range(2):
        for ours, theirs in zip(traced(tj.asarray(a)), np.linalg.qr(a, mode), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("upper", [False, True], ids=["lower", "upper"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5, 5), (0, 2, 2), (2, 2, 40, 40)], ids=str)
def test_small_hermitian_matrices(dtype, upper, shape):
    a = RNG.standard_normal(shape) + (1j * RNG.standard_normal(shape) if dtype.startswith("c") else 0)
    a, uplo = a.astype(dtype), "U" if upper else "L"  # only one triangle is read
    traced = tj.jit(lambda a: (*tj.linalg.eigh(a, UPLO=uplo), tj.linalg.eigvalsh(a, UPLO=uplo)))
    tolerance = 1e-4 if np.finfo(dtype).eps > 1e-10 else 1e-11
    expected, _ = np.linalg.eigh(a, uplo)
    full = np.triu(a) + np.conj(np.swapaxes(np.triu(a, 1), -1, -2))
    if not upper:
        full = np.tril(a) + np.conj(np.swapaxes(np.tril(a, -1), -1, -2))
    diagonal = np.arange(shape[-1])
    full[..., diagonal, diagonal] = full[..., diagonal, diagonal].real
    for _ in range(2):
        values, vectors, only = (x.numpy() for x in traced(tj.asarray(a)))
        np.testing.assert_allclose(values, expected, rtol=tolerance, atol=tolerance * 10)
        np.testing.assert_allclose(only, expected, rtol=tolerance, atol=tolerance * 10)
        np.testing.assert_allclose(full @ vectors, vectors * values[..., None, :], atol=tolerance * 30)
        product = np.conj(np.swapaxes(vectors, -1, -2)) @ vectors
        np.testing.assert_allclose(product, np.broadcast_to(np.eye(shape[-1]), shape), atol=tolerance * 10)


def test_the_iteration_in_which_a_matrix_has_no_factor():
    def shrinks(p):
        for _ in range(30):
            p = np.linalg.cholesky(p) - 0.3 * np.eye(3)
        return p

    traced = tj.jit(shrinks)
    with pytest.raises(tj.errors.LinAlgError, match=r"not positive definite in iteration \d+ of the loop"):
        traced(tj.eye(3)).numpy()


def test_equal_arrays_of_numpy_are_one_operand_but_no_alias():
    def body(xp, x):
        waves = np.fft.fftfreq(3)
        first = x + waves
        mine = xp.asarray(waves).copy() if xp is np else xp.asarray(waves)
        mine += 1
        second = x + np.fft.fftfreq(3)
        waves[0] = 7
        return first, mine, second, x * waves

    x = RNG.standard_normal(3)
    expected = body(np, x)
    traced = tj.jit(lambda x: body(tj, x), strict=True)
    for _ in range(3):
        for ours, theirs in zip(traced(tj.asarray(x)), expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_a_module_of_numpy_is_imported_at_its_first_use_in_a_body():
    """The finders that the import runs, of setuptools and of packages installed as editable, are no users'
    code.
    """
    program = (
        "import sys, numpy as np, tracejit as tj\n"
        "assert 'numpy.fft' not in sys.modules\n"
        "print(tj.jit(lambda x: x * np.fft.fftfreq(4), strict=True)(tj.ones(4)).tolist())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[0.0, 0.25, -0.5, -0.25]\n", done.stderr
