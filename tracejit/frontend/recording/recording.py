"""The recorder of array code: operations become a graph, in eager code and under `tj.jit`.

A `Recording` is a graph under construction, plus the content of each storage in it. A storage that the
recording created contains a value of the graph (`Storage.pending`). A storage that existed before is read and
written through *windows*: contiguous ranges of it, each of which is one input of the graph. A write rebinds a
value, so the graph stays pure. When the recording is launched, rebound windows become effects and live
pending storages become outputs.

Invariants:
- A window that is written overlaps no other window of its storage. Otherwise `Overlap` is raised: an eager
  recording is cut there, a trace starts again with the entire storage as one window.
- An eager recording marks every storage it accesses (`storage.recording`), so that any other use of the
  storage flushes first. A trace marks only the storages it creates: none of its operations has a visible
  effect before the launch.

`thread` contains the open recordings of this thread: one eager recording, at most one trace, and the number
of active gradients. A thread owns `lock` while it records an operator, so another thread can flush its eager
recording only between two operators. A single lock protects all recordings, because a recording that accesses
a storage of another one flushes the other one in the middle of its own update. No thread waits for a task
while it owns the lock, as the task may need it (`Recording.end_operation`).
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from tracejit.errors import ReadOnlyError, ReplayError
from tracejit.forking import make_rlock
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.origins import (
    ConstantOrigin,
    InputOrigin,
    RuntimeNumber,
    StorageRange,
    Window,
)
from tracejit.frontend.recording.patterns import Pattern
from tracejit.frontend.recording.restart import Assumptions
from tracejit.frontend.recording.storage import Storage
from tracejit.frontend.recording.trace_numbers import Numbers
from tracejit.ir.graph import Builder, Copied, Effect, Graph, Node, Value, constant_of
from tracejit.ir.moving import IterationsDiffer
from tracejit.ir.op import Op
from tracejit.ir.types import CPU, HOST, ArrayType, Device
from tracejit.ir.view import View
from tracejit.ops import constant, update, view


class Overlap(Exception):
    """A window is needed that overlaps a written one of the same storage."""

    def __init__(self, storage: Storage):
        super().__init__("overlapping windows")
        self.storage = storage


class Recording(Builder):
    """A graph under construction, and the content of each storage in it.

    copied:  groups of nodes that are known to be copies of a pattern.
    origins: the origins of the inputs.
    windows: by storage, the windows through which it is accessed.
    created: the storages that this recording created.
    defined: the inputs and results.
    scalars: the values of numbers, by key.
    bytes:   the total size of all results.
    """

    marks_storages = True
    numbers: Numbers | None = None  # the run-time numbers of a trace
    assumed: Assumptions | None = None  # the assumptions of a trace
    recorded_numpy: bool | None = None  # see `Assumptions.numpy`
    numpy_numbers: Any = frozenset()  # see `Trace.numpy_numbers`
    unrolled: dict[Any, tuple[str, str]] | None = None  # see `Assumptions.unrolled`

    def __init__(self) -> None:
        super().__init__()
        self.tapes: list[Any] = []  # gradients being taken, notified before nodes are discarded
        self.parents: dict[Storage, Storage] = {}  # storages of windows -> the storages that contain them
        self.reset()

    def reset(self) -> None:
        """Discard all nodes and inputs. Active gradients keep the nodes that they need."""
        for tape in self.tapes:
            tape.flushed()
        self.inputs, self.nodes = [], []
        self.copied: list[Copied] = []
        self.origins: list[InputOrigin] = []
        self.windows: dict[Storage, list[Window]] = {}
        self.created: list[weakref.ref[Storage]] = []
        self.defined: set[Value] = set()
        self.scalars: dict[tuple[Any, ...], Value] = {}
        self.bytes = 0

    # -- values ----------------------------------------------------------------------------------------------

    def emit(self, op: Op, *inputs: Value, location: str | None = None, **attrs: Any) -> Any:
        """Append a node. Saved values of an earlier recording become inputs. If interrupted, nothing is
        added.
        """
        defined = self.defined
        for value in inputs:
            if value not in defined:
                self.adopt(value)
        start = len(self.nodes)
        try:
            result = self.append(op, inputs, location or user_location(), attrs)
            for value in self.nodes[-1].outputs:
                defined.add(value)
                self.bytes += value.type.nbytes
        except BaseException as error:
            for node in self.nodes[start:]:
                defined.difference_update(node.outputs)
            del self.nodes[start:]
            if isinstance(error, IterationsDiffer):
                self.differ(op)
            raise
        return result

    def differ(self, op: Op) -> None:
        """Called if the operator for a view that moves with a loop would differ between iterations."""

    def emit_copy(self, pattern: Pattern, before: Sequence[Value]) -> tuple[Value, ...]:
        """Append the nodes of a pattern on values of this recording. Return the values of the copy."""
        if not self.defined.issuperset(pattern.others):
            for value in pattern.others:
                self.known(value)
        copied, values = pattern.copy(before)
        self.nodes += copied.nodes
        self.defined.update(values)
        self.copied.append(copied)
        return values

    def adopt(self, value: Value) -> None:
        """Make a value saved from an earlier recording (see `residuals`) an input of this one."""
        origin = saved_values.get(value)
        if isinstance(origin, ConstantOrigin):
            self._append_literal(value, origin)
            return
        if origin is None:
            raise ReplayError("an array of a finished recording is used here, but was not kept for it")
        if isinstance(origin, StorageRange):
            self._mark(origin.storage)
        self._add_input(value, origin)

    def _append_literal(self, value: Value, literal: ConstantOrigin) -> None:
        """Define a constant of an earlier recording again."""
        node = Node(constant, (), (value,), literal.attrs, literal.location)
        # No function is called from here on, so no interrupt can occur between these statements.
        self.nodes += (node,)
        self.defined |= {value}

    def known(self, value: Value) -> Value:
        """Return a value, after making it an input if it is a value of an earlier recording."""
        if value not in self.defined:
            self.adopt(value)
        return value

    def _add_input(self, value: Value, origin: InputOrigin) -> None:
        # No function is called, so no interrupt can occur between these statements.
        self.inputs += (value,)
        self.origins += (origin,)
        self.defined |= {value}

    def literal(self, number: Any, dtype: np.dtype) -> Value:
        """Return the value of a number that is part of the program text, and thus of the graph."""
        kind = number.__class__
        # The text distinguishes 0.0 and -0.0, which are equal.
        exact = repr(number) if not number or isinstance(number, complex) else number
        key = ("literal", exact, kind, dtype)
        value = self.scalars.get(key)
        if value is None:
            value = self.scalars[key] = self.emit(constant, **constant_of(number, dtype))
        return value

    def constant(self, number: Any, dtype: np.dtype) -> Value:
        """Return the value of a number that is part of the structure of the graph, in eager code too."""
        return Recording.literal(self, number, dtype)

    def number(self, number: RuntimeNumber, dtype: np.dtype) -> Value:
        """Return the value of a run-time number: an input on the host."""
        source = number.source
        key = (source or repr(source), source.__class__, dtype)  # 0.0 and -0.0 are equal
        value = self.scalars.get(key)
        if value is None:
            value = Value(number_type(dtype))
            self._add_input(value, number)
            self.scalars[key] = value
        return value

    # -- storages --------------------------------------------------------------------------------------------

    def _mark(self, storage: Storage) -> None:
        storage.initialise()
        if storage.failure is not None and storage.buffer is None:
            storage.tell_failure()
        holder = storage.recording
        if holder is not self and holder is not None:
            holder.release(storage)
        if self.marks_storages:
            storage.recording = self

    def release(self, storage: Storage) -> None:
        """Make `storage` available to others. Only an eager recording can: the values of a trace are not
        computed yet.
        """
        raise ReplayError(
            f"an array made at {storage.made_at} while a traced function was being recorded is used "
            "outside of it, but was never computed; return it from the function instead"
        )

    def new(self, value: Value) -> Storage:
        """Return a new storage with the content `value`."""
        storage = Storage(value.type)
        storage.recording, storage.pending = self, value
        storage.made_at = self.nodes[-1].location if self.nodes else None
        self.created.append(weakref.ref(storage))
        return storage

    def note_number(self, storage: Storage) -> None:
        """Note that the only element of a storage is a number in NumPy (see `Trace.numpy_numbers`)."""

    def is_pick(self, storage: Storage) -> bool:
        """Whether a storage contains a copy of elements of another one, where NumPy returns a view."""
        return False

    def range_for(self, storage: Storage, region: View) -> tuple[int, int]:
        """Return the range of a storage that becomes an input for a view of it."""
        return region.span()

    def window(self, storage: Storage, region: View, *, write: bool) -> Window:
        """Return the window that contains the elements of `region`. Creates one if there is none."""
        self._mark(storage)
        windows = self.windows.setdefault(storage, [])
        lo, hi = region.span()
        for window in windows:
            if window.lo <= lo and hi <= window.hi:
                break
        else:
            window = self._new_window(storage, region, windows)
        if (
            write
            and len(windows) > 1
            and any(w is not window and w.overlaps(window.lo, window.hi) for w in windows)
        ):
            raise Overlap(storage)
        return window

    def _new_window(self, storage: Storage, region: View, windows: list[Window]) -> Window:
        lo, hi = self.range_for(storage, region)
        if windows and any((w.written or w.tracked) and w.overlaps(lo, hi) for w in windows):
            raise Overlap(storage)
        size, type = hi - lo, storage.type
        shape: tuple[int, ...] = (size,)
        if size == region.size and region.is_contiguous():
            shape = region.shape
        elif size == type.size:
            shape = type.shape
        value = Value(type if shape == type.shape else ArrayType(shape, type.dtype, type.device))
        window = Window(storage, lo, hi, value)
        self._add_input(value, window)
        windows.append(window)
        return window

    def read(self, storage: Storage, region: View) -> Value:
        """Return the current content of `storage` in `region`, with the shape of that view."""
        if storage.pending is not None and storage.recording is self:
            value, low = storage.pending, 0
        else:
            window = self.window(storage, region, write=False)
            value, low = window.value, window.lo
        if value not in self.defined:
            self.adopt(value)
        if region.is_identity(value.type.shape, low):
            return value
        return self.emit(view, value, view=_inside(region, low))

    def write(self, storage: Storage, region: View, new: Value) -> None:
        """Rebind the elements of `region` to `new`, which has its shape, dtype and device."""
        if not region.writable or region.overlaps_itself():
            raise ReadOnlyError(
                f"cannot write to a broadcast view of shape {region.shape}: several elements may be one in "
                "memory; write to a copy (x.copy())"
            )
        window = None
        if storage.pending is not None and storage.recording is self:
            base, low = storage.pending, 0
        else:
            window = self.window(storage, region, write=True)
            if window.input not in self.defined:
                self.adopt(window.input)
            base, low = window.value, window.lo
        if base.type.shape == new.type.shape and region.is_identity(base.type.shape, low):
            value = new
        else:
            value = self.emit(update, base, new, view=_inside(region, low))
        if window is None:
            storage.pending = value
        else:
            window.value = value

    def varies(self, number: Any) -> bool:
        """Whether an integer differs between calls, so that replays gather the elements that it indexes."""
        return False

    def share(self, one: Storage, other: Storage) -> bool:
        """Whether two storages share memory: parts of one storage, or memory that Python can see through
        both.
        """
        if one is other:
            return False
        if self.parents.get(one, one) is self.parents.get(other, other):
            return True
        if not (one.shared and other.shared):
            return False
        ends = one.address + one.type.nbytes, other.address + other.type.nbytes
        return ends[0] > other.address and ends[1] > one.address

    def note_device(self) -> None:
        """Note that an array is created on the thread's device, as no device was named."""

    def end_operation(self) -> None:
        """Called without `lock` when an operator has been recorded and its results are referenced."""

    # -- the finished graph ----------------------------------------------------------------------------------

    def live(self) -> list[Storage]:
        """Return the storages that this recording created and that are still referenced."""
        return [s for ref in self.created if (s := ref()) is not None and s.pending is not None]

    def written(self) -> list[Window]:
        """Return the windows of older storages whose content changed, in the order of their first region."""
        return [w for windows in self.windows.values() for w in windows if w.written]

    def finish(self, outputs: list[Value]) -> Graph:
        """Return the graph with these outputs and an effect for every written window."""
        graph = self.graph(outputs, [Effect(w.input, w.value) for w in self.written()])
        if self.copied:
            graph.notes["copied"] = self.copied
        return graph


