"""legalize and plan: any order of the tasks, on real bytes, gives what the evaluator gives."""

import cProfile
import pathlib

import numpy as np
import pytest

from tests.golden import check_golden
from tests.graphs import F4, I8, assert_same, assert_same_meaning, fuse, outcome, random_graph, random_inputs
from tests.passes.simulate import run_plan
from tests.thorough import some
from tracejit import ops
from tracejit.errors import VerificationError
from tracejit.ir.graph import Builder, Effect, Graph, Node, Value, constant_of
from tracejit.ir.op import Trait
from tracejit.ir.printer import ValueNames
from tracejit.ir.types import CPU, HOST, ArrayType
from tracejit.ir.verify import verify
from tracejit.ir.view import View
from tracejit.passes.cse import cse
from tracejit.passes.dce import dce
from tracejit.passes.memory.aliases import can_fail
from tracejit.passes.memory.legalize import legalize
from tracejit.passes.memory.plan import BufferKind, MemoryPlan, naive_bytes, plan
from tracejit.passes.simplify import simplify

GOLDEN = pathlib.Path(__file__).parent / "golden"
X = ArrayType((4, 6), F4)


def wrapped(graph: Graph) -> Graph:
    """Every elementwise node and update as a fused kernel, which may share memory where a real one could."""
    nodes = []
    for node in graph.nodes:
        if node.outputs[0].type.on_host or not (Trait.ELEMENTWISE in node.op.traits or node.op is ops.update):
            nodes.append(node)
            continue
        body = Builder()
        inputs = [body.input(v.type) for v in node.inputs]
        body.nodes.append(Node(node.op, tuple(inputs), (Value(node.output.type),), node.attrs))
        out = node.output.type
        elementwise = Trait.ELEMENTWISE in node.op.traits
        pairs = tuple(
            (0, j)
            for j, v in enumerate(node.inputs)
            if elementwise and not v.type.on_host and v.type.dtype.itemsize == out.dtype.itemsize
        )
        attrs = {"body": body.graph([body.nodes[-1].output]), "kind": "map", "inplace": pairs}
        nodes.append(Node(ops.fused, node.inputs, node.outputs, attrs, node.location))
    return Graph(graph.inputs, tuple(nodes), graph.outputs, graph.effects)


def check_plan(graph: Graph, seed: int, aliases=()) -> MemoryPlan:
    """Legalize, plan and simulate; every result must be the evaluator's."""
    legal = verify(legalize(graph, aliases))
    planned = plan(legal, aliases)
    arrays = random_inputs(graph, seed)
    for group in aliases:
        for i in group:
            arrays[i] = arrays[group[0]]
    outputs, storages = outcome(graph, arrays)
    for group in aliases:
        written = [i for i in group if any(e.target is graph.inputs[i] for e in graph.effects)]
        for i in group:
            storages[i] = storages[written[0] if written else i]
    rng = np.random.default_rng(seed)
    for _ in range(3):
        got, after = run_plan(planned, arrays, rng, aliases)
        assert_same(got, outputs)
        assert_same(after, storages)
    return planned


@pytest.mark.parametrize("seed", some(range(250), 80))
def test_random_graphs(seed):
    graph = random_graph(seed)
    check_plan(dce(graph), seed)
    simple = dce(cse(simplify(graph)))
    assert_same_meaning(legalize(simple), graph, seed)
    check_plan(wrapped(simple), seed)
    check_plan(fuse(simple), seed)


@pytest.mark.parametrize("seed", range(150))
def test_inputs_that_share_storage(seed):
    graph = dce(simplify(random_graph(seed + 5000, inputs=6)))
    pairs = [
        (i, j)
        for i, one in enumerate(graph.inputs)
        for j, other in enumerate(graph.inputs)
        if i < j and one.type == other.type and not one.type.on_host
    ]
    if not pairs:
        return
    effects = [e for e in graph.effects if e.target is not graph.inputs[pairs[0][1]]]
    graph = Graph(graph.inputs, graph.nodes, graph.outputs, tuple(effects))
    check_plan(wrapped(graph), seed, [pairs[0]])


@pytest.mark.parametrize("seed", range(150))
def test_writers_of_storage_wait_for_every_check(seed):
    graph = random_graph(seed, kinds=["elementwise", "elementwise", "index", "update", "view"])
    planned = check_plan(wrapped(dce(simplify(graph))), seed)
    ancestors = []
    for task in planned.tasks:
        ancestors.append(set(task.after).union(*(ancestors[t] for t in task.after)))
    checks = {t for t, task in enumerate(planned.tasks) if can_fail(task.node)}
    for t, task in enumerate(planned.tasks):
        if any(planned.locations[v].kind is BufferKind.INPUT for v in task.node.outputs):
            assert checks <= ancestors[t]


