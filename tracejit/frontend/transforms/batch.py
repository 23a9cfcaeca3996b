"""The recording of one example of a batch, which is then replayed for all of them.

`vmap` calls the function once, on arrays that represent one example each. What it does is recorded here, with
the shapes of one example, and nothing of it shows outside. `Replay` (see `examples`) then appends it to the
recording around, for the whole batch.

    around                          Batch, for one example
    x: float32[8,3]       ------>   %0: float32[3]                 (mapped)
    w: float32[3]         ------>   %1: float32[3]
    %2 = multiply(x, w spread)      %2: float32[3] = multiply(%0, %1)

- A *mapped* array of the call has a storage here that holds one example. What the function writes there is
  written to the array when it has ended; if it raises, nothing is.
- Every other array that it reaches is the same for all examples. It is read and written as it is, once for
  all of them, so it cannot hold what is mapped.
- Random numbers are drawn here by position; which ones is known when all draws are (see `BatchedDraw`).
- Values of the recording around that a pull-back needs become inputs (`Given`).

A batch within a batch has the outer one around it. One that has ended is opened again (`opened`) when a
gradient taken around it needs rules that are Python functions, which may use what they have kept from it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from tracejit.errors import ArgumentError, ReadOnlyError, ReplayError, locate
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.grad.tape import recording_operators
from tracejit.frontend.recording.eager import EagerRecording
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.origins import RuntimeNumber, TrackedExtent
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
    """A mapped array: `target` sees its elements with the examples along the first axis.

    value: the first content of the storage that holds one example.
    """

    __slots__ = ("is_numpy", "target", "value")

    def __init__(self, target: NDArray, value: Value, is_numpy: bool):
        self.target, self.value, self.is_numpy = target, value, is_numpy


class Given:
    """A value of the recording around."""

    __slots__ = ("value",)

    def __init__(self, value: Value):
        self.value = value


class BatchedDraw:
    """Key (without offset) or counter of random numbers: each example takes those of a stream from `offset`
    on, after all those that the examples before it take. So they are what a loop over examples would draw.
    """

    __slots__ = ("offset", "stream")

    def __init__(self, stream: Any, offset: int | None):
        self.stream, self.offset = stream, offset


class Batch(Recording):
    """The recording of one example of `size`; `outer` is the recording around.

    mapped:   the values that differ between examples.
    examples: mapped arrays, by the storages that hold one example of them.
    drawn:    how many random numbers each example has drawn from each stream.
    changed:  storages from outside, other than mapped arrays, that were written.
    """

    marks_storages = False

    def __init__(self, outer: Recording, size: int) -> None:
        super().__init__()
        self.outer, self.size = outer, size
        self.mapped: set[Value] = set()
        self.examples: MutableMapping[Storage, Example] = weakref.WeakKeyDictionary()
        self.drawn: dict[Any, int] = {}
        self.changed: dict[Storage, None] = {}
        self.vouched = 0  # for `tj.pure`, where no trace is around

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
        """The flag of the outer trace."""
        return self.outer.recorded_numpy

    def note_device(self) -> None:
        """The trace around has to know."""
        self.outer.note_device()

    @contextmanager
    def opened(self, outer: Recording) -> Iterator[None]:
        """Let this thread record into the batch while the function runs; `outer` is around."""
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
        """One example of a mapped array, which has the examples along its first axis."""
        storage, view = target._storage, target._view
        held = next((s for s, e in self.examples.items() if _is_same(e.target, target)), None)
        if held is None:
            held = Storage(ArrayType(view.shape[1:], storage.type.dtype, storage.type.device))
            value = Value(held.type)
            held.recording, held.pending, held.made_at = self, value, user_location()
            self.examples[held] = Example(target, value, is_numpy)
            self._enter(value, self.examples[held], mapped=True)
        seen = View.of_shape(view.shape[1:])
        return NDArray(held, seen if _is_writable(view) else seen.read_only())

    def written(self) -> list[TrackedExtent]:
        """The windows of storages from outside, other than mapped arrays, that were written."""
        return [w for storage in self.changed for w in self.windows[storage] if w.written]

    def written_examples(self) -> list[tuple[NDArray, Value]]:
        """The mapped arrays that were written, and what their storages hold."""
        held = [(e, storage.pending) for storage, e in self.examples.items()]
        return [(e.target, value) for e, value in held if value is not None and value is not e.value]

    def given(self, value: Value, *, mapped: bool) -> Value:
        """The batch's value for one of the outer recording."""
        kind = value.type
        inside = Value(ArrayType(kind.shape[1:], kind.dtype, kind.device) if mapped else kind)
        self._enter(inside, Given(value), mapped=mapped)
        return inside

    def _enter(self, value: Value, origin: Any, *, mapped: bool = False) -> None:
        """Make `value` an input that comes from there."""
        self._add_input(value, origin)
        if mapped:
            self.mapped.add(value)

    def adopt(self, value: Value) -> None:
        """A value of another recording, around this one, that a pull-back needs."""
        self._enter(value, Given(value))

    def literal(self, number: Any, dtype: np.dtype) -> Value:
        """A number written in the program: what it is for the recording that all this is for."""
        if isinstance(self.root, EagerRecording):
            return self.number(RuntimeNumber(number, number), dtype)
        return super().literal(number, dtype)

    @property
    def root(self) -> Recording:
        """The recording around all batches."""
        return self.outer.root if isinstance(self.outer, Batch) else self.outer

    def draw(self, stream: Any, count: int) -> tuple[Value, Value]:
        """Key and counter for `count` random numbers of each example."""
        offset = self.drawn.get(stream, 0)
        self.drawn[stream] = offset + count
        key, counter = Value(number_type(UINT64)), Value(number_type(UINT64))
        self._enter(key, BatchedDraw(stream, None))
        self._enter(counter, BatchedDraw(stream, offset), mapped=True)
        return key, counter

    # -- what is recorded ------------------------------------------------------------------------------------

    def emit(self, op: Op, *inputs: Value, location: str | None = None, **attrs: Any) -> Any:
        """Append a node, and note whether its results are mapped."""
        result = super().emit(op, *inputs, location=location, **attrs)
        flags = [value in self.mapped for value in inputs]
        if any(flags) and maps(op, flags):
            self.mapped.update(self.nodes[-1].outputs)
        return result

    def _mark(self, storage: Storage) -> None:
        """Arrays of the recordings around stay theirs: they are read there when the function has ended."""
        if storage.failure is not None and storage.buffer is None:
            storage.tell_failure()
        holder = storage.recording
        around: Any = self
        while isinstance(around, Batch) and around is not holder:
            around = around.outer
        if isinstance(holder, Batch) and around is not holder:
            holder.release(storage)

    def release(self, storage: Storage) -> None:
        """Raise: an array of one example cannot be used outside."""
        raise locate(
            ReplayError(
                f"an array made at {storage.made_at} in a function that vmap calls is used outside of it, "
                "but stands for one example of a batch; return it from the function instead"
            ),
            user_location(),
        )

    def window(self, storage: Storage, wanted: View, *, write: bool) -> TrackedExtent:
        """Open a window; those that would overlap are made one."""
        try:
            return super().window(storage, wanted, write=write)
        except Overlap:
            self._unite(storage, wanted)
            return super().window(storage, wanted, write=write)

    def _unite(self, storage: Storage, wanted: View) -> None:
        """Make one window of those that overlap `wanted`, and of it."""
        lo, hi = wanted.span()
        parts: list[TrackedExtent] = []
        while len(found := [w for w in self.windows[storage] if w.overlaps(lo, hi)]) > len(parts):
            parts = found
            lo, hi = min(lo, *(w.lo for w in parts)), max(hi, *(w.hi for w in parts))
        kind = storage.type
        united = TrackedExtent(storage, lo, hi, Value(ArrayType((hi - lo,), kind.dtype, kind.device)))
        self._add_input(united.value, united)
        self.windows[storage] = [w for w in self.windows[storage] if w not in parts] + [united]
        for part in parts:
            if part.written or part.tracked:
                united.tracked |= part.tracked
                shape = part.value.type.shape
                where = View(part.lo - lo, shape, contiguous_strides(shape))
                united.value = self.emit(update, united.value, part.value, view=where)

    def write(self, storage: Storage, wanted: View, new: Value) -> None:
        """Rebind elements; what is not mapped cannot hold what is."""
        example = self.examples.get(storage)
        if example is not None and example.is_numpy:
            raise ReadOnlyError(
                "assignment: vmap maps a NumPy array as a copy, so a write to it would be lost. Pass "
                "tj.asarray(...) and read the result from that"
            )
        if storage.recording is not self:
            if new in self.mapped:
                raise ArgumentError(
                    f"assignment: what differs between the examples of vmap is stored in an array of shape "
                    f"{storage.type.shape} that is one for all of them; map that, too (in_axes), or write to "
                    "a copy (x.copy()) and return it"
                )
            self.changed[storage] = None
        super().write(storage, wanted, new)

    # -- queries and requests to a trace ---------------------------------------------------------------------

    def imported(self, storage: Storage, array: np.ndarray) -> Storage:
        """Import a NumPy array that the function uses: an array of this batch, new to each example."""
        tell = getattr(self.outer, "imported", None)
        with recording_operators():
            given = storage if tell is None else tell(storage, array)
            return self.new(self.read(given, View.of_shape(given.type.shape)))

    def refuse_look(self, array: Any, what: str) -> None:
        """The function looks at an array's value: it can at one from outside that it has not written."""
        storage = array._storage
        if storage.recording is self or storage in self.changed:
            raise locate(
                ArgumentError(
                    f"{what} looks at the value of an array of shape {array.shape} in a function that vmap "
                    "calls once for all examples; choose with tj.where, or return it and look outside"
                ),
                user_location(),
            )
        asked = getattr(self.outer, "refuse_look", None)
        if asked is not None:
            asked(array, what)

    def refuse_fill(self, what: str) -> NoReturn:
        """The function writes what is computed for all examples at once into an array of NumPy's."""
        raise locate(
            ArgumentError(
                f"{what} writes into a NumPy array in a function that vmap calls once for all examples; make "
                "it an NDArray with tj.asarray, inside of the function, and return it"
            ),
            user_location(),
        )

    def refuse_number(self, what: str) -> NoReturn:
        """Give up in the outer trace, which records what NumPy makes (see `Trace.refuse_number`)."""
        outer: Any = self.outer
        outer.refuse_number(what)
        raise AssertionError("a trace that gives up raises")

    def element(self, array: Any, what: str) -> Any:
        """The only element of an array, if the function can look at it; see `refuse_look`."""
        return array._seen(what).item()

    def give_up(self, *args: Any, **options: Any) -> NoReturn:
        """Give up in the outer trace, which cannot replay this."""
        outer: Any = self.outer
        outer.give_up(*args, **options)
        raise AssertionError("a trace that gives up raises")

    @property
    def rules(self) -> list[str | None]:
        """Lines of functions with a gradient of their own, for the trace around."""
        return getattr(self.outer, "rules", [])

    @property
    def callbacks(self) -> list[Any]:
        """Functions given to `tj.callback`, for the trace around."""
        return getattr(self.outer, "callbacks", [])


def _is_same(one: NDArray, other: NDArray) -> bool:
    return one._storage is other._storage and one._view == other._view


def _is_writable(view: View) -> bool:
    return view.writable and not view.overlaps_itself()
