"""fuse: the meaning stays, chains and reductions become one kernel, independent work stays apart."""

import functools
import importlib
import pathlib

import numpy as np
import pytest

import tracejit as tj
from tests.golden import check_golden
from tests.graphs import assert_same_meaning, fuse, random_graph
from tests.passes.models import lstm_step, mlp_step
from tracejit import ops
from tracejit.assembly.cpu_jobs import job
from tracejit.ir.graph import Builder, Effect, constant_of
from tracejit.ir.printer import print_graph
from tracejit.ir.types import CPU, HOST, ArrayType
from tracejit.ir.verify import verify
from tracejit.ir.view import View
from tracejit.passes.driver import clean
from tracejit.passes.fusion.fuse import MAX_NODES, MAX_OPERANDS, MissedFusion
from tracejit.passes.memory.aliases import overwrites
from tracejit.passes.memory.legalize import legalize
from tracejit.passes.memory.plan import plan

fuse_module = importlib.import_module("tracejit.passes.fusion.fuse")
GOLDEN = pathlib.Path(__file__).parent / "golden"
F4, I8 = np.dtype("float32"), np.dtype("int64")
X = ArrayType((6, 8), F4)


def kernels(graph):
    return [node for node in graph.nodes if node.op is ops.fused]


def names(node):
    return [inner.op.name for inner in node.attrs["body"].nodes]


def chain(b, x, length):
    for _ in range(length):
        x = b.emit(ops.sin, x)
    return x


@pytest.mark.parametrize("seed", range(300))
def test_random_graphs_keep_their_meaning(seed):
    graph = random_graph(seed)
    assert_same_meaning(verify(fuse(graph)), graph, seed)


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_of_slices_keep_their_meaning(seed):
    """Updates of zeros and their sums, as gradients of slices leave them."""
    kinds = ["update", "update", "create", "elementwise", "view"]
    graph = random_graph(seed, nodes=40, kinds=kinds)
    assert_same_meaning(verify(fuse(graph)), graph, seed)


def test_fusion_is_deterministic():
    assert print_graph(fuse(mlp_step()[0])) == print_graph(fuse(mlp_step()[0]))


def attention(batch=2, length=12, width=8, heads=2):
    """Gradients of attention with layer norm, recorded by the frontend."""

    @tj.jit
    def step(x, w, scale):
        def loss(w):
            y = (x - x.mean(-1, keepdims=True)) / tj.sqrt(x.var(-1, keepdims=True) + 1e-5) * scale
            q, k, v = (
                (y @ w[i]).reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3)
                for i in range(3)
            )
            weights = tj.nn.softmax(q @ k.transpose(0, 1, 3, 2) / 2.0, axis=-1)
            z = (weights @ v).transpose(0, 2, 1, 3).reshape(batch, length, width)
            z = tj.cumulative_sum(tj.nn.gelu(z @ w[3]) + x, axis=1)
            return (z * z).mean() + tj.log(tj.exp(z).sum(-1)).mean()

        value, gradient = tj.value_and_grad(loss)(w)
        w -= 0.1 * gradient
        return value

    spec = tj.spec
    graph = step.graph(spec((batch, length, width)), spec((4, width, width)), spec((width,)))
    return clean(graph)


GRAPHS = {
    "mlp": lambda: clean(mlp_step()[0]),
    "lstm": lambda: clean(lstm_step()[0]),
    "attention": attention,
    **{f"random {seed}": functools.partial(random_graph, seed, nodes=40) for seed in range(200)},
}


@pytest.mark.parametrize("name", GRAPHS)
def test_nodes_that_follow_without_analysis_are_those_that_would_pass_it(name, monkeypatch):
    graph = GRAPHS[name]()
    missed, others = [], []
    quick = print_graph(fuse(graph, missed))
    monkeypatch.setattr(fuse_module, "open_domain", lambda body, program: None)
    monkeypatch.setattr(fuse_module, "is_elementwise", lambda groups, node: False)
    assert print_graph(fuse(graph, others)) == quick
    assert [(m.kind, m.reason) for m in missed] == [(m.kind, m.reason) for m in others]


def test_a_training_step():
    check_golden(GOLDEN / "fuse_mlp.txt", print_graph(fuse(mlp_step()[0])))


def test_back_propagated_error_and_gradients_are_independent():
    """s2, gw2 and gb2 of a two-layer network: three tasks, none of which needs another."""
    graph, inputs = mlp_step()
    fused = fuse(graph)
    of = {e.target: e.value for e in fused.effects}
    producers = {v: node for node in fused.nodes for v in node.outputs}
    weight, bias = producers[of[inputs["w2"]]], producers[of[inputs["b2"]]]
    (error,) = [n for n in kernels(fused) if n.attrs["kind"] == "panel" and "where" in names(n)]
    for one in (weight, bias, error):
        for other in (weight, bias, error):
            assert one is other or not set(one.inputs) & set(other.outputs)


