"""Updates of arrays that are read at shifted places, against NumPy bit for bit: through the compiled kernels,
with bands as short as they may be, for any number of workers.
"""

import functools
import pathlib

import numpy as np
import pytest

import tracejit as tj
from tests.codegen import runner
from tests.golden import check_golden
from tests.thorough import some
from tests.tuning import tune
from tracejit import ops
from tracejit.codegen.lower import lower
from tracejit.config import config
from tracejit.errors import DeviceError, VerificationError
from tracejit.ir.evaluate import evaluate_node
from tracejit.ir.graph import Graph, Node
from tracejit.loopnest import sweep as sweep_module
from tracejit.targets import emit

pytestmark = pytest.mark.usefixtures("nothing_known")

GOLDEN = pathlib.Path(__file__).parent / "golden"
QUARTER = np.float32(0.25)


@pytest.fixture(params=[1, 3])
def bands(request, monkeypatch):
    """Bands of at least this many rows for each row of their edges, however small the work is."""
    monkeypatch.setattr(sweep_module, "elements_per_unit", lambda program: 1)
    numbers = {
        "MIN_ROWS_PER_EDGE": request.param,
        "ROWS_PER_EDGE": request.param,
        "MIN_BANDS": 0,
        "RUN_LENGTH": 8,
    }
    for name, number in numbers.items():
        monkeypatch.setattr(sweep_module, name, number)


@pytest.fixture
def workers():
    before = tj.engine.workers.count
    yield tj.engine.set_workers
    tj.engine.set_workers(before)


def sweeps(function):
    """The sweeps among the kernels of a jitted function."""
    nodes = [task.node for schedule in function.schedules() for task in schedule.plan.tasks]
    return [n.attrs["sweep"] for n in nodes if n.attrs.get("sweep") is not None]


def compare(step, *arrays, calls=2):
    """`step` on NumPy, eagerly and replayed: arguments and results stay the same. The jitted one."""
    jitted = tj.jit(step)
    for function in (step, jitted):
        plain = [np.array(a) for a in arrays]
        ours = [tj.asarray(a) for a in arrays]
        for _ in range(calls):
            expected, result = step(*plain), function(*ours)
            for got, wanted in zip(ours, plain, strict=True):
                same(got, wanted)
            if expected is not None:
                same(result, expected)
    return jitted


def same(got, wanted):
    assert got.dtype == wanted.dtype
    np.testing.assert_array_equal(got.numpy(), wanted)


def jacobi(a):
    a[1:-1, 1:-1] = QUARTER * (a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:])


def values(rng, shape, dtype):
    if dtype == "bool":
        return rng.random(shape) < 0.5
    return rng.integers(-50, 50, shape).astype(dtype)


# ------------------------------------------------------------------------------------------ random stencils


def random_stencil(rng):
    """Shape, dtype, the update's slices, and the slices it reads."""
    ndim = int(rng.integers(1, 4))
    shape = tuple(int(n) for n in rng.integers(1, (60, 25, 12)[:ndim] if ndim > 1 else (400,)))
    before, after = (rng.integers(0, 4, ndim) * (rng.random(ndim) < 0.7) for _ in range(2))
    room = [max(n - b - a, 0) for n, b, a in zip(shape, before, after, strict=True)]
    start = [min(int(b), n) for b, n in zip(before, shape, strict=True)]

    def shifted():
        first = [
            s + int(rng.integers(-min(b, s), a + 1)) if r else s
            for s, b, a, r in zip(start, before, after, room, strict=True)
        ]
        return tuple(slice(f, f + r) for f, r in zip(first, room, strict=True))

    target = tuple(slice(s, s + r) for s, r in zip(start, room, strict=True))
    return shape, target, [shifted() for _ in range(int(rng.integers(1, 6)))]


def combine(xp, dtype, parts):
    """One value of `parts`, by operators whose results are exact."""
    result = parts[0]
    for n, part in enumerate(parts[1:]):
        if dtype == "bool":
            result = xp.logical_xor(result, xp.logical_not(part))
        elif n % 2:
            result = xp.maximum(result, part)
        else:
            result = result - part
    if len(parts) > 2 and dtype != "bool":
        result = xp.where(parts[1] > parts[2], result, parts[0])
    return result


