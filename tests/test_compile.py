"""compile_graph: whole graphs as machine code on the engine, against the evaluator; kernels' origins."""

import gc
import os
import pathlib
import struct
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from weakref import WeakValueDictionary

import numpy as np
import pytest

import tracejit as tj
from tests.golden import check_golden
from tests.graphs import F4, F8, I4, I8, outcome, random_graph, random_inputs
from tests.launching import launch, start
from tracejit import compile, engine, ops
from tracejit.assembly.failures import failure
from tracejit.assembly.schedule import Packer
from tracejit.assembly.words import Job, ValueAddress
from tracejit.codegen.lower import lower
from tracejit.codegen.objects import loader
from tracejit.compile import compile_graph
from tracejit.config import config
from tracejit.errors import DeviceError, OutOfBoundsError
from tracejit.ir.graph import Builder, Effect, Graph, Value, constant_of
from tracejit.ir.types import CPU, HOST, ArrayType, Device
from tracejit.ir.view import View
from tracejit.ops.structural import CALLBACKS, keep_callback
from tracejit.targets import emit

GOLDEN = pathlib.Path(__file__).parent / "passes" / "golden"
X = ArrayType((40, 60), F4)


@pytest.fixture
def empty_store(tmp_path, monkeypatch):
    """A kernel store without entries, and nothing in memory."""
    monkeypatch.setattr(config, "store", tmp_path)
    monkeypatch.setattr(loader, "_kernels", OrderedDict())
    monkeypatch.setattr(loader, "_alive", WeakValueDictionary())
    monkeypatch.setattr(loader, "_store", None)
    return tmp_path


def check(graph: Graph, seed: int = 0) -> compile.Schedule:
    """Compile, run twice and compare with the evaluator."""
    schedule = compile_graph(graph)
    for n in range(2):
        arrays = random_inputs(graph, seed + n)
        outputs, storages = outcome(graph, arrays)
        storages = [a for a, v in zip(storages, graph.inputs, strict=True) if not v.type.on_host]
        got, after = launch(schedule, arrays)
        for result, expected in zip((*got, *after), (*outputs, *storages), strict=True):
            assert result.dtype == expected.dtype
            assert result.shape == expected.shape
            finite = expected[np.isfinite(expected)]
            scale = float(np.abs(finite).max(initial=1))
            np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6 * scale)
    return schedule


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs(seed):
    check(random_graph(seed, nodes=18), seed)


def elementwise() -> Graph:
    b = Builder()
    x, y = b.input(X), b.input(X)
    rate = b.input(ArrayType((), F4, HOST))
    step = b.emit(ops.multiply, y, rate, location="model.py:1")
    new = b.emit(ops.subtract, x, step, location="model.py:2")
    total = b.emit(ops.sum, new, axes=(1,), pieces=0, location="model.py:3")
    return b.graph([total], [Effect(x, new)])


def test_text_and_facts():
    schedule = check(elementwise())
    check_golden(GOLDEN / "schedule.txt", schedule.text())
    assert schedule.planned_bytes == schedule.plan.arena_bytes
    assert schedule.naive_bytes == 40 * 60 * 4
    assert {line for k in schedule.kernels for line in k.locations} == {f"model.py:{n}" for n in (1, 2, 3)}
    assert all(k.source.startswith("#") and k.vectorised for k in schedule.kernels)
    assert list(schedule.times) == [
        "components",
        "stack",
        "roll",
        "attend",
        "simplify",
        "cse",
        "dce",
        "winograd",
        "weight_sums",
        "remask",
        "recompute",
        "prepare",
        "fuse",
        "legalize",
        "plan",
        "lower",
        "kernels",
        "assemble",
    ]


# -- arguments ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint16", "int32", "int64", "uint64", "float32", "float64"]
)
def test_numbers_reach_kernels_in_their_own_dtype(dtype):
    b = Builder()
    x = b.input(ArrayType((5,), np.dtype(dtype)))
    run_time = b.input(ArrayType((), np.dtype(dtype), HOST))
    written = b.emit(ops.constant, **constant_of(1, dtype))
    graph = b.graph([b.emit(ops.add, b.emit(ops.add, x, run_time), written)])
    schedule = compile_graph(graph)
    values = np.array([0, 1, 1, 0, 1]).astype(dtype)
    for number in np.array([0, 1, 100, 77]).astype(dtype):
        ((got,), _) = launch(schedule, [values, number])
        np.testing.assert_array_equal(got, values + number + np.dtype(dtype).type(1))


