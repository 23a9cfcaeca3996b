"""Eager code: the open recording of each thread, and when and how it is flushed.

A flush compiles the recorded graph (or finds its schedule by structure), gives pending storages their memory
and launches. It happens at a look, at fixed sizes (so that loops cut into identical groups), when another
thread or a traced call touches a storage of the recording, and when windows would overlap.

Numbers in eager code are run-time inputs, so `x * 0.1` and `x * 0.2` share one schedule.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from tracejit import compile, engine
from tracejit.forking import make_lock
from tracejit.frontend.recording import check
from tracejit.frontend.recording.kept import KeptRecording
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.origins import Bound, Extent, RuntimeNumber, TrackedExtent
from tracejit.frontend.recording.partial import PartialLaunch, launches_of, no_memory, unreported
from tracejit.frontend.recording.recording import Overlap, in_operation, lock, thread
from tracejit.frontend.recording.storage import Storage, memory_at
from tracejit.ir.evaluate import evaluate
from tracejit.ir.graph import Graph, Value
from tracejit.ir.op import Trait
from tracejit.ir.structure import copied, structure
from tracejit.ir.types import ArrayType
from tracejit.ir.view import View
from tracejit.ops import astype

NODE_LIMIT = 64
BYTE_LIMIT = 256 << 20
SMALL = 1 << 14  # elements; arrays up to this size are computed on at once, see `arrays.immediate`
SCHEDULES = 512

NOTHING_HELD: Mapping[int, engine.Variable] = {}

_schedules: OrderedDict[Any, Any] = OrderedDict()
_schedules_lock = make_lock()


NUMPY = object()
"""Stands for the schedule of a graph that NumPy computes."""

ROUTINE_THAT_FAILS = {Trait.HOST, Trait.CAN_FAIL}


def schedule_for(key: Hashable, graph: Graph, *, kernels: bool = False) -> Any:
    """Choose how graphs with this key are computed: NUMPY, or a schedule, which is compiled if it is new.

    With `kernels` it is a schedule in any case. The ones not used for longest are dropped.
    """
    key = key, SMALL, kernels
    with _schedules_lock:
        found = _schedules.get(key)
        if found is not None:
            _schedules.move_to_end(key)
            return found
    # of a copy, so that values of the recording are freed, and with them the memory that gradients kept
    found = NUMPY if not kernels and runs_on_numpy(graph) else compile.compile_graph(copied(graph))
    with _schedules_lock:
        _schedules[key] = found
        if len(_schedules) > SCHEDULES:
            _schedules.popitem(last=False)
    return found


class EagerRecording(KeptRecording):
    """The open recording of a thread.

    A Python task of the engine has a recording of its own. The variables that it reads or writes are occupied
    until it ends, so nothing that it launches may queue for them: `held` has a substitute for each, by
    address.

    A recording that touches memory which Python can see is `due`: it is flushed at the end of the operator,
    and waits for its launches on that memory (`unfinished`).
    """

    def __init__(self, held: Mapping[int, engine.Variable] = NOTHING_HELD) -> None:
        self.held = held
        self.due = False
        self.unfinished: list[engine.Variable] = []
        super().__init__()

    def literal(self, number: Any, dtype: np.dtype) -> Value:
        """A number in eager code: a run-time input, so that its value is not part of the structure."""
        return self.number(RuntimeNumber(number, number), dtype)

    def window(self, storage: Storage, wanted: View, *, write: bool) -> TrackedExtent:
        """Open a window; where windows would overlap, the recording is flushed first."""
        self.due |= storage.shared
        if storage.shared or self.parents:
            touching = [w for s, ws in self.windows.items() if self.share(s, storage) for w in ws]
            if any(write or w.written for w in touching):
                self.launch()
        try:
            return super().window(storage, wanted, write=write)
        except Overlap:
            self.launch()
            self.unite(storage, wanted)
            return super().window(storage, wanted, write=write)

    def end_operation(self) -> None:
        """Flush an operation that touches memory which Python can see, before Python looks or changes it."""
        if self.due and self.marks_storages and not in_operation():
            self.flush()
            self.due = False

    def release(self, storage: Storage) -> None:
        """Launch, so that others can use `storage`. A gradient goes on to follow it, unless they write it."""
        with lock:
            self.launch()
            if not self.tapes:
                self.windows.pop(storage, None)
            storage.recording = None

    def cut(self) -> None:
        """Launch if the recording has reached its fixed size. Called between operators, never inside one."""
        if len(self.nodes) >= NODE_LIMIT or (self.bytes >= BYTE_LIMIT and not self._has_just_cast()):
            self.launch()

    def _has_just_cast(self) -> bool:
        """Whether the recording is full only because the current statement cast an array, as ``x.sum()`` of
        bytes does: fused with the next operator, the cast needs no memory.
        """
        last = self.nodes[-1]
        size = last.outputs[0].type.nbytes
        return last.op is astype and self.bytes - size < BYTE_LIMIT and last.location == user_location()

    def flush(self) -> None:
        """Launch what was recorded, and wait for what Python can see of it. Never called with `lock`."""
        self.launch()
        unfinished, self.unfinished = self.unfinished, []
        try:
            engine.wait(*unfinished, exclusive=True)
        except BaseException:
            engine.succeeded(*unfinished, exclusive=True)  # an interrupt waits for them, too
            raise

    def launch(self) -> None:
        """Launch what was recorded. A caller that holds `lock` calls `end_operation` later.

        After an interrupt, all of the recording has been launched, or nothing, and then it is as before.
        """
        if not self.inputs and not self.nodes:
            return  # without the lock: a thread that holds it may wait for the task that ends here
        with lock:
            live = self.live()
            outputs = [s.pending for s in live]
            written = self.written()
            places: list[Storage] = list(live)
            before = self.count_writes() if self.tapes else {}
            if self.tapes:
                places += self.keep(outputs, written)
            started: list[int] = []
            windows: dict[Storage, list[TrackedExtent]] = {}
            launches: list[PartialLaunch] = []
            try:
                if places or written or any(Trait.ORDERED in node.op.traits for node in self.nodes):
                    graph = self.finish(outputs)  # type: ignore[arg-type]
                    key = structure(graph)
                    routines = tuple([n.location for n in self.nodes if n.op.traits >= ROUTINE_THAT_FAILS])
                    if routines:
                        key = key, routines  # their errors name the lines of the schedule
                    launches = launches_of(graph, key, self.bound, places)
                    launches[0].begun = started
                    self._run(launches, started)
                self._forget(before, windows)
            except BaseException:
                if started:
                    self._run(launches, started)  # after an interrupt, the rest
                    self._forget(before, windows)
                else:
                    _take_back(places, outputs, self)
                raise

    def _run(self, launches: list[PartialLaunch], started: list[int]) -> None:
        """Make these launches. One that is impossible fails without the others.

        Errors other than a lack of memory, and interrupts, are raised at the end. An interrupt before the
        first launch is raised at once, and nothing has been launched.
        """
        trouble: BaseException | None = None
        while launches:
            this = launches[0]
            begun: list[int] = this.begun
            try:
                if not begun:
                    seen = run(
                        this.graph, this.bound, this.places, key=this.key, held=self.held, started=begun
                    )
                    begun += (1,)
                    self.unfinished += seen
                    self.due |= bool(seen)
            except Exception as error:
                if not begun:
                    if len(this.graph.outputs) + len(this.graph.effects) > 1:
                        launches[:1] = this.smaller()
                        continue
                    error = this.fail(error)
                if not isinstance(error, MemoryError):
                    trouble = trouble or error
            except BaseException as interrupt:
                if not begun and not started:
                    raise
                trouble = interrupt
            if begun or this.failed:
                started += begun or (1,)
                launches.pop(0)
        if trouble is not None:
            for failure in unreported:
                failure.reported |= failure.error is trouble
            raise trouble

    def _forget(self, before: dict[Storage, int], windows: dict[Storage, list[TrackedExtent]]) -> None:
        """Begin anew after a launch, with the `windows` that gradients follow. May be done twice."""
        if self.tapes and not windows:
            windows |= self.kept_windows(before)
        for storage in self.windows:
            if storage.recording is self:
                storage.recording = None
        self.reset()
        for storage, kept_windows in windows.items():
            if storage.recording is None:  # else another thread has it by now
                storage.recording = self
            self.windows[storage] = kept_windows


def _take_back(places: list[Storage], values: list[Any], recording: EagerRecording) -> None:
    """Undo a launch that was not made: storages that got memory for it hold values of the recording again."""
    for storage, value in zip(places, values, strict=True):
        storage.buffer = storage.variable = None
        storage.address = 0
        storage.pending, storage.recording = value, recording


def eager() -> EagerRecording:
    """This thread's open eager recording."""
    recording = thread.eager
    if recording is None:
        recording = thread.eager = EagerRecording()
    return recording


