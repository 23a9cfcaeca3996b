"""Launch dimensions of kernels for a GPU. They decide speed only, not results.

    launch(lowered, processors=132)     # Launch(grid=(64, 1), threads=(256, 1), shared=1024)

The numbers depend on shapes and the device only, so results are the same bits from launch to launch.
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import math
from typing import NamedTuple

import numpy as np

from tracejit.codegen.spec import IntegerSlot, KernelSpec, Lowered
from tracejit.codegen.text import memory_type

MORE = ("units", "scratch", "failure")
"""Slots of a kernel's block behind those of its spec: the number of units, addresses in the GPU's memory."""

THREADS = 1024
"""Most threads in a block."""

USUAL = 256
"""Threads in a block for which any kernel has enough registers."""

WARP = 32
"""The threads of a warp."""

RESIDENT = 2048
"""The most resident threads of a multiprocessor."""

AT_ONCE = 4
"""Elements that a thread takes at a time, if its steps are few."""


class LaunchDimensions(NamedTuple):
    """Launch dimensions: blocks and threads along x and y, bytes of shared memory of each block."""

    grid: tuple[int, int]
    threads: tuple[int, int]
    shared: int


def launch(lowered: Lowered, processors: int, most: int = USUAL) -> LaunchDimensions:
    """The launch of a kernel on a GPU with so many processors. `most`: threads in a block that the kernel's
    registers allow.
    """
    grid, threads = _shape(lowered, processors, most)
    return LaunchDimensions(grid, threads, shared_bytes(lowered.spec, math.prod(threads)))


def shared_places(spec: KernelSpec) -> dict[str, int]:
    """The dtypes of the accumulators that threads combine in shared memory, with their sizes in bytes; the
    largest come first, so that each array begins where its elements may lie.
    """
    sizes = {memory_type(d): np.dtype(memory_type(d)).itemsize for d in spec.accumulators}
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))


def shared_bytes(spec: KernelSpec, threads: int) -> int:
    """Bytes of shared memory that a block of so many threads needs."""
    return threads * sum(shared_places(spec).values())


def _shape(lowered: Lowered, processors: int, most: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Blocks and threads along x and y."""
    spec = lowered.spec
    slots = zip(spec.slot_names(), lowered.slots, strict=True)
    numbers = {name: slot.value for name, slot in slots if isinstance(slot, IntegerSlot)}
    units, wanted = max(1, lowered.units), 2 * processors * RESIDENT
    if spec.orientation == "rows":
        row = math.prod(numbers[f"n{d}"] for d in range(spec.kept, spec.kept + spec.reduced))
        row = min(row, numbers.get("length", row))
        most = USUAL if units * USUAL >= wanted else min(most, THREADS)
        threads = power_of_two(row / (2 * AT_ONCE), WARP, most)
        return (min(units, wanted // threads), 1), (threads, 1)
    threads, along = USUAL, WARP // 2 if spec.tiles else WARP
    if spec.orientation == "columns":
        shares = numbers["columns"] / along
    elif spec.kept == 1:
        along, shares = threads, numbers["tile"] / (threads * AT_ONCE)
    else:
        shares = numbers["rows"] * along / threads
    shares = power_of_two(min(shares, wanted / (units * threads)), 1, USUAL)
    return (min(units, 4 * wanted // threads), shares), (along, threads // along)


def power_of_two(wanted: float, least: int, most: int) -> int:
    """The smallest power of two that is not below `wanted`, but between `least` and `most`."""
    return max(least, min(most, 1 << math.ceil(math.log2(max(wanted, 1)))))