def test_a_weight_is_updated_in_the_epilogue_of_its_gradient():
    graph, inputs = mlp_step()
    fused = fuse(graph)
    of = {e.target: e.value for e in fused.effects}
    (kernel,) = [node for node in kernels(fused) if of[inputs["w1"]] in node.outputs]
    assert kernel.attrs["kind"] == "panel"
    assert of[inputs["vw1"]] in kernel.outputs
    for name in ("w1", "vw1"):
        pair = (kernel.outputs.index(of[inputs[name]]), kernel.inputs.index(inputs[name]))
        assert pair in kernel.attrs["inplace"]
    assert "result" not in kernel.attrs  # the gradient itself is nowhere but in scratch memory


@pytest.mark.parametrize("read_again", [False, True])
def test_an_epilogue_writes_over_what_dies_in_it(read_again):
    """The product lies in scratch memory then, so that the result can take the place of an operand."""
    b = Builder()
    x, first, second, third = (b.input(ArrayType((64, 64), F4)) for _ in range(4))
    factor = b.emit(ops.matmul, x, first)
    scaled = b.emit(ops.multiply, b.emit(ops.matmul, x, second), factor)
    results = [b.emit(ops.matmul, scaled, third)] + [b.emit(ops.matmul, factor, third)] * read_again
    fused = fuse(b.graph(results))
    (kernel,) = [node for node in kernels(fused) if "multiply" in names(node)]
    assert ("result" in kernel.attrs) == read_again
    planned = plan(legalize(fused))
    assert planned.arena_bytes == 64 * 64 * 4 * (1 + read_again)


@pytest.mark.parametrize(
    ("rows", "columns", "apart"), [(16, 1024, True), (16, 256, False), (64, 1024, False)]
)
def test_a_product_of_few_rows_and_much_work_is_a_task_of_its_own(rows, columns, apart):
    """With an epilogue it would be one unit."""
    b = Builder()
    x, w, bias = (b.input(ArrayType(s, F4)) for s in [(rows, 256), (256, columns), (rows, columns)])
    graph = b.graph([b.emit(ops.add, b.emit(ops.matmul, x, w), bias)])
    fused = verify(fuse(graph))
    assert len(kernels(fused)) == 1 + apart
    (product,) = [node for node in kernels(fused) if "matmul" in names(node)]
    planned = plan(legalize(fused))
    (task,) = [task for task in planned.tasks if task.node is product or "matmul" in names(task.node)]
    assert job(task).units == (1 if columns == 256 else 2)


