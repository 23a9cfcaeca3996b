"""Values that gradients need after the recording that computed them was launched.

While a gradient is being taken (`Recording.tapes`), values outlive a launch: `kept` has the place of each in
memory, or the number that it is. The recording goes on with the same windows, so that an array read again is
the same value to the gradient, and so is one read through another view.

    base[0:4] = x * 2          # a window of elements 0 to 4 with a value that depends on x
    loss = base[2:6].sum()     # launched; a window 0 to 6, its value an update of the memory by that value

What always holds under a gradient:
- Windows that it follows (`TrackedExtent.tracked`) overlap no others: these are united.
- A value whose memory is about to be written by the recording is kept as a copy.
- A value has one place, so no two windows or arrays share one: a value stored into several is copied.
- Memory that a task or another thread has written is another value; a use of the old one is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracejit import engine
from tracejit.errors import ReplayError
from tracejit.frontend.recording.origins import ConstantOrigin, Extent, RuntimeNumber, TrackedExtent
from tracejit.frontend.recording.recording import Recording, kept
from tracejit.frontend.recording.storage import Storage
from tracejit.ir.graph import Value
from tracejit.ir.view import View, contiguous_strides
from tracejit.ops import constant, copy, update


class KeptRecording(Recording):
    """A recording that can be launched while gradients are taken."""

    held: Mapping[int, engine.Variable]

    def launch(self) -> None:
        """Launch what was recorded."""
        raise NotImplementedError

    def variable_of(self, storage: Storage) -> engine.Variable:
        """The variable that orders what this recording does with a storage."""
        return self.held.get(storage.variable.address, storage.variable)

    def window(self, storage: Storage, wanted: View, *, write: bool) -> TrackedExtent:
        """Open a window; under a gradient, note how often the storage has been written."""
        if not self.tapes:
            return super().window(storage, wanted, write=write)
        self.windows[storage] = [w for w in self.windows.get(storage, ()) if not self._is_stale(w)]
        found = super().window(storage, wanted, write=write)
        if found.writes is None:
            found.writes = self.variable_of(storage).writes
        return found

    def _is_stale(self, place: Extent) -> bool:
        """Whether others have written there meanwhile."""
        return place.writes is not None and place.writes != self.variable_of(place.storage).writes

    def adopt(self, value: Value) -> None:
        """Adopt a value of an earlier recording; values that others have overwritten are gone."""
        bound = kept.get(value)
        if isinstance(bound, Extent) and self._is_stale(bound):
            raise ReplayError(
                f"a gradient needs an array ({value.type}) as it was before a task or another thread wrote "
                "it; use a copy of it in the function (x.copy())"
            )
        super().adopt(value)

    def unite(self, storage: Storage, wanted: View) -> None:
        """Make one window of those that overlap `wanted`: under a gradient windows outlive a launch.

        Its value is put together from theirs, so the gradient goes on to what was written through them; they
        lie in memory that the new window may write, so they are copied first.
        """
        lo, hi = wanted.span()
        parts: list[TrackedExtent] = []
        while len(found := [w for w in self.windows.get(storage, ()) if w.overlaps(lo, hi)]) > len(parts):
            parts = found
            lo, hi = min(lo, *(w.lo for w in parts)), max(hi, *(w.hi for w in parts))
        if not parts:
            return
        copies = [self.new(self.emit(copy, part.value)) for part in parts]
        self.launch()
        for part, saved in zip(parts, copies, strict=True):
            kept[part.value] = Extent(saved, 0, saved.type.size)
        self.windows[storage] = [w for w in self.windows[storage] if not w.overlaps(lo, hi)]
        united = super().window(storage, View(lo, (hi - lo,), (1,)), write=False)
        for part in parts:
            if part.tracked:
                united.tracked = True
                shape = part.value.type.shape
                where = View(part.lo - united.lo, shape, contiguous_strides(shape))
                united.value = self.emit(update, united.value, part.value, view=where)

    def keep(self, outputs: list[Any], written: list[TrackedExtent]) -> list[Storage]:
        """Add every value that a backward pass may need to `outputs`, and return their storages."""
        elsewhere = set(self.inputs)
        for i, (storage, value) in enumerate(zip(self.live(), outputs, strict=True)):
            own = self.emit(copy, value) if value in elsewhere else value
            elsewhere.add(own)
            outputs[i] = own
            kept[own] = Extent(storage, 0, own.type.size)
        have = {id(v) for v in outputs}
        kept.update(
            (v, bound)
            for v, bound in zip(self.inputs, self.bound, strict=True)
            if type(bound) is RuntimeNumber
        )
        for node in self.nodes:
            if node.op is constant:
                kept[node.output] = ConstantOrigin(node.attrs, node.location)
        places = []
        for window in written:
            old = window.input
            value = self.emit(copy, old)
            storage = Storage(old.type)
            kept[old] = Extent(storage, 0, old.type.size)
            outputs.append(value)
            places.append(storage)
            window.value = self.emit(copy, window.value)
            have |= {id(value), id(window.value)}
        for value in [v for node in self.nodes for v in node.outputs]:
            if id(value) not in have and not value.type.on_host:
                storage = Storage(value.type)
                kept[value] = Extent(storage, 0, value.type.size)
                outputs.append(value)
                places.append(storage)
        return places

    def count_writes(self) -> dict[Storage, int]:
        """Count the tasks and launches pushed so far that write each storage in use."""
        return {storage: self.variable_of(storage).writes for storage in self.windows}

    def kept_windows(self, before: dict[Storage, int]) -> dict[Storage, list[TrackedExtent]]:
        """Windows to go on with, so that a storage read again gives the same value to the gradient.

        before: the result of `count_writes` before the launch.
        """
        windows: dict[Storage, list[TrackedExtent]] = {}
        for storage, old in self.windows.items():
            windows[storage] = []
            for window in old:
                again = TrackedExtent(storage, window.lo, window.hi, window.value)
                again.tracked = window.tracked or window.written
                if window.writes is not None:
                    again.writes = window.writes + self.variable_of(storage).writes - before[storage]
                bound = kept.get(window.value)
                if bound is None or (isinstance(bound, Extent) and bound.storage is storage):
                    kept[window.value] = Extent(storage, again.lo, again.hi, again.writes)
                windows[storage].append(again)
        held: dict[Storage, Value] = {}
        for value, bound in kept.items():
            if isinstance(bound, Extent):
                held.setdefault(bound.storage, value)
        for ref in self.created:
            created = ref()
            if created is not None and created in held:
                again = TrackedExtent(created, 0, created.type.size, held[created])
                again.writes = self.variable_of(created).writes
                windows[created] = [again]
        return windows
