"""The host side of matrix products: layouts and panels."""

import ctypes
import subprocess
import sys

import numpy as np
import pytest

from tracejit.kernels.gemm.blas import entry_points
from tracejit.kernels.gemm.plan import (
    MAX_BLAS_EXTENT,
    MAX_EPILOGUE_ROWS,
    PANEL_EXTENT,
    GemmLayout,
    GemmOperand,
    gemm_layout,
    gemm_plan,
    matrix_layout,
)


def elements(array):
    return tuple(s // array.itemsize for s in array.strides)


def read(flat, shape, layout):
    """What BLAS sees: the matrix of `shape` rebuilt from a leading stride and a flag."""
    leading, transposed = layout
    rows, columns = shape
    i, j = np.indices(shape)
    assert leading >= max(1, rows if transposed else columns)
    return flat[j * leading + i if transposed else i * leading + j]


def test_entry_points_multiply():
    kinds = (("sgemm", "float32", ctypes.c_float), ("dgemm", "float64", ctypes.c_double))
    for name, dtype, real in kinds:
        integer, address = ctypes.c_int, ctypes.c_void_p
        parameters = [*[integer] * 6, real, address, integer, address, integer, real, address, integer]
        gemm = ctypes.CFUNCTYPE(None, *parameters)(entry_points()[name])
        a, b = np.arange(6, dtype=dtype).reshape(2, 3), np.arange(12, dtype=dtype).reshape(3, 4)
        c = np.full((2, 4), np.nan, dtype)
        gemm(101, 111, 111, 2, 4, 3, 1, a.ctypes.data, 3, b.ctypes.data, 4, 0, c.ctypes.data, 4)
        np.testing.assert_array_equal(c, a @ b)


def test_host_side_needs_no_numba_and_keeps_symbols_private():
    program = (
        "import ctypes, sys; import tracejit.kernels.library.plan;"
        "from tracejit.kernels.gemm import blas, plan; blas.entry_points();"
        "assert 'numba' not in sys.modules and 'scipy_openblas32' not in sys.modules;"
        "assert not hasattr(ctypes.CDLL(None), 'scipy_cblas_sgemm')"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("seed", range(200))
def test_matrix_layout_reads_what_numpy_reads(seed):
    rng = np.random.default_rng(seed)
    flat = rng.standard_normal(400)
    rows, columns = rng.integers(1, 7, 2)
    strides = [int(rng.choice([0, 1, 2, rows, columns, 7, 9])) for _ in range(2)]
    matrix = np.lib.stride_tricks.as_strided(flat, (rows, columns), [8 * s for s in strides])
    layout = matrix_layout((rows, columns), strides)
    down, across = (s or 1 for s in strides)
    readable = (across == 1 and down >= columns) or (down == 1 and across >= rows)
    if rows > 1 and columns > 1 and 0 not in strides:
        assert (layout is not None) == readable
    if layout is not None:
        np.testing.assert_array_equal(read(flat, (rows, columns), layout), matrix)


@pytest.mark.parametrize(
    ("shape", "strides"),
    [((1, 5), (5, 1)), ((1, 5), (1, 1)), ((1, 5), (0, 3)), ((5, 1), (1, 1)), ((5, 1), (3, 0))],
)
def test_vectors_are_always_readable(shape, strides):
    flat = np.random.default_rng(0).standard_normal(40)
    expected = np.lib.stride_tricks.as_strided(flat, shape, [8 * s for s in strides])
    np.testing.assert_array_equal(read(flat, shape, matrix_layout(shape, strides)), expected)


def test_batches_merge():
    x, w = np.empty((4, 8, 16, 32), "f"), np.empty((32, 8), "f")
    shared = np.broadcast_to(w, (4, 8, 32, 8))
    plain = gemm_layout(x.shape, elements(x), shared.shape, elements(shared))
    assert plain == GemmLayout(1, 1, 512, 8, 32, GemmOperand(32, False, 0, 0), GemmOperand(8, False, 0, 0))
    heads = np.empty((4, 16, 8, 32), "f").transpose(0, 2, 1, 3)  # attention: batch and heads do not merge
    keys = heads.swapaxes(-1, -2)
    attention = gemm_layout(heads.shape, elements(heads), keys.shape, elements(keys))
    assert attention == GemmLayout(
        4, 8, 16, 16, 32, GemmOperand(256, False, 4096, 32), GemmOperand(256, True, 4096, 32)
    )
    assert attention.batch == 32
    odd = np.empty((2, 3, 2, 5, 4, 4), "f").transpose(2, 0, 1, 3, 4, 5)[:, :, :, ::2]
    assert gemm_layout(odd.shape, elements(odd), odd.shape, elements(odd)) is None


def test_what_blas_cannot_read_is_refused():
    x = np.empty((8, 8), "f")
    assert gemm_layout((4, 8), elements(x[::2]), (8, 8), elements(x)) is not None
    assert gemm_layout((8, 4), elements(x[:, ::2]), (4, 8), elements(x[:4])) is None
    assert gemm_layout((8, 8), elements(x), (8, 8), (0, 1)) is None  # one row broadcast to many
    assert gemm_layout((MAX_BLAS_EXTENT + 1, 8), (8, 1), (8, 8), (8, 1)) is None


def test_plan_covers_every_element_once_and_balances_two_workers():
    rng = np.random.default_rng(0)
    for trial in range(4000):
        batch, m, n, k = (int(2 ** rng.uniform(0, limit)) for limit in (6, 13, 12, 12))
        plan = gemm_plan(batch, m, n, k, epilogue=trial % 2 == 0)
        assert plan.units == batch * plan.row_panels * plan.column_panels
        assert (plan.row_panels - 1) * plan.panel_rows < m <= plan.row_panels * plan.panel_rows
        assert (plan.column_panels - 1) * plan.panel_columns < n <= plan.column_panels * plan.panel_columns
        if trial % 2 == 0:
            assert plan.column_panels == 1
        extent, panel = (m, plan.panel_rows) if plan.column_panels == 1 else (n, plan.panel_columns)
        if 2 * m * n * k < 1 << 20:
            assert plan.units == batch
        elif extent >= 64:
            assert plan.units % 2 == 0 or plan.units >= 7
            enough = MAX_EPILOGUE_ROWS if trial % 2 == 0 else PANEL_EXTENT
            assert panel >= min(extent, enough) // 2 - 16


def test_plan_of_empty_products():
    for empty in [(0, 3, 3, 3), (3, 0, 3, 3), (3, 3, 0, 3)]:
        assert gemm_plan(*empty).units == 0
    assert gemm_plan(2, 3, 3, 0).units == 2


def test_plan_splits_the_longer_side_unless_an_epilogue_needs_rows():
    assert gemm_plan(1, 64, 4096, 784).column_panels == 1
    assert gemm_plan(1, 64, 4096, 784, epilogue=False)[:4] == (64, 1, 2048, 2)
    assert gemm_plan(1, 4096, 64, 784, epilogue=False).column_panels == 1
