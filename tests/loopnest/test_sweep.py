"""Sweeps: which updates they are for, which rows they keep back, and that the graph's meaning stays."""

import itertools
import pathlib

import numpy as np
import pytest

from tests.golden import check_golden
from tests.graphs import F4, F8, I4, assert_same, assert_same_meaning, fuse
from tests.passes.simulate import run_plan
from tests.tuning import tune
from tracejit import ops
from tracejit.ir.evaluate import evaluate
from tracejit.ir.graph import Builder, Effect
from tracejit.ir.printer import print_graph
from tracejit.ir.types import ArrayType, Device
from tracejit.ir.verify import verify
from tracejit.ir.view import View
from tracejit.loopnest import sweep as sweep_module
from tracejit.loopnest.sweep import Sweep, rows_read
from tracejit.passes.memory.aliases import overwrites
from tracejit.passes.memory.legalize import legalize
from tracejit.passes.memory.plan import plan

pytestmark = pytest.mark.usefixtures("nothing_known")

GOLDEN = pathlib.Path(__file__).parent / "golden"


def inside(shape, margins, shift):
    """The elements of an array of `shape` that are not on its border, moved by `shift`."""
    view = View.of_shape(shape)
    for axis, (n, margin, by) in enumerate(zip(shape, margins, shift, strict=True)):
        view = view.slice_axis(axis, margin + by, n - margin + by)
    return view


def stencil(b, a, shifts, margins=(1, 1)):
    """An update of the inside of `a` by the sum of its elements at `shifts`."""
    shape = a.type.shape
    total, *others = (b.emit(ops.view, a, view=inside(shape, margins, shift)) for shift in shifts)
    for other in others:
        total = b.emit(ops.add, total, other)
    middle = inside(shape, margins, (0,) * len(shape))
    return b.emit(ops.update, a, b.emit(ops.negative, total), view=middle)


CROSS = ((-1, 0), (1, 0), (0, -1), (0, 1))


def cross(shape=(20, 12), dtype=F4, shifts=CROSS, **fields):
    b = Builder()
    a = b.input(ArrayType(shape, dtype, **fields))
    return b.graph([], [Effect(a, stencil(b, a, shifts))])


def heat(n):
    """Full rows: one dimension."""
    b = Builder()
    a = b.input(ArrayType((n,), F4))
    return b.graph([], [Effect(a, stencil(b, a, [(-1,), (0,), (1,)], margins=(1,)))])


def sweep_of(graph):
    """The sweep of the only kernel of a graph; None if there are two."""
    kernels = [n for n in fuse(graph).nodes if n.op is ops.fused]
    return kernels[0].attrs["sweep"] if len(kernels) == 1 else None


@pytest.fixture
def short_bands(monkeypatch):
    """As short as the reach of the stencil allows."""
    monkeypatch.setattr(sweep_module, "elements_per_unit", lambda program: 1)
    for name, number in (("MIN_ROWS_PER_EDGE", 1), ("ROWS_PER_EDGE", 1), ("MIN_BANDS", 0), ("RUN_LENGTH", 5)):
        monkeypatch.setattr(sweep_module, name, number)


@pytest.mark.usefixtures("short_bands")
def test_graph_of_a_sweep():
    check_golden(GOLDEN / "sweep.txt", print_graph(fuse(cross((12, 10)))))


