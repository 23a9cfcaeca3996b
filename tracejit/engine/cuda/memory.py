"""Memory of GPUs, through the size classes of `tracejit.engine.memory`; small blocks are cut from slabs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracejit.engine.cuda.driver import OUT_OF_MEMORY, DriverError
from tracejit.engine.memory import ExhaustedError, Pool

SLAB = 2 << 20  # bytes from which blocks of up to an eighth of it are cut
BOUNDARY = 256  # bytes: where blocks begin, so that every access of 16 bytes and every line is aligned


class Allocation:
    """Memory of the driver's, which is freed when nobody refers to this."""

    __slots__ = ("_free", "address")

    def __init__(self, address: int, free: Callable[[int], None]) -> None:
        self.address, self._free = address, free

    def __del__(self) -> None:
        self._free(self.address)


class DevicePool(Pool):
    """The pool of a GPU. `name`: of the device; `allocate_here`, `free_here`: the driver's functions."""

    def __init__(self, name: str, allocate_here: Callable[[int], int], free_here: Callable[[int], None]):
        super().__init__()
        self._name, self._allocate, self._free = name, allocate_here, free_here
        self._slab: Allocation | None = None
        self._cut = SLAB

    def place(self, size: int) -> tuple[int, Any]:
        """The address of new memory, and its owner."""
        size += -size % BOUNDARY
        if size > SLAB // 8:
            owner = self._taken_here(size)
            return owner.address, owner
        if self._slab is None or self._cut + size > SLAB:
            self._slab, self._cut = self._taken_here(SLAB), 0
        start = self._slab.address + self._cut
        self._cut += size
        return start, self._slab

    def _taken_here(self, size: int) -> Allocation:
        """Memory from the driver; where it has none, unused memory is returned to it first."""
        for attempt in range(2):
            try:
                return Allocation(self._allocate(size), self._free)
            except DriverError as error:
                if error.code != OUT_OF_MEMORY:
                    raise
                if attempt == 0:
                    self.trim()
        raise ExhaustedError(f"{self._name} has no memory for {size} bytes")

    def trim(self) -> int:
        """Return all unused memory to the driver; returns its size in bytes."""
        self._slab, self._cut = None, SLAB
        return super().trim()
