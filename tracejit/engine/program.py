"""Programs: static graphs of tasks that are launched repeatedly.

The static data of a program are prepared once: its tasks, their dependencies, the arguments they use, and the
argument blocks that its kernels read. A launch uses an *instance* (a copy of these data) and an arena, writes
the addresses and numbers of this call into the blocks and submits the instance to the executor: a single
native call, independent of the number of tasks.

    tasks = [Task("scale", "train.py:7", kernel_address, block=0, units=1000, chunk=100, uses=(0, 1))]
    program = Program(tasks, template=[0, 0], patches=[(0, 0, 0), (1, 1, 0)], arguments=[READ, FRESH])
    packed = struct.pack("4q", x.address, y.address, x_variable.address, y_variable.address)
    program.launch(packed, keep=(x, y))

A launch with a small estimated cost whose variables are free runs inside that call. Otherwise the call
returns immediately or, if too many launches of this program are in flight, when the oldest has ended.

A caller that must know after an interrupt whether the launch has taken place passes a list, `started`, to
which the native call itself appends its return value.
"""

from __future__ import annotations

import itertools
import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from weakref import WeakValueDictionary, ref

import numpy as np

from tracejit.config import config
from tracejit.engine import failures, native, profiler, threads
from tracejit.engine.hosts import HostCall, become_naive, ensure_threads
from tracejit.engine.instance import LABEL, Instance, InstancePlan
from tracejit.engine.launches import IN_FLIGHT, failure_of, note_failure, reap
from tracejit.engine.native import ENGINE, LOCK, Record
from tracejit.engine.task import (
    COMMUNICATION,
    FRESH,
    HOST,
    NUMBER,
    OVERWRITE,
    READ,
    WRITE,
    Task,
)
from tracejit.engine.threads import workers
from tracejit.errors import ArgumentError, EngineError, locate
from tracejit.kernels.executor.layout import (
    ENGINE_FINISHED,
    FAILED,
    FINISHED,
    INSTANCE_ERROR,
    INSTANCE_LEFT,
    INSTANCE_SCRATCH,
    INSTANCE_SEQUENCE,
    INSTANCE_SMALL,
    LAUNCH,
    NEEDS_SCRATCH,
    QUEUED,
)

SMALL = 1 << 18  # maximum cost of a launch that runs on the calling thread: about 20 us of memory traffic
MAX_ARENA_BYTES = 1 << 30  # of the arenas of a program's launches in flight, unless one launch needs more
MAX_INSTANCES = 8

PROGRAMS: WeakValueDictionary[int, Program] = WeakValueDictionary()
"""Live programs by number, for the profiler."""

_numbers = itertools.count(1)


