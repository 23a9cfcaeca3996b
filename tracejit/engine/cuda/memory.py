"""Memory of GPUs, in the size classes of `tracejit.engine.memory`; small blocks are carved from slabs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracejit.engine.cuda.driver import OUT_OF_MEMORY, DriverError
from tracejit.engine.memory import ExhaustedError, Pool

SLAB = 2 << 20  # bytes of a slab, from which blocks of up to an eighth of it are carved
ALIGNMENT = 256  # bytes, so that every 16-byte access and every cache line is aligned


class Allocation:
    """Memory allocated by the driver, which is freed with the last reference to this object."""

    __slots__ = ("_free", "address")

    def __init__(self, address: int, free: Callable[[int], None]) -> None:
        self.address, self._free = address, free

    def __del__(self) -> None:
        self._free(self.address)


class DevicePool(Pool):
    """The pool of a GPU.

    name: of the device. allocate_on_device, free_on_device: the driver's functions for it.
    """

    def __init__(
        self, name: str, allocate_on_device: Callable[[int], int], free_on_device: Callable[[int], None]
    ):
        super().__init__()
        self._name, self._allocate, self._free = name, allocate_on_device, free_on_device
        self._slab: Allocation | None = None
        self._slab_used = SLAB

    def allocate_block(self, size: int) -> tuple[int, Any]:
        """Allocate memory of the device; return its address and its owner."""
        size += -size % ALIGNMENT
        if size > SLAB // 8:
            owner = self._request_from_driver(size)
            return owner.address, owner
        if self._slab is None or self._slab_used + size > SLAB:
            self._slab, self._slab_used = self._request_from_driver(SLAB), 0
        start = self._slab.address + self._slab_used
        self._slab_used += size
        return start, self._slab

    def _request_from_driver(self, size: int) -> Allocation:
        """Request memory from the driver; if that fails, free unused memory and retry."""
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
        """Return all unused memory to the driver; return its size in bytes."""
        self._slab, self._slab_used = None, SLAB
        return super().trim()
