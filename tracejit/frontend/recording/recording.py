"""The one recorder: what array code does becomes a graph, whether it runs eagerly or under `tj.jit`.

A `Recording` is a graph under construction plus what each storage holds in it. A storage that the recording
created holds a value of the graph (`Storage.pending`). One that existed before is read and written through
*windows*: a contiguous range of it that enters the graph as one input. Writing rebinds a value, so the graph
stays pure; when the recording is launched, rebound windows become effects and live pending storages become
outputs.

What always holds:
- A window that is written overlaps no other window of its storage (`Overlap` is raised instead: an eager
  recording is cut there, a trace starts again with the whole storage as one window).
- An eager recording marks every storage it touches (`storage.recording`), so that any other use of it
  flushes first. A trace marks only the storages it creates: nothing it does shows before it is
  launched.

`thread` holds what this thread has open: one eager recording, at most one trace, the number of active
gradients. `lock` is held while an operator is recorded: another thread may flush an eager recording between
two operators. It is one lock for all of them, because a recording that touches a storage of another one
flushes that while it is changing itself. Nothing waits for a task while it holds the lock: the task may need
it (`Recording.end_operation`).
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
from tracejit.frontend.recording.numbers import Numbers
from tracejit.frontend.recording.origins import Bound, ConstantOrigin, Extent, RuntimeNumber, TrackedExtent
from tracejit.frontend.recording.patterns import Pattern
from tracejit.frontend.recording.restart import Assumptions
from tracejit.frontend.recording.storage import Storage
from tracejit.ir.graph import Builder, Copied, Effect, Graph, Node, Value, constant_of
from tracejit.ir.moving import Differs
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
    """A graph under construction, and what each storage holds in it."""

    marks_storages = True
    numbers: Numbers | None = None  # those that are inputs of a trace
    assumed: Assumptions | None = None  # under what a trace is recorded
    recorded_numpy: bool | None = None  # whether what NumPy makes is recorded (see `Assumptions.numpy`)
    unrolled: dict[Any, tuple[str, str]] | None = None  # loops of which all rounds are (see `Assumptions`)

    def __init__(self) -> None:
        super().__init__()
        self.tapes: list[Any] = []  # gradients being taken, notified before nodes are dropped
        self.parents: dict[Storage, Storage] = {}  # window storage -> the storage it is a part of
        self.reset()

    def reset(self) -> None:
        """Forget everything; active gradients keep the nodes they need."""
        for tape in self.tapes:
            tape.flushed()
        self.inputs, self.nodes = [], []
        self.copied: list[Copied] = []  # of the nodes, those that are known to be copies
        self.bound: list[Bound] = []
        self.windows: dict[Storage, list[TrackedExtent]] = {}
        self.created: list[weakref.ref[Storage]] = []
        self.defined: set[Value] = set()  # inputs and results
        self.scalars: dict[tuple[Any, ...], Value] = {}
        self.bytes = 0

    # -- values ----------------------------------------------------------------------------------------------

    def emit(self, op: Op, *inputs: Value, location: str | None = None, **attrs: Any) -> Any:
        """Append a node; kept values of an earlier recording become inputs. An interrupt adds nothing."""
        defined = self.defined
        for value in inputs:
            if value not in defined:
                self.adopt(value)
        count = len(self.nodes)
        try:
            result = self.append(op, inputs, location or user_location(), attrs)
            for value in self.nodes[-1].outputs:
                defined.add(value)
                self.bytes += value.type.nbytes
        except BaseException as error:
            for node in self.nodes[count:]:
                defined.difference_update(node.outputs)
            del self.nodes[count:]
            if isinstance(error, Differs):
                self.differ(op)
            raise
        return result

    def differ(self, op: Op) -> None:
        """Called when the operator for a place that moves with a loop would differ between rounds."""

    def emit_copy(self, pattern: Pattern, before: Sequence[Value]) -> tuple[Value, ...]:
        """Append the nodes of a pattern on values of this recording, and return the values of the copy."""
        if not self.defined.issuperset(pattern.others):
            for value in pattern.others:
                self.known(value)
        copied, values = pattern.copy(before)
        self.nodes += copied.nodes
        self.defined.update(values)
        self.copied.append(copied)
        return values

    def adopt(self, value: Value) -> None:
        """Make a value kept from an earlier recording (see `kept`) an input of this one."""
        bound = kept.get(value)
        if isinstance(bound, ConstantOrigin):
            self._append_literal(value, bound)
            return
        if bound is None:
            raise ReplayError("an array of a finished recording is used here, but was not kept for it")
        if isinstance(bound, Extent):
            self._mark(bound.storage)
        self._add_input(value, bound)

    def _append_literal(self, value: Value, literal: ConstantOrigin) -> None:
        """Define a constant of an earlier recording again."""
        node = Node(constant, (), (value,), literal.attrs, literal.location)
        # From here on nothing is called, so no interrupt comes between these.
        self.nodes += (node,)
        self.defined |= {value}

    def known(self, value: Value) -> Value:
        """A value of this recording, or of an earlier one that is an input from now on."""
        if value not in self.defined:
            self.adopt(value)
        return value

    def _add_input(self, value: Value, bound: Bound) -> None:
        # Nothing is called, so no interrupt comes between these.
        self.inputs += (value,)
        self.bound += (bound,)
        self.defined |= {value}

    def literal(self, number: Any, dtype: np.dtype) -> Value:
        """A number written in the program: part of the graph."""
        kind = number.__class__
        exact = (
            repr(number) if not number or isinstance(number, complex) else number
        )  # 0.0 and -0.0 are equal
        key = ("literal", exact, kind, dtype)
        value = self.scalars.get(key)
        if value is None:
            value = self.scalars[key] = self.emit(constant, **constant_of(number, dtype))
        return value

    def constant(self, number: Any, dtype: np.dtype) -> Value:
        """A number that belongs to the structure of the graph, in eager code too."""
        return Recording.literal(self, number, dtype)

    def number(self, number: RuntimeNumber, dtype: np.dtype) -> Value:
        """A run-time number: an input on the host."""
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
        """A new storage that holds `value`."""
        storage = Storage(value.type)
        storage.recording, storage.pending = self, value
        storage.made_at = self.nodes[-1].location if self.nodes else None
        self.created.append(weakref.ref(storage))
        return storage

    def range_for(self, storage: Storage, wanted: View) -> tuple[int, int]:
        """The range of a storage that becomes an input for a view of it."""
        return wanted.span()

    def window(self, storage: Storage, wanted: View, *, write: bool) -> TrackedExtent:
        """The window through which `wanted` is accessed; made when there is none."""
        self._mark(storage)
        windows = self.windows.setdefault(storage, [])
        lo, hi = wanted.span()
        for found in windows:
            if found.lo <= lo and hi <= found.hi:
                break
        else:
            found = self._new_window(storage, wanted, windows)
        if (
            write
            and len(windows) > 1
            and any(w is not found and w.overlaps(found.lo, found.hi) for w in windows)
        ):
            raise Overlap(storage)
        return found

    def _new_window(self, storage: Storage, wanted: View, windows: list[TrackedExtent]) -> TrackedExtent:
        lo, hi = self.range_for(storage, wanted)
        if windows and any((w.written or w.tracked) and w.overlaps(lo, hi) for w in windows):
            raise Overlap(storage)
        size, kind = hi - lo, storage.type
        shape: tuple[int, ...] = (size,)
        if size == wanted.size and wanted.is_contiguous():
            shape = wanted.shape
        elif size == kind.size:
            shape = kind.shape
        value = Value(kind if shape == kind.shape else ArrayType(shape, kind.dtype, kind.device))
        window = TrackedExtent(storage, lo, hi, value)
        self._add_input(value, window)
        windows.append(window)
        return window

    def read(self, storage: Storage, wanted: View) -> Value:
        """The current content of `storage` seen through `wanted`, with its shape."""
        if storage.pending is not None and storage.recording is self:
            value, low = storage.pending, 0
        else:
            window = self.window(storage, wanted, write=False)
            value, low = window.value, window.lo
        if value not in self.defined:
            self.adopt(value)
        if wanted.is_whole(value.type.shape, low):
            return value
        return self.emit(view, value, view=_inside(wanted, low))

    def write(self, storage: Storage, wanted: View, new: Value) -> None:
        """Rebind the elements of `wanted` to `new`, which has its shape, dtype and device."""
        if not wanted.writable or wanted.overlaps_itself():
            raise ReadOnlyError(
                f"cannot write to a broadcast view of shape {wanted.shape}: several elements may be one in "
                "memory; write to a copy (x.copy())"
            )
        window = None
        if storage.pending is not None and storage.recording is self:
            base, low = storage.pending, 0
        else:
            window = self.window(storage, wanted, write=True)
            if window.input not in self.defined:
                self.adopt(window.input)
            base, low = window.value, window.lo
        if base.type.shape == new.type.shape and wanted.is_whole(base.type.shape, low):
            value = new
        else:
            value = self.emit(update, base, new, view=_inside(wanted, low))
        if window is None:
            storage.pending = value
        else:
            window.value = value

    def varies(self, number: Any) -> bool:
        """Whether an integer differs from call to call, so that replays pick the elements that it indexes."""
        return False

    def share(self, one: Storage, other: Storage) -> bool:
        """Whether two storages lie on the same memory: parts of one, or both visible to Python there."""
        if one is other:
            return False
        if self.parents.get(one, one) is self.parents.get(other, other):
            return True
        if not (one.shared and other.shared):
            return False
        ends = one.address + one.type.nbytes, other.address + other.type.nbytes
        return ends[0] > other.address and ends[1] > one.address

    def note_device(self) -> None:
        """Note that an array is made on the thread's device, as none was named."""

    def end_operation(self) -> None:
        """Called when an operator has been recorded and its results are referenced, without `lock`."""

    # -- the finished graph ----------------------------------------------------------------------------------

    def live(self) -> list[Storage]:
        """The storages this recording created that are still referenced."""
        return [s for ref in self.created if (s := ref()) is not None and s.pending is not None]

    def written(self) -> list[TrackedExtent]:
        """The windows of older storages whose content changed, in order of first access."""
        return [w for windows in self.windows.values() for w in windows if w.written]

    def finish(self, outputs: list[Value]) -> Graph:
        """The graph with these outputs and an effect for every written window."""
        graph = self.graph(outputs, [Effect(w.input, w.value) for w in self.written()])
        if self.copied:
            graph.notes["copied"] = self.copied
        return graph


