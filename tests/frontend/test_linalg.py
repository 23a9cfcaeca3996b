"""`tj.linalg` against NumPy: values, batches, dtypes, dispatch, replays, gradients, errors."""

import functools

import numpy as np
import pytest
import scipy.linalg

import tracejit as tj
from tests.frontend.samples import laid_out
from tests.thorough import some

solve_triangular = tj.linalg.solve_triangular
DTYPES = ["float32", "float64", "complex64", "complex128"]


def matrices(shape, dtype="float64", seed=0):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=shape)
    return (values + 1j * rng.normal(size=shape) if "c" in dtype[0] else values).astype(dtype)


def positive(shape, dtype="float64", seed=0):
    x = matrices(shape, dtype, seed)
    return (x @ x.conj().mT + shape[-1] * np.eye(shape[-1])).astype(dtype)


@pytest.mark.parametrize("trans", [0, 1, 2])
def test_solve_triangular(trans, run):
    dtype = "complex128" if trans == 2 else "float64"
    a, b = positive((3, 4, 4), dtype), matrices((3, 4, 2), dtype)
    for options in ({}, {"lower": True}, {"unit_diagonal": True}):
        solved = functools.partial(solve_triangular, trans=trans, **options)
        x = run(solved, tj.asarray(a), tj.asarray(b))
        for got, *ab in zip(x, a, b, strict=True):
            expected = scipy.linalg.solve_triangular(*ab, trans=trans, **options)
            np.testing.assert_allclose(got, expected, rtol=1e-9)


def test_solve_triangular_has_the_gradient_of_its_triangle(evaluator):
    a, b = positive((3, 3)), matrices((3,))
    found = tj.grad(lambda a: (solve_triangular(a, b, lower=True) ** 2).sum())(tj.asarray(a)).numpy()
    assert (found[np.triu_indices(3, 1)] == 0).all()
    x = scipy.linalg.solve_triangular(a, b, lower=True)
    expected = -np.outer(scipy.linalg.solve_triangular(a, 2 * x, trans=1, lower=True), x)
    np.testing.assert_allclose(found, np.tril(expected), rtol=1e-9)
    with pytest.raises(tj.errors.ArgumentError, match=r"expected trans 0, 1 or 2, got 'T'(?s:.*)test_linalg"):
        solve_triangular(a, b, "T")


def flat(result):
    return list(result) if isinstance(result, tuple) else [result]


def close(got, expected, dtype="float64"):
    for g, e in zip(flat(got), flat(expected), strict=True):
        tolerance = 2e-4 if dtype in ("float32", "complex64") else 1e-9
        np.testing.assert_allclose(g.numpy(), e, rtol=tolerance, atol=tolerance)
        assert g.dtype == np.asarray(e).dtype


SQUARE = {
    "det": {},
    "slogdet": {},
    "inv": {},
    "svdvals": {},
    "matrix_norm": {"ord": "nuc"},
    "pinv": {},
    "matrix_rank": {},
    "cond": {},
    "diagonal": {"offset": 1},
    "trace": {},
}


@pytest.mark.parametrize("dtype", some(DTYPES, 2))
@pytest.mark.parametrize("name", SQUARE)
def test_functions_of_square_matrices(name, dtype):
    rng = np.random.default_rng(1)
    ours, theirs = getattr(tj.linalg, name), getattr(np.linalg, name)
    for shape in ((3, 3), (2, 4, 4), (2, 0, 3, 3)):
        x = matrices(shape, dtype)
        expected = theirs(x, **SQUARE[name])
        y = laid_out(rng, x)
        traced = tj.jit(lambda x: ours(x, **SQUARE[name]))
        for got in (ours(y, **SQUARE[name]), theirs(y, **SQUARE[name]), traced(y), traced(y)):
            close(got, expected, dtype)
        assert "piecewise" not in traced.explain()


