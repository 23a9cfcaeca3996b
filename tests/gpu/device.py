"""Runs generated kernels and loops over scalar functions on a GPU, in the place of those on the CPU.

    status = run_units(lowered, buffers)                      # as `tests.codegen.runner.run_units`
    loops = Loops([(["exp"], ["float32"], ["float32"])])      # as `tests.kernels.loops.Loops`

All buffers of a call lie in one array in the GPU's memory, with a margin after each that a kernel must leave
as it was. Importing this module skips the tests of a module where there is no GPU.
"""

import functools
import itertools

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="kernels for GPUs need the package numba-cuda")

from numba import cuda
from numba.cuda.core import config

from tests.codegen import runner
from tests.kernels.loops import TYPES
from tracejit.codegen.gpu.launch import launch
from tracejit.codegen.spec import AddressSlot
from tracejit.codegen.text import load_source
from tracejit.kernels.compiler.memory import pointer_slot
from tracejit.kernels.scalar import FUNCTIONS
from tracejit.targets import emit

if not cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)

config.CUDA_LOW_OCCUPANCY_WARNINGS = 0  # small kernels are what is tested here

ALIGNMENT = 256
MARGIN, POISON = 256, 0xA5


@functools.cache
def compiled(spec):
    """The kernel of a spec."""
    return cuda.jit(load_source(emit(spec, "gpu")))


class Memory:
    """Arrays side by side in the GPU's memory; those that share memory here share it there."""

    def __init__(self, arrays, extra):
        """`extra`: bytes of scratch memory at the end."""
        self.arrays = {(a.ctypes.data if a.size else ("empty", n)): a for n, a in enumerate(arrays)}
        self.offsets, self.size = {}, 0
        for key, array in self.arrays.items():
            self.offsets[key] = self.size
            self.size += -(-(array.nbytes + MARGIN) // ALIGNMENT) * ALIGNMENT
        host = np.full(self.size + extra + MARGIN, POISON, np.uint8)
        for key, array in self.arrays.items():
            host[self.offsets[key] :][: array.nbytes] = np.frombuffer(array.tobytes(), np.uint8)
        self.device = cuda.to_device(host)
        self.address = self.device.device_ctypes_pointer.value
        self.scratch = self.address + self.size

    def place(self, array):
        """The address of an array in the GPU's memory."""
        found = next(key for key, a in self.arrays.items() if a is array or key == array.ctypes.data)
        return self.address + self.offsets[found]

    def write(self, address, array):
        """Copy bytes to an address."""
        at = address - self.address
        if array.size:
            self.device[at : at + array.nbytes].copy_to_device(np.frombuffer(array.tobytes(), np.uint8))

    def fetch(self):
        """Copy all arrays back; the margins must be as they were."""
        host = self.device.copy_to_host()
        ends = [*itertools.islice(self.offsets.values(), 1, None), self.size]
        for (key, array), end in zip(self.arrays.items(), ends, strict=True):
            start = self.offsets[key]
            margin = host[start + array.nbytes : end]
            assert (margin == POISON).all(), "a kernel wrote behind the end of an array"
            if array.size:
                array[...] = host[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        assert (host[-MARGIN:] == POISON).all(), "a kernel wrote behind its scratch memory"


def launch_shape(lowered, rng):
    """How many blocks, and threads in each, along x and y: the kernel must work for any."""
    if rng is None:
        return launch(lowered, cuda.get_current_device().MULTIPROCESSOR_COUNT)
    spec, blocks = lowered.spec, (int(rng.choice([1, 3, 16])), int(rng.choice([1, 2, 5])))
    if spec.orientation == "rows":
        return (blocks[0], 1), (int(rng.choice([1, 8, 32, 64, 256])), 1)
    if spec.orientation == "map" and spec.kept == 1:
        return blocks, (int(rng.choice([1, 8, 32, 64, 256])), 1)
    return blocks, (int(rng.choice([1, 8, 32])), int(rng.choice([1, 2, 8])))


def run_units(lowered, buffers, rng=None, product=None):
    """Run the kernel on chunks of [0, units); a product that it reads may lie in scratch memory."""
    spec = lowered.spec
    kernel, (grid, threads) = compiled(spec), launch_shape(lowered, rng)
    panel = product if spec.panel >= 0 else np.zeros(0)
    arrays = [b for b in buffers if isinstance(b, np.ndarray)]
    block = np.zeros(len(lowered.slots) + 1, np.int64)  # the last one says whether the kernel failed
    memory = Memory([*arrays, block], grid[0] * lowered.scratch + panel.nbytes)
    block[:-1] = runner.argument_block(lowered, buffers)
    for position, slot in enumerate(lowered.slots):
        if isinstance(slot, AddressSlot):
            block[position] = memory.place(buffers[slot.operand]) + slot.byte_offset
    memory.write(memory.place(block), block)
    cuts = [0, lowered.units]
    if rng is not None and lowered.units > 1:
        cuts = sorted({0, lowered.units, *rng.integers(0, lowered.units, 2).tolist()})
    for lo, hi in itertools.pairwise(cuts):
        if spec.panel >= 0:
            rows = panel.reshape(-1, panel.shape[-1])[lo:hi]
            memory.write(memory.scratch + grid[0] * lowered.scratch, rows)
        failure = memory.place(block) + block.nbytes - 8
        kernel[grid, threads](memory.place(block), int(lo), int(hi), memory.scratch, failure)
    memory.fetch()
    return int(block[-1])


def source_of_loop(names, operands, results):
    """Python source of a loop over scalar functions of the same operands."""
    lines = ["def kernel(block, n):"]
    for n, dtype in enumerate([*operands, *results]):
        lines.append(f"    p{n} = pointer_slot(block, {n}, {'uint8' if dtype == 'bool' else dtype})")
    lines.append("    for i in range(cuda.grid(1), n, cuda.gridsize(1)):")
    for n, dtype in enumerate(operands):
        lines.append(f"        x{n} = p{n}[i]{' != 0' if dtype == 'bool' else ''}")
    arguments = ", ".join(f"x{n}" for n in range(len(operands)))
    for n, (name, dtype) in enumerate(zip(names, results, strict=True), len(operands)):
        value = f"f_{name}({arguments})"
        lines.append(f"        p{n}[i] = {f'uint8({value})' if dtype == 'bool' else value}")
    return "\n".join(lines)


class Loops:
    """Loops over scalar functions, compiled when they are first called."""

    def __init__(self, cases):
        self.cases = cases
        self.kernels = {}

    def kernel(self, number):
        """The kernel of a case."""
        if number not in self.kernels:
            names = self.cases[number][0]
            namespace = {"pointer_slot": pointer_slot, "cuda": cuda, **TYPES}
            namespace |= {f"f_{name}": FUNCTIONS[name] for name in names}
            exec(source_of_loop(*self.cases[number]), namespace)
            self.kernels[number] = cuda.jit(namespace["kernel"])
        return self.kernels[number]

    def __call__(self, number, *arrays):
        """The results of a case on arrays of equal size."""
        _, operands, results = self.cases[number]
        inputs = [np.array(a, dtype) for a, dtype in zip(arrays, operands, strict=True)]
        outputs = [np.empty(inputs[0].size, dtype) for dtype in results]
        block = np.zeros(len(inputs) + len(outputs), np.int64)
        memory = Memory([*inputs, *outputs, block], 0)
        block[:] = [memory.place(a) for a in (*inputs, *outputs)]
        memory.write(memory.place(block), block)
        self.kernel(number)[64, 128](memory.place(block), inputs[0].size)
        memory.fetch()
        return outputs
