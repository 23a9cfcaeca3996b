"""Memory asked for ahead of its use: which kernels do, that their loops stay vectors, and that nothing else
changes.
"""

import re

import numpy as np
import pytest
from numba import float32, float64, int64, uint8

from tests.codegen import bodies, runner
from tests.codegen.cases import CASES, arguments, kernels
from tests.tuning import tune
from tracejit import ops
from tracejit.codegen.lower import lower
from tracejit.codegen.objects.build import EntryPoint, build_object
from tracejit.codegen.objects.linker import link
from tracejit.codegen.objects.listing import vector_width
from tracejit.codegen.text import load_source
from tracejit.ir.graph import Builder
from tracejit.ir.types import ArrayType
from tracejit.ir.view import View
from tracejit.kernels.compiler.memory import pointer, slot
from tracejit.kernels.compiler.ranges import independent
from tracejit.kernels.scalar import exp
from tracejit.kernels.streams import prefetch as instruction
from tracejit.kernels.streams.prefetch import prefetch
from tracejit.loopnest import sweep as sweep_module
from tracejit.targets import emit

pytestmark = pytest.mark.usefixtures("nothing_known")

F4, F8 = np.dtype("float32"), np.dtype("float64")
LINE = 64


@pytest.fixture
def everything_is_far(monkeypatch):
    tune(monkeypatch, private=-1, streamed_run=1)


def asked(node):
    """For each loop of a kernel, what it asks for: pointer and distance."""
    spec = lower(node).spec
    loops = [section for section in spec.sections if section.level == "full" or spec.orientation == "map"]
    return [
        {(s.access.pointer, s.function, s.position) for s in loop.steps if s.kind == "prefetch"}
        for loop in loops
    ]


def accessed(node, kind):
    """The pointers that steps of a kind use."""
    steps = [step for section in lower(node).spec.sections for step in section.steps]
    return {step.access.pointer for step in steps if step.kind == kind}


# --------------------------------------------------------------------------------------- the instruction


def make_kernel(dtype):
    def kernel(block, lo, hi, scratch):
        x, y, n = pointer(slot(block, 0), dtype), pointer(slot(block, 1), dtype), slot(block, 2)
        for unit in range(lo, hi):
            for i in independent(0, n):
                prefetch(x, (unit + 1) * n, i)
                prefetch(y, (unit + 1) * n, i)
                y[unit * n + i] = x[unit * n + i] + dtype(1)
        return int64(0)

    return kernel


@pytest.mark.parametrize("dtype", [uint8, float32, float64], ids=str)
def test_vectors_ask_for_a_line_or_their_part_of_it(dtype):
    built = build_object([EntryPoint("kernel", make_kernel(dtype))])
    width = vector_width(built.llvm_ir)
    assert width > 1
    size = dtype.bitwidth // 8
    loops = re.findall(r"\nvector\.body:.*?\n  br ", built.llvm_ir, re.DOTALL)
    for loop in loops[:1]:
        stored = len(re.findall(r"store <\d+ x ", loop))
        assert len(re.findall(r"call void @llvm\.prefetch", loop)) == 2 * stored
        assert stored * width * size >= LINE or width * size < LINE
    assert "call void @prefetch" not in built.llvm_ir


@pytest.mark.parametrize(
    ("name", "has_vbmi2", "asks"),
    [
        ("znver4", True, True),
        ("znver2", False, True),
        ("sapphirerapids", True, False),
        ("haswell", False, True),
    ],
)
def test_the_only_row_written_is_asked_for_where_that_pays(name, has_vbmi2, asks, monkeypatch):
    monkeypatch.setattr(instruction, "processor", lambda: name)
    monkeypatch.setattr(instruction, "features", lambda: {"avx512vbmi2": has_vbmi2})
    texts = {kind: instruction._definition(kind, 4) for kind in instruction.KINDS}
    assert {kind for kind, text in texts.items() if "call void @llvm.prefetch" in text} == (
        {"any", "written"} if asks else {"any"}
    )


def test_results_are_those_of_the_loop_without():
    for dtype in (uint8, float32, float64):
        built = build_object([EntryPoint("kernel", make_kernel(dtype))])
        kernel = runner.SIGNATURE(link("kernel", built.object_code, ["kernel"])["kernel"])
        for n in (0, 1, 15, 16, 17, 63, 64, 65, 1000):
            x = np.random.default_rng(n).integers(0, 99, (3, n)).astype(str(dtype))
            y = np.zeros_like(x)
            block = np.array([x.ctypes.data, y.ctypes.data, n])
            assert kernel(block.ctypes.data, 0, 3, 0) == 0
            np.testing.assert_array_equal(y, x + 1)


def test_a_loop_without_vectors_asks_for_nothing():
    def kernel(block, lo, hi, scratch):
        x, n = pointer(slot(block, 0), float32), slot(block, 1)
        total = float32(0)
        for i in range(n):  # each sum needs the one before: no vectors
            prefetch(x, n, i)
            total = exp(total + x[i])
        x[0] = total
        return int64(0)

    built = build_object([EntryPoint("kernel", kernel)])
    used = built.llvm_ir[built.llvm_ir.index("@kernel") :]
    body = used[: used.index("\n}")]
    assert "prefetch" not in body


# ------------------------------------------------------------------------------------------------ who asks