@pytest.mark.usefixtures("bands")
@pytest.mark.parametrize("seed", some(range(90), 30))
def test_random_stencils(seed):
    rng = np.random.default_rng(seed)
    dtype = str(rng.choice(["float32", "float64", "int32", "bool"]))
    shape, target, reads = random_stencil(rng)

    def step(a):
        xp = np if isinstance(a, np.ndarray) else tj
        a[target] = combine(xp, dtype, [a[read] for read in reads])

    compare(step, values(rng, shape, dtype))


@pytest.mark.usefixtures("bands")
@pytest.mark.parametrize("rows", [4, 5, 6, 7, 8, 9, 14, 33, 200])
def test_every_number_of_rows(rows):
    step = compare(jacobi, np.random.default_rng(rows).random((rows, 37)).astype(np.float32), calls=4)
    (sweep,) = sweeps(step)
    assert sweep.bands == max(1, (rows - 2) // (2 * sweep_module.MIN_ROWS_PER_EDGE))


def test_a_grid_of_usual_bands():
    step = compare(jacobi, np.random.default_rng(0).random((700, 301)).astype(np.float32), calls=3)
    (sweep,) = sweeps(step)
    assert sweep.bands > 8


SHAPES = ((1, 5), (2, 2), (3, 3), (40, 3), (41, 130))


@pytest.mark.usefixtures("bands")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("radius", [0, 1, 2, 3])
def test_radius(radius, shape):
    """Sums over whole windows of integers, which no order of additions changes."""
    rows, columns = (slice(radius, n - radius) for n in shape)

    def step(a):
        total = 0 * a[rows, columns]
        for dy in range(-radius, radius + 1):
            for dx in (-radius, 0, radius):
                total = (
                    total
                    + a[
                        rows.start + dy : rows.stop + dy,
                        columns.start + dx : columns.stop + dx,
                    ]
                )
        a[rows, columns] = total

    if min(shape) >= 2 * radius:
        compare(step, values(np.random.default_rng(radius), shape, "int32"))


@pytest.mark.usefixtures("bands")
@pytest.mark.parametrize("radius", [1, 2, 3])
@pytest.mark.parametrize("shape", [(31, 12), (16, 9, 10), (50, 7, 8)], ids=str)
def test_rows_are_stored_along_with_others(shape, radius):
    """Where no other element of the row above is read; with corners they wait for one row more."""
    inside = tuple(slice(radius, n - radius) for n in shape)

    def at(axis, by):
        moved = slice(inside[axis].start + by, inside[axis].stop + by)
        return (*inside[:axis], moved, *inside[axis + 1 :])

    def star(a):
        a[inside] = sum(a[at(axis, by)] for axis in range(len(shape)) for by in (-radius, 1, radius))

    def corner(a):
        a[inside] = a[at(0, -radius)] - a[(*at(0, -radius)[:-1], at(len(shape) - 1, -1)[-1])]

    array = values(np.random.default_rng(radius), shape, "int32")
    for step, along in ((star, True), (corner, False)):
        (sweep,) = sweeps(compare(step, array))
        assert (sweep.up, sweep.along) == (min(radius, shape[0] - 2 * radius - 1), along)


# ------------------------------------------------------------------------------------------ in programs


def blur(a):
    a[1:-1, 1:-1] += a[:-2, :-2] - a[2:, 1:-1]


def shift_rows(a):
    a[1:] = a[:-1] + 1


def shift_columns(a):
    a[:, :-1] = a[:, 1:] - 2


def backwards(a):
    a[::-1, 1:][1:-1] = a[::-1, :-1][:-2] * 3


def by_steps(a):
    a[::2, 2::2] = a[::2, :-2:2]


def turned(a):
    b = a.T
    b[1:-1, 1:-1] = b[2:, 1:-1] + b[:-2, :-2]


def part(a):
    jacobi(a[3:-2, 2:-4])


def row_after_row(a):
    b = a.reshape(-1)
    b[1:-1] = b[2:] + b[:-2]


def before_and_after(a):
    first = a.sum()
    total = a * 2
    blur(a)
    total = total + a
    return total + first


def ten_times(a):
    for _ in range(10):
        a[1:-1, 1:-1] = a[:-2, 1:-1] + a[1:-1, 2:] - a[1:-1, 1:-1]


def with_the_old(a):
    new = a[:-2, 1:-1] + a[2:, 1:-1]
    change = abs(new - a[1:-1, 1:-1])
    a[1:-1, 1:-1] = new
    return change.max()


def two_results(a):
    new = a[:-2, 1:-1] + a[2:, 1:-1]
    a[1:-1, 1:-1] = new
    return new * 2


def other_part_read(a):
    a[1:9, 1:-1] = a[2:10, 1:-1] + a[11:19, 1:-1]


@pytest.mark.usefixtures("bands")
@pytest.mark.parametrize("dtype", ["int32", "float64"])
@pytest.mark.parametrize(
    "step",
    [
        blur,
        shift_rows,
        shift_columns,
        backwards,
        by_steps,
        turned,
        part,
        row_after_row,
        before_and_after,
        ten_times,
        with_the_old,
        two_results,
        other_part_read,
    ],
)
def test_programs(step, dtype):
    rng = np.random.default_rng(5)
    for shape in ((20, 24), (61, 20)):
        compare(step, values(rng, shape, dtype))


@pytest.mark.usefixtures("bands")
def test_what_is_a_sweep():
    array = values(np.random.default_rng(1), (40, 20), "int32")
    found = [(step, 1) for step in (blur, shift_columns, shift_rows, row_after_row, part, two_results)]
    for step, count in [*found, (other_part_read, 1), (ten_times, 10)]:
        assert len(sweeps(compare(step, array))) == count, step.__name__
    for step in (by_steps, turned):
        assert not sweeps(compare(step, array)), step.__name__


@pytest.mark.usefixtures("bands")
@pytest.mark.parametrize("seed", range(60))
def test_elements_move_within_an_array(seed):
    """From any slices to any others: apart, overlapping, by steps, backwards."""
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 9, int(rng.integers(1, 4))).tolist())
    moves = [(slice(None), slice(None))] * len(shape)
    for axis, extent in enumerate(shape):
        if rng.random() < 0.6:
            step, count = int(rng.integers(1, 3)), int(rng.integers(0, extent + 1))
            span = (count - 1) * step + 1 if count else 0
            if span <= extent:
                starts = rng.integers(0, extent - span + 1, 2).tolist()
                moves[axis] = tuple(slice(s, s + span, step) for s in starts)
    target, source = (tuple(pair[n] for pair in moves) for n in (0, 1))

    def step(a):
        a[target] = a[source]

    compare(step, values(rng, shape, "int32"))


