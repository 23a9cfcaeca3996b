"""Launch dimensions of GPU kernels. They affect speed only, not results.

    launch(lowered, processors=132)     # Launch(grid=(64, 1), threads=(256, 1), shared=1024)

The numbers depend on shapes and the device only, so results are bitwise identical from launch to launch.
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import math
from typing import NamedTuple

import numpy as np

from tracejit.codegen.spec import IntegerSlot, KernelSpec, Lowered
from tracejit.codegen.text import memory_type

EXTRA_SLOTS = ("units", "scratch", "failure")
"""The slots of a kernel's block after those of its spec: the number of units, and two addresses in GPU
memory.
"""

THREADS = 1024
"""The maximal number of threads per block."""

DEFAULT_THREADS = 256
"""The number of threads per block for which every kernel has enough registers."""

WARP = 32
"""The number of threads in a warp."""

RESIDENT = 2048
"""The maximal number of resident threads per multiprocessor."""

ELEMENTS_PER_THREAD = 4
"""The number of elements that a thread processes per iteration, if the loop has few steps."""


class LaunchDimensions(NamedTuple):
    """Launch dimensions: blocks and threads along x and y, and bytes of shared memory per block."""

    grid: tuple[int, int]
    threads: tuple[int, int]
    shared: int


def launch(lowered: Lowered, processors: int, most: int = DEFAULT_THREADS) -> LaunchDimensions:
    """Return the launch dimensions of a kernel on a GPU with `processors` multiprocessors. `most`: the
    number of threads per block that the kernel's registers allow.
    """
    grid, threads = _shape(lowered, processors, most)
    return LaunchDimensions(grid, threads, shared_bytes(lowered.spec, math.prod(threads)))


def shared_sizes(spec: KernelSpec) -> dict[str, int]:
    """Return the dtypes of the accumulators that threads combine in shared memory, with their sizes in
    bytes. The largest come first, so that each array is aligned.
    """
    sizes = {memory_type(d): np.dtype(memory_type(d)).itemsize for d in spec.accumulators}
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))


def shared_bytes(spec: KernelSpec, threads: int) -> int:
    """Return the bytes of shared memory that a block of `threads` threads needs."""
    return threads * sum(shared_sizes(spec).values())


def _shape(lowered: Lowered, processors: int, most: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the numbers of blocks and of threads along x and y."""
    spec = lowered.spec
    slots = zip(spec.slot_names(), lowered.slots, strict=True)
    numbers = {name: slot.value for name, slot in slots if isinstance(slot, IntegerSlot)}
    units, target_threads = max(1, lowered.units), 2 * processors * RESIDENT
    if spec.orientation == "rows":
        row = math.prod(numbers[f"n{d}"] for d in range(spec.kept, spec.kept + spec.reduced))
        row = min(row, numbers.get("length", row))
        most = DEFAULT_THREADS if units * DEFAULT_THREADS >= target_threads else min(most, THREADS)
        threads = power_of_two(row / (2 * ELEMENTS_PER_THREAD), WARP, most)
        return (min(units, target_threads // threads), 1), (threads, 1)
    threads, threads_x = DEFAULT_THREADS, WARP // 2 if spec.tiles else WARP
    if spec.orientation == "columns":
        blocks_y = numbers["columns"] / threads_x
    elif spec.kept == 1:
        threads_x, blocks_y = threads, numbers["tile"] / (threads * ELEMENTS_PER_THREAD)
    else:
        blocks_y = numbers["rows"] * threads_x / threads
    blocks_y = power_of_two(min(blocks_y, target_threads / (units * threads)), 1, DEFAULT_THREADS)
    return (min(units, 4 * target_threads // threads), blocks_y), (threads_x, threads // threads_x)


def power_of_two(minimum: float, least: int, most: int) -> int:
    """Return the smallest power of two that is not below `minimum`, limited to the range from `least` to
    `most`.
    """
    return max(least, min(most, 1 << math.ceil(math.log2(max(minimum, 1)))))