saved_values: weakref.WeakKeyDictionary[Value, InputOrigin | ConstantOrigin] = weakref.WeakKeyDictionary()
"""Origins of the values of launched recordings that a gradient may still need.

An origin must not refer to its value, or no value would ever be freed.
"""


def _inside(region: View, low: int) -> View:
    """Return a view of a storage as a view of its elements from `low` on, for the graph."""
    if low == 0 and region.writable:
        return region
    return View(region.offset - low, region.shape, region.strides)


@functools.cache
def number_type(dtype: np.dtype) -> ArrayType:
    """Return the type of a number of this dtype."""
    return ArrayType((), dtype, HOST)


class ThreadState(threading.local):
    """The state of one thread: its open recordings and settings."""

    def __init__(self) -> None:
        self.eager: Any = None  # the thread's `eager.EagerRecording`, created on first use
        self.trace: Any = None  # the `trace.Trace` being recorded
        self.watcher: Any = None  # the `watch.Watcher` that receives the body's calls
        self.hook: Any = None  # the profile function that reports to the watcher on Python 3.11
        self.device: Device = CPU  # where arrays are created unless the call names a device (see `devices`)
        self.tapes = 0  # the number of active gradients
        self.updates = 0  # the number of in-place operators being recorded, which read at launch
        self.inlining = 0  # the number of reasons to run bodies of jitted functions: gradients, a Python task
        self.busy = 0  # the number of reasons to record every operator: a trace, updates, those of `inlining`

    def be_busy(self, count: int) -> None:
        """Set `busy`, and update `recorders`. An interrupt at any point leaves the two consistent."""
        if count:
            recorders.add(threading.get_ident())
            self.busy = count
        else:
            self.busy = 0
            recorders.discard(threading.get_ident())