@pytest.mark.parametrize("dtype", DTYPES)
def test_factorizations(dtype):
    for shape in ((3, 3), (2, 5, 3), (3, 2, 5)):
        x = matrices(shape, dtype)
        y = tj.asarray(x)
        close(tj.linalg.svd(y, full_matrices=False), tuple(np.linalg.svd(x, full_matrices=False)), dtype)
        close(np.linalg.svd(y), tuple(np.linalg.svd(x)), dtype)
        close(np.linalg.qr(y), tuple(np.linalg.qr(x)), dtype)
        close(tj.linalg.qr(y, "complete"), tuple(np.linalg.qr(x, "complete")), dtype)
        close(tj.linalg.qr(y, "r"), np.linalg.qr(x, "r"), dtype)
    x = positive((2, 4, 4), dtype)
    close(np.linalg.cholesky(tj.asarray(x)), np.linalg.cholesky(x), dtype)
    close(tj.linalg.cholesky(tj.asarray(x), upper=True), np.linalg.cholesky(x).conj().mT, dtype)
    close(np.linalg.eigvalsh(tj.asarray(x)), np.linalg.eigvalsh(x), dtype)
    for part in "LU":
        close(np.linalg.eigh(tj.asarray(x), part), tuple(np.linalg.eigh(x, part)), dtype)
    y = matrices((2, 4, 4), dtype)
    values, vectors = tj.linalg.eig(tj.asarray(y))
    np.testing.assert_allclose(y @ vectors.numpy(), vectors.numpy() * values.numpy()[:, None, :], atol=1e-4)


@pytest.mark.parametrize(
    "shapes", [((3, 3), (3,)), ((3, 3), (3, 2)), ((2, 1, 3, 3), (4, 3, 2)), ((2, 3, 3), (3,))]
)
def test_solve(shapes):
    a, b = matrices(shapes[0]), matrices(shapes[1], seed=1)
    expected = np.linalg.solve(a, b)
    close(tj.linalg.solve(tj.asarray(a), tj.asarray(b)), expected)
    close(np.linalg.solve(tj.asarray(a), tj.asarray(b)), expected)
    integers = np.array([[2, 1], [1, 3]])
    close(tj.linalg.solve(tj.asarray(integers), tj.ones(2)), np.linalg.solve(integers, np.ones(2)))


@pytest.mark.parametrize("ord", [None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf])
@pytest.mark.parametrize("keepdims", [False, True])
def test_norms_of_matrices(ord, keepdims):
    x = matrices((3, 4, 5))
    y = tj.asarray(x)
    for axis in ((0, 1), (2, 0), (-1, 1)):
        close(np.linalg.norm(y, ord, axis, keepdims), np.linalg.norm(x, ord, axis, keepdims))
    if ord is not None:
        close(
            np.linalg.matrix_norm(y, ord=ord, keepdims=keepdims),
            np.linalg.matrix_norm(x, ord=ord, keepdims=keepdims),
        )


