"""Eager code: the open recording of each thread, and when and how it is flushed.

A flush compiles the recorded graph (or finds its schedule by structure), gives pending storages their memory
and launches. It happens at a look, at fixed sizes (so that loops cut into identical groups), when another
thread or a traced call touches a storage of the recording, and when windows would overlap.

Numbers in eager code are run-time inputs, so `x * 0.1` and `x * 0.2` share one schedule.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from tracejit import compile, engine
from tracejit.errors import TracejitError
from tracejit.frontend import check
from tracejit.frontend.recording import Number, Overlap, Recording, Window, kept, lock, thread
from tracejit.frontend.storage import Storage, memory_at
from tracejit.ir.evaluate import evaluate
from tracejit.ir.graph import Graph, Value
from tracejit.ir.op import Trait
from tracejit.ir.types import ArrayType
from tracejit.ir.view import View
from tracejit.ops import constant, copy

NODE_LIMIT = 64
BYTE_LIMIT = 256 << 20
SMALL = 2048  # elements; up to this size exact operators run on NumPy at once
SCHEDULES = 512

NOTHING_HELD: Mapping[int, engine.Variable] = {}

_schedules: OrderedDict[Any, Any] = OrderedDict()
_schedules_lock = threading.Lock()


def schedule_for(graph: Graph) -> Any:
    """The schedule of a graph of this structure, compiled if it is new (least recently used ones are
    dropped)."""
    key = compile.schedule_key(graph)
    with _schedules_lock:
        schedule = _schedules.get(key)
        if schedule is not None:
            _schedules.move_to_end(key)
            return schedule
    schedule = compile.compile_graph(graph)
    with _schedules_lock:
        _schedules[key] = schedule
        if len(_schedules) > SCHEDULES:
            _schedules.popitem(last=False)
    return schedule


class EagerRecording(Recording):
    """The open recording of a thread.

    A Python task of the engine has a recording of its own. What it reads or writes is the task's until it
    ends, so nothing that it starts may queue for that: `held` has another variable for each that the task
    holds, by address.
    """

    def __init__(self, held: Mapping[int, engine.Variable] = NOTHING_HELD) -> None:
        self.held = held
        self.parents: dict[Storage, Storage] = {}  # window storage -> the storage it is a part of
        super().__init__()

    def literal(self, number: Any, dtype: np.dtype) -> Value:
        """A number in eager code: a run-time input, so that its value is not part of the structure."""
        return self.number(Number(number, number), dtype)

    def window(self, storage: Storage, wanted: View, *, write: bool) -> Window:
        """As in `Recording`; where windows would overlap, what was recorded so far is flushed first."""
        self.sees_shared |= storage.shared
        if storage.shared or self.parents:
            touching = [w for s, ws in self.windows.items() if self.share(s, storage) for w in ws]
            if any(write or w.written for w in touching):
                self.flush()
        try:
            return super().window(storage, wanted, write=write)
        except Overlap:
            self.flush()
            return super().window(storage, wanted, write=write)

    def reset(self) -> None:
        """Forget everything."""
        super().reset()
        self.sees_shared = False

    def end_operation(self) -> None:
        """What touches memory that Python can see happens at once, before Python looks or changes it."""
        if self.sees_shared and self.marks_storages:
            self.flush()

    def share(self, one: Storage, other: Storage) -> bool:
        """Whether two storages lie on the same memory: parts of one, or both visible to Python there."""
        if one is other:
            return False
        if self.parents.get(one, one) is self.parents.get(other, other):
            return True
        apart = (
            one.address + one.type.nbytes <= other.address or other.address + other.type.nbytes <= one.address
        )
        return one.shared and other.shared and not apart

    def release(self, storage: Storage) -> None:
        """Flush, so that others can use `storage`."""
        with lock:
            self.flush()
            self.windows.pop(storage, None)
            storage.recording = None

    def cut(self) -> None:
        """Flush if the recording has reached its fixed size. Called between operators, never inside one."""
        if len(self.nodes) >= NODE_LIMIT or self.bytes >= BYTE_LIMIT:
            self.flush()

    def flush(self) -> None:
        """Launch what was recorded."""
        if not self.inputs and not self.nodes:
            return  # without the lock: a thread that holds it may wait for the task that ends here
        with lock:
            live = self.live()
            outputs = [s.pending for s in live]
            written = self.written()
            places: list[Storage] = list(live)
            if self.tapes:
                places += self._keep(outputs, written)
            if places or written or any(node.op.has(Trait.ORDERED) for node in self.nodes):
                graph = self.finish(outputs)  # type: ignore[arg-type]
                try:
                    run(graph, self.bound, places, held=self.held)
                except BaseException as error:
                    self._abandon(places, error)
                    raise
            windows = self._kept_windows() if self.tapes else {}
            for storage in self.windows:
                storage.recording = None
            self.reset()
            for storage, kept_windows in windows.items():
                storage.recording = self
                self.windows[storage] = kept_windows

    def _abandon(self, places: list[Storage], error: BaseException) -> None:
        """Nothing of this recording was computed: forget it; whoever looks at its arrays gets the error."""

        def fail() -> None:
            raise error

        for storage in places:
            if storage.variable is None:
                storage.materialise()
        if places:
            engine.push(fail, writes=[s.variable for s in places], name="a recording that failed")
            with suppress(TracejitError):
                engine.wait(places[0].variable)  # the caller of the flush gets the error now: it is told
        for storage in self.windows:
            storage.recording = None
        self.reset()

    def _keep(self, outputs: list[Any], written: list[Window]) -> list[Storage]:
        """Under a gradient: add every value the backward pass may ask for to `outputs`; their storages."""
        have = {id(v) for v in outputs}
        for storage, value in zip(self.live(), outputs, strict=True):
            kept[value] = Window(storage, 0, value.type.size, value)
        kept.update(
            (v, bound) for v, bound in zip(self.inputs, self.bound, strict=True) if type(bound) is Number
        )
        for node in self.nodes:
            if node.op is constant:
                kept[node.output] = Number(node.attrs["value"], node.attrs["value"])
        places = []
        for window in written:
            old = window.input
            value = self.emit(copy, old)
            storage = Storage(old.type)
            kept[old] = Window(storage, 0, old.type.size, old)
            outputs.append(value)
            places.append(storage)
        for value in [v for node in self.nodes for v in node.outputs]:
            if id(value) not in have and not value.type.on_host:
                storage = Storage(value.type)
                kept[value] = Window(storage, 0, value.type.size, value)
                outputs.append(value)
                places.append(storage)
        return places

    def _kept_windows(self) -> dict[Storage, list[Window]]:
        """Windows to go on with, so that a storage read again gives the same value to the gradient."""
        windows: dict[Storage, list[Window]] = {}
        for storage, old in self.windows.items():
            windows[storage] = []
            for window in old:
                again = Window(storage, window.lo, window.hi, window.value)
                kept.setdefault(window.value, again)
                windows[storage].append(again)
        held: dict[Storage, Value] = {}
        for value, bound in kept.items():
            if isinstance(bound, Window):
                held.setdefault(bound.storage, value)
        for ref in self.created:
            created = ref()
            if created is not None and created in held:
                windows[created] = [Window(created, 0, created.type.size, held[created])]
        return windows


def eager() -> EagerRecording:
    """This thread's open eager recording."""
    recording = thread.eager
    if recording is None:
        recording = thread.eager = EagerRecording()
    return recording


