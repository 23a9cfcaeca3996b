"""How many blocks of threads a kernel for CUDA is launched with: any numbers are right, these are fast.

    (bx, by), (tx, ty) = launch(lowered, processors=132)     # see `tracejit.codegen.gpu.emit`

The numbers depend on shapes and the device only, so results are the same bits from launch to launch.
"""

from __future__ import annotations

import math

from tracejit.codegen.spec import IntegerSlot, Lowered

THREADS = 1024
"""Most threads in a block."""

USUAL = 256
"""Threads in a block that any kernel has registers for."""

WARP = 32
"""Threads that read memory together."""

RESIDENT = 2048
"""Threads that a processor holds at a time."""

AT_ONCE = 4
"""Elements that a thread takes at a time, if its steps are few."""


def launch(lowered: Lowered, processors: int, most: int = USUAL) -> tuple[tuple[int, int], tuple[int, int]]:
    """Blocks and threads along x and y, on a GPU with so many processors. `most`: threads in a block that the
    kernel's registers allow.
    """
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