@pytest.mark.parametrize("ord", [0, 1, 2, 3, 0.5, -1, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["float64", "complex128", "float32"])
def test_norms_of_vectors(ord, dtype):
    x = matrices((3, 4), dtype)
    y = tj.asarray(x)
    close(np.linalg.norm(y, ord, 1), np.linalg.norm(x, ord, 1), dtype)
    close(tj.linalg.vector_norm(y, ord=ord), np.linalg.vector_norm(x, ord=ord), dtype)
    close(
        tj.linalg.vector_norm(y, axis=(0, 1), ord=ord, keepdims=True),
        np.linalg.vector_norm(x, ord=ord, keepdims=True),
        dtype,
    )
    close(np.linalg.norm(y), np.linalg.norm(x), dtype)


def test_least_squares():
    for shape in ((6, 3), (3, 6), (4, 4)):
        a, b = matrices(shape), matrices((shape[0], 2), seed=2)
        for right in (b, b[:, 0]):
            found, expected = np.linalg.lstsq(tj.asarray(a), tj.asarray(right)), np.linalg.lstsq(a, right)
            for g, e in zip(found, expected, strict=True):
                np.testing.assert_allclose(g.numpy(), e, atol=1e-9)


def test_products_and_powers():
    x, y, z = matrices((2, 9)), matrices((9, 3), seed=1), matrices((3,), seed=2)
    arrays = [tj.asarray(v) for v in (x, y, z)]
    close(np.linalg.multi_dot(arrays), np.linalg.multi_dot([x, y, z]))
    close(tj.linalg.multi_dot(arrays[:2]), x @ y)
    square = matrices((2, 3, 3))
    for power in (-2, 0, 1, 5):
        close(np.linalg.matrix_power(tj.asarray(square), power), np.linalg.matrix_power(square, power))
    close(np.linalg.outer(arrays[2], arrays[2]), np.outer(z, z))
    close(np.linalg.cross(arrays[2], arrays[2] * 2 + 1), np.cross(z, z * 2 + 1))
    a = matrices((4, 6, 8, 3))
    close(np.linalg.tensorinv(tj.asarray(a), 2), np.linalg.tensorinv(a, 2))
    b = matrices((4, 6), seed=3)
    close(np.linalg.tensorsolve(tj.asarray(a), tj.asarray(b)), np.linalg.tensorsolve(a, b))


def symmetric(x):
    return x @ x.mT + 2.0 * tj.eye(x.shape[-1], dtype=x.dtype)


WEIGHTS = {n: tj.asarray(matrices((n, n), seed=9)) for n in (3, 4, 5)}


def weighed(*arrays):
    """A number that depends on all elements."""
    return sum((tj.cos(a) * tj.arange(1, a.size + 1).reshape(a.shape)).sum() for a in arrays)


GRADIENTS = {
    "cholesky": ((3, 3), lambda x: weighed(tj.linalg.cholesky(symmetric(x)))),
    "solve": ((3, 3), lambda x: weighed(tj.linalg.solve(x, x[:, :2] ** 2))),
    "inv": ((2, 3, 3), lambda x: weighed(tj.linalg.inv(x))),
    "det": ((2, 3, 3), lambda x: weighed(tj.linalg.det(x))),
    "slogdet": ((3, 3), lambda x: weighed(tj.linalg.slogdet(x).logabsdet)),
    "qr": ((5, 3), lambda x: weighed(*tj.linalg.qr(x))),
    "qr wide": ((3, 5), lambda x: weighed(*tj.linalg.qr(x))),
    "svd": ((4, 3), lambda x: weighed(*(v**2 for v in tj.linalg.svd(x, full_matrices=False)))),
    "svd wide": ((3, 5), lambda x: weighed(*(v**2 for v in tj.linalg.svd(x, full_matrices=False)))),
    "svdvals": ((3, 4), lambda x: weighed(tj.linalg.svdvals(x))),
    "eigh": ((3, 3), lambda x: weighed(*(v**2 for v in tj.linalg.eigh(symmetric(x))))),
    "eigvalsh": ((3, 3), lambda x: weighed(tj.linalg.eigvalsh(symmetric(x)))),
    "pinv": ((4, 3), lambda x: weighed(tj.linalg.pinv(x))),
    "nuclear norm": ((4, 3), lambda x: tj.linalg.norm(x, "nuc")),
    "vector norm": ((4,), lambda x: tj.linalg.vector_norm(x, ord=3)),
    "lstsq": ((5, 3), lambda x: weighed(tj.linalg.lstsq(x, x[:, 0] ** 2)[0])),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name):
    shape, function = GRADIENTS[name]
    x, step = matrices(shape, seed=4), 1e-6
    expected = np.zeros_like(x)
    for index in np.ndindex(*shape):
        values = []
        for sign in (1, -1):
            moved = x.copy()
            moved[index] += sign * step
            values.append(float(function(tj.asarray(moved))))
        expected[index] = (values[0] - values[1]) / (2 * step)
    slope = tj.grad(function)
    np.testing.assert_allclose(slope(tj.asarray(x)).numpy(), expected, rtol=1e-5, atol=1e-6)
    traced = tj.jit(slope)
    for _ in range(2):
        np.testing.assert_allclose(traced(tj.asarray(x)).numpy(), expected, rtol=1e-5, atol=1e-6)


def test_gradients_of_complex_matrices():
    x, step = matrices((3, 3), "complex128", 5), 1e-6

    def loss(z):
        y = tj.linalg.inv(z) + tj.linalg.solve(z, z * z)
        return (tj.abs(y) ** 2).sum() + tj.linalg.slogdet(z).logabsdet

    slope = tj.grad(loss)(tj.asarray(x)).numpy()
    for index in np.ndindex(3, 3):
        parts = []
        for turn in (1, 1j):
            moved = [x.copy(), x.copy()]
            moved[0][index] += turn * step
            moved[1][index] -= turn * step
            parts.append((float(loss(tj.asarray(moved[0]))) - float(loss(tj.asarray(moved[1])))) / (2 * step))
        np.testing.assert_allclose(slope[index], parts[0] - 1j * parts[1], rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: tj.linalg.inv(tj.zeros((2, 2))).wait(), tj.errors.LinAlgError, "inv: singular matrix"),
        (
            lambda: tj.linalg.solve(tj.zeros((2, 2)), tj.ones(2)).wait(),
            np.linalg.LinAlgError,
            "solve: singular",
        ),
        (
            lambda: tj.linalg.cholesky(-tj.eye(2)).wait(),
            tj.errors.LinAlgError,
            "cholesky: matrix is not positive",
        ),
        (lambda: tj.linalg.inv(tj.ones((2, 3))), tj.errors.ShapeError, "linalg.inv: needs square matrices"),
        (lambda: tj.linalg.svd(tj.ones(3)), tj.errors.ShapeError, "linalg.svd: needs a matrix"),
        (
            lambda: tj.linalg.solve(tj.eye(2), tj.ones(3)),
            tj.errors.ShapeError,
            "linalg.solve: matrices of shape",
        ),
        (lambda: tj.linalg.qr(tj.eye(2), "raw"), tj.errors.ArgumentError, "linalg.qr: mode is"),
        (lambda: tj.linalg.norm(tj.eye(2), "max"), tj.errors.ArgumentError, "linalg.norm: ord 'max'"),
        (lambda: tj.linalg.multi_dot([tj.eye(2)]), tj.errors.ArgumentError, "linalg.multi_dot: 1 arrays"),
    ],
)
def test_errors_name_function_and_line(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call()
    assert "test_linalg.py" in str(caught.value)


def test_a_failed_factorization_loses_nothing():
    x = tj.ones(3) * 2.0
    bad = tj.linalg.inv(tj.zeros((2, 2)))
    y = x + 1.0
    with pytest.raises(tj.errors.LinAlgError):
        bad.numpy()
    np.testing.assert_array_equal(y.numpy(), [3, 3, 3])
    traced = tj.jit(lambda a: tj.linalg.inv(a) @ a)
    np.testing.assert_array_equal(traced(tj.eye(2)).numpy(), np.eye(2))
    with pytest.raises(tj.errors.LinAlgError, match="singular"):
        traced(tj.zeros((2, 2))).wait()
    np.testing.assert_array_equal(traced(2.0 * tj.eye(2)).numpy(), np.eye(2))


def test_a_failed_step_writes_nothing():
    weights = tj.ones((2, 2))

    @tj.jit
    def step(a):
        weights[...] = weights * 2.0
        weights[...] = weights + tj.linalg.inv(a)

    step(tj.eye(2))
    expected = weights.numpy().copy()

    def fail():
        step(tj.zeros((2, 2)))
        weights.wait()

    with pytest.raises(tj.errors.LinAlgError, match="singular"):
        fail()
    np.testing.assert_array_equal(weights.numpy(), expected)
    step(tj.eye(2))
    np.testing.assert_array_equal(weights.numpy(), expected * 2 + np.eye(2))


def test_each_failure_names_its_own_line():
    def first():
        return tj.linalg.inv(tj.zeros((2, 2)))

    def second():
        return tj.linalg.inv(tj.zeros((2, 2)))

    for call in (first, second):
        with pytest.raises(tj.errors.LinAlgError) as caught:
            call().wait()
        assert f":{call.__code__.co_firstlineno + 1}" in str(caught.value)


@pytest.mark.parametrize(
    "name", ["cholesky", "qr", "svd", "svdvals", "eigh", "slogdet", "det", "inv", "pinv"]
)
def test_half_numbers_are_computed_in_float32(name):
    function, x = getattr(tj.linalg, name), tj.asarray(positive((2, 3, 3), "float32"))
    for dtype in (tj.float16, tj.bfloat16):
        half = x.astype(dtype)
        exact = flat(function(half.astype(tj.float32)))
        for got, wide in zip(flat(function(half)), exact, strict=True):
            assert got.dtype == dtype
            bits = 1e-2 if name == "pinv" else 0  # a composition rounds on its way
            expected = wide.astype(dtype).astype(tj.float32).numpy()
            np.testing.assert_allclose(got.astype(tj.float32).numpy(), expected, rtol=bits, atol=bits)


def test_half_numbers_in_traces_gradients_and_mixtures():
    a, b = tj.asarray(positive((3, 3), "float32")).astype(tj.float16), tj.ones(3, dtype=tj.float16)
    step = tj.jit(lambda a, b: tj.value_and_grad(lambda a: tj.linalg.solve(a, b).sum())(a), strict=True)
    wide = tj.value_and_grad(lambda a: tj.linalg.solve(a, b.astype(tj.float32)).sum())(a.astype(tj.float32))
    for _ in range(2):
        for got, expected in zip(step(a, b), wide, strict=True):
            assert got.dtype == tj.float16
            np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=2e-2, atol=2e-3)
    assert tj.linalg.solve(a, tj.ones(3)).dtype == tj.float32
    assert tj.linalg.eigvals(a).dtype == tj.complex64
    assert np.linalg.inv(a).dtype == tj.float16
    rank_one = tj.ones((3, 3), dtype=tj.bfloat16) * 0.1
    assert tj.linalg.matrix_rank(rank_one).item() == 1
    assert tj.linalg.lstsq(a, b)[0].dtype == tj.float16
    with pytest.raises(tj.errors.ShapeError, match=r"needs square matrices(?s:.*)test_linalg"):
        tj.linalg.inv(tj.ones((2, 3), dtype=tj.float16))