# -- what stays in place ------------------------------------------------------------------------------------


def operators(graph: Graph) -> list[str]:
    return [node.op.name for node in legalize(graph).nodes]


def test_an_effect_is_written_straight_into_its_storage():
    b = Builder()
    w, g = b.input(X), b.input(X)
    new = b.emit(ops.subtract, w, g)
    graph = wrapped(b.graph([], [Effect(w, new)]))
    assert operators(graph) == ["fused"]
    planned = check_plan(graph, 0)
    assert planned.tasks[0].shared == ((0, 0),)
    assert planned.arena_bytes == 0


def test_a_kernel_that_may_not_share_is_kept_from_its_operand():
    b = Builder()
    w = b.input(X)
    turned = b.emit(ops.view, w, view=View.of_shape((4, 6)).permute((1, 0)).reshape((6, 4)))
    new = b.emit(ops.view, turned, view=View.of_shape((6, 4)).permute((1, 0)))
    graph = b.graph([], [Effect(w, b.emit(ops.add, new, w))])
    assert operators(graph)[-1] == "copy"
    check_plan(graph, 0)


def test_swap_of_two_storages():
    b = Builder()
    x, y = b.input(X), b.input(X)
    graph = b.graph([], [Effect(x, y), Effect(y, x)])
    assert operators(graph) == ["copy"] * 4
    check_plan(graph, 0)


def test_the_old_value_is_read_before_it_is_overwritten():
    b = Builder()
    w, g = b.input(X), b.input(X)
    new = b.emit(ops.subtract, w, g)
    late = b.emit(ops.sum, w, axes=(0,), pieces=0)
    graph = wrapped(b.graph([late], [Effect(w, new)]))
    assert operators(graph) == ["sum", "fused"]
    check_plan(graph, 0)


def test_an_output_copy_of_the_old_value_is_made_at_once():
    b = Builder()
    w, g = b.input(X), b.input(X)
    graph = wrapped(b.graph([w], [Effect(w, b.emit(ops.subtract, w, g))]))
    assert operators(graph) == ["copy", "fused"]
    check_plan(graph, 0)


def test_stores_into_a_target_need_no_copy():
    b = Builder()
    x, row = b.input(X), b.input(ArrayType((6,), F4))
    value = x
    for i in range(4):
        value = b.emit(ops.update, value, row, view=View.of_shape((4, 6)).select(0, i))
    graph = b.graph([], [Effect(x, value)])
    assert operators(graph) == ["update"] * 4
    assert check_plan(graph, 0).arena_bytes == 0


def test_a_store_into_something_else_copies_it_once():
    b = Builder()
    x, row = b.input(X), b.input(ArrayType((6,), F4))
    value = x
    for i in range(3):
        value = b.emit(ops.update, value, row, view=View.of_shape((4, 6)).select(0, i))
    graph = b.graph([value])
    assert operators(graph) == ["copy", "update", "update", "update"]
    check_plan(graph, 0)


def test_concatenation_writes_straight_into_the_output():
    b = Builder()
    parts = [b.input(ArrayType((2, 6), F4)) for _ in range(3)]
    value = b.emit(ops.empty, shape=(6, 6), dtype=F4, device=CPU)
    for i, part in enumerate(parts):
        view = View.of_shape((6, 6)).slice_axis(0, 2 * i, 2 * i + 2)
        value = b.emit(ops.update, value, part, view=view)
    planned = check_plan(b.graph([value]), 0)
    assert len(planned.tasks) == 3
    assert planned.arena_bytes == 0


def test_an_index_check_keeps_what_it_depends_on_out_of_storage():
    """x is written, then read to make an index: the write must not be visible if the check fails."""
    b = Builder()
    x, y = b.input(ArrayType((3,), I8)), b.input(X)
    new = b.emit(ops.add, x, b.emit(ops.constant, value=1, dtype=I8))
    index = b.emit(ops.check_index, new, extent=4, axis=0)
    graph = b.graph([b.emit(ops.gather, y, index, axis=0)], [Effect(x, new)])
    assert operators(graph) == ["constant", "add", "check_index", "gather", "copy"]