class Program:
    """A static graph of tasks.

    tasks:          in a topological order
    template:       the concatenated argument blocks of all tasks, as int64 slots
    patches:        (slot, argument, addend): a launch stores its value of the argument plus `addend` in the
                    slot;
                    (slot, ARENA - i, addend): the address of the launch's arena on device i plus `addend`
    arena_bytes:    private memory of each launch in flight: on device 0, or by device number
    scratch_bytes:  private memory of each thread while it runs a chunk
    arguments:      mode of each argument
    on_error:       creates the exception when a kernel returns a nonzero status: ``on_error(task_index,
                    status, block)``, where `block` is the address of the task's argument block, whose
                    pointers are still valid
    keep:           kept alive while the program or one of its launches is: the code of its kernels

    A launch that fails skips its remaining tasks, except those with `always`. For WRITE and OVERWRITE
    arguments to preserve their contents then, every task that can fail has to precede all tasks that write
    them; the engine does not check this.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        template: Sequence[int] | np.ndarray = (),
        patches: Sequence[tuple[int, int, int]] = (),
        arena_bytes: int | Mapping[int, int] = 0,
        scratch_bytes: int = 0,
        arguments: Sequence[int] = (),
        on_error: Callable[[int, int, int], BaseException] | None = None,
        keep: object = None,
    ) -> None:
        self.tasks = list(tasks)
        self._keep = keep
        template_array = np.array(template, np.int64)
        arenas = {0: arena_bytes} if isinstance(arena_bytes, int) else arena_bytes
        arenas = {device: nbytes for device, nbytes in arenas.items() if nbytes}
        _check(self.tasks, len(template_array), patches, arguments)
        self._on_error = on_error
        self._python_lanes = {task.queue for task in self.tasks if task.callable}
        self._has_python = bool(self._python_lanes)
        is_small = not (self._has_python or any(task.is_issued for task in self.tasks))
        is_small = is_small and sum(task.estimate for task in self.tasks) <= SMALL
        number = self.number = next(_numbers)
        self.template, self.patches, self.arguments = template_array, tuple(patches), tuple(arguments)
        self.is_small, self.arena_bytes, self.scratch_bytes = is_small, sum(arenas.values()), scratch_bytes
        self._plan = InstancePlan(number, self.tasks, template_array, patches, arguments, arenas)
        workers.serve(task.queue for task in self.tasks if not task.callable)
        self._plan.image[INSTANCE_SCRATCH // 8] = scratch_bytes
        self._plan.image[INSTANCE_SMALL // 8] = is_small
        PROGRAMS[number] = self
        profiler.keep(self)
        self._packed_bytes, self._has_arenas = 16 * len(arguments), bool(arenas)
        self._max_instances = max(1, min(MAX_INSTANCES, MAX_ARENA_BYTES // max(1, sum(arenas.values()))))
        self._instances: list[ref[Instance]] = []  # all instances; some references are dead
        self._free: deque[Instance] = deque()
        self._next = iter(self._free.pop, None)
        self._launch = native.calls().launch

    def launch(self, packed: bytes, keep: object, started: list[int] | None = None) -> bool:
        """Launch the program. Return whether the launch has ended already, without a failed task.

        packed:  one int64 per argument (an address, or the bits of a number), followed by the address of each
                 argument's variable (0: not ordered), in native byte order
        keep:    kept alive until the launch has ended: buffers and variables of all its arguments
        started: an empty list, to which one item is appended once the launch has taken place, even if an
                 exception is raised; FINISHED if the launch has ended already without a failed task
        """
        if len(packed) != self._packed_bytes:
            raise ArgumentError(f"launch: expected {self._packed_bytes} packed bytes, got {len(packed)}")
        if ENGINE.words[ENGINE_FINISHED >> 3]:
            reap()
        if config.engine == "naive":
            become_naive()
        if started is None:
            started = []
        try:
            for instance in self._next:  # unlike a call, an interrupt cannot lose the instance
                address = instance.address
                break
        except IndexError:  # all instances are in flight
            instance = self._obtain_instance()
            address = instance.address
        flight = self, instance, keep
        try:
            IN_FLIGHT[address] = flight
            if self._has_arenas:
                instance.borrow()
            if self._has_python:
                self._prepare(instance, packed, keep)
            code = self._launch(address, packed, threads.address(), started)
            if code == NEEDS_SCRATCH:
                threads.own_record().grow()
                code = self._launch(address, packed, threads.address(), started)
                assert code != NEEDS_SCRATCH, "the scratch memory has the requested size"
            if code == FINISHED:
                del IN_FLIGHT[address]
                if self._has_arenas:
                    instance.return_arenas()
                self._free.append(instance)
                return True
            self._finish_launch(flight, started)
            return False
        except BaseException:
            self._finish_launch(flight, started, helps=False)
            raise

    def _prepare(self, instance: Instance, packed: bytes, keep: object) -> None:
        """Store the arguments in the instance for the launch's Python tasks."""
        instance.packed = packed

    def _finish_launch(
        self, flight: tuple[Program, Instance, object], started: list[int], *, helps: bool = True
    ) -> None:
        """Handle a launch that is queued, has failed, or has not taken place.

        It is repeated after an interrupt. Then `helps` is False, so that running tasks on this thread does
        not delay the interrupt.
        """
        instance = flight[1]
        if started and started[0] == QUEUED:
            ensure_threads(self._python_lanes, helps=helps)
        elif IN_FLIGHT.get(instance.address) is flight:
            if started and started[0] == FAILED:
                note_failure(self, instance)
            del IN_FLIGHT[instance.address]
            instance.return_arenas()
            self._free.append(instance)

    def _obtain_instance(self) -> Instance:
        """Return a new instance, or, if the limit is reached, the next one to become free.

        A Python task never waits here, since launches in flight may wait for that task.
        """
        may_wait = threads.current().task is None
        while True:
            reap()
            with LOCK:
                if self._free:
                    return self._free.pop()
                oldest = self._oldest() if may_wait and self._too_many(0) else None
                if oldest is None:
                    instance = Instance(self._plan)
                    self._instances.append(ref(instance))
                    return instance
            threads.block(LAUNCH, oldest.address)

    def _too_many(self, extra: int) -> bool:
        """Whether the live instances exceed the limit by `extra` or more. Interrupts may have lost some."""
        with LOCK:
            if len(self._instances) < self._max_instances + extra:
                return False
            self._instances = [instance for instance in self._instances if instance() is not None]
            return len(self._instances) >= self._max_instances + extra

    def _oldest(self) -> Record | None:
        """The instance of the oldest launch of this program that has not ended, or None."""
        unfinished = [
            i for program, i, _ in list(IN_FLIGHT.values()) if program is self and i.words[INSTANCE_LEFT >> 3]
        ]
        return min(unfinished, key=lambda instance: instance.words[INSTANCE_SEQUENCE >> 3], default=None)

    def recycle(self, instance: Instance) -> None:
        """Reuse an instance whose launch has ended; the engine calls this."""
        instance.return_arenas()
        if len(self._instances) <= self._max_instances or not self._too_many(1):
            self._free.append(instance)

    def describe(self, task: int, status: int, instance: Instance) -> Callable[[], BaseException]:
        """Return a function that creates the exception of a failed task; the engine calls this."""
        failed_task = self.tasks[task]
        error: BaseException = locate(
            EngineError(f"task {failed_task.name!r} failed with status {status}"), failed_task.location
        )
        if self._on_error is not None:
            try:
                error = self._on_error(task, status, instance.block + 8 * failed_task.block)
            except Exception as handler_error:  # must not prevent the engine from retiring other launches
                error.__cause__ = handler_error
        return partial(failures.without_traceback, error)

    def _failure(self, instance: Instance) -> BaseException | None:
        """The exception of a launch if it has failed so far, else None."""
        return failure_of(instance.words[INSTANCE_ERROR >> 3])

    def call(self, task: int, instance: Instance, keep: object) -> HostCall:
        """Create the call of a Python task; the engine calls this."""
        packed, count = instance.packed, len(instance.packed) // 16

        def variables() -> tuple[int, ...]:
            return struct.unpack(f"{2 * count}q", packed)[count:]

        def written() -> tuple[int, ...]:
            modes = zip(variables(), self.arguments, strict=True)
            return tuple(address for address, mode in modes if mode in (WRITE, OVERWRITE))

        description = self.tasks[task]
        assert description.callable is not None
        block = instance.block + 8 * description.block
        return HostCall(
            function=description.callable,
            arguments=(block, self._failure(instance)) if description.always else (block,),
            name=description.name,
            location=description.location,
            asynchronous=description.asynchronous,
            communicates=description.queue == COMMUNICATION,
            plain=description.plain,
            variables=variables,
            written=written,
            label=self.number * LABEL + task,
        )


