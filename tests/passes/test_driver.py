"""The pass driver: order, verification, printing, leaving passes out, timing."""

import pytest

from tests.graphs import F4, assert_same_meaning, random_graph
from tracejit import ops
from tracejit.config import config
from tracejit.errors import VerificationError
from tracejit.ir.graph import Builder, Graph
from tracejit.ir.types import ArrayType
from tracejit.passes import driver
from tracejit.passes.driver import clean, form_kernels, optimize


def names(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


def doubled() -> Graph:
    """x + x twice, and something nobody needs."""
    b = Builder()
    x = b.input(ArrayType((3,), F4))
    b.emit(ops.exp, x)
    return b.graph([b.emit(ops.multiply, b.emit(ops.add, x, x), b.emit(ops.copy, b.emit(ops.add, x, x)))])


def test_passes_run_in_order(monkeypatch, capsys):
    order = ["stack", "roll", "attend", "simplify", "cse", "dce", "winograd", "weight_sums", "remask"]
    order += ["recompute", "prepare", "fuse"]
    monkeypatch.setattr(config, "dump", frozenset(order))
    times: dict[str, float] = {}
    needed = clean(doubled(), times)
    assert names(needed) == ["add", "multiply"]
    assert list(times) == ["stack", "roll", "attend", "simplify", "cse", "dce"]
    assert names(form_kernels(needed, times)) == ["fused"]
    assert list(times) == order
    printed = [line for line in capsys.readouterr().err.splitlines() if line.startswith("#")]
    assert printed == [f"# after {name}" for name in (*order[:6], "stack", *order[6:-1], "dce", "fuse")]
    assert names(optimize(doubled())) == ["fused"]


@pytest.mark.parametrize("seed", range(25))
def test_all_passes_keep_the_meaning(seed):
    graph = random_graph(seed)
    assert_same_meaning(optimize(graph), graph, seed)


def test_a_pass_can_be_left_out(monkeypatch):
    monkeypatch.setattr(config, "disable", frozenset({"cse"}))
    times: dict[str, float] = {}
    assert names(clean(doubled(), times)) == ["add", "add", "multiply"]
    assert times.keys() == {"stack", "roll", "attend", "simplify", "dce"}
    assert all(seconds > 0 for seconds in times.values())


def test_results_are_printed_with_locations(monkeypatch, capsys):
    b = Builder()
    x = b.input(ArrayType((3,), F4))
    graph = b.graph([b.emit(ops.exp, x, location="model.py:3")])
    monkeypatch.setattr(config, "dump", frozenset({"record", "cse"}))
    optimize(graph)
    said = capsys.readouterr().err
    assert [line for line in said.splitlines() if line.startswith("#")] == ["# after record", "# after cse"]
    assert said.count("exp(%0)  # model.py:3") == 2


@pytest.mark.parametrize("wanted", [True, False])
def test_a_wrong_pass_is_found(monkeypatch, wanted):
    """The pass drops the first node, on which the second depends."""
    b = Builder()
    x = b.input(ArrayType((3,), F4))
    graph = b.graph([b.emit(ops.sin, b.emit(ops.exp, x))])

    def wrong(graph: Graph) -> Graph:
        return Graph(graph.inputs, graph.nodes[1:], graph.outputs, graph.effects)

    monkeypatch.setattr(config, "verify", wanted)
    monkeypatch.setattr(driver, "CLEANING", {"wrong": wrong})
    if wanted:
        with pytest.raises(VerificationError, match="before its definition"):
            clean(graph)
    else:
        assert names(clean(graph)) == ["sin"]
