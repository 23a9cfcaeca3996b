"""The recording of one example of a batch, which is then replayed for all examples.

`vmap` calls the function once, on arrays that represent one example each. Its operations are recorded in a
`Batch`, with the shapes of one example and without external effects. `Replay` (see `examples`) then appends
them to the outer recording, for the entire batch.

    outer recording                 Batch, for one example
    x: float32[8,3]       ------>   %0: float32[3]                 (mapped)
    w: float32[3]         ------>   %1: float32[3]
    %2 = multiply(x, w spread)      %2: float32[3] = multiply(%0, %1)

- A *mapped* array of the call is represented by a storage with one example. Values that the function writes
  to this storage are written to the array after the function has ended, and discarded if it raises.
- Any other array that the function accesses is common to all examples. It is read and written directly, once
  for all examples, so mapped values cannot be stored in it.
- Random numbers are drawn by position; the positions are known after all draws (see `BatchedDraw`).
- Values of the outer recording that a pull-back needs become inputs (`OuterValue`).

Batches nest: the outer recording of a batch may be a batch. A finished batch is opened again (`opened`) when
a gradient taken outside it needs a rule that is a Python function, which may use arrays kept from the batch.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from tracejit.errors import ArgumentError, ReadOnlyError, ReplayError, locate
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.grad.tape import recording_operators
from tracejit.frontend.recording.eager import EagerRecording
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.origins import RuntimeNumber, Window
from tracejit.frontend.recording.recording import Overlap, Recording, number_type, thread
from tracejit.frontend.recording.storage import Storage
from tracejit.ir.graph import Value
from tracejit.ir.op import Op
from tracejit.ir.types import ArrayType
from tracejit.ir.view import View, contiguous_strides
from tracejit.ops import update
from tracejit.ops.batching import maps

UINT64 = np.dtype("uint64")


class Example:
    """A mapped array: `target` is a view of it with the examples along the first axis.

    value: the initial content of the storage that represents one example.
    """

    __slots__ = ("is_numpy", "target", "value")

    def __init__(self, target: NDArray, value: Value, is_numpy: bool):
        self.target, self.value, self.is_numpy = target, value, is_numpy


class OuterValue:
    """An input that is a value of the outer recording."""

    __slots__ = ("value",)

    def __init__(self, value: Value):
        self.value = value


class BatchedDraw:
    """The key (without offset) or the counter of a draw of random numbers. Each example draws a contiguous
    range of the stream, following the ranges of the preceding examples, and `offset` is relative to it. The
    numbers are therefore those that a loop over the examples would draw.
    """

    __slots__ = ("offset", "stream")

    def __init__(self, stream: Any, offset: int | None):
        self.stream, self.offset = stream, offset


class Batch(Recording):
    """The recording of one of `size` examples; `outer` is the recording to which it will be replayed.

    mapped:   the values that differ between examples.
    examples: mapped arrays, by the storage that represents one example.
    drawn:    the number of random numbers that each example has drawn, by stream.
    changed:  outer storages, other than those of mapped arrays, that were written.
    """

    marks_storages = False

    def __init__(self, outer: Recording, size: int) -> None:
        super().__init__()
        self.outer, self.size = outer, size
        self.mapped: set[Value] = set()
        self.examples: MutableMapping[Storage, Example] = weakref.WeakKeyDictionary()
        self.drawn: dict[Any, int] = {}
        self.changed: dict[Storage, None] = {}
        self.vouched = 0  # for `tj.pure`, outside of a trace

    @property
    def numbers(self) -> Any:  # type: ignore[override]
        """The numbers of the outer trace."""
        return self.outer.numbers

    @property
    def assumed(self) -> Any:  # type: ignore[override]
        """The assumptions of the outer trace."""
        return self.outer.assumed

    @property
    def recorded_numpy(self) -> bool | None:  # type: ignore[override]
        """The `recorded_numpy` flag of the outer trace."""
        return self.outer.recorded_numpy

    def note_device(self) -> None:
        """Notify the outer trace."""
        self.outer.note_device()

    @contextmanager
    def opened(self, outer: Recording) -> Iterator[None]:
        """Let this thread record into the batch, within `outer`, while the context is open."""
        before = thread.trace, thread.inlining, thread.busy, self.outer
        try:
            self.outer = outer
            thread.be_busy(thread.busy + 1)
            thread.inlining += 1
            thread.trace = self
            yield
        finally:
            thread.trace, thread.inlining, thread.busy, self.outer = before
            thread.be_busy(thread.busy)

    # -- inputs ----------------------------------------------------------------------------------------------

    def example(self, target: NDArray, *, is_numpy: bool = False) -> NDArray:
        """Return the array that represents one example of a mapped array, whose first axis has the
        examples.
        """
        storage, view = target._storage, target._view
        inner = next((s for s, e in self.examples.items() if _is_same(e.target, target)), None)
        if inner is None:
            inner = Storage(ArrayType(view.shape[1:], storage.type.dtype, storage.type.device))
            value = Value(inner.type)
            inner.recording, inner.pending, inner.made_at = self, value, user_location()
            self.examples[inner] = Example(target, value, is_numpy)
            self._enter(value, self.examples[inner], mapped=True)
        seen = View.of_shape(view.shape[1:])
        return NDArray(inner, seen if _is_writable(view) else seen.read_only())

    def written(self) -> list[Window]:
        """Return the written windows of outer storages other than those of mapped arrays."""
        return [w for storage in self.changed for w in self.windows[storage] if w.written]

    def written_examples(self) -> list[tuple[NDArray, Value]]:
        """Return the mapped arrays that were written, each with its new content for one example."""
        contents = [(e, storage.pending) for storage, e in self.examples.items()]
        return [(e.target, value) for e, value in contents if value is not None and value is not e.value]

    def input_for(self, value: Value, *, mapped: bool) -> Value:
        """Add an input for a value of the outer recording, which has the examples first if it is mapped."""
        kind = value.type
        inside = Value(ArrayType(kind.shape[1:], kind.dtype, kind.device) if mapped else kind)
        self._enter(inside, OuterValue(value), mapped=mapped)
        return inside

    def _enter(self, value: Value, origin: Any, *, mapped: bool = False) -> None:
        """Make `value` an input with this origin."""
        self._add_input(value, origin)
        if mapped:
            self.mapped.add(value)

    def adopt(self, value: Value) -> None:
        """Make a value of an enclosing recording, which a pull-back needs, an input."""
        self._enter(value, OuterValue(value))

    def literal(self, number: Any, dtype: np.dtype) -> Value:
        """Return the value of a literal of the program: a run-time number in eager code, as the outermost
        recording treats it, else a constant.
        """
        if isinstance(self.root, EagerRecording):
            return self.number(RuntimeNumber(number, number), dtype)
        return super().literal(number, dtype)

    @property
    def root(self) -> Recording:
        """The recording that encloses all batches."""
        return self.outer.root if isinstance(self.outer, Batch) else self.outer

    def draw(self, stream: Any, count: int) -> tuple[Value, Value]:
        """Draw `count` random numbers per example: return the inputs for their key and counter."""
        offset = self.drawn.get(stream, 0)
        self.drawn[stream] = offset + count
        key, counter = Value(number_type(UINT64)), Value(number_type(UINT64))
        self._enter(key, BatchedDraw(stream, None))
        self._enter(counter, BatchedDraw(stream, offset), mapped=True)
        return key, counter

    # -- recording -------------------------------------------------------------------------------------------

    def emit(self, op: Op, *inputs: Value, location: str | None = None, **attrs: Any) -> Any:
        """Append a node, and determine whether its results are mapped."""
        result = super().emit(op, *inputs, location=location, **attrs)
        flags = [value in self.mapped for value in inputs]
        if any(flags) and maps(op, flags):
            self.mapped.update(self.nodes[-1].outputs)
        return result

    def _mark(self, storage: Storage) -> None:
        """Leave storages of the enclosing recordings to these recordings, which read them after the function
        has ended.
        """
        if storage.failure is not None and storage.buffer is None:
            storage.tell_failure()
        holder = storage.recording
        enclosing: Any = self
        while isinstance(enclosing, Batch) and enclosing is not holder:
            enclosing = enclosing.outer
        if isinstance(holder, Batch) and enclosing is not holder:
            holder.release(storage)

    def release(self, storage: Storage) -> None:
        """Raise ReplayError: an array that represents one example cannot be used outside of the function."""
        raise locate(
            ReplayError(
                f"an array made at {storage.made_at} in a function that vmap calls is used outside of it, "
                "but stands for one example of a batch; return it from the function instead"
            ),
            user_location(),
        )

    def window(self, storage: Storage, view: View, *, write: bool) -> Window:
        """Open a window; windows that would overlap are united."""
        try:
            return super().window(storage, view, write=write)
        except Overlap:
            self._unite(storage, view)
            return super().window(storage, view, write=write)

    def _unite(self, storage: Storage, view: View) -> None:
        """Replace all windows that overlap `view` by one window, which also contains `view`."""
        lo, hi = view.span()
        old: list[Window] = []
        while len(overlapping := [w for w in self.windows[storage] if w.overlaps(lo, hi)]) > len(old):
            old = overlapping
            lo, hi = min(lo, *(w.lo for w in old)), max(hi, *(w.hi for w in old))
        kind = storage.type
        united = Window(storage, lo, hi, Value(ArrayType((hi - lo,), kind.dtype, kind.device)))
        self._add_input(united.value, united)
        self.windows[storage] = [w for w in self.windows[storage] if w not in old] + [united]
        for window in old:
            if window.written or window.tracked:
                united.tracked |= window.tracked
                shape = window.value.type.shape
                target = View(window.lo - lo, shape, contiguous_strides(shape))
                united.value = self.emit(update, united.value, window.value, view=target)

    def write(self, storage: Storage, view: View, new: Value) -> None:
        """Write elements. Raise ArgumentError if a mapped value is written to an array that is not mapped."""
        example = self.examples.get(storage)
        if example is not None and example.is_numpy:
            raise ReadOnlyError(
                "assignment: vmap maps a NumPy array as a copy, so a write to it would be lost. Pass "
                "tj.asarray(...) and read the result from that"
            )
        if storage.recording is not self:
            if new in self.mapped:
                raise ArgumentError(
                    "assignment: a value that differs between the examples of vmap is written to an array of "
                    f"shape {storage.type.shape} that is common to all examples; map the array (in_axes), or "
                    "write to a copy (x.copy()) and return it"
                )
            self.changed[storage] = None
        super().write(storage, view, new)

    # -- queries and requests to the outer trace -------------------------------------------------------------

    def imported(self, storage: Storage, array: np.ndarray) -> Storage:
        """Import a NumPy array that the function uses, as an array of this batch: each example has a copy."""
        outer_import = getattr(self.outer, "imported", None)
        with recording_operators():
            source = storage if outer_import is None else outer_import(storage, array)
            return self.new(self.read(source, View.of_shape(source.type.shape)))

    def refuse_look(self, array: Any, what: str) -> None:
        """Refuse a look at an array's value, unless the array is an outer one that was not written."""
        storage = array._storage
        if storage.recording is self or storage in self.changed:
            raise locate(
                ArgumentError(
                    f"{what} looks at the value of an array of shape {array.shape} in a function that vmap "
                    "calls once for all examples; choose with tj.where, or return it and look outside"
                ),
                user_location(),
            )
        outer_refuse = getattr(self.outer, "refuse_look", None)
        if outer_refuse is not None:
            outer_refuse(array, what)

    def refuse_fill(self, what: str) -> NoReturn:
        """Refuse a write of a recorded value, which stands for all examples, into a NumPy array."""
        raise locate(
            ArgumentError(
                f"{what} writes into a NumPy array in a function that vmap calls once for all examples; make "
                "it an NDArray with tj.asarray, inside of the function, and return it"
            ),
            user_location(),
        )

    def refuse_number(self, what: str) -> NoReturn:
        """Abort the outer trace, which records the arrays that NumPy creates (see `Trace.refuse_number`)."""
        outer: Any = self.outer
        outer.refuse_number(what)
        raise AssertionError("a trace that gives up raises")

    def element(self, array: Any, what: str, used_up: Sequence[Storage] = ()) -> Any:
        """Return the only element of an array, if the function can look at it; see `refuse_look`."""
        return array._seen(what).item()

    def give_up(self, *args: Any, **options: Any) -> NoReturn:
        """Abort the outer trace, which cannot be replayed."""
        outer: Any = self.outer
        outer.give_up(*args, **options)
        raise AssertionError("a trace that gives up raises")

    @property
    def rules(self) -> list[str | None]:
        """Locations of the calls of functions with a custom gradient, for the outer trace."""
        return getattr(self.outer, "rules", [])

    @property
    def callbacks(self) -> list[Any]:
        """Functions passed to `tj.callback`, for the outer trace."""
        return getattr(self.outer, "callbacks", [])


def _is_same(one: NDArray, other: NDArray) -> bool:
    return one._storage is other._storage and one._view == other._view


def _is_writable(view: View) -> bool:
    return view.writable and not view.overlaps_itself()