def test_planes_move_apart():
    for target, source in ((0, 1), (3, 0), (slice(0, 2), slice(2, 4)), (slice(0, 4, 2), slice(1, 4, 2))):

        def step(a, target=target, source=source):
            a[:, :, target] = a[:, :, source]

        compare(step, values(np.random.default_rng(8), (7, 3, 4), "int32"))


@pytest.mark.usefixtures("bands")
def test_a_mask_and_other_operands():
    def step(a, mask, b, column, rate):
        xp = np if isinstance(a, np.ndarray) else tj
        new = a[:-2, 1:-1] + rate * (b[1:-1, 1:-1].T[::-1].T - a[2:, 2:]) + column[:, None]
        a[1:-1, 1:-1] = xp.where(mask[1:-1, 1:-1], new, a[1:-1, 1:-1])

    rng = np.random.default_rng(2)
    shape = (50, 23)
    arrays = values(rng, shape, "int32"), rng.random(shape) < 0.5, values(rng, shape, "int32")
    arrays += values(rng, 48, "int32"), np.array(3, np.int32)
    assert len(sweeps(compare(step, *arrays))) == 1


@pytest.mark.usefixtures("bands")
def test_a_transposed_operand():
    def step(a, b):
        a[1:-1, 1:-1] = a[:-2, 1:-1] + b.T[1:-1, 1:-1]

    rng = np.random.default_rng(3)
    step = compare(step, values(rng, (40, 30), "float32"), values(rng, (30, 40), "float32"))
    assert len(sweeps(step)) == 1


@pytest.mark.usefixtures("bands")
def test_arguments_that_are_one_array():
    def step(a, b):
        a[1:-1, 1:-1] = a[:-2, 1:-1] + b[2:, 2:]

    data = values(np.random.default_rng(4), (30, 20), "int32")
    for function in (step, tj.jit(step)):
        plain, ours = data.copy(), tj.asarray(data)
        for _ in range(2):
            step(plain, plain)
            function(ours, ours)
            same(ours, plain)
            step(plain[2:], plain[:-2])
            function(ours[2:], ours[:-2])
            same(ours, plain)