def test_a_large_product_with_the_own_transpose_is_half_computed_and_takes_no_epilogue():
    def moments(x, y):
        return x.T @ x / 3.0, x.T @ y / 3.0, x @ x.T / 3.0

    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 270, 260)).astype("float32")
    f = tj.jit(moments)
    own, other, rows = f(tj.asarray(x), tj.asarray(y))
    np.testing.assert_allclose(own.numpy(), x.T @ x / 3.0, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(other.numpy(), x.T @ y / 3.0, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(rows.numpy(), x @ x.T / 3.0, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(own.numpy(), own.numpy().T)
    told = f.explain()
    for kernel in ("gram float32", "gemm float32", "divide"):
        assert kernel in told


def test_unrelated_work_is_left_apart():
    b = Builder()
    x, y = b.input(X), b.input(X)
    assert len(kernels(fuse(b.graph([chain(b, x, 3), chain(b, y, 3)])))) == 2


def test_groups_stay_convex():
    """exp feeds a product whose result is added to it: the addition must not pull exp behind the product."""
    b = Builder()
    x, w = b.input(X), b.input(ArrayType((8, 8), F4))
    y = b.emit(ops.exp, x)
    out = b.emit(ops.add, y, b.emit(ops.matmul, y, w))
    first, second = kernels(fuse(b.graph([out])))
    assert names(first) == ["exp"]
    assert names(second) == ["matmul", "add"]


def test_readers_come_before_the_write_in_place():
    """Nothing that reads the old weight is fused behind its update."""
    b = Builder()
    w, g = b.input(X), b.input(X)
    y = b.emit(ops.sin, w)
    new = b.emit(ops.subtract, w, g)
    z = b.emit(ops.multiply, b.emit(ops.cos, new), y)
    fused = fuse(b.graph([z], [Effect(w, new)]))
    order = kernels(fused)
    writer = next(n for n in order if fused.effects[0].value in n.outputs)
    assert all(w not in n.inputs for n in order[order.index(writer) + 1 :])


def test_sizes_are_capped():
    b = Builder()
    out = chain(b, b.input(X), 150)
    assert max(len(names(n)) for n in kernels(fuse(b.graph([out])))) <= MAX_NODES
    b = Builder()
    total = b.input(X)
    for _ in range(60):
        total = b.emit(ops.add, total, b.input(X))
    nodes = kernels(fuse(b.graph([total])))
    assert len(nodes) > 1
    assert all(len(n.inputs) + len(n.outputs) <= MAX_OPERANDS for n in nodes)


def test_a_reshaped_input_is_no_copy():
    b = Builder()
    x, index = b.input(X), b.input(ArrayType((48,), I8))
    flat = b.emit(ops.view, x, view=View.of_shape((48,)))
    total = b.emit(ops.scatter_add, flat, index, axis=0, extent=5)
    assert [n.op for n in fuse(b.graph([total])).nodes] == [ops.view, ops.scatter_add]


def test_constants_stay_outside_bodies():
    b = Builder()
    two = b.emit(ops.constant, **constant_of(2.0, F4))
    (kernel,) = kernels(fuse(b.graph([b.emit(ops.multiply, b.input(X), two)])))
    assert names(kernel) == ["multiply"]
    assert kernel.inputs[1].type.on_host


def test_a_light_node_is_computed_where_it_is_needed():
    """1 - y, with y in memory anyway, is not stored for the backward pass."""
    b = Builder()
    x, w = b.input(X), b.input(ArrayType((8, 8), F4))
    one = b.input(ArrayType((), F4, HOST))
    y = b.emit(ops.tanh, x)
    slope = b.emit(ops.subtract, one, y)
    out = b.emit(ops.multiply, b.emit(ops.matmul, b.emit(ops.matmul, y, w), w), slope)
    forward, _, backward = kernels(fuse(b.graph([out])))
    assert names(forward) == ["tanh"]
    assert names(backward) == ["matmul", "subtract", "multiply"]


def test_a_light_node_does_not_read_what_is_overwritten():
    b = Builder()
    w, g = b.input(X), b.input(X)
    two = b.emit(ops.constant, **constant_of(2.0, F4))
    doubled = b.emit(ops.multiply, w, two)
    new = b.emit(ops.subtract, w, g)
    out = b.emit(ops.sum, b.emit(ops.multiply, doubled, new), axes=(0,))
    fused = fuse(b.graph([out], [Effect(w, new)]))
    readers = [n for n in kernels(fused) if w in n.inputs]
    assert len(readers) == 1


def test_parts_of_an_array_are_written_by_one_kernel():
    """The gradient of a split: updates of zeros at different places, summed."""
    b = Builder()
    parts = [b.input(ArrayType((6, 4), F4)) for _ in range(2)]
    zero = b.emit(ops.constant, **constant_of(0.0, F4))
    zeros = b.emit(ops.full, zero, shape=(6, 8), device=CPU)
    views = [View.of_shape((6, 8)).slice_axis(1, 4 * n, 4 * n + 4) for n in range(2)]
    left, right = (b.emit(ops.update, zeros, x, view=v) for x, v in zip(parts, views, strict=True))
    graph = b.graph([b.emit(ops.add, left, right)])
    fused = fuse(graph)
    assert_same_meaning(fused, graph)
    (kernel,) = kernels(fused)
    (empty,) = [n for n in fused.nodes if n.op not in (ops.fused, ops.constant)]
    assert empty.op is ops.empty
    assert overwrites(kernel) == ((0, kernel.inputs.index(empty.output)),)


def test_what_can_fail_writes_nothing_that_existed():
    b = Builder()
    table, index = b.input(X), b.input(ArrayType((6,), I8))
    checked = b.emit(ops.check_index, index, extent=6, axis=0)
    new = b.emit(ops.add, table, b.emit(ops.gather, table, checked, axis=0))
    fused = fuse(b.graph([], [Effect(table, new)]))
    (checker,) = [n for n in kernels(fused) if "check_index" in names(n)]
    assert not set(checker.outputs) & {e.value for e in fused.effects}


def test_an_unused_check_still_runs():
    b = Builder()
    b.emit(ops.check_index, b.input(ArrayType((6,), I8)), extent=6, axis=0)
    (kernel,) = kernels(fuse(b.graph([])))
    assert names(kernel) == ["check_index"]


def test_missed_fusions_say_why():
    """Softmax over rows and a sum over columns of the same product."""
    b = Builder()
    x, w = b.input(ArrayType((50, 20), F4)), b.input(ArrayType((20, 30), F4))
    y = b.emit(ops.exp, b.emit(ops.matmul, x, w, location="net.py:3"), location="net.py:4")
    missed: list[MissedFusion] = []
    fuse(b.graph([y, b.emit(ops.sum, y, axes=(0,), location="net.py:5")]), missed)
    assert [(m.kind, m.location) for m in missed] == [("epilogue", "net.py:5")]
    assert "sum" in missed[0].reason


def test_an_expensive_function_is_not_repeated_for_a_broadcast():
    b = Builder()
    x, bias = b.input(X), b.input(ArrayType((8,), F4))
    spread = b.emit(ops.view, b.emit(ops.exp, bias), view=View.of_shape((8,)).broadcast((6, 8)))
    assert len(kernels(fuse(b.graph([b.emit(ops.add, x, spread)])))) == 2


def test_steps_of_an_unrolled_network_become_equal_kernels():
    shapes = [len(kernels(fuse(lstm_step(steps)[0]))) for steps in (4, 8)]
    assert shapes[1] <= 2 * shapes[0]
