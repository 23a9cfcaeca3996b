"""Eager recordings: which of them share a schedule, and what a launch finds when it starts."""

import numpy as np
import pytest

import tracejit as tj
from tracejit import compile
from tracejit.frontend.recording import eager


@pytest.fixture
def compiled(monkeypatch):
    """The graphs that were compiled, where nothing is computed at once and no schedule is known."""
    graphs, compile_graph = [], compile.compile_graph

    def note(graph, *options):
        graphs.append(graph)
        return compile_graph(graph, *options)

    tj.wait_all()
    monkeypatch.setattr(eager, "SMALL", -1)
    monkeypatch.setattr(eager, "_schedules", type(eager._schedules)())
    monkeypatch.setattr(compile, "compile_graph", note)
    return graphs


def test_groups_that_do_the_same_share_a_schedule(compiled):
    for number in (0.5, -2.0, 0.0, -0.0, 3.0):
        for size in (5, 5):
            a, b = np.arange(float(size)), np.ones(size)
            x, y = tj.asarray(a), tj.asarray(b)
            z = x * number - y
            np.testing.assert_array_equal(z.numpy(), a * number - b)
            assert np.array_equal(np.signbit((x * number).numpy()), np.signbit(a * number))
    assert len(compiled) == 2  # the difference, and the product alone


OTHERS = [
    (lambda x, y: x - x, 1),
    (lambda x, y: x - y[::-1], 1),
    (lambda x, y: (x - y).sum(), 1),
    (lambda x, y: x.__isub__(y), 1),
    (lambda x, y: x - 1.0, 1),
    (lambda x, y: (x - y) - x, 1),
    (lambda x, y: (x - y) - y, 1),
    (lambda x, y: x[:2] - y[:2], 1),
    (lambda x, y: y - x, 0),  # the first and the second array that are read: the same
    (lambda x, y: (x + 1) - y, 1),
]


@pytest.mark.parametrize(("other", "more"), OTHERS)
def test_groups_that_differ_do_not(compiled, other, more):
    a, b = np.arange(4.0), np.float64([5, 7, 9, 11])

    def run(function):
        x, y = tj.asarray(a), tj.asarray(b)
        return [function(x, y).numpy(), x.numpy(), y.numpy()]

    run(lambda x, y: x - y)
    count, results = len(compiled), run(other)
    assert len(compiled) == count + more
    x, y = a.copy(), b.copy()
    for result, wanted in zip(results, [other(x, y), x, y], strict=True):
        np.testing.assert_array_equal(result, wanted)


def test_numbers_of_other_types_are_other_inputs(compiled):
    x = tj.asarray(np.float32([1, 2]))
    kept = [x * 1, x * 1.0, x * True, x + 0.0, x + (-0.0)]
    assert [k.tolist() for k in kept] == [[1, 2]] * 5


def test_a_long_loop_compiles_a_few_groups(compiled):
    x = tj.asarray(np.float32([1, 2]))
    for _ in range(1000):
        x += 1
    assert x.tolist() == [1001, 1002]
    assert [len(graph.nodes) for graph in compiled] == [eager.MAX_NODES, 1000 % eager.MAX_NODES]
    assert not any(graph.outputs for graph in compiled)


def test_what_fills_memory_needs_no_kernel(compiled):
    for size in (3, 100_000):
        assert tj.zeros(size).numpy().sum() == 0
        assert tj.full((2, size), 7, dtype="int16").numpy().min() == 7
        assert tj.ones(size, dtype=bool).numpy().all()
    assert not compiled
    with pytest.raises(tj.errors.DTypeError, match="300 does not fit into uint8"):
        tj.full(3, 300, dtype="uint8")