def current() -> EagerRecording:
    """Where this thread's array code is recorded: its trace, or its eager recording, cut if it is full."""
    if thread.trace is not None:
        return thread.trace
    recording = eager()
    recording.cut()
    return recording


def flush() -> None:
    """Launch what this thread has recorded eagerly."""
    if thread.eager is not None:
        thread.eager.flush()


def wait_all() -> None:
    """Launch what this thread has recorded, and wait until everything launched so far has ended.

    Raises the oldest failure that no wait has raised yet; see `tracejit.engine.wait_all`.
    """
    flush()
    engine.wait_all()


@contextmanager
def _in_task() -> Iterator[None]:
    """Around a Python task of the engine: what it records is a recording of its own, which ends with it."""
    outer = thread.eager, thread.trace, thread.tapes
    held = {address: engine.Variable() for address in engine.held()}
    thread.eager, thread.trace, thread.tapes = EagerRecording(held), None, 0
    thread.plain += 1
    try:
        yield
    finally:
        try:
            flush()
            for variable in held.values():
                engine.wait(variable, exclusive=True)
        finally:
            thread.eager, thread.trace, thread.tapes = outer
            thread.plain -= 1


engine.AROUND_TASKS.append(_in_task)


def runs_on_numpy(graph: Graph) -> bool:
    """Whether a graph is so small, and its operators so exact, that NumPy gives a kernel's result sooner."""
    return not graph.effects and all(
        node.op.has(Trait.EXACT)
        and not node.op.has(Trait.ORDERED)
        and all(v.type.size <= SMALL for v in (*node.inputs, *node.outputs))
        for node in graph.nodes
    )


