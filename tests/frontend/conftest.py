"""The ways in which array code can run; tests of public functions go through all of them.

`run(fn, *args)` calls `fn` and gives its results as NumPy arrays. Modes:

- evaluator: graphs are computed node by node by the NumPy evaluator: tests the frontend alone, and is fast;
- eager:     every flush compiles kernels (nothing is left to NumPy because it is small);
- jit:       the function is traced, and called again to be replayed; both must give the same bits.

On another device (`tests.other_device`) there is no evaluator: it computes in memory that NumPy sees.
"""

import numpy as np
import pytest

import tracejit as tj
from tests.other_device import ELSEWHERE
from tracejit.frontend.arrays import trees
from tracejit.frontend.recording import eager
from tracejit.ir.evaluate import evaluate

MODES = ["eager", "jit"] if ELSEWHERE else ["evaluator", "eager", "jit"]


def run_on_evaluator(graph, bound, places, schedule=None, *, key=None, held=None, started=None):
    """`eager.run`, by the reference evaluator."""
    for storage in places:
        storage.materialise()
    arrays = [
        eager.window_memory(item, value.type) if isinstance(item, eager.StorageRange) else item.value
        for value, item in zip(graph.inputs, bound, strict=True)
    ]
    outputs, effects = evaluate(graph, arrays)
    outputs, effects = [np.array(a) for a in outputs], [np.array(a) for a in effects]
    for storage, array in zip(places, outputs, strict=True):
        storage.memory()[...] = array
    windows = dict(zip(graph.inputs, bound, strict=True))
    for effect, array in zip(graph.effects, effects, strict=True):
        eager.window_memory(windows[effect.target], effect.target.type)[...] = array
    return []  # nothing is left to wait for


def to_numpy(tree):
    """NDArrays in a tree as NumPy arrays."""
    return trees.map(lambda leaf: leaf.numpy() if isinstance(leaf, tj.NDArray) else leaf, tree)


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.fixture
def evaluator(monkeypatch):
    """Array code is recorded, and computed by the NumPy evaluator."""
    if ELSEWHERE:
        pytest.skip("about the CPU: the evaluator computes in memory that NumPy sees")
    monkeypatch.setattr(eager, "SMALL", -1)
    monkeypatch.setattr(eager, "run", run_on_evaluator)


@pytest.fixture(params=MODES)
def run(request, monkeypatch):
    """``run(fn, *args)``: the results of ``fn(*args)`` as NumPy arrays, in one of the modes.

    ``run.mode`` names it; ``run.some(cases)`` are the first of them where every case compiles kernels.
    """
    monkeypatch.setattr(eager, "SMALL", -1)
    if request.param == "evaluator":
        monkeypatch.setattr(eager, "run", run_on_evaluator)

    def call(fn, *args):
        if request.param != "jit":
            return to_numpy(fn(*args))
        traced = tj.jit(fn)
        first, second = to_numpy(traced(*args)), to_numpy(traced(*args))
        for a, b in zip(trees.leaves(first), trees.leaves(second), strict=True):
            assert not isinstance(a, np.ndarray) or same_bits(a, b)
        return second

    call.mode = request.param
    call.some = lambda cases, count=2: cases if request.param == "evaluator" else cases[:count]
    return call