@pytest.mark.usefixtures("bands")
def test_gradients_through_a_sweep():
    """That of a linear function is its adjoint: <s(x), y> is <x, gradient of <s(x), y>>."""
    rng = np.random.default_rng(5)
    x, y = (rng.integers(-9, 9, (30, 12)).astype(np.float64) for _ in range(2))

    @tj.jit
    def gradient(x, y):
        def paired(x):
            a = x.copy()
            blur(a)
            blur(a)
            return (a * y).sum()

        return tj.grad(paired)(x)

    plain = x.copy()
    blur(plain)
    blur(plain)
    for _ in range(2):
        found = gradient(tj.asarray(x), tj.asarray(y)).numpy()
        assert (found * x).sum() == (plain * y).sum()


@pytest.mark.usefixtures("bands")
def test_replays_are_checked(monkeypatch):
    monkeypatch.setattr(config, "check", True)
    compare(ten_times, values(np.random.default_rng(6), (40, 20), "int32"))
    compare(two_results, values(np.random.default_rng(6), (40, 20), "int32"))


# ------------------------------------------------------------------------------------------ workers


@pytest.mark.usefixtures("bands")
def test_any_number_of_workers(workers):
    rng = np.random.default_rng(7)
    data = rng.random((300, 257)).astype(np.float32)
    plain = data.copy()
    for _ in range(30):
        jacobi(plain)
    step = tj.jit(jacobi)
    for count in (1, 2, 3, 8):
        workers(count)
        for _ in range(5):
            a = tj.asarray(data)
            for _ in range(30):
                step(a)
            same(a, plain)
    assert len(sweeps(step)) == 1


# ------------------------------------------------------------------------------------------ kernels


@functools.cache
def graph_of(shape):
    step = tj.jit(jacobi)
    step(tj.zeros(shape))
    return step.schedules()[0].graph


def sweep_node(shape):
    return next(n for n in graph_of(shape).nodes if n.attrs.get("sweep") is not None)


def test_source():
    check_golden(GOLDEN / "sweep.py.txt", emit(lower(sweep_node((64, 50))).spec))


def test_source_over_one_dimension():
    step = tj.jit(row_after_row)
    step(tj.zeros((300, 20)))
    (node,) = (t.node for t in step.schedules()[0].plan.tasks if t.node.attrs.get("sweep") is not None)
    check_golden(GOLDEN / "sweep_runs.py.txt", emit(lower(node).spec))


@pytest.mark.usefixtures("bands")
def test_results_beside_a_sweep_may_be_streamed(monkeypatch):
    tune(monkeypatch, streamed=-1, streamed_run=1)
    step = compare(two_results, values(np.random.default_rng(9), (40, 3000), "float32"))
    (task,) = (t for t in step.schedules()[0].plan.tasks if t.node.attrs.get("sweep") is not None)
    assert lower(task.node, task.shared).spec.stages == ("float32",)


def test_every_grid_has_the_same_kernel():
    """One band or many, and however far rows reach."""
    first, *others = (lower(sweep_node(shape)) for shape in ((64, 50), (900, 600), (2050, 300)))
    assert all(other.spec == first.spec for other in others)
    assert first.units == 1
    assert all(other.units > 1 for other in others)


@pytest.mark.parametrize("seed", range(5))
def test_bands_in_any_order(seed):
    """Rows that the edges bring are as they were; all others are as the evaluator says."""
    node, rng = sweep_node((600, 300)), np.random.default_rng(seed)
    arguments = [rng.random(v.type.shape).astype(np.float32) for v in node.inputs]
    (base, edges), status = runner.run(node, arguments, rng=rng)
    whole, cuts = evaluate_node(node, arguments)
    assert status == 0
    np.testing.assert_array_equal(edges, cuts)
    (update,) = (n for n in graph_of((600, 300)).nodes if n.op is ops.update)
    left_out = np.zeros(base.shape, bool)
    update.attrs["view"].read(left_out)[...] = True
    assert left_out.any(axis=1).sum() == 2 * (node.attrs["sweep"].bands - 1)
    old = next(a for a, v in zip(arguments, node.inputs, strict=True) if v.type.shape)
    np.testing.assert_array_equal(base, np.where(left_out, old, whole))


def test_other_targets_refuse_a_sweep():
    with pytest.raises(DeviceError, match="sweep"):
        emit(lower(sweep_node((64, 50))).spec, "gpu")


def test_a_sweep_is_never_taken_for_a_map():
    node = sweep_node((64, 50))
    body = node.attrs["body"]
    attrs = {"body": Graph(body.inputs, body.nodes, body.outputs), "kind": "map", "inplace": ()}
    with pytest.raises(VerificationError, match="sweep"):
        lower(Node(node.op, node.inputs, node.outputs, attrs))