def current(*, cut: bool = True) -> EagerRecording:
    """The open recording of this thread: its trace, or its eager recording, cut if it is full."""
    if thread.trace is not None:
        return thread.trace
    recording = eager()
    if cut:
        recording.cut()
    return recording


def flush() -> None:
    """Launch what this thread has recorded eagerly."""
    if thread.eager is not None:
        thread.eager.flush()


def wait_all() -> None:
    """Launch what this thread has recorded, and wait until everything launched so far has ended.

    Raises the oldest failure that no wait has raised yet; see `tracejit.engine.wait_all`.

    >>> import tracejit as tj
    >>> x = tj.ones(3) * 2
    >>> tj.wait_all()
    """
    flush()
    engine.wait_all()
    while unreported:
        failure = unreported.popleft()
        if not failure.reported:
            raise failure.tell()


@contextmanager
def _in_task() -> Iterator[None]:
    """The context of a Python task of the engine: it has a recording of its own, which ends with it."""
    outer = thread.eager, thread.trace, thread.tapes, thread.inlining, thread.busy
    held = {address: engine.Variable() for address in engine.held()}
    thread.eager, thread.trace, thread.tapes = EagerRecording(held), None, 0
    thread.inlining += 1
    thread.be_busy(thread.busy + 1)
    try:
        yield
    finally:
        try:
            flush()
            engine.wait(*held.values(), exclusive=True)
        finally:
            thread.eager, thread.trace, thread.tapes, thread.inlining, thread.busy = outer
            thread.be_busy(thread.busy)