def test_packer_follows_numpy_where_a_number_does_not_fit():
    number = ArrayType((), F4, HOST)
    packed = Packer([number, X]).pack(1e300, 64, 0, 128)
    assert struct.unpack("=f4xqqq", packed) == (np.inf, 64, 0, 128)
    with pytest.raises(OverflowError, match="300 does not fit int8"):
        Packer([ArrayType((), np.dtype("int8"), HOST)]).pack(300, 0)


def test_numbers_as_results_and_inputs_nobody_uses():
    b = Builder()
    b.input(X)
    rate = b.input(ArrayType((), F8, HOST))
    schedule = check(b.graph([rate, b.emit(ops.constant, value=2.5, dtype=F8)]))
    assert [v.type for v in schedule.graph.outputs] == [ArrayType((), F8)] * 2


def test_no_node_at_all():
    b = Builder()
    x = b.input(X)
    check(b.graph([x, x], [Effect(x, x)]))
    check(Builder().graph([]))


def test_swap():
    b = Builder()
    x, y = b.input(X), b.input(X)
    check(b.graph([], [Effect(x, y), Effect(y, x)]))


def test_other_devices_are_refused():
    b = Builder()
    x = b.input(ArrayType((3,), F4, Device("tpu")))
    with pytest.raises(DeviceError, match="tpu:0"):
        compile_graph(b.graph([x]))


# -- products, scatters, a training step --------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [F4, F8, I4])
def test_products_of_views(dtype):
    b = Builder()
    x, w = b.input(ArrayType((6, 5, 7), dtype)), b.input(ArrayType((9, 7), dtype))
    flat = b.emit(ops.view, x, view=View.of_shape((30, 7)))
    turned = b.emit(ops.view, w, view=View.of_shape((9, 7)).permute((1, 0)))
    y = b.emit(ops.matmul, flat, turned)
    second = b.emit(ops.view, x, view=View.of_shape((6, 5, 7)).permute((0, 2, 1)))
    batched = b.emit(ops.matmul, x, second)
    check(b.graph([b.emit(ops.negative, y), batched]))


def test_products_of_fills():
    b = Builder()
    x, n = b.input(ArrayType((5, 4), F4)), b.input(ArrayType((), F4, HOST))
    check(b.graph([b.emit(ops.matmul, b.emit(ops.full, n, shape=(3, 5), device=CPU), x)]))


@pytest.mark.parametrize("shape", [(6, 64, 600), (20, 33, 7), (1, 40, 30)])
def test_sums_of_products_are_one_library_kernel(shape):
    m, n, k = shape
    b = Builder()
    pairs = [(b.input(ArrayType((m, k), F4)), b.input(ArrayType((k, n), F4))) for _ in range(2)]
    first, second = (b.emit(ops.matmul, x, y) for x, y in pairs)
    total = b.emit(ops.add, first, second)
    last = b.emit(ops.matmul, total, b.input(ArrayType((n, m), F4)))
    schedule = check(b.graph([last]))
    kernels = ["gemm float32"] + ["dot float32"] * (m == 1)  # the last product is a row by a column then
    assert [kernel.name for kernel in schedule.kernels] == kernels
    assert schedule.planned_bytes < 2 * total.type.nbytes


def test_scatter_add():
    b = Builder()
    x, index = b.input(ArrayType((4, 3, 5), F4)), b.input(ArrayType((3,), I8))
    checked = b.emit(ops.check_index, index, extent=9, axis=1)
    check(b.graph([b.emit(ops.scatter_add, x, checked, axis=1, extent=9)]))