def test_rows_ask_for_the_next_row_and_for_where_this_one_goes(everything_is_far):
    (node,) = CASES["softmax"](50, 300)
    (read,), (written,) = accessed(node, "load"), accessed(node, "store")
    assert asked(node) == [set(), {(read, "rows", 1), (written, "written", 0)}, set()]


def test_rows_share_their_prefetches_out_and_leave_repeated_operands(everything_is_far):
    """Scale and bias of a layer norm are the same for each row."""
    (node,) = CASES["layer_norm"](50, 300)
    *first, last = asked(node)
    (written,) = accessed(node, "store")
    together = set().union(*first)
    assert last == set()
    assert sum(map(len, first)) == len(together) == 2
    assert (written, "written", 0) in together


def test_what_caches_hold_is_not_asked_for(monkeypatch):
    tune(monkeypatch, private=2 * 4 * 50 * 300)
    (node,) = CASES["softmax"](50, 300)
    assert not any(asked(node))
    (node,) = CASES["softmax"](51, 300)
    assert any(asked(node))


def test_a_map_asks_for_the_next_page_if_it_computes_enough(everything_is_far):
    (node,) = CASES["silu"](5000)
    (ahead,) = asked(node)
    assert {(way, distance) for _, way, distance in ahead} == {("elements", 1024)}
    assert {p for p, _, _ in ahead} == accessed(node, "load") | accessed(node, "store")
    b = Builder()
    x, y = (b.input(ArrayType((5000,), F4)) for _ in range(2))
    (node,) = kernels(b.graph([b.emit(ops.multiply, b.emit(ops.add, x, y), y)]))
    assert asked(node) == [set()]


def test_lines_of_columns_ask_some_lines_ahead(everything_is_far):
    b = Builder()
    x = b.input(ArrayType((40, 300), F4))
    (node,) = kernels(b.graph([b.emit(ops.max, x, axes=(0,))]))
    (read,) = accessed(node, "load")
    assert asked(node) == [{(read, "rows", 8)}]


def test_a_single_loop_over_a_row_leaves_it_to_the_processor(everything_is_far):
    b = Builder()
    x = b.input(ArrayType((50, 300), F4))
    (node,) = kernels(b.graph([b.emit(ops.max, x, axes=(1,))]))
    assert asked(node) == [set()]


def test_a_sweep_asks_for_the_row_that_no_cache_has_seen(monkeypatch):
    monkeypatch.setattr(sweep_module, "elements_per_unit", lambda program: 1)
    for name in ("MIN_ROWS_PER_EDGE", "ROWS_PER_EDGE"):
        monkeypatch.setattr(sweep_module, name, 1)
    monkeypatch.setattr(sweep_module, "MIN_BANDS", 0)
    rows, columns = 40, 50
    b = Builder()
    x = b.input(ArrayType((rows, columns), F4))
    whole = View.of_shape((rows, columns))

    def part(top, left):
        return whole.slice_axis(0, top, rows - 2 + top, 1).slice_axis(1, left, columns - 2 + left, 1)

    up, down = (b.emit(ops.view, x, view=part(top, 1)) for top in (0, 2))
    graph = b.graph([b.emit(ops.update, x, b.emit(ops.add, up, down), view=part(1, 1))])
    node = next(n for n in kernels(graph) if n.attrs.get("sweep") is not None)
    ((pointer_of_it, way, distance),) = asked(node)[0]
    lowered = lower(node)
    offset = lowered.slots[lowered.spec.slot_names().index(f"x{pointer_of_it}")].byte_offset
    assert (way, distance) == ("rows", 1)
    assert offset == part(2, 1).offset * 4


# ------------------------------------------------------------------------------------------------- results


@pytest.mark.parametrize("seed", range(300, 330))
def test_random_bodies(seed, everything_is_far):
    body = bodies.random_body(seed)
    runner.check(
        runner.fused_node(body), bodies.random_arguments(body, seed), rng=np.random.default_rng(seed)
    )


@pytest.mark.parametrize("columns", [7, 64, 1024, 3001])
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "silu"])
def test_cases(name, columns, everything_is_far):
    (node,) = CASES[name](*((5, columns) if name != "silu" else (columns,)))
    runner.check(node, list(arguments(node)), rng=np.random.default_rng(columns), exact=False)


@pytest.mark.parametrize("shape", [(41, 3), (40, 64), (17, 1000)])
@pytest.mark.parametrize("dtype", ["int32", "float32", "float64"])
def test_column_sums(shape, dtype, everything_is_far):
    b = Builder()
    x = b.input(ArrayType(shape, np.dtype(dtype)))
    (node,) = kernels(b.graph([b.emit(ops.sum, x, axes=(0,))]))
    rng = np.random.default_rng(3)
    array = rng.integers(-99, 99, shape).astype(dtype)
    runner.check(node, [array], rng=rng)


def test_cuda_leaves_it_to_other_threads(everything_is_far):
    (node,) = CASES["softmax"](50, 300)
    assert "prefetch" in emit(lower(node).spec)
    assert "prefetch" not in emit(lower(node).spec, "gpu")


def test_the_source_can_be_compiled_by_itself(everything_is_far):
    (node,) = CASES["softmax"](50, 300)
    source = emit(lower(node).spec)
    assert "prefetch_written(x1, p0, i1)" in source
    assert "prefetch(x0, p0 + s0_0, i1)" in source
    assert vector_width(build_object([EntryPoint("kernel", load_source(source))]).llvm_ir) > 1