kept: weakref.WeakKeyDictionary[Value, Bound | ConstantOrigin] = weakref.WeakKeyDictionary()
"""Origins of the values of launched recordings that a gradient may still need.

An origin does not refer to its value, or no value would ever be freed.
"""


def _inside(wanted: View, low: int) -> View:
    """A view of a storage as one of its elements from `low` on, for the graph."""
    if low == 0 and wanted.writable:
        return wanted
    return View(wanted.offset - low, wanted.shape, wanted.strides)


@functools.cache
def number_type(dtype: np.dtype) -> ArrayType:
    """The type of a number of this dtype."""
    return ArrayType((), dtype, HOST)


class ThreadState(threading.local):
    """State of one thread: its open recordings and settings."""

    def __init__(self) -> None:
        self.eager: Any = None  # the thread's `eager.EagerRecording`, made on first use
        self.trace: Any = None  # the `trace.Trace` being recorded
        self.watcher: Any = None  # the `watch.Watcher` that receives the body's calls
        self.hook: Any = None  # what reports to it on Python 3.11
        self.device: Device = CPU  # where arrays are made, unless the call says (see `devices`)
        self.tapes = 0
        self.updates = 0  # how many in-place operators are being recorded: they read when they are launched
        self.inlining = 0  # how many things make jitted functions run their bodies: gradients, a Python task
        self.busy = 0  # how many things must know of every operator: a trace, updates, those of `inlining`

    def be_busy(self, count: int) -> None:
        """Set `busy`, and note it in `recorders`, whatever interrupts this."""
        if count:
            recorders.add(threading.get_ident())
            self.busy = count
        else:
            self.busy = 0
            recorders.discard(threading.get_ident())


