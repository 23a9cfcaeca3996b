"""Residuals: values that gradients need after the recording that computed them was launched.

While a gradient is being taken (`Recording.tapes`), values outlive a launch. `saved_values` maps each of them
to its location in memory, or to its number. The recording continues with the same windows, so that an array
that is read again is the same value to the gradient. This also holds if it is read through another view.

    base[0:4] = x * 2          # a window of elements 0 to 4 with a value that depends on x
    loss = base[2:6].sum()     # launched; a window 0 to 6: an update of the memory by that value

Invariants under a gradient:
- Windows that it follows (`Window.tracked`) overlap no others: overlapping windows are merged.
- A value whose memory the recording is about to overwrite is copied.
- A value has one location, so no two windows or arrays share it: a value stored in several is copied.
- Memory that a task or another thread has written is a new value; a use of the old value is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracejit import engine
from tracejit.errors import ReplayError
from tracejit.frontend.recording.origins import ConstantOrigin, RuntimeNumber, StorageRange, Window
from tracejit.frontend.recording.recording import Recording, saved_values
from tracejit.frontend.recording.storage import Storage
from tracejit.ir.graph import Value
from tracejit.ir.view import View, contiguous_strides
from tracejit.ops import constant, copy, update


class ResidualRecording(Recording):
    """A recording that can be launched while gradients are taken.

    held: substitutes for variables, by address (see `eager.EagerRecording`).
    """

    held: Mapping[int, engine.Variable]

    def launch(self) -> None:
        """Launch the recorded operations."""
        raise NotImplementedError

    def variable_of(self, storage: Storage) -> engine.Variable:
        """Return the variable that orders this recording's accesses to a storage."""
        return self.held.get(storage.variable.address, storage.variable)

    def window(self, storage: Storage, region: View, *, write: bool) -> Window:
        """Open a window. Under a gradient, also note the number of writes to the storage so far."""
        if not self.tapes:
            return super().window(storage, region, write=write)
        self.windows[storage] = [w for w in self.windows.get(storage, ()) if not self._is_stale(w)]
        window = super().window(storage, region, write=write)
        if window.writes is None:
            window.writes = self.variable_of(storage).writes
        return window

    def _is_stale(self, extent: StorageRange) -> bool:
        """Whether a task or another thread has written the storage since."""
        return extent.writes is not None and extent.writes != self.variable_of(extent.storage).writes

    def adopt(self, value: Value) -> None:
        """Adopt a value of an earlier recording. Raises a ReplayError if it has been overwritten by
        others.
        """
        origin = saved_values.get(value)
        if isinstance(origin, StorageRange) and self._is_stale(origin):
            raise ReplayError(
                f"a gradient needs an array ({value.type}) as it was before a task or another thread wrote "
                "it; use a copy of it in the function (x.copy())"
            )
        super().adopt(value)

    def merge_windows(self, storage: Storage, region: View) -> None:
        """Replace the windows that overlap `region` by one: under a gradient, windows outlive a launch.

        The value of the new window is assembled from theirs, so that the gradient follows the values written
        through them. They are stored in memory that the new window may write, so they are copied first.
        """
        lo, hi = region.span()
        merged: list[Window] = []
        while len(touched := [w for w in self.windows.get(storage, ()) if w.overlaps(lo, hi)]) > len(merged):
            merged = touched
            lo, hi = min(lo, *(w.lo for w in merged)), max(hi, *(w.hi for w in merged))
        if not merged:
            return
        copies = [self.new(self.emit(copy, window.value)) for window in merged]
        self.launch()
        for window, saved in zip(merged, copies, strict=True):
            saved_values[window.value] = StorageRange(saved, 0, saved.type.size)
        self.windows[storage] = [w for w in self.windows[storage] if not w.overlaps(lo, hi)]
        new_window = super().window(storage, View(lo, (hi - lo,), (1,)), write=False)
        for window in merged:
            if window.tracked:
                new_window.tracked = True
                shape = window.value.type.shape
                target = View(window.lo - new_window.lo, shape, contiguous_strides(shape))
                new_window.value = self.emit(update, new_window.value, window.value, view=target)

    def keep(self, outputs: list[Any], written: list[Window]) -> list[Storage]:
        """Append every value that a backward pass may need to `outputs`, and return the storages for the
        appended values.
        """
        with_location = set(self.inputs)
        for i, (storage, value) in enumerate(zip(self.live(), outputs, strict=True)):
            output = self.emit(copy, value) if value in with_location else value
            with_location.add(output)
            outputs[i] = output
            saved_values[output] = StorageRange(storage, 0, output.type.size)
        saved = {id(v) for v in outputs}
        saved_values.update(
            (v, origin)
            for v, origin in zip(self.inputs, self.origins, strict=True)
            if type(origin) is RuntimeNumber
        )
        for node in self.nodes:
            if node.op is constant:
                saved_values[node.output] = ConstantOrigin(node.attrs, node.location)
        storages = []
        for window in written:
            old = window.input
            value = self.emit(copy, old)
            storage = Storage(old.type)
            saved_values[old] = StorageRange(storage, 0, old.type.size)
            outputs.append(value)
            storages.append(storage)
            window.value = self.emit(copy, window.value)
            saved |= {id(value), id(window.value)}
        for value in [v for node in self.nodes for v in node.outputs]:
            if id(value) not in saved and not value.type.on_host:
                storage = Storage(value.type)
                saved_values[value] = StorageRange(storage, 0, value.type.size)
                outputs.append(value)
                storages.append(storage)
        return storages

    def count_writes(self) -> dict[Storage, int]:
        """Return, for each storage in use, the number of tasks and launches pushed so far that write it."""
        return {storage: self.variable_of(storage).writes for storage in self.windows}

    def kept_windows(self, before: dict[Storage, int]) -> dict[Storage, list[Window]]:
        """Return the windows for the next recording, so that a storage that is read again is the same value
        to the gradient.

        before: the result of `count_writes` before the launch.
        """
        windows: dict[Storage, list[Window]] = {}
        for storage, old in self.windows.items():
            windows[storage] = []
            for window in old:
                kept = Window(storage, window.lo, window.hi, window.value)
                kept.tracked = window.tracked or window.written
                if window.writes is not None:
                    kept.writes = window.writes + self.variable_of(storage).writes - before[storage]
                origin = saved_values.get(window.value)
                if origin is None or (isinstance(origin, StorageRange) and origin.storage is storage):
                    saved_values[window.value] = StorageRange(storage, kept.lo, kept.hi, kept.writes)
                windows[storage].append(kept)
        contents: dict[Storage, Value] = {}
        for value, origin in saved_values.items():
            if isinstance(origin, StorageRange):
                contents.setdefault(origin.storage, value)
        for ref in self.created:
            created = ref()
            if created is not None and created in contents:
                kept = Window(created, 0, created.type.size, contents[created])
                kept.writes = self.variable_of(created).writes
                windows[created] = [kept]
        return windows
