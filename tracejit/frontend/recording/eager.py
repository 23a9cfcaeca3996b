"""Eager code: the open recording of each thread, and when and how it is flushed.

A flush compiles the recorded graph (or looks up its schedule by structure), allocates the memory of pending
storages and launches. A recording is flushed at a look, at fixed sizes (so that loops are cut into identical
groups), when another thread or a traced call accesses a storage of the recording, and when windows would
overlap.

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
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.origins import InputOrigin, RuntimeNumber, StorageRange, Window
from tracejit.frontend.recording.partial import PartialLaunch, launches_of, no_memory, unreported
from tracejit.frontend.recording.recording import Overlap, in_operation, lock, thread
from tracejit.frontend.recording.residuals import ResidualRecording
from tracejit.frontend.recording.storage import Storage, memory_at
from tracejit.ir.evaluate import evaluate
from tracejit.ir.graph import Graph, Value
from tracejit.ir.op import Trait
from tracejit.ir.structure import copied, structure
from tracejit.ir.types import ArrayType
from tracejit.ir.view import View
from tracejit.ops import astype

MAX_NODES = 64
MAX_BYTES = 256 << 20
SMALL = 1 << 14  # elements; operations on arrays up to this size run immediately, see `arrays.immediate`
SCHEDULES = 512

NOTHING_HELD: Mapping[int, engine.Variable] = {}

_schedules: OrderedDict[Any, Any] = OrderedDict()
_schedules_lock = make_lock()


NUMPY = object()
"""A marker in place of the schedule of a graph that NumPy computes."""

ROUTINE_THAT_FAILS = {Trait.HOST, Trait.CAN_FAIL}


def schedule_for(key: Hashable, graph: Graph, *, kernels: bool = False) -> Any:
    """Return the executor for graphs with this key: NUMPY, or a schedule, which is compiled if it is new.

    With `kernels` it is always a schedule. The least recently used ones are dropped.
    """
    key = key, SMALL, kernels
    with _schedules_lock:
        schedule = _schedules.get(key)
        if schedule is not None:
            _schedules.move_to_end(key)
            return schedule
    # The schedule refers to a copy of the graph, so that values of the recording, and the memory that
    # gradients retain through them, are freed.
    schedule = NUMPY if not kernels and runs_on_numpy(graph) else compile.compile_graph(copied(graph))
    with _schedules_lock:
        _schedules[key] = schedule
        if len(_schedules) > SCHEDULES:
            _schedules.popitem(last=False)
    return schedule


class EagerRecording(ResidualRecording):
    """The open recording of a thread.

    A Python task of the engine has a recording of its own. The variables that the task reads or writes are
    occupied until it ends, so launches from inside the task must not queue for them: `held` maps the address
    of each to a substitute.

    A recording that accesses memory which Python can see is `due`: it is flushed at the end of the operator,
    and waits for its launches on that memory (`unfinished`).
    """

    def __init__(self, held: Mapping[int, engine.Variable] = NOTHING_HELD) -> None:
        self.held = held
        self.due = False
        self.unfinished: list[engine.Variable] = []
        super().__init__()

    def literal(self, number: Any, dtype: np.dtype) -> Value:
        """Return the value of a number in eager code: a run-time input, so that it is not part of the
        structure.
        """
        return self.number(RuntimeNumber(number, number), dtype)

    def window(self, storage: Storage, region: View, *, write: bool) -> Window:
        """Open a window. If windows would overlap, the recording is flushed first."""
        self.due |= storage.shared
        if storage.shared or self.parents:
            aliases = [w for s, ws in self.windows.items() if self.share(s, storage) for w in ws]
            if any(write or w.written for w in aliases):
                self.launch()
        try:
            return super().window(storage, region, write=write)
        except Overlap:
            self.launch()
            self.merge_windows(storage, region)
            return super().window(storage, region, write=write)

    def end_operation(self) -> None:
        """Flush an operation that accesses memory which Python can see, before Python reads or changes it."""
        if self.due and self.marks_storages and not in_operation():
            self.flush()
            self.due = False

    def release(self, storage: Storage) -> None:
        """Launch, so that others can use `storage`. A gradient continues to follow it, unless others write
        it.
        """
        with lock:
            self.launch()
            if not self.tapes:
                self.windows.pop(storage, None)
            storage.recording = None

    def cut(self) -> None:
        """Launch if the recording has reached its fixed size. Called between operators, never inside one."""
        if len(self.nodes) >= MAX_NODES or (self.bytes >= MAX_BYTES and not self._has_just_cast()):
            self.launch()

    def _has_just_cast(self) -> bool:
        """Whether the recording is full only because the current statement cast an array, as ``x.sum()`` of
        bytes does. Fused with the next operator, the cast needs no memory.
        """
        last = self.nodes[-1]
        size = last.outputs[0].type.nbytes
        return last.op is astype and self.bytes - size < MAX_BYTES and last.location == user_location()

    def flush(self) -> None:
        """Launch the recorded operations, and wait for those that write memory which Python can see. Must not
        be called with `lock` acquired.
        """
        self.launch()
        unfinished, self.unfinished = self.unfinished, []
        try:
            engine.wait(*unfinished, exclusive=True)
        except BaseException:
            engine.succeeded(*unfinished, exclusive=True)  # wait for them also after an interrupt
            raise

    def launch(self) -> None:
        """Launch the recorded operations. A caller that owns `lock` calls `end_operation` later.

        After an interrupt, either the entire recording has been launched, or nothing, and then the recording
        is unchanged.
        """
        if not self.inputs and not self.nodes:
            return  # without the lock: the thread that owns it may wait for the task that ends here
        with lock:
            live = self.live()
            outputs = [s.pending for s in live]
            written = self.written()
            storages: list[Storage] = list(live)
            before = self.count_writes() if self.tapes else {}
            if self.tapes:
                storages += self.keep(outputs, written)
            started: list[int] = []
            windows: dict[Storage, list[Window]] = {}
            launches: list[PartialLaunch] = []
            try:
                if storages or written or any(Trait.ORDERED in node.op.traits for node in self.nodes):
                    graph = self.finish(outputs)  # type: ignore[arg-type]
                    key = structure(graph)
                    routines = tuple([n.location for n in self.nodes if n.op.traits >= ROUTINE_THAT_FAILS])
                    if routines:
                        key = key, routines  # errors of routines name the lines that the schedule stores
                    launches = launches_of(graph, key, self.origins, storages)
                    launches[0].begun = started
                    self._run(launches, started)
                self._forget(before, windows)
            except BaseException:
                if started:
                    self._run(launches, started)  # the remaining launches, after an interrupt
                    self._forget(before, windows)
                else:
                    _take_back(storages, outputs, self)
                raise

    def _run(self, launches: list[PartialLaunch], started: list[int]) -> None:
        """Execute these launches. One that is impossible fails without affecting the others.

        Errors other than a lack of memory, and interrupts, are raised at the end. An interrupt before the
        first launch is raised immediately, and nothing has been launched.
        """
        raised: BaseException | None = None
        while launches:
            launch = launches[0]
            begun: list[int] = launch.begun
            try:
                if not begun:
                    visible = run(
                        launch.graph,
                        launch.origins,
                        launch.storages,
                        key=launch.key,
                        held=self.held,
                        started=begun,
                    )
                    begun += (1,)
                    self.unfinished += visible
                    self.due |= bool(visible)
            except Exception as error:
                if not begun:
                    if len(launch.graph.outputs) + len(launch.graph.effects) > 1:
                        launches[:1] = launch.smaller()
                        continue
                    error = launch.fail(error)
                if not isinstance(error, MemoryError):
                    raised = raised or error
            except BaseException as interrupt:
                if not begun and not started:
                    raise
                raised = interrupt
            if begun or launch.failed:
                started += begun or (1,)
                launches.pop(0)
        if raised is not None:
            for failure in unreported:
                failure.reported |= failure.error is raised
            raise raised

    def _forget(self, before: dict[Storage, int], windows: dict[Storage, list[Window]]) -> None:
        """Reset the recording after a launch, except for the `windows` that gradients follow. Idempotent."""
        if self.tapes and not windows:
            windows |= self.kept_windows(before)
        for storage in self.windows:
            if storage.recording is self:
                storage.recording = None
        self.reset()
        for storage, kept_windows in windows.items():
            if storage.recording is None:  # otherwise, another thread has started to use it
                storage.recording = self
            self.windows[storage] = kept_windows


def _take_back(storages: list[Storage], values: list[Any], recording: EagerRecording) -> None:
    """Undo a launch that was not executed: storages for which memory was allocated again contain values of
    the recording.
    """
    for storage, value in zip(storages, values, strict=True):
        storage.buffer = storage.variable = None
        storage.address = 0
        storage.pending, storage.recording = value, recording


def eager() -> EagerRecording:
    """Return this thread's open eager recording."""
    recording = thread.eager
    if recording is None:
        recording = thread.eager = EagerRecording()
    return recording