def run(
    graph: Graph,
    bound: list[Window | Number],
    places: list[Storage],
    schedule: Any = None,
    held: Mapping[int, engine.Variable] = NOTHING_HELD,
) -> None:
    """Compute `graph`: inputs from `bound`, outputs into the (pending) storages `places`.

    Without a `schedule`, one is found or compiled, or NumPy computes what is small and exact.
    `held`: see `EagerRecording`.
    """
    for storage in places:
        storage.materialise()
    if schedule is None and runs_on_numpy(graph) and _run_on_numpy(graph, bound, places, held):
        return
    schedule = schedule or schedule_for(graph)
    values: list[Any] = []
    variables: list[int] = []
    for item in bound:
        if isinstance(item, Window):
            storage = item.storage
            values.append(storage.address + item.lo * storage.type.dtype.itemsize)
            variables.append(held.get(storage.variable.address, storage.variable).address)
        else:
            values.append(item.value)
            variables.append(0)
    for storage in places:
        values.append(storage.address)
        variables.append(storage.variable.address)
    storages = (*(b.storage for b in bound if isinstance(b, Window)), *places)
    check.launcher(schedule, graph)(schedule.pack.pack(*values, *variables), storages)
    for storage in storages:
        if storage.shared:  # Python sees its memory: nothing may use it once the call has returned
            engine.wait(held.get(storage.variable.address, storage.variable), exclusive=True)


def _run_on_numpy(
    graph: Graph, bound: list[Window | Number], places: list[Storage], held: Mapping[int, engine.Variable]
) -> bool:
    """Let the evaluator compute `graph`: now, or in a Python task if inputs are not there yet. Nothing waits:
    the caller has `lock`, which the task that computes an input may need. False if only a kernel can do it.
    """
    windows = [item for item in bound if isinstance(item, Window)]
    inputs = [held.get(w.storage.variable.address, w.storage.variable) for w in windows]

    def compute() -> None:
        arrays: list[Any] = [
            window_memory(item, value.type) if isinstance(item, Window) else item.value
            for value, item in zip(graph.inputs, bound, strict=True)
        ]
        outputs, _ = evaluate(graph, arrays)
        for storage, array in zip(places, outputs, strict=True):
            storage.memory()[...] = array

    if all(variable.ready for variable in inputs):
        compute()
        return True
    if any(node.op.has(Trait.CAN_FAIL) for node in graph.nodes):
        return False  # a failing kernel tells its error as it is
    name = "+".join(dict.fromkeys(node.op.name for node in graph.nodes))
    engine.push(compute, reads=inputs, writes=[s.variable for s in places], name=name)
    return True


def window_memory(window: Window, type: ArrayType) -> np.ndarray:
    """The memory of a window as a NumPy array of `type`."""
    storage = window.storage
    return memory_at(storage.address + window.lo * storage.type.dtype.itemsize, type, storage.buffer)