engine.AROUND_TASKS.append(_in_task)


def runs_on_numpy(graph: Graph) -> bool:
    """Whether a graph is so small, and its operators so exact, that NumPy gives a kernel's result sooner."""
    if graph.effects or not all(map(_is_here, (*graph.inputs, *graph.outputs))):
        return False
    return all(
        node.op.is_exact(v.type.dtype for v in node.inputs)
        and Trait.ORDERED not in node.op.traits
        and all(v.type.size <= SMALL and _is_here(v) for v in (*node.inputs, *node.outputs))
        for node in graph.nodes
    )


def _is_here(value: Value) -> bool:
    """Whether NumPy can read a value's memory."""
    return value.type.device.kind in ("cpu", "host")


def run(
    graph: Graph,
    bound: list[Bound],
    places: list[Storage],
    schedule: Any = None,
    *,
    key: Hashable = None,
    held: Mapping[int, engine.Variable] = NOTHING_HELD,
    started: list[int] | None = None,
) -> list[engine.Variable]:
    """Compute `graph`: inputs from `bound`, outputs into the (pending) storages `places`.

    Without a `schedule`, `schedule_for` finds one by `key`. `held`: see `EagerRecording`. Returns the
    variables of memory that Python can see: all uses of it must be over when the statement ends, so the
    caller waits for these variables once it does not hold `lock`.
    """
    for storage in places:
        if storage.variable is None:  # else an interrupt came in an earlier attempt
            storage.materialise()
    used = [b.storage for b in bound if isinstance(b, Extent)] + places
    seen = [held.get(s.variable.address, s.variable) for s in used if s.shared]
    if schedule is None:
        schedule = schedule_for(key, graph)
        if schedule is NUMPY:
            if _run_on_numpy(graph, bound, places, held):
                return seen
            schedule = schedule_for(key, graph, kernels=True)
    values: list[Any] = []
    variables: list[int] = []
    for item in bound:
        if isinstance(item, Extent):
            storage, address = item.storage, item.storage.variable.address
            values.append(storage.address + item.lo * storage.type.dtype.itemsize)
            variables.append(held[address].address if address in held else address)
        else:
            values.append(item.value)
            variables.append(0)
    for storage in places:
        values.append(storage.address)
        variables.append(storage.variable.address)
    try:
        check.launcher(schedule, graph)(schedule.pack.pack(*values, *variables), tuple(used), started)
    except engine.ExhaustedError as error:
        raise no_memory(graph, error) from None
    return seen


def _run_on_numpy(
    graph: Graph,
    bound: list[Bound],
    places: list[Storage],
    held: Mapping[int, engine.Variable],
) -> bool:
    """Let the evaluator compute `graph`: now, or in a Python task if inputs are not there yet. Nothing waits:
    the caller has `lock`, which the task that computes an input may need. False if only a kernel can do it.
    """
    windows = [item for item in bound if isinstance(item, Extent)]
    inputs = [held.get(w.storage.variable.address, w.storage.variable) for w in windows]

    def compute() -> None:
        arrays: list[Any] = [
            window_memory(item, value.type) if isinstance(item, Extent) else item.value
            for value, item in zip(graph.inputs, bound, strict=True)
        ]
        outputs, _ = evaluate(graph, arrays)
        for storage, array in zip(places, outputs, strict=True):
            storage.memory()[...] = array

    if all(variable.ready for variable in inputs):
        compute()
        return True
    if any(Trait.CAN_FAIL in node.op.traits for node in graph.nodes):
        return False  # a failing kernel raises its error unchanged
    name = "+".join(dict.fromkeys(node.op.name for node in graph.nodes))
    engine.push(compute, reads=inputs, writes=[s.variable for s in places], name=name)
    return True


def window_memory(window: Extent, type: ArrayType) -> np.ndarray:
    """The memory of a window as a NumPy array of `type`."""
    storage = window.storage
    return memory_at(storage.address + window.lo * storage.type.dtype.itemsize, type, storage.buffer)
