"""Origins of the inputs of a recording: ranges of memory, run-time numbers, and constants that are emitted
again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracejit.frontend.recording.storage import Storage
from tracejit.ir.graph import Value


class StorageRange:
    """Elements ``lo`` to ``hi`` of a materialised storage.

    writes: under a gradient, the number of tasks and launches that had been pushed to write the storage when
            the content was current. None: unknown.
    """

    __slots__ = ("hi", "lo", "storage", "writes")

    def __init__(self, storage: Storage, lo: int, hi: int, writes: int | None = None):
        self.storage, self.lo, self.hi, self.writes = storage, lo, hi, writes


class Window(StorageRange):
    """A range of memory with its current value in a recording.

    tracked: a gradient follows the value, so no other value may represent the same elements.
    """

    __slots__ = ("input", "tracked", "value")

    def __init__(self, storage: Storage, lo: int, hi: int, value: Value):
        self.storage, self.lo, self.hi, self.writes = storage, lo, hi, None
        self.input = self.value = value
        self.tracked = False

    @property
    def written(self) -> bool:
        return self.value is not self.input

    def overlaps(self, lo: int, hi: int) -> bool:
        return self.lo < hi and lo < self.hi


class RuntimeNumber:
    """The origin of a run-time number: its present `value`, and its `source`, which identifies it (a number
    or an expression).
    """

    __slots__ = ("source", "value")

    def __init__(self, value: bool | int | float, source: Any):
        self.value, self.source = value, source


class ConstantOrigin:
    """A `constant` node of an earlier recording, without its value."""

    __slots__ = ("attrs", "location")

    def __init__(self, attrs: Mapping[str, Any], location: str | None):
        self.attrs, self.location = attrs, location


InputOrigin = StorageRange | RuntimeNumber
"""The origin of an input of a graph. A recording emits a `ConstantOrigin` as a node instead."""
