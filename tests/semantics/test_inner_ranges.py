"""Inner ranges whose trip counts differ between the iterations of a loop over looks; looks in `tj.range`."""

import numpy as np
import pytest

import tracejit as tj
from tracejit.frontend.recording.look_loops import run_ahead


def sparse(rng, n, m):
    """A random sparse matrix in compressed rows, some of them empty, and the dense one."""
    dense = np.where(rng.random((n, m)) < 0.3, rng.normal(size=(n, m)), 0.0)
    dense[n // 2] = 0.0
    rows, columns = np.nonzero(dense)
    return np.searchsorted(rows, np.arange(n + 1)), columns, dense[rows, columns], dense


def is_native(f):
    return "are one launch" in f.explain() and "are a launch each" not in f.explain()


PRODUCT = """
def product(begins, columns, values, x):
    y = tj.zeros(begins.shape[0] - 1, dtype=x.dtype)
    for i in {outer}(len(y)):
        total = x[0] * 0
        for k in {inner}(int(begins[i]), int(begins[i + 1])):
            total = total + values[k] * x[columns[k]]
        y[i] = total
    return y
"""


@pytest.mark.parametrize("outer", ["tj.range", "range"])
@pytest.mark.parametrize("inner", ["tj.range", "range"])
def test_rows_of_a_sparse_matrix(outer, inner):
    namespace = {"__name__": "sparse", "tj": tj}
    exec(PRODUCT.format(outer=outer, inner=inner), namespace)
    product = tj.jit(namespace["product"])
    rng = np.random.default_rng(4)
    for _ in range(6):
        begins, columns, values, dense = sparse(rng, 20, 15)
        x = rng.normal(size=15)
        arguments = np.resize(columns, 100), np.resize(values, 100), x
        np.testing.assert_allclose(
            product(tj.asarray(begins), *map(tj.asarray, arguments)).numpy(),
            dense @ x,
            rtol=1e-12,
            atol=1e-14,
        )
    assert is_native(product), product.explain()
    assert product.cache_info().traces <= 3


def pairs(n, seq):
    """Dynamic programming with a function that looks, in a NumPy array (like Nussinov's folding)."""
    table = np.zeros((n, n), np.int32)
    for i in range(n - 1, -1, -1):
        for j in range(i + 1, n):
            if i + 1 < n:
                table[i, j] = max(table[i, j], table[i + 1, j])
                table[i, j] = max(table[i, j], table[i + 1, j - 1] + bonds(seq[i], seq[j]))
            for k in range(i + 1, j):
                table[i, j] = max(table[i, j], table[i, k] + table[k + 1, j])
    return table


def bonds(a, b):
    return 1 if a + b == 3 else 0


def test_triangular_loops_of_numpy_arrays():
    f = tj.jit(pairs)
    rng = np.random.default_rng(5)
    for _ in range(12):  # a call records transitions that no path has performed before
        seq = rng.integers(0, 4, 20)
        np.testing.assert_array_equal(f(20, tj.asarray(seq)), pairs(20, seq))
    assert is_native(f), f.explain()
    assert f.cache_info().replays >= 4


def test_a_bad_index_in_an_inner_range():
    @tj.jit
    def total(limits, x):
        s = x[0] * 0
        for i in range(limits.shape[0]):
            for k in range(int(limits[i])):
                s = s + x[k]
        return s

    x = np.arange(5.0)
    for limits in ([3, 5, 0, 2], [5, 5, 1, 1], [1, 0, 0, 4]):
        expected = sum(x[:n].sum() for n in limits)
        assert float(total(tj.asarray(limits), tj.asarray(x))) == expected
    with pytest.raises(IndexError, match="index 5 is out of bounds for axis 0 with extent 5"):
        float(total(tj.asarray([1, 2, 6, 1]), tj.asarray(x)))


@pytest.mark.parametrize("patience", [0.0, 100.0])
def test_the_first_call_keeps_the_arrays_of_one_iteration(patience, monkeypatch):
    monkeypatch.setattr(run_ahead, "PATIENCE", patience)

    @tj.jit
    def longest(a, b):
        n, m = len(a), len(b)
        table = tj.zeros((n + 1, m + 1), dtype=tj.int64)
        for i in range(1, n + 1):
            for j in range(1, m + 1):
                if a[i - 1] == b[j - 1]:
                    table[i, j] = table[i - 1, j - 1] + 1
                else:
                    table[i, j] = max(table[i - 1, j], table[i, j - 1])
        return table[n, m]

    step = run_ahead.Execution.step
    performed = []

    def counted(execution):
        performed.append(len(execution.produced))
        return step(execution)

    monkeypatch.setattr(run_ahead.Execution, "step", counted)
    rng = np.random.default_rng(6)
    a, b = rng.integers(0, 3, 20), rng.integers(0, 3, 25)
    results = [int(longest(tj.asarray(a), tj.asarray(b))) for _ in range(3)]
    assert len(set(results)) == 1
    assert max(performed) <= 4
    assert len(performed) > 100 or patience == 0.0