# -- small systems, which kernels solve ----------------------------------------------------------------------


def solved_and_inverted(a, b):
    return tj.linalg.solve(a, b), tj.linalg.inv(a)


@pytest.mark.parametrize("dtype", DTYPES)
def test_small_systems_are_solved_by_kernels(dtype):
    traced = tj.jit(solved_and_inverted, strict=True)
    for shape, columns in (((1, 1), 1), ((3, 5, 5), 2), ((2, 4, 7, 7), 9), ((50, 50), 60)):
        a, b = matrices(shape, dtype), matrices((*shape[:-1], columns), dtype, 1)
        given = [tj.asarray(x) for x in (a, b)]
        tolerance = 1e-8 if dtype in ("float64", "complex128") else 1e-2
        for _ in range(2):
            for got, expected in zip(traced(*given), (np.linalg.solve(a, b), np.linalg.inv(a)), strict=True):
                assert got.dtype == dtype
                np.testing.assert_allclose(got.numpy(), expected, rtol=tolerance, atol=tolerance)
        names = [k.name for k in traced.kernels(*given)]
        assert names == [f"solve {dtype}", f"inv {dtype}"]


@pytest.mark.parametrize("shape", [(0, 0), (5, 0), (0, 3)])
def test_systems_without_elements(shape):
    rows, columns = shape
    a, b = np.eye(rows), np.ones((rows, columns))
    traced = tj.jit(lambda a, b: tj.linalg.solve(a * 1, b), strict=True)
    for _ in range(2):
        assert traced(tj.asarray(a), tj.asarray(b)).shape == shape