def _check(
    tasks: Sequence[Task], slots: int, patches: Sequence[tuple[int, int, int]], arguments: Sequence[int]
) -> None:
    """Raise ArgumentError if the static data are invalid, since native code does not check them."""
    for i, task in enumerate(tasks):
        if not all(0 <= earlier < i for earlier in task.after):
            raise ArgumentError(f"task {i} ({task.name}): comes after {task.after}, expected earlier tasks")
        if not all(0 <= a < len(arguments) and arguments[a] != NUMBER for a in task.uses):
            raise ArgumentError(
                f"task {i} ({task.name}): uses {task.uses}, expected arguments with variables"
            )
        if task.callable is None and (task.function == 0 or task.chunk < 1 or task.units < 0):
            raise ArgumentError(
                f"task {i} ({task.name}): function {task.function}, units {task.units}, chunk {task.chunk}; "
                "expected an address, units of at least 0 and a chunk of at least 1"
            )
        if not -(1 << 63) <= task.priority < 1 << 63:
            raise ArgumentError(
                f"task {i} ({task.name}): priority must be an integer of 64 bits, got {task.priority}"
            )
        if (task.queue < 0) != bool(task.callable) or task.queue < COMMUNICATION:
            raise ArgumentError(
                f"task {i} ({task.name}): lane {task.lane}; a kernel runs on a device, from 0 on, "
                f"a Python task on HOST ({HOST}) or COMMUNICATION ({COMMUNICATION})"
            )
        if (task.always or task.asynchronous) and task.callable is None:
            raise ArgumentError(f"task {i} ({task.name}): only Python tasks run always or are asynchronous")
        if not 0 <= task.block <= slots:
            raise ArgumentError(f"task {i} ({task.name}): block {task.block} lies outside {slots} slots")
    for slot, argument, _ in patches:
        if not (0 <= slot < slots and argument < len(arguments)):
            raise ArgumentError(f"patch of slot {slot} from argument {argument}: no such slot or argument")
    for mode in arguments:
        if mode not in (NUMBER, READ, WRITE, OVERWRITE, FRESH):
            raise ArgumentError(f"mode {mode!r}: expected NUMBER, READ, WRITE, OVERWRITE or FRESH")
