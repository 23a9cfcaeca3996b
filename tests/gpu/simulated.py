"""Kernels for GPUs that run on NumPy arrays, on the simulator, where tests have kernels of the CPU run."""

import functools

import numpy as np

from tests.codegen import runner
from tests.gpu.simulator import Simulated, object_code
from tracejit.codegen.gpu.launch import EXTRA_SLOTS, LaunchDimensions, shared_bytes
from tracejit.codegen.objects.ptx import draft
from tracejit.codegen.text import load_source
from tracejit.targets import emit

NO_FAILURE = (1 << 63) - 1


@functools.cache
def compiled(spec):
    """The kernel of a spec, on the simulator."""
    slots = len(spec.slot_names()) + len(EXTRA_SLOTS)
    return Simulated(object_code(draft("kernel", load_source(emit(spec, "gpu")), slots)))


def some_launch(spec, rng):
    """Some numbers of blocks and threads: the kernel must work for any."""
    if rng is None:
        rng = np.random.default_rng(0)
    grid = int(rng.choice([1, 3])), int(rng.choice([1, 2]))
    threads = int(rng.choice([1, 4, 8])), int(rng.choice([1, 2, 4]))
    if spec.orientation == "rows":
        grid, threads = (grid[0], 1), (int(rng.choice([1, 8, 32])), 1)
    elif spec.orientation == "map" and spec.kept == 1:
        threads = threads[0], 1
    return LaunchDimensions(grid, threads, shared_bytes(spec, threads[0] * threads[1]))


def run_units(lowered, buffers, rng=None, product=None):
    """In the place of `tests.codegen.runner.run_units`."""
    launch = some_launch(lowered.spec, rng)
    scratch = np.zeros(launch.grid[0] * lowered.scratch, np.uint8)
    failure = np.full(1, NO_FAILURE)
    block = np.array(
        [
            *runner.argument_block(lowered, buffers),
            lowered.units,
            scratch.ctypes.data,
            failure.ctypes.data,
        ]
    )
    compiled(lowered.spec)(block.ctypes.data, launch, rng)
    return 0 if failure[0] == NO_FAILURE else int(failure[0])