def training_step(batch=64, inputs=100, hidden=80, classes=10) -> Graph:
    """Two linear layers with tanh, squared error, momentum."""
    b = Builder()

    def turn(v: Value) -> Value:
        return b.emit(ops.view, v, view=View.of_shape(v.type.shape).permute((1, 0)))

    def spread(v: Value, n: int) -> Value:
        return b.emit(ops.view, v, view=View.of_shape(v.type.shape).broadcast((n, *v.type.shape)))

    def array(*shape: int) -> Value:
        return b.input(ArrayType(shape, F4))

    x, y = array(batch, inputs), array(batch, classes)
    w1, b1, w2, b2 = array(inputs, hidden), array(hidden), array(hidden, classes), array(classes)
    rate = b.input(ArrayType((), F4, HOST))
    h = b.emit(ops.tanh, b.emit(ops.add, b.emit(ops.matmul, x, w1), spread(b1, batch)))
    s2 = b.emit(ops.subtract, b.emit(ops.add, b.emit(ops.matmul, h, w2), spread(b2, batch)), y)
    loss = b.emit(ops.sum, b.emit(ops.square, s2), axes=(0, 1), pieces=0)
    gh = b.emit(ops.matmul, s2, turn(w2))
    one = b.emit(ops.constant, value=1.0, dtype=F4)
    s1 = b.emit(ops.multiply, gh, b.emit(ops.subtract, one, b.emit(ops.square, h)))
    slopes = {
        w1: b.emit(ops.matmul, turn(x), s1),
        b1: b.emit(ops.sum, s1, axes=(0,), pieces=0),
        w2: b.emit(ops.matmul, turn(h), s2),
        b2: b.emit(ops.sum, s2, axes=(0,), pieces=0),
    }
    effects = []
    for w, slope in slopes.items():
        effects.append(Effect(w, b.emit(ops.subtract, w, b.emit(ops.multiply, slope, rate))))
    return b.graph([loss], effects)


def ancestors(tasks) -> list[set[int]]:
    found: list[set[int]] = []
    for task in tasks:
        found.append(set(task.after).union(*(found[t] for t in task.after)))
    return found


def test_training_step():
    graph = training_step()
    schedule = check(graph)
    assert not any(task.name == "copy" for task in schedule.tasks)
    assert schedule.planned_bytes < schedule.naive_bytes / 2


def test_gradients_of_a_layer_are_independent():
    """The hidden cotangent, and the gradients of the second layer's weights and bias, may all run at once."""
    schedule = compile_graph(training_step())
    waits = ancestors(schedule.tasks)
    writer = {v: t for t, task in enumerate(schedule.plan.tasks) for v in task.node.outputs}
    w2, b2 = (writer[e.value] for e in schedule.graph.effects[2:])
    assert w2 != b2
    assert w2 not in waits[b2]
    assert b2 not in waits[w2]


# -- failures and Python ------------------------------------------------------------------------------------


def gather_then_write() -> Graph:
    b = Builder()
    x, index = b.input(ArrayType((5,), F4)), b.input(ArrayType((3,), I8))
    checked = b.emit(ops.check_index, index, extent=5, axis=0, location="model.py:9")
    y = b.emit(ops.gather, x, checked, axis=0, location="model.py:9")
    return b.graph([y], [Effect(x, b.emit(ops.negative, x))])


def test_a_failing_call_changes_nothing_and_names_the_line():
    schedule = compile_graph(gather_then_write())
    x = np.arange(5, dtype=F4)
    (got,), (after, _) = launch(schedule, [x, np.array([1, -1, 4])])
    np.testing.assert_array_equal(got, [1, 4, 4])
    np.testing.assert_array_equal(after, -x)
    kept = x.copy()
    variables = [engine.Variable() for _ in range(3)]
    index, out = np.array([1, 7, 0]), np.zeros(3, F4)
    addresses = [a.ctypes.data for a in (kept, index, out)]
    packed = schedule.pack.pack(*addresses, *(v.address for v in variables))
    schedule.launch(packed, (kept, index, out, variables))
    with pytest.raises(OutOfBoundsError, match=r"(?s)index 7 is out .* extent 5.*model\.py:9"):
        engine.wait(variables[2])
    engine.wait(variables[0])  # has kept its content; the failure is told
    np.testing.assert_array_equal(kept, x)