def test_large_systems_are_numpys():
    a = positive((200, 200))
    traced = tj.jit(solved_and_inverted, strict=True)
    close(traced(tj.asarray(a), tj.asarray(a))[0], np.eye(200))
    assert not traced.kernels(tj.asarray(a), tj.asarray(a))


def test_a_small_singular_matrix_changes_nothing():
    def step(a, b, total):
        total += 1
        total += tj.linalg.solve(a * 1, b)[..., 0].sum()
        return total

    traced = tj.jit(step, strict=True)
    a = np.stack([np.eye(3)] * 3)
    b, total = tj.ones((3, 3, 1)), tj.zeros(())
    assert float(traced(tj.asarray(a), b, total)) == 10
    a[1, 2] = 0
    for f in (traced, tj.jit(step, strict=True)):
        for _ in range(2):
            with pytest.raises(np.linalg.LinAlgError, match=r"solve: singular matrix\n  at .*test_linalg.py"):
                f(tj.asarray(a), b, total).wait()
    assert float(total) == 10
    a[1, 2, 2] = 2
    assert float(traced(tj.asarray(a), b, total)) == 19.5


def kalman(measured, transition, observation, noise):
    """The states that a Kalman filter estimates."""
    state, covariance = np.zeros(4), np.eye(4)
    states = np.zeros((len(measured), 4))
    for k in range(len(measured)):
        state = transition @ state
        covariance = transition @ covariance @ transition.T + 0.01 * np.eye(4)
        innovation = observation @ covariance @ observation.T + noise
        gain = covariance @ observation.T @ np.linalg.inv(innovation)
        state = state + gain @ (measured[k] - observation @ state)
        covariance = (np.eye(4) - gain @ observation) @ covariance
        states[k] = state
    return states