recorders: set[int] = set()
"""The threads whose `busy` is not 0, and perhaps others. While it is empty, no thread's state need be
queried.
"""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: recorders.intersection_update({threading.get_ident()}))


thread = ThreadState()

device_contexts: list[Device] = []
"""The devices of all open `tj.device` contexts of all threads. While it is empty, replays need not query the
thread's device.
"""


lock = make_rlock()


class _Quiet:
    """Python 3.11: while an operator is recorded, no events are reported to the watcher of the thread's
    trace. Reports of this package's own calls would take several times as long as the recording. An interrupt
    may occur anywhere: the end of the next operator sets the hook again.

    A thread enters it before `lock`: an interrupt in the hook when Python is about to call ``lock.__exit__``
    prevents that call.
    """

    def __enter__(self) -> None:
        if thread.hook is not None:
            sys.setprofile(None)

    def __exit__(self, *error: object) -> None:
        if thread.hook is not None and not thread.updates:
            sys.setprofile(thread.hook)


quiet: Any = nullcontext() if sys.version_info >= (3, 12) else _Quiet()
"""A context that may be entered with or without `lock`: it acquires no lock itself."""


@contextmanager
def unwatched() -> Iterator[None]:
    """A context for work that is not part of the traced body, such as a launch or a compilation: no event is
    reported to the watcher of the thread's trace, on any Python version. `quiet` is the cheaper context for
    operators, whose own calls no watcher mistakes for calls of the body.
    """
    watcher, thread.watcher = thread.watcher, None
    try:
        with quiet:
            yield
    finally:
        thread.watcher = watcher


_condition = threading.Condition(lock)


def in_operation() -> bool:
    """Whether this thread owns `lock`: an operator is being recorded."""
    try:
        _condition.notify(0)  # wakes no thread; raises an error if this thread does not own the lock
    except RuntimeError:
        return False
    return True


@contextmanager
def taping() -> Iterator[None]:
    """A context in which values of flushed recordings are saved for the gradient."""
    before = thread.tapes, thread.inlining, thread.busy
    try:
        thread.be_busy(thread.busy + 1)
        thread.tapes += 1
        thread.inlining += 1
        yield
    finally:
        thread.tapes, thread.inlining, thread.busy = before
        thread.be_busy(thread.busy)