recorders: set[int] = set()
"""The threads whose `busy` is not 0, and perhaps others: while there is none, no thread need be asked."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: recorders.intersection_update({threading.get_ident()}))


thread = ThreadState()

device_contexts: list[Device] = []
"""The devices of all open `tj.device` contexts, of all threads: while there is none, replays need not ask."""


lock = make_rlock()


class _Quiet:
    """Python 3.11: while an operator is recorded, nothing is reported to the watcher of the thread's trace.
    Reports of our own calls would take several times as long as the work. An interrupt may come anywhere: the
    end of the next operator sets the hook again.
    """

    def __enter__(self) -> None:
        if thread.hook is not None:
            sys.setprofile(None)

    def __exit__(self, *error: object) -> None:
        if thread.hook is not None and not thread.updates:
            sys.setprofile(thread.hook)


quiet: Any = nullcontext() if sys.version_info >= (3, 12) else _Quiet()
"""A context that may be entered with or without `lock`: it takes no lock itself."""


@contextmanager
def unwatched() -> Iterator[None]:
    """A context for work that is no part of the traced body, such as a launch or a compilation: no event is
    reported to the watcher of the thread's trace, on any Python. `quiet` is the cheaper one for operators,
    whose own calls no watcher takes for calls of the body.
    """
    watcher, thread.watcher = thread.watcher, None
    try:
        with quiet:
            yield
    finally:
        thread.watcher = watcher


_condition = threading.Condition(lock)


def in_operation() -> bool:
    """Whether this thread holds `lock`: an operator is half recorded."""
    try:
        _condition.notify(0)  # wakes nobody; an error where the lock is not held
    except RuntimeError:
        return False
    return True


@contextmanager
def taping() -> Iterator[None]:
    """While active, values of flushed recordings are kept for the gradient."""
    before = thread.tapes, thread.inlining, thread.busy
    try:
        thread.be_busy(thread.busy + 1)
        thread.tapes += 1
        thread.inlining += 1
        yield
    finally:
        thread.tapes, thread.inlining, thread.busy = before
        thread.be_busy(thread.busy)