def current(*, cut: bool = True) -> EagerRecording:
    """Return the open recording of this thread: its trace, or its eager recording, which is launched first if
    it is full.
    """
    if thread.trace is not None:
        return thread.trace
    recording = eager()
    if cut:
        recording.cut()
    return recording


def flush() -> None:
    """Launch the operations that this thread has recorded eagerly."""
    if thread.eager is not None:
        thread.eager.flush()


def wait_all() -> None:
    """Launch the operations that this thread has recorded, and wait until all launches so far have ended.

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
    """Whether a graph is so small, and its operators so exact, that NumPy computes the same result faster
    than a kernel.
    """
    if graph.effects or not all(map(_is_here, (*graph.inputs, *graph.outputs))):
        return False
    return all(
        node.op.is_exact(v.type.dtype for v in node.inputs)
        and Trait.ORDERED not in node.op.traits
        and all(v.type.size <= SMALL and _is_here(v) for v in (*node.inputs, *node.outputs))
        for node in graph.nodes
    )


def _is_here(value: Value) -> bool:
    """Whether NumPy can read the memory of a value."""
    return value.type.on_host or value.type.device.is_addressable


def run(
    graph: Graph,
    origins: list[InputOrigin],
    storages: list[Storage],
    schedule: Any = None,
    *,
    key: Hashable = None,
    held: Mapping[int, engine.Variable] = NOTHING_HELD,
    started: list[int] | None = None,
) -> list[engine.Variable]:
    """Compute `graph`, with inputs from `origins` and outputs into `storages`, which are pending.

    Without a `schedule`, `schedule_for` returns one for `key`. `held`: see `EagerRecording`. `started`:
    passed to the launch. Returns the variables of memory that Python can see. All uses of that memory must
    have ended when the statement ends, so the caller waits for these variables once it has released `lock`.
    """
    for storage in storages:
        if storage.variable is None:  # otherwise, an earlier attempt was interrupted
            storage.materialise()
    used = [b.storage for b in origins if isinstance(b, StorageRange)] + storages
    visible = [held.get(s.variable.address, s.variable) for s in used if s.shared]
    if schedule is None:
        schedule = schedule_for(key, graph)
        if schedule is NUMPY:
            if _run_on_numpy(graph, origins, storages, held):
                return visible
            schedule = schedule_for(key, graph, kernels=True)
    values: list[Any] = []
    variables: list[int] = []
    for item in origins:
        if isinstance(item, StorageRange):
            storage, address = item.storage, item.storage.variable.address
            values.append(storage.address + item.lo * storage.type.dtype.itemsize)
            variables.append(held[address].address if address in held else address)
        else:
            values.append(item.value)
            variables.append(0)
    for storage in storages:
        values.append(storage.address)
        variables.append(storage.variable.address)
    try:
        check.launcher(schedule, graph)(schedule.pack.pack(*values, *variables), tuple(used), started)
    except engine.ExhaustedError as error:
        raise no_memory(graph, error) from None
    return visible


def _run_on_numpy(
    graph: Graph,
    origins: list[InputOrigin],
    storages: list[Storage],
    held: Mapping[int, engine.Variable],
) -> bool:
    """Evaluate `graph` with NumPy: immediately, or in a Python task if inputs are not computed yet. Does not
    wait, because the caller owns `lock`, which the task that computes an input may need. Returns False if
    only a kernel can compute the graph.
    """
    windows = [item for item in origins if isinstance(item, StorageRange)]
    inputs = [held.get(w.storage.variable.address, w.storage.variable) for w in windows]

    def compute() -> None:
        arrays: list[Any] = [
            window_memory(item, value.type) if isinstance(item, StorageRange) else item.value
            for value, item in zip(graph.inputs, origins, strict=True)
        ]
        outputs, _ = evaluate(graph, arrays)
        for storage, array in zip(storages, outputs, strict=True):
            storage.memory()[...] = array

    if all(variable.ready for variable in inputs):
        compute()
        return True
    if any(Trait.CAN_FAIL in node.op.traits for node in graph.nodes):
        return False  # a failing kernel raises its error unchanged
    name = "+".join(dict.fromkeys(node.op.name for node in graph.nodes))
    engine.push(compute, reads=inputs, writes=[s.variable for s in storages], name=name)
    return True


def window_memory(window: StorageRange, type: ArrayType) -> np.ndarray:
    """Return the memory of a window as a NumPy array of `type`."""
    storage = window.storage
    return memory_at(storage.address + window.lo * storage.type.dtype.itemsize, type, storage.buffer)
