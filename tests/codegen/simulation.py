"""Runs CUDA kernels on numba-cuda's simulator and compares them with the evaluator; a program of its own.

The simulator interprets kernels as Python, where an address cannot be loaded from: the functions of
`tracejit.kernels.compiler.memory` are replaced by functions on ctypes memory.
"""

import ctypes

import numpy as np
from numba import cuda, int64

from tests.codegen import bodies, runner
from tests.codegen.cases import CASES, arguments
from tests.graphs import random_graph, random_inputs
from tracejit import ops
from tracejit.codegen.text import load_source
from tracejit.ir.evaluate import evaluate_node
from tracejit.kernels.compiler import memory
from tracejit.passes.fusion.fuse import fuse
from tracejit.targets import emit


class Pointer:
    """A typed pointer; like a kernel's, its indices may be negative."""

    def __init__(self, address, kind):
        self.address, self.dtype = int(address), np.dtype(str(kind))

    def element(self, index):
        place = self.address + int(index) * self.dtype.itemsize
        return np.frombuffer((ctypes.c_char * self.dtype.itemsize).from_address(place), self.dtype)

    def __getitem__(self, index):
        return self.element(index)[0]

    def __setitem__(self, index, value):
        self.element(index)[0] = value


def load(address, kind):
    return Pointer(address, kind)[0]


def slot(block, index):
    return load(block + 8 * index, int64)


def number_slot(block, index, kind):
    return load(block + 8 * index, kind)


def pointer_slot(block, index, kind):
    return Pointer(slot(block, index), kind)


def store(address, value):
    Pointer(address, int64)[0] = value


def launch_shape(spec):
    """Blocks and threads along x and y, where the kernel uses both."""
    if spec.orientation == "rows":
        return (3, 1), (8, 1)
    return ((3, 2), (8, 1)) if spec.orientation == "map" and spec.kept == 1 else ((3, 2), (4, 2))


def run_units(lowered, buffers, rng=None, product=None):
    """In the place of `tests.codegen.runner.run_units`; all rows of a product are one panel."""
    grid, threads = launch_shape(lowered.spec)
    block = runner.argument_block(lowered, buffers)
    scratch = np.zeros(grid[0] * lowered.scratch, np.uint8)
    if lowered.spec.panel >= 0:
        scratch = np.concatenate([scratch, product.reshape(-1).view(np.uint8)])
    failure = np.zeros(1, np.int64)
    function = cuda.jit(load_source(emit(lowered.spec, "gpu")))
    function[grid, threads](block.ctypes.data, 0, lowered.units, scratch.ctypes.data, failure.ctypes.data)
    return int(failure[0])


def check_graph(seed):
    """Every kernel of a random graph."""
    graph = fuse(random_graph(seed))
    values = dict(zip(graph.inputs, random_inputs(graph, seed), strict=True))
    for node in graph.nodes:
        inputs = [values[v] for v in node.inputs]
        if node.op is ops.fused:
            runner.check(node, inputs, exact=False)
        with np.errstate(all="ignore"):
            values.update(zip(node.outputs, evaluate_node(node, inputs), strict=True))


def main():
    memory.load, memory.store, memory.pointer = load, store, Pointer
    memory.slot, memory.number_slot, memory.pointer_slot = slot, number_slot, pointer_slot
    runner.run_units = run_units
    for name, make in CASES.items():
        for node in make(**({"n": 300} if name == "long_sum" else {})):
            runner.check(node, list(arguments(node)), exact=False)
    for seed in range(20):
        body = bodies.random_body(seed)
        runner.check(runner.fused_node(body), bodies.random_arguments(body, seed))
    for seed in range(8):
        check_graph(seed)
    (node,) = CASES["embedding"]()
    index, table = arguments(node)
    index[2] = 100
    assert runner.run(node, [index, table])[1] == 3
    print(f"{len(CASES)} kernels, 20 random ones and those of 8 random graphs agree")


if __name__ == "__main__":
    main()