@pytest.mark.usefixtures("short_bands")
@pytest.mark.parametrize("dtype", [F4, F8, I4])
@pytest.mark.parametrize("rows", [3, 4, 5, 6, 7, 9, 20, 61])
def test_the_meaning_and_the_memory(rows, dtype):
    graph = cross((rows, 7), dtype)
    fused = fuse(graph)
    assert_same_meaning(verify(fused), graph, rows)
    rng = np.random.default_rng(rows)
    array = rng.integers(-9, 9, (rows, 7)).astype(dtype)
    _, (expected,) = evaluate(graph, [array])
    planned = plan(legalize(fused))
    _, (after,) = run_plan(planned, [array], rng)
    assert_same([after], [expected])
    bands = max(1, (rows - 2) // 2)
    assert planned.arena_bytes >= (bands - 1) * 2 * 5 * dtype.itemsize
    assert planned.arena_bytes < max(graph.inputs[0].type.nbytes, 512)


@pytest.mark.usefixtures("short_bands")
def test_an_array_that_is_needed_afterwards_is_copied():
    b = Builder()
    a = b.input(ArrayType((15, 9), F4))
    new = stencil(b, a, CROSS)
    graph = b.graph([new, b.emit(ops.sqrt, a)])
    rng = np.random.default_rng(0)
    array = rng.random((15, 9)).astype(F4)
    outputs, _ = evaluate(graph, [array])
    got, (after,) = run_plan(plan(legalize(verify(fuse(graph)))), [array], rng)
    assert_same(got, outputs)
    assert_same([after], [array])


@pytest.mark.usefixtures("short_bands")
def test_the_new_elements_may_be_wanted_besides():
    b = Builder()
    a = b.input(ArrayType((15, 9), F4))
    new = stencil(b, a, CROSS)
    elements = next(n.inputs[1] for n in b.nodes if n.op is ops.update)
    graph = b.graph([elements, b.emit(ops.square, elements)], [Effect(a, new)])
    fused = verify(fuse(graph))
    (kernel,) = (n for n in fused.nodes if n.op is ops.fused)
    assert [len(kernel.outputs), len(overwrites(kernel))] == [4, 1]
    rng = np.random.default_rng(0)
    array = rng.random((15, 9)).astype(F4)
    outputs, (expected,) = evaluate(graph, [array])
    got, (after,) = run_plan(plan(legalize(fused)), [array], rng)
    assert_same([*got, after], [*outputs, expected])


# ------------------------------------------------------------------------------------------ rows and elements


def random_rows(rng):
    """A view that does not overlap itself, as of the rows of an array, in any order and with gaps."""
    extents = [int(n) for n in rng.integers(1, 5, rng.integers(2, 4))]
    gaps = [int(n) for n in rng.integers(0, 3, len(extents))]
    strides, unit = [0] * len(extents), 1
    for d in sorted(range(len(extents)), key=lambda d: rng.random() if rng.random() < 0.3 else -d):
        strides[d] = unit * int(rng.choice([1, -1], p=[0.8, 0.2]))
        unit *= extents[d] + gaps[d]
    return View(1000, tuple(extents), tuple(strides))


def elements(view):
    """For each row of `view`: its elements."""
    index = np.zeros(view.shape, int) + view.offset
    for axis, (n, stride) in enumerate(zip(view.shape, view.strides, strict=True)):
        index += (np.arange(n) * stride).reshape(-1, *[1] * (len(view.shape) - axis - 1))
    return [set(row.ravel().tolist()) for row in index]


@pytest.mark.parametrize("seed", range(400))
def test_rows_read_are_all_that_have_elements_in_common(seed):
    rng = np.random.default_rng(seed)
    view = random_rows(rng)
    shift = int(rng.integers(-30, 31))
    written, read = elements(view), elements(view.moved(shift))
    lowest, highest = rows_read(view, shift)
    common = [j - i for i, j in itertools.product(range(len(read)), repeat=2) if read[i] & written[j]]
    assert all(lowest <= k <= highest for k in common)
    extents, strides = view.shape[1:], view.strides[1:]
    if 1 + sum(abs(s) * (n - 1) for n, s in zip(extents, strides, strict=True)) == len(written[0]):
        assert (not common and lowest > highest) or (lowest, highest) == (min(common), max(common))


@pytest.mark.parametrize("seed", range(100))
def test_no_band_writes_what_another_one_reads(seed):
    """Whatever the bands' turns: elements that one stores itself belong to no other band's reads."""
    rng = np.random.default_rng(seed)
    shape = int(rng.integers(8, 40)), int(rng.integers(5, 9))
    margins = tuple(int(n) for n in rng.integers(0, 3, 2))
    shifts = [tuple(int(rng.integers(-m, m + 1)) for m in margins) for _ in range(4)]
    rows = inside(shape, margins, (0, 0))
    reach = [rows_read(rows, dy * shape[1] + dx) for dy, dx in shifts]
    up, down = max(0, *(-low for low, _ in reach)), max(0, *(high for _, high in reach))
    band = up + down + int(rng.integers(1, 3))
    sweep = Sweep(max(1, rows.shape[0] // band), band, up, down, 0, along=False)
    written = elements(rows)
    read = [set.union(*(elements(inside(shape, margins, s))[i] for s in shifts)) for i in range(len(written))]
    edges = set()
    if sweep.has_edges:
        cuts = sweep.cuts(rows)
        edges = set().union(*(e for n in range(cuts.shape[0]) for e in elements(part_of(cuts, n))))
    owner = [min(i // band, sweep.bands - 1) for i in range(len(written))]
    for i, j in itertools.product(range(len(written)), repeat=2):
        if owner[i] != owner[j]:
            assert not (written[i] - edges) & read[j]
        elif i + up < j:  # stored before row j is computed
            assert not written[i] & read[j]


def part_of(view, index):
    return View(view.offset + index * view.strides[0], view.shape[1:], view.strides[1:])


# ------------------------------------------------------------------------------------------ bands


def test_bands_follow_from_the_shape():
    assert sweep_of(cross((2048, 2048))) == Sweep(31, 66, 1, 1, 0, True)
    assert sweep_of(cross((500, 502))) == Sweep(15, 34, 1, 1, 0, True)
    assert sweep_of(cross((50, 40))) == Sweep(1, 48, 1, 1, 0, True)
    assert sweep_of(heat(1 << 20)) == Sweep(16, 64, 1, 1, 1024, False)
    assert sweep_of(heat(1000)) == Sweep(1, 1, 0, 0, 1024, False)


@pytest.mark.parametrize(
    ("shifts", "reach"),
    [
        ([(-1, 0)], (1, 0)),
        ([(1, 0)], (0, 1)),
        ([(0, -1), (0, 1)], (0, 0)),
        ([(-1, -1), (0, 1)], (1, 0)),
        ([(1, 1), (-1, 0)], (1, 1)),
    ],
)
def test_up_and_down(shifts, reach):
    found = sweep_of(cross((40, 40), shifts=shifts))
    assert (found.up, found.down) == reach


def test_the_edges_are_few():
    for shape in ((3000, 1000), (700, 700), (300, 5000), (10_000, 30)):
        found = sweep_of(cross(shape))
        assert (found.bands - 1) * (found.up + found.down) <= (shape[0] - 2) / 4
        last = shape[0] - 2 - (found.bands - 1) * found.band
        assert sweep_module.MIN_ROWS_PER_EDGE * 2 <= last < 2 * found.band


# ------------------------------------------------------------------------------------------ no sweeps


def test_what_is_no_sweep():
    turned = View.of_shape((20, 20)).permute((1, 0))

    def graph(read, written, shape=(20, 20), **fields):
        b = Builder()
        a = b.input(ArrayType(shape, F4, **fields))
        x = b.emit(ops.negative, b.emit(ops.view, a, view=read))
        return b.graph([], [Effect(a, b.emit(ops.update, a, x, view=written))])

    whole = View.of_shape((20, 20))
    down, right = inside((20, 20), (1, 1), (1, 0)), inside((20, 20), (1, 1), (0, 0))
    assert sweep_of(graph(down, right)) is not None
    assert sweep_of(graph(turned, whole)) is None  # other strides
    assert sweep_of(graph(down.permute((1, 0)), right.permute((1, 0)))) is None  # not along rows
    assert sweep_of(graph(whole.slice_axis(1, 0, 18, 2), whole.slice_axis(1, 1, 19, 2))) is None
    assert sweep_of(graph(View(1, (300,), (1,)), View(0, (300,), (1,)))) is not None  # one dimension
    assert sweep_of(graph(View(0, (99,), (2,)), View(2, (99,), (2,)))) is None
    assert sweep_of(graph(down, right, device=Device("gpu"))) is None


def test_rows_too_long_for_the_ring_are_no_sweep(monkeypatch, nothing_known):
    assert sweep_of(cross((200, 20))) is not None
    diagonal = cross((200, 20), shifts=[(-1, -1)])
    tune(monkeypatch, scratch=18 * 4)
    nothing_known()
    assert sweep_of(cross((200, 20))).along
    assert sweep_of(diagonal) is None
    tune(monkeypatch, scratch=2 * 18 * 4)
    nothing_known()
    assert not sweep_of(diagonal).along


def test_too_few_rows_for_the_work_are_no_sweep():
    assert sweep_of(cross((12, 20_000))) is None


def test_two_updates_of_one_array_are_no_sweep():
    b = Builder()
    a = b.input(ArrayType((20, 20), F4))
    new = stencil(b, stencil(b, a, CROSS), CROSS)
    fused = fuse(b.graph([], [Effect(a, new)]))
    sweeps = [n.attrs["sweep"] for n in fused.nodes if n.op is ops.fused]
    assert sweeps == [Sweep(1, 18, 1, 1, 0, True)] * 2
