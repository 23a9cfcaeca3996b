"""Library kernels against NumPy: values, and bits that no split and no interleaving of threads changes."""

import numpy as np
import pytest

from tests.kernels.native import SIGNATURE, address, block_of, random_ranges, run
from tracejit.kernels.gemm.plan import Gemm, GemmPlan, gemm_layout, gemm_plan, gemm_slots, gram_plan, is_gram
from tracejit.kernels.gemm.tiles import tiles_are_profitable
from tracejit.kernels.library.blocks import Copy, ScatterAdd
from tracejit.kernels.library.plan import LETTERS, ORDERED, copy_plan, scatter_call, scatter_plan
from tracejit.kernels.library.table import LIBRARY, NUMBERS, SYSTEMS, WORDS

FLOATS, INTEGERS = ["float32", "float64"], ["bool", "int8", "int32", "int64", "uint8", "uint64"]


def random_array(rng, shape, dtype):
    if np.dtype(dtype).kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 2**63, shape).astype("uint64").view("int64").astype(dtype)


def random_operand(rng, batch, rows, columns, dtype):
    """A (batch, rows, columns) array: plain, transposed, cut out of a larger one, or shared by the batch."""
    if rng.random() < 0.2:
        return np.broadcast_to(random_operand(rng, 1, rows, columns, dtype), (batch, rows, columns))
    extra = rng.integers(0, 4, 3)
    if rng.random() < 0.5:
        base = random_array(rng, (batch + extra[0], columns + extra[1], rows + extra[2]), dtype)
        return base[:batch, :columns, :rows].swapaxes(1, 2)
    base = random_array(rng, (batch + extra[0], rows + extra[1], columns + extra[2]), dtype)
    return base[:batch, :rows, :columns]


