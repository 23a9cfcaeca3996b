"""Products in register tiles: the bits that no split changes, whatever the shapes; and nothing else is read.

Where a machine has no registers for tiles, BLAS computes the same products, and only what depends on tiles is
left out.
"""

import ctypes
import mmap

import numpy as np
import pytest

from tests.kernels.library.test_library import FLOATS, assert_product, gemm_block, random_array
from tests.kernels.native import SIGNATURE, address, random_ranges, run
from tracejit.codegen.objects.build import EntryPoint, build_object
from tracejit.codegen.objects.linker import link
from tracejit.kernels.gemm import products
from tracejit.kernels.gemm.plan import (
    BLOCK_ROWS,
    DEPTH,
    NEAR_BYTES,
    SPAN_BYTES,
    TILE_BYTES,
    TILE_ROWS,
    Gemm,
    GemmPlan,
    gemm_layout,
    is_tiled,
    packing,
)
from tracejit.kernels.gemm.tiles import tiles_are_profitable
from tracejit.kernels.library.table import make

PAGE = mmap.PAGESIZE
NONE, ALL = 0, mmap.PROT_READ | mmap.PROT_WRITE


def multiply(a, b, c, panel=None, add=0, ranges=None):
    """The product by the kernel, with exactly as much scratch memory as it asks for, in front of a page that
    nobody may touch.
    """
    block, units = gemm_block(a[None], b[None], c[None], panel=panel, add=add)
    strides = [tuple(s // x.itemsize for s in x.strides) for x in (a, b)]
    layout = gemm_layout(a.shape, strides[0], b.shape, strides[1])
    rows, columns = panel or (block[Gemm.PANEL_ROWS], block[Gemm.PANEL_COLUMNS])
    room = packing(layout, GemmPlan(int(rows), 0, int(columns), 0, 0, 1), a.itemsize)
    memory = guarded((room,), np.uint8) if room else None
    function = SIGNATURE(address("gemm", str(a.dtype)))
    for lo, hi in ranges(units) if ranges else [(0, units)]:
        assert function(block.ctypes.data, lo, hi, memory.ctypes.data if room else 0) == 0
    return block


def guarded(shape, dtype, *, at_end=True):
    """An empty array between two pages that nobody may touch, next to the second or to the first one."""
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    inside = -(-nbytes // PAGE) * PAGE
    memory = mmap.mmap(-1, inside + 2 * PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    for place in (start, start + PAGE + inside):
        assert protect(ctypes.c_void_p(place), PAGE, NONE) == 0
    offset = PAGE + inside - nbytes if at_end else PAGE
    return np.frombuffer(memory, dtype, int(np.prod(shape)), offset).reshape(shape)


def placed(values, *, at_end, transposed):
    """A copy between two such pages; `transposed`: in memory."""
    target = guarded(values.shape[::-1] if transposed else values.shape, values.dtype, at_end=at_end)
    target = target.T if transposed else target
    target[...] = values
    return target


def near(rng, unit, most):
    """An extent at or next to a multiple of `unit`, at least 5."""
    return max(5, int(rng.integers(0, most + 1)) * unit + int(rng.integers(-2, 3)))


def random_shape(rng, dtype):
    """Rows, columns and depth around the extents of tiles, blocks and slivers."""
    columns = TILE_BYTES // np.dtype(dtype).itemsize
    rows = near(rng, TILE_ROWS, 5) if rng.random() < 0.8 else near(rng, BLOCK_ROWS, 2)
    width = near(rng, columns, 3) if rng.random() < 0.7 else near(rng, columns // 4, 5)
    return rows, width, near(rng, DEPTH, 3) if rng.random() < 0.5 else int(rng.integers(2, 40))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("seed", range(40))
def test_bits_do_not_depend_on_the_split_and_nothing_else_is_touched(dtype, seed):
    rng = np.random.default_rng([seed, np.dtype(dtype).num])
    m, n, k = random_shape(rng, dtype)
    flips, ends = rng.random(2) < 0.5, rng.random(3) < 0.5
    a = placed(random_array(rng, (m, k), dtype), at_end=ends[0], transposed=flips[0])
    b = placed(random_array(rng, (k, n), dtype), at_end=ends[1], transposed=flips[1])
    first = guarded((m, n), dtype, at_end=ends[2])
    first[...] = np.nan
    block = multiply(a, b, first)
    assert block[Gemm.TILED] == 1
    assert_product(first, a, b, dtype)
    for _ in range(3):
        panel = int(rng.integers(1, m + 1)), int(rng.integers(1, n + 1))
        other = guarded((m, n), dtype, at_end=not ends[2])
        other[...] = np.nan
        multiply(a, b, other, panel, ranges=lambda units: random_ranges(rng, units))
        if tiles_are_profitable():
            np.testing.assert_array_equal(other, first)
        assert_product(other, a, b, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("seed", range(12))
def test_adding_adds_the_same_bits(dtype, seed):
    """What is there is added to the first piece of the depth, and the sum of both to the next one."""
    rng = np.random.default_rng([seed, np.dtype(dtype).num])
    m, n, _ = random_shape(rng, dtype)
    k = int(rng.integers(2, DEPTH + 1))
    a, b, before = (random_array(rng, shape, dtype) for shape in ((m, k), (k, n), (m, n)))
    product, total = np.empty((m, n), dtype), before.copy()
    multiply(a, b, product)
    multiply(a, b, total, add=1)
    if tiles_are_profitable():
        np.testing.assert_array_equal(total, product + before)
    np.testing.assert_allclose(total, product + before, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("at", ["a", "b", "both"])
def test_special_values_stay_in_their_rows_and_columns(dtype, at):
    """Columns and rows that fill up tiles are no numbers that anything is computed with."""
    m, n, k = TILE_ROWS + 1, TILE_BYTES // np.dtype(dtype).itemsize + 3, 7
    a, b = np.ones((m, k), dtype), np.ones((k, n), dtype)
    if at != "b":
        a[-1, 3] = np.inf
    if at != "a":
        b[3, -1] = np.nan
    c = np.empty((m, n), dtype)
    multiply(a, b, c)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(c, a @ b)
    assert np.isfinite(c[:-1, :-1]).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("transposed", [False, True])
def test_a_large_first_factor_is_copied_and_a_small_one_is_not(dtype, transposed):
    rng = np.random.default_rng(1)
    itemsize = np.dtype(dtype).itemsize
    n, k = 3 * TILE_BYTES // itemsize, SPAN_BYTES // itemsize + 3
    few = NEAR_BYTES // (k * itemsize)
    a, b = random_array(rng, (BLOCK_ROWS + 9, k), dtype), random_array(rng, (k, n), dtype)
    a = np.asfortranarray(a) if transposed else a
    all_rows, few_rows = (np.empty((rows, n), dtype) for rows in (len(a), few))
    assert multiply(a, b, all_rows)[Gemm.A_COPIED] == 1
    assert multiply(a[:few], b, few_rows)[Gemm.A_COPIED] == 0
    assert multiply(a, b[:, : n - 1], np.empty((len(a), n - 1), dtype))[Gemm.A_COPIED] == 0
    if tiles_are_profitable():
        np.testing.assert_array_equal(all_rows[:few], few_rows)
    assert_product(all_rows, a, b, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("k", [9, 50, 100, 121, DEPTH - 1, DEPTH + 1, 3 * DEPTH - 7])
def test_copies_of_any_depth_have_room(dtype, transposed, k):
    """Depths that are no multiples of the squares in which slivers are copied; gradients to weights have
    that of the batch.
    """
    rng = np.random.default_rng(k)
    itemsize = np.dtype(dtype).itemsize
    m, n = NEAR_BYTES // (k * itemsize) + 1, 4 * TILE_BYTES // itemsize
    for flips in (False, True):
        a = placed(random_array(rng, (m, k), dtype), at_end=True, transposed=transposed)
        b = placed(random_array(rng, (k, n), dtype), at_end=True, transposed=flips)
        c = guarded((m, n), dtype)
        assert multiply(a, b, c)[Gemm.A_COPIED] == 1
        assert_product(c, a, b, dtype)


def test_few_rows_or_columns_are_left_to_blas():
    tiled = {shape: is_tiled(*shape) for shape in [(5, 5, 2), (4, 50, 9), (50, 4, 9), (50, 50, 1)]}
    assert tiled == {(5, 5, 2): True, (4, 50, 9): False, (50, 4, 9): False, (50, 50, 1): False}


@pytest.mark.parametrize("dtype", FLOATS)
def test_machines_with_small_registers_leave_all_to_blas(dtype, monkeypatch):
    monkeypatch.setattr(products, "tiles_are_profitable", lambda: False)
    built = build_object([EntryPoint("kernel", make("gemm", dtype))])
    assert "gemm_" not in built.llvm_ir
    kernel = SIGNATURE(link(f"blas {dtype}", built.object_code, ["kernel"])["kernel"])
    rng = np.random.default_rng(2)
    for m, n, k in [(70, 90, 33), (7, 64, 300), (1, 9, 4), (9, 1, 4), (3, 3, 0)]:
        a, b = random_array(rng, (1, m, k), dtype), random_array(rng, (1, k, n), dtype)
        c = np.full((1, m, n), np.nan, dtype)
        block, units = gemm_block(a, b, c)
        assert kernel(block.ctypes.data, 0, units, 0) == 0
        assert_product(c, a, b, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_panels_take_turns_in_scratch_memory_beside_what_is_copied(dtype):
    rng = np.random.default_rng(6)
    m, n, k = 40, 70, 200
    a, b = random_array(rng, (1, m, k), dtype), random_array(rng, (1, k, n), dtype)
    expected, result = np.zeros((1, m, n), dtype), np.zeros((m, n), dtype)
    panel_bytes = -(-8 * n * expected.itemsize // 64) * 64

    @SIGNATURE
    def epilogue(own_block, r0, r1, scratch):
        held = (ctypes.c_char * ((r1 - r0) * n * expected.itemsize)).from_address(scratch)
        result[r0:r1] = np.frombuffer(held, dtype).reshape(r1 - r0, n)
        return 0

    block, units = gemm_block(a, b, expected, panel=(8, n))
    run(address("gemm", dtype), block, [(0, units)], room=1 << 20)
    block[Gemm.EPILOGUE] = np.frombuffer(epilogue, np.int64)[0]
    block[Gemm.IN_SCRATCH], block[Gemm.C], block[Gemm.PACKED] = 1, 0, panel_bytes
    run(address("gemm", dtype), block, random_ranges(rng, units), threads=3, room=1 << 20)
    np.testing.assert_array_equal(result, expected[0])