def test_a_loop_of_small_systems_is_rolled():
    transition, observation = np.eye(4) + 0.1 * np.eye(4, k=2), np.eye(2, 4)
    traced = tj.jit(kalman, strict=True)
    for count in (40, 90):
        measured = matrices((count, 2), seed=count)
        for _ in range(2):
            got = traced(measured, transition, observation, 0.1 * np.eye(2))
        close(got, kalman(measured, transition, observation, 0.1 * np.eye(2)))
    names = [k.name for k in traced.kernels(measured, transition, observation, np.eye(2))]
    assert "loop" in names
    assert len(names) < 20


@pytest.mark.parametrize("count", [range, tj.range])
def test_a_singular_matrix_in_a_loop(count):
    def total(matrices, result):
        for k in count(len(matrices)):
            result += tj.linalg.inv(matrices[k])
        return result

    traced = tj.jit(total, strict=True)
    a, result = np.tile(np.eye(3), (30, 1, 1)), tj.zeros((3, 3), dtype="float64")
    close(traced(a, result), 30 * np.eye(3))
    a[17] = 0
    message = r"inv: singular matrix in iteration 17 of the loop\n  at .*test_linalg.py"
    for _ in range(2):
        with pytest.raises(np.linalg.LinAlgError, match=message):
            traced(a, result).wait()
    close(result, 30 * np.eye(3))


def test_a_loop_of_systems_that_grow_beyond_kernels():
    def firsts(a, b):
        out = tj.zeros(40, dtype="float64")
        for k in range(40):
            out[k] = tj.linalg.solve(a[: 90 + k, : 90 + k], b[: 90 + k])[0]
        return out

    a, b = positive((200, 200)), matrices((200,))
    expected = [np.linalg.solve(a[:k, :k], b[:k])[0] for k in range(90, 130)]
    close(tj.jit(firsts, strict=True)(a, b), np.array(expected))


@pytest.fixture
def set_workers():
    before = tj.engine.workers.count
    yield tj.engine.set_workers
    tj.engine.set_workers(before)


def test_small_systems_have_the_same_bits_with_any_number_of_workers(set_workers):
    a, b = (tj.asarray(matrices((40, 12, 12), seed=n)) for n in (0, 1))
    traced = tj.jit(solved_and_inverted, strict=True)
    results = []
    for workers in (1, 3):
        set_workers(workers)
        results.append([x.numpy() for x in traced(a, b)])
    for one, three in zip(*results, strict=True):
        np.testing.assert_array_equal(one, three)
