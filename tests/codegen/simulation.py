"""Runs CUDA kernels on numba-cuda's simulator and compares them with the evaluator; a program of its own.

The simulator interprets kernels as Python, where an address cannot be loaded from: the functions of
`tracejit.kernels.memory` are replaced by functions on ctypes memory.
"""

import ctypes

import numpy as np
from numba import cuda, int64

from tests.codegen.cases import CASES, arguments
from tracejit.codegen.emit import emit, load_source
from tracejit.codegen.lower import lower
from tracejit.codegen.spec import Address, Integer
from tracejit.ir.evaluate import evaluate_node
from tracejit.kernels import memory
from tracejit.passes.memory import overwrites


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


def block_of(lowered, buffers):
    block = np.zeros(len(lowered.slots), np.int64)
    for position, slot in enumerate(lowered.slots):
        if isinstance(slot, Integer):
            block[position] = slot.value
        elif isinstance(slot, Address):
            block[position] = buffers[slot.operand].ctypes.data + slot.byte_offset
        else:
            block[position : position + 1].view(np.float32)[0] = buffers[slot.operand]
    return block


def launch_shape(spec):
    """Blocks and threads along x and y, where the kernel uses both."""
    if spec.orientation == "rows" or (spec.orientation == "map" and spec.kept == 1):
        return (3, 1 if spec.orientation == "rows" else 2), (8, 1)
    return (3, 2), (4, 2)


def simulate(node, arrays):
    """Outputs of a kernel."""
    lowered = lower(node)
    buffers = [np.array(a, order="C") for a in arrays]
    sources = dict(overwrites(node))
    for position, value in enumerate(node.outputs):
        fresh = np.zeros(value.type.shape, value.type.dtype)
        buffers.append(buffers[sources[position]] if position in sources else fresh)
    block = block_of(lowered, buffers)
    grid, threads = launch_shape(lowered.spec)
    scratch = np.zeros(grid[0] * lowered.scratch // 8 + 8, np.int64)
    if lowered.product is not None:  # all rows are one panel
        a, b = lowered.product.a, lowered.product.b
        panel = lowered.product.a_view.read(buffers[a]) @ lowered.product.b_view.read(buffers[b])
        scratch = np.concatenate([scratch[:-8], panel.reshape(-1).view(np.int64)])
    failure = np.zeros(1, np.int64)
    function = cuda.jit(load_source(emit(lowered.spec, "cuda")))
    function[grid, threads](block.ctypes.data, 0, lowered.units, scratch.ctypes.data, failure.ctypes.data)
    return buffers[len(arrays) :], int(failure[0])


def main():
    memory.load, memory.store, memory.pointer = load, store, Pointer
    memory.slot, memory.number_slot, memory.pointer_slot = slot, number_slot, pointer_slot
    for name, make in CASES.items():
        sizes = {"n": 300} if name == "long_sum" else {}
        for node in make(**sizes):
            arrays = list(arguments(node))
            results, failure = simulate(node, arrays)
            assert failure == 0, name
            with np.errstate(all="ignore"):
                wanted = evaluate_node(node, arrays)
            for got, expected in zip(results, wanted, strict=True):
                np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5, err_msg=name)
    (node,) = CASES["embedding"]()
    index, table = arguments(node)
    index[2] = 100
    assert simulate(node, [index, table])[1] != 0
    print(f"{len(CASES)} kernels agree")


if __name__ == "__main__":
    main()