@pytest.mark.parametrize("size", [100, 1_000_000])
def test_a_bad_index_is_named(size):
    b = Builder()
    x, index = b.input(ArrayType((5,), F4)), b.input(ArrayType((size,), np.dtype("int32")))
    shifted = b.emit(ops.add, index, b.emit(ops.constant, value=1, dtype=np.dtype("int32")))
    checked = b.emit(ops.check_index, b.emit(ops.astype, shifted, dtype=I8), extent=5, axis=0)
    schedule = compile_graph(b.graph([b.emit(ops.gather, x, checked, axis=0)]))
    indices = np.zeros(size, np.int32)
    indices[[size // 2, size - 1]] = [-9, 10]
    arrays, variables = (
        (np.arange(5, dtype=F4), indices, np.zeros(size, F4)),
        [engine.Variable() for _ in "xiy"],
    )
    packed = schedule.pack.pack(*(a.ctypes.data for a in arrays), *(v.address for v in variables))
    schedule.launch(packed, (arrays, variables))
    with pytest.raises(OutOfBoundsError, match="index -8 is out of bounds"):
        engine.wait(variables[2])


def test_a_bad_index_that_was_overwritten_is_named_by_its_position():
    b = Builder()
    index = b.input(ArrayType((3,), I8))
    b.emit(ops.check_index, index, extent=5, axis=0, location="model.py:9")
    indices = np.array([0, 7, 0])
    block = np.array([indices.ctypes.data])
    job = Job("check_index", (), (ValueAddress(index),), 1, 1)
    error = failure(b.nodes[0], 2, job, block.ctypes.data)
    assert "index 7 is out of bounds for axis 0 with extent 5" in str(error)
    indices[1] = 1
    error = failure(b.nodes[0], 2, job, block.ctypes.data)
    assert isinstance(error, OutOfBoundsError)
    assert "index number 1 is out of bounds for axis 0 with extent 5" in str(error)
    assert "model.py:9" in str(error)


def test_callbacks_see_values_in_order_over_several_calls():
    seen = []
    number = keep_callback(lambda x, n: seen.append((x.copy(), int(n))))
    b = Builder()
    x, n = b.input(ArrayType((3,), F4)), b.input(ArrayType((), I8, HOST))
    b.emit(ops.callback, x, n, id=number)
    new = b.emit(ops.add, x, b.emit(ops.constant, value=1.0, dtype=F4))
    b.emit(ops.callback, new, n, id=number)
    schedule = compile_graph(b.graph([], [Effect(x, new)]))
    del CALLBACKS[number]
    arrays = [np.full(3, 10 * i, F4) for i in range(20)]
    for i, array in enumerate(arrays):
        start(schedule, [array, np.int64(i)], [])
    engine.wait_all()
    assert [n for _, n in seen] == [i // 2 for i in range(40)]
    for position, (values, _) in enumerate(seen):
        np.testing.assert_array_equal(values, 10 * (position // 2) + position % 2)


# -- where kernels come from --------------------------------------------------------------------------------


def origins(schedule) -> set[str]:
    return {k.origin for k in schedule.kernels}


def test_compiled_then_memory_then_loaded(empty_store):
    assert origins(compile_graph(elementwise())) == {"compiled"}
    assert origins(compile_graph(elementwise())) == {"memory"}
    loader.forget()
    assert origins(check(elementwise())) == {"loaded"}


def test_another_shape_needs_no_compile(empty_store):
    for n, expected in ((100, "compiled"), (12345, "memory")):
        b = Builder()
        x = b.input(ArrayType((n,), F4))
        assert origins(check(b.graph([b.emit(ops.exp, b.emit(ops.negative, x))]))) == {expected}


def test_a_damaged_entry_is_compiled_again(empty_store):
    compile_graph(elementwise())
    loader.forget()
    for file in empty_store.glob("*.kernel"):
        file.write_bytes(file.read_bytes()[:-9] + b"destroyed")
    assert origins(check(elementwise())) == {"compiled"}


def test_one_compile_however_many_threads_ask(empty_store, monkeypatch):
    compiled = []
    real = loader._drafted

    def slowly(recipe):
        compiled.append(recipe.name)
        time.sleep(0.05)
        return real(recipe)

    monkeypatch.setattr(loader, "_drafted", slowly)
    together = threading.Barrier(6)
    schedules = []

    def ask():
        together.wait()
        schedules.append(compile_graph(elementwise()))

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(schedules) == 6
    assert len(compiled) == len(set(compiled)) == len(schedules[0].kernels)
    assert sorted("compiled" in origins(s) for s in schedules) == [False] * 5 + [True]


def test_a_failing_compile_leaves_nothing_behind(empty_store):
    source = "def kernel(block, lo, hi, scratch):\n    return missing\n"
    broken = loader.Recipe("broken", "some structure", lambda: source)
    with pytest.raises(Exception, match="missing"):
        loader.load([broken])
    spec = _any_spec()
    good = loader.Recipe("good", "some structure", lambda: emit(spec))
    ((kernel, origin),) = loader.load([good])
    assert origin == "compiled"
    assert kernel.addresses["kernel"]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_does_not_wait_for_threads_it_has_not(empty_store):
    """A thread of the parent is compiling at the time of the fork; the child compiles for itself."""
    compile_graph(elementwise())
    (structure, done), *_ = loader._kernels.items()
    loader._kernels[structure] = type(done)()
    loader._alive.clear()  # as while it is compiled
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            loaded = loader.load([loader.Recipe("again", structure, lambda: emit(structure))])
            os.write(write, loaded[0][1].encode())
        finally:
            os._exit(0)
    os.close(write)
    with open(read) as pipe:
        assert pipe.read() == "loaded"
    assert os.waitpid(child, 0)[1] == 0
    loader._kernels[structure] = done


def _any_spec():
    b = Builder()
    x = b.input(ArrayType((7,), F4))
    schedule = compile_graph(b.graph([b.emit(ops.negative, x)]))
    return lower(schedule.plan.tasks[0].node).spec


@pytest.mark.parametrize("verbose", [True, False])
def test_a_slow_compile_says_so(empty_store, monkeypatch, capsys, verbose):
    monkeypatch.setattr(config, "verbose", verbose)
    monkeypatch.setattr(loader, "SLOW", 0.0)
    compile_graph(elementwise())
    said = capsys.readouterr().err
    assert ("tracejit: compiling" in said) == verbose


def test_a_second_process_does_not_import_numba(empty_store):
    program = (
        "import sys\n"
        "import numpy as np\n"
        "from tracejit import compile, engine, ops\n"
        "from tracejit.ir.graph import Builder\n"
        "from tracejit.ir.types import ArrayType\n"
        "from tests.launching import launch\n"
        "b = Builder()\n"
        "x = b.input(ArrayType((50, 50), np.dtype('float32')))\n"
        "y = b.emit(ops.exp, b.emit(ops.matmul, x, x))\n"
        "schedule = compile.compile_graph(b.graph([y]))\n"
        "(got,), _ = launch(schedule, [np.full((50, 50), 0.1, 'f')])\n"
        "np.testing.assert_allclose(got, np.exp(0.5), rtol=1e-5)\n"
        "print(sorted({k.origin for k in schedule.kernels}), 'numba' in sys.modules)\n"
    )
    root = pathlib.Path(__file__).parents[1]
    said = []
    for _ in range(2):
        environment = {"TRACEJIT_CACHE_DIR": str(empty_store), "HOME": str(empty_store)}
        command = [sys.executable, "-c", program]
        result = subprocess.run(
            command, capture_output=True, text=True, cwd=root, env=environment, check=False
        )
        assert result.returncode == 0, result.stderr
        said.append(result.stdout.strip())
    assert said == ["['compiled'] True", "['loaded'] False"]


def test_nobody_looks_for_garbage_while_a_graph_is_compiled(monkeypatch):
    seen = []

    def plan_graph(*_):
        seen.append(gc.isenabled())
        raise DeviceError("no")

    monkeypatch.setattr(compile, "plan_graph", plan_graph)
    for wanted in (True, False):
        (gc.enable if wanted else gc.disable)()
        try:
            with pytest.raises(DeviceError):
                compile_graph(None)
            assert gc.isenabled() == wanted
        finally:
            gc.enable()
    assert seen == [False, False]


def test_equal_components_without_tasks():
    """Nothing reads the arrays, and their writes are no tasks."""

    @tj.jit
    def step(x):
        for _ in range(len(x)):
            b = tj.zeros((3, 3))
            b[0] = b[1]

    for _ in range(3):
        assert step(tj.zeros(40)) is None
        tj.wait_all()