def gemm_block(a, b, c, epilogue=0, epilogue_block=0, panel=None, add=0):
    """The block of a product and its number of units; `panel` overrides the plan with (rows, columns)."""
    strides = [tuple(s // x.itemsize for s in x.strides) for x in (a, b)]
    layout = gemm_layout(a.shape, strides[0], b.shape, strides[1])
    plan = gemm_plan(layout.batch, layout.m, layout.n, layout.k, a.itemsize, epilogue=epilogue != 0)
    if panel:
        (rows, columns), panels = panel, (-(-layout.m // panel[0]), -(-layout.n // panel[1]))
        plan = GemmPlan(rows, panels[0], columns, panels[1], layout.batch * panels[0] * panels[1], 1)
    values = {
        **gemm_slots(layout, plan, str(a.dtype)),
        Gemm.A: a.ctypes.data,
        Gemm.B: b.ctypes.data,
        Gemm.C: c.ctypes.data,
        Gemm.EPILOGUE: epilogue,
        Gemm.EPILOGUE_BLOCK: epilogue_block,
        Gemm.IN_SCRATCH: 0,
        Gemm.ADD: add,
        Gemm.PACKED: 0,
    }
    return block_of(Gemm, values), plan.units


def gram_block(a, c):
    """The block of the products of matrices and their own transposes, and its number of units."""
    block, _ = gemm_block(a, a.swapaxes(1, 2), c)
    plan = gram_plan(len(a), a.shape[1])
    block[[Gemm.PANEL_ROWS, Gemm.ROW_PANELS]] = plan.panel_rows, plan.row_panels
    block[[Gemm.PANEL_COLUMNS, Gemm.COLUMN_PANELS]] = plan.panel_columns, plan.column_panels
    return block, plan.units


def multiply(block, dtype, ranges, threads=1):
    """Run a product, with as much scratch memory as any asks for."""
    run(address("gemm", dtype), block, ranges, threads, room=1 << 20)


def product(a, b, dtype):
    """The oracle: floats from a wider type, integers by wrapping, booleans as any of ands."""
    if np.dtype(dtype).kind == "f":
        return a.astype(np.longdouble) @ b.astype(np.longdouble)
    return a @ b


def assert_product(c, a, b, dtype):
    if np.dtype(dtype).kind == "f":
        bound = np.abs(a).astype(np.longdouble) @ np.abs(b).astype(np.longdouble)
        error = np.abs(c - product(a, b, dtype))
        assert np.all(error <= (a.shape[-1] + 2) * np.finfo(dtype).eps / 2 * bound)
    else:
        np.testing.assert_array_equal(c, product(a, b, dtype))


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
@pytest.mark.parametrize("seed", range(25))
def test_gemm_random_shapes_layouts_and_splits(dtype, seed):
    rng = np.random.default_rng([seed, np.dtype(dtype).num])
    batch = int(rng.integers(1, 5))
    m, n, k = (int(rng.choice([1, 1, 2, 3, 5, 8, 17, 40, 70])) for _ in range(3))
    a, b = random_operand(rng, batch, m, k, dtype), random_operand(rng, batch, k, n, dtype)
    c = np.full((batch, m, n), np.nan if dtype in FLOATS else 1, dtype)
    block, units = gemm_block(a, b, c, panel=[int(rng.integers(1, extent + 1)) for extent in (m, n)])
    multiply(block, dtype, random_ranges(rng, units))
    assert_product(c, a, b, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("k", [0, 1, 3, 8, 31, 70, 1000])
@pytest.mark.parametrize("add", [0, 1])
def test_dot_of_rows_and_columns(dtype, k, add):
    for seed in range(8):  # layouts
        rng = np.random.default_rng([seed, k])
        a, b = random_operand(rng, 3, 1, k, dtype), random_operand(rng, 3, k, 1, dtype)
        before = random_array(rng, (3, 1, 1), dtype)
        c = before.copy()
        block, units = gemm_block(a, b, c, add=add)
        if block[Gemm.M] > 1 or block[Gemm.N] > 1:
            continue  # one operand is the same for all: the others are rows or columns of one product
        run(address("dot", dtype), block, random_ranges(rng, units))
        assert_product(c, np.dstack([a, before * add]), np.hstack([b, np.ones((3, 1, 1), dtype)]), dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [1, 63, 64, 71, 192, 200, 333])
@pytest.mark.parametrize("transposed", [False, True])
def test_gram_is_the_product_with_the_transpose(dtype, n, transposed):
    rng = np.random.default_rng([n, transposed])
    a = random_array(rng, (2, 150, n + 3) if transposed else (2, n, 155), dtype)
    a = a[:, :, :n].swapaxes(1, 2) if transposed else a[:, :, :150]
    c, whole = np.full((2, 2, n, n), np.nan, dtype)
    block, units = gram_block(a, c)
    run(address("gram", dtype), block, random_ranges(rng, units), threads=2, room=1 << 20)
    assert_product(c, a, a.swapaxes(1, 2), dtype)
    np.testing.assert_array_equal(c, c.swapaxes(1, 2))
    if tiles_are_profitable() and n >= 5:  # the bits of what is computed in full
        block, units = gemm_block(a, a.swapaxes(1, 2), whole)
        multiply(block, dtype, [(0, units)])
        np.testing.assert_array_equal(c, whole)


def test_only_a_large_matrix_and_its_own_transpose_is_a_gram():
    def gram(a, b):
        strides = [tuple(s // x.itemsize for s in x.strides) for x in (a, b)]
        return is_gram(gemm_layout(a.shape, strides[0], b.shape, strides[1]))

    x = np.zeros((400, 700))
    for a in (x, x[:260], x[:, :270], x[:300].T[:280].T):
        assert gram(a, a.T)
    assert gram(x[:, :300].T, x[:, :300])
    for a, b in ((x[:200], x[:200].T), (x[:, :200], x[:, :200].T), (x[:300], x.T), (x[:, :400], x[:, :400])):
        assert not gram(a, b)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
@pytest.mark.parametrize(
    ("m", "n", "k"), [(6, 64, 600), (33, 32, 5), (7, 50, 9), (1, 40, 30), (40, 1, 30), (5, 6, 0)]
)
def test_gemm_adds_to_what_is_there(dtype, m, n, k):
    rng = np.random.default_rng(m)
    a, b = random_array(rng, (2, m, k), dtype), random_array(rng, (2, k, n), dtype)
    before = random_array(rng, (2, m, n), dtype)
    c = before.copy()
    block, units = gemm_block(a, b, c, add=1)
    multiply(block, dtype, random_ranges(rng, units))
    if dtype in FLOATS:
        whole = (
            np.concatenate([a, before], axis=2),
            np.concatenate([b, np.eye(n, dtype=dtype)[None].repeat(2, 0)], 1),
        )
        assert_product(c, *whole, dtype)
    else:
        both = before | product(a, b, dtype) if dtype == "bool" else before + product(a, b, dtype)
        np.testing.assert_array_equal(c, both)


@pytest.mark.parametrize("dtype", ["float32", "int16"])
def test_gemm_two_batch_levels_read_in_place(dtype):
    rng = np.random.default_rng(0)
    query = random_array(rng, (3, 9, 4, 8), dtype).transpose(0, 2, 1, 3)
    key = random_array(rng, (3, 7, 4, 8), dtype).transpose(0, 2, 3, 1)
    c = np.empty((3, 4, 9, 7), dtype)
    block, units = gemm_block(query, key, c)
    assert block[Gemm.INNER] == 4
    multiply(block, dtype, random_ranges(rng, units))
    assert_product(c, query, key, dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "bool"])
@pytest.mark.parametrize(("m", "n", "k"), [(5, 4, 0), (0, 4, 3), (5, 0, 3), (1, 1, 0), (1, 1, 1)])
def test_gemm_degenerate(dtype, m, n, k):
    a, b = np.ones((2, m, k), dtype), np.ones((2, k, n), dtype)
    c = np.full((2, m, n), np.nan if dtype in FLOATS else 1, dtype)
    block, units = gemm_block(a, b, c)
    multiply(block, dtype, [(0, units)])
    np.testing.assert_array_equal(c, a @ b)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("m", "n", "k"), [(300, 1, 2000), (1, 700, 900), (1, 1, 5000), (2000, 30, 40)])
def test_gemm_vectors_and_tall_matrices(dtype, m, n, k):
    rng = np.random.default_rng(m)
    for _ in range(4):
        a, b = random_operand(rng, 1, m, k, dtype), random_operand(rng, 1, k, n, dtype)
        c = np.full((1, m, n), np.nan, dtype)
        block, units = gemm_block(a, b, c)
        multiply(block, dtype, [(0, units)])
        assert_product(c, a, b, dtype)


def test_gemm_special_values_travel():
    a = np.array([[np.inf, 1.0], [np.nan, 0.0], [0.0, -0.0], [1e38, 1e38]], "f")
    b = np.array([[1.0, 2.0, -0.0], [1.0, 10.0, 3.0]], "f")
    c = np.empty((4, 3), "f")
    block, units = gemm_block(a, b, c)
    multiply(block, "float32", [(0, units)])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(c, a @ b)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("batch", "m", "n", "k"),
    [
        (1, 700, 64, 96),
        (1, 60, 510, 64),
        (6, 40, 33, 50),
        (3, 130, 120, 70),
        (1, 1, 800, 900),
        (1, 900, 1, 700),
    ],
)
def test_gemm_bits_do_not_depend_on_ranges_or_threads(dtype, batch, m, n, k):
    rng = np.random.default_rng(7)
    a, b = random_array(rng, (batch, m, k), dtype), random_array(rng, (batch, k, n), dtype)
    expected = np.empty((batch, m, n), dtype)
    block, units = gemm_block(a, b, expected)
    multiply(block, dtype, [(0, units)])
    for threads in (1, 2, 3, 8):
        for _ in range(5):
            c = np.full_like(expected, np.nan)
            block[Gemm.C] = c.ctypes.data
            multiply(block, dtype, random_ranges(rng, units), threads)
            assert c.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("m", "n", "k"), [(64, 48, 100), (1, 300, 257), (300, 1, 257), (128, 10, 784), (7, 9, 11)]
)
def test_gemm_bits_do_not_depend_on_addresses(dtype, m, n, k):
    rng = np.random.default_rng(11)
    itemsize, results = np.dtype(dtype).itemsize, set()
    memory = [np.empty(size * itemsize + 256, np.uint8) for size in (m * k, k * n, m * n)]
    values = [random_array(rng, shape, dtype) for shape in ((m, k), (k, n), (m, n))]
    for offset in (0, 1, 3, 8, 13):
        arrays = []
        for raw, value in zip(memory, values, strict=True):
            start = -raw.ctypes.data % 64 + offset * itemsize
            arrays.append(raw[start : start + value.nbytes].view(dtype).reshape(value.shape))
            arrays[-1][...] = value
        block, units = gemm_block(*arrays)
        multiply(block, dtype, [(0, units)])
        results.add(arrays[2].tobytes())
    assert len(results) == 1


def test_gemm_many_concurrent_callers():
    rng = np.random.default_rng(3)
    a, b = random_array(rng, (64, 48, 64), "f"), random_array(rng, (64, 64, 40), "f")
    c = np.full((64, 48, 40), np.nan, "f")
    block, units = gemm_block(a, b, c)
    multiply(block, "float32", [(i, i + 1) for i in range(units)], threads=64)
    assert_product(c, a, b, "float32")


def test_gemm_epilogue_sees_every_row_once_after_its_panel():
    rng = np.random.default_rng(5)
    a, b = random_array(rng, (3, 21, 8), "f"), random_array(rng, (3, 8, 4), "f")
    c, result = np.full((3, 21, 4), np.nan, "f"), np.full((63, 4), np.nan, "f")
    calls = []

    @SIGNATURE
    def epilogue(own_block, r0, r1, scratch):
        assert (own_block, scratch) == (block.ctypes.data + 1234, 0)
        result[r0:r1] = c.reshape(63, 4)[r0:r1] + 1
        calls.append((r0, r1))
        return 0

    at = np.frombuffer(epilogue, np.int64)[0]
    block, units = gemm_block(a, b, c, epilogue=at, epilogue_block=1234, panel=(8, 4))
    run(address("gemm", "float32"), block, random_ranges(rng, units))
    assert sorted(calls) == [(i * 21 + p, i * 21 + min(p + 8, 21)) for i in range(3) for p in (0, 8, 16)]
    np.testing.assert_array_equal(result, c.reshape(63, 4) + 1)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_gemm_panels_take_turns_in_scratch_memory(dtype):
    rng = np.random.default_rng(6)
    a, b = random_array(rng, (3, 21, 8), dtype), random_array(rng, (3, 8, 4), dtype)
    expected, result = np.zeros((3, 21, 4), dtype), np.zeros((63, 4), dtype)
    panel = np.zeros((10, 4), dtype)  # one line more on either side, which must stay as it is

    @SIGNATURE
    def epilogue(own_block, r0, r1, scratch):
        result[r0:r1] = panel[1 : 1 + r1 - r0]
        return 0

    block, units = gemm_block(a, b, expected, panel=(8, 4))
    multiply(block, dtype, [(0, units)])
    block[Gemm.EPILOGUE] = np.frombuffer(epilogue, np.int64)[0]
    block[Gemm.IN_SCRATCH], block[Gemm.C] = 1, panel[1:].ctypes.data  # `run` passes scratch memory at 0
    run(address("gemm", dtype), block, random_ranges(rng, units))
    assert result.tobytes() == expected.tobytes()
    assert not panel[[0, 9]].any()


def test_gemm_returns_the_status_of_a_failing_epilogue():
    a = np.ones((40, 2), "f")
    c = np.zeros((40, 2), "f")
    epilogue = SIGNATURE(lambda block, r0, r1, scratch: 77 if r0 == 16 else 0)
    at = np.frombuffer(epilogue, np.int64)[0]
    block, units = gemm_block(a, np.ones((2, 2), "f"), c, epilogue=at, panel=(8, 2))
    assert SIGNATURE(address("gemm", "float32"))(block.ctypes.data, 0, units, 0) == 77
    np.testing.assert_array_equal(c[:, 0], np.repeat([2, 0], [24, 16]))  # later panels were not run


def scatter_block(x, index, out, outer, extent, inner, plan):
    values = {
        ScatterAdd.X: x.ctypes.data,
        ScatterAdd.INDEX: index.ctypes.data,
        ScatterAdd.OUT: out.ctypes.data,
        ScatterAdd.COUNT: index.size,
        ScatterAdd.INNER: inner,
        ScatterAdd.EXTENT: extent,
        ScatterAdd.ROWS: plan.rows,
        ScatterAdd.ROW_BLOCKS: plan.row_blocks,
        ScatterAdd.COLUMNS: plan.columns,
        ScatterAdd.COLUMN_BLOCKS: plan.column_blocks,
    }
    return block_of(ScatterAdd, values)


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize(
    ("outer", "count", "inner", "extent"),
    [
        (1, 50, 1, 7),
        (3, 40, 5, 9),
        (1, 3000, 16, 11),
        (1, 600, 70, 13),
        (2, 900, 40, 5),
        (1, 0, 4, 3),
        (9, 5, 3, 1),
    ],
)
def test_scatter_add_equals_add_at_in_every_split(dtype, outer, count, inner, extent):
    rng = np.random.default_rng([count, inner])
    x = random_array(rng, (outer, count, inner), dtype)
    index = rng.integers(0, extent, count)
    expected = np.zeros((outer, extent, inner), dtype)
    for o in range(outer):
        np.add.at(expected[o], index, x[o])
    plan = scatter_plan(outer, count, inner, extent)
    assert plan.units == outer * plan.row_blocks * plan.column_blocks
    assert plan.rows * plan.row_blocks >= extent > plan.rows * (plan.row_blocks - 1)
    assert plan.columns * plan.column_blocks >= inner > plan.columns * (plan.column_blocks - 1)
    for threads in (1, 2, 5):
        out = np.full_like(expected, 1)
        block = scatter_block(x, index, out, outer, extent, inner, plan)
        run(address("scatter_add", dtype), block, random_ranges(rng, plan.units), threads)
        assert out.tobytes() == expected.tobytes()


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize(("outer", "count", "inner", "extent"), [(1, 50, 1, 7), (3, 40, 5, 9), (2, 0, 3, 4)])
def test_scatter_writes_in_index_order(word, outer, count, inner, extent):
    rng = np.random.default_rng([count, inner])
    x, out = random_array(rng, (outer, count, inner), word), random_array(rng, (outer, extent, inner), word)
    index = rng.integers(0, extent, count)
    expected = out.copy()
    for p in range(count):
        expected[:, index[p]] = x[:, p]
    call = scatter_call("scatter", [out.shape, x.shape, index.shape, out.shape], {"axis": 1}, word)
    assert call.units == (outer if count else 0)
    addresses = [array.ctypes.data for array in (out, x, index, out)]
    block = np.asarray([*call.words, *addresses], np.int64)
    run(address("scatter", word), block, random_ranges(rng, call.units), threads=2)
    assert out.tobytes() == expected.tobytes()


def test_scatter_plan_shares_out_large_scatters():
    assert scatter_plan(1, 10_000, 64, 50_000).column_blocks == 4
    assert scatter_plan(1, 10_000, 8, 50_000).row_blocks == 8
    assert scatter_plan(64, 10_000, 8, 50_000)[1:4:2] == (1, 1)
    assert scatter_plan(1, 10, 8, 10).units == 1
    assert scatter_plan(1, 10, 0, 10).units == scatter_plan(1, 10, 3, 0).units == 0


@pytest.mark.parametrize("nbytes", [0, 1, 262144, 262145, 1_000_003])
def test_copy(nbytes):
    rng = np.random.default_rng(0)
    source, target = rng.integers(0, 256, nbytes, dtype=np.uint8), np.zeros(nbytes + 1, np.uint8)
    plan = copy_plan(nbytes)
    values = (nbytes, plan.unit_bytes, source.ctypes.data, target.ctypes.data)
    block = block_of(Copy, dict(zip(Copy, values, strict=True)))
    run(address("copy", "uint8"), block, random_ranges(rng, plan.units), threads=3)
    np.testing.assert_array_equal(target[:-1], source)
    assert target[-1] == 0


def test_the_table_is_complete():
    typed = {(n, d) for n in ("gemm", "scatter_add") for d in NUMBERS}
    systems = {(name, dtype) for name in SYSTEMS for dtype in LETTERS}
    comparing = {(name, dtype) for name in ("sort", "argsort", "search_sorted") for dtype in ORDERED}
    systems |= {("qr", dtype) for dtype in ("float64", "complex128")}
    transforms = {("rfft", dtype) for dtype in FLOATS}
    transforms |= {(name, dtype) for name in ("fft", "irfft") for dtype in ("complex64", "complex128")}
    integers = {("gcd", dtype) for dtype in set(NUMBERS) - {"bool", *FLOATS}}
    products = {(name, dtype) for name in ("dot", "gram") for dtype in FLOATS}
    moves = {("copy", "uint8"), *(("scatter", word) for word in WORDS)}
    assert set(LIBRARY) == {*moves, *products, *typed, *systems, *comparing, *integers, *transforms}