def test_an_independent_index_check_moves_before_the_write():
    b = Builder()
    x, y, i = b.input(X), b.input(X), b.input(ArrayType((3,), I8))
    new = b.emit(ops.add, x, y)
    index = b.emit(ops.check_index, i, extent=4, axis=0)
    graph = wrapped(b.graph([b.emit(ops.gather, y, index, axis=0)], [Effect(x, new)]))
    assert operators(graph) == ["fused", "fused", "gather"]
    assert can_fail(legalize(graph).nodes[0])


def test_numbers_become_arrays():
    b = Builder()
    number = b.input(ArrayType((), F4, HOST))
    graph = b.graph([number, number])
    assert operators(graph) == ["full", "full"]
    check_plan(graph, 0)


def test_an_illegal_graph_is_refused():
    b = Builder()
    x = b.input(X)
    with pytest.raises(VerificationError, match="legalize"):
        plan(b.graph([x]))


# -- sizes --------------------------------------------------------------------------------------------------


def test_a_chain_needs_one_buffer_in_place_and_two_otherwise():
    b = Builder()
    value = b.input(ArrayType((1000,), F4))
    for _ in range(10):
        value = b.emit(ops.negative, value)
    graph = b.graph([value])
    assert naive_bytes(graph) == 9 * 4000
    assert plan(legalize(graph)).arena_bytes == 2 * 4032
    assert plan(legalize(wrapped(graph))).arena_bytes == 4032


def test_independent_branches_do_not_share():
    b = Builder()
    x = b.input(ArrayType((1000,), F4))
    ends = []
    for op in (ops.sin, ops.cos, ops.exp):
        ends.append(b.emit(ops.sum, b.emit(op, x), axes=(0,), pieces=0))
    graph = b.graph(ends)
    planned = plan(legalize(graph))
    assert planned.arena_bytes == 3 * 4032
    assert [task.after for task in planned.tasks] == [(), (0,), (), (2,), (), (4,)]


def multilayer(layers: int) -> Graph:
    """A training step of a deep perceptron: forward, backward, update."""
    b = Builder()
    x = b.input(ArrayType((32, 64), F4))
    weights = [b.input(ArrayType((64, 64), F4)) for _ in range(layers)]
    rate = b.emit(ops.constant, **constant_of(0.1, F4))
    turn = View.of_shape((64, 64)).permute((1, 0))
    activations = [x]
    for w in weights:
        activations.append(b.emit(ops.tanh, b.emit(ops.matmul, activations[-1], w)))
    grad = activations[-1]
    effects = []
    for w, before, after in zip(weights[::-1], activations[-2::-1], activations[:0:-1], strict=True):
        grad = b.emit(ops.multiply, grad, b.emit(ops.square, after))
        left = b.emit(ops.view, before, view=View.of_shape((32, 64)).permute((1, 0)))
        slope = b.emit(ops.matmul, left, grad)
        grad = b.emit(ops.matmul, grad, b.emit(ops.view, w, view=turn))
        effects.append(Effect(w, b.emit(ops.subtract, w, b.emit(ops.multiply, slope, rate))))
    return b.graph([grad], effects)


def test_training_step():
    graph = wrapped(multilayer(4))
    planned = check_plan(graph, 0)
    assert not any(node.op is ops.copy for node in planned.graph.nodes)
    assert planned.arena_bytes < naive_bytes(multilayer(4)) * 2 / 3  # transposes are not folded here


def test_planning_is_nearly_linear():
    """By the number of calls it makes, which no other load on the machine changes."""

    def calls(layers: int) -> int:
        graph = wrapped(multilayer(layers))
        profile = cProfile.Profile()
        profile.runcall(lambda: plan(legalize(graph)))
        return sum(entry.callcount for entry in profile.getstats())

    assert calls(800) < 10 * calls(100)


def test_golden():
    graph = wrapped(multilayer(2))
    planned = plan(legalize(graph))
    name = ValueNames()
    lines = [", ".join(f"{name(v)} {planned.locations[v]}" for v in planned.graph.inputs)]
    for t, task in enumerate(planned.tasks):
        body = task.node.attrs.get("body")
        label = "+".join(n.op.name for n in body.nodes) if body else task.node.op.name
        outputs = ", ".join(f"{name(v)} {planned.locations[v]}" for v in task.node.outputs)
        inputs = ", ".join(name(v) for v in task.node.inputs if not v.type.on_host)
        lines.append(f"task {t}: {outputs} = {label}({inputs})  after {task.after} shared {task.shared}")
    lines.append(f"arena {planned.arena_bytes}, naive {naive_bytes(multilayer(2))}")
    check_golden(GOLDEN / "plan.txt", "\n".join(lines))
