"""Programs: static graphs of tasks that are launched over and over.

A program is prepared once: its tasks, their order, the arguments they use, and the argument blocks that its
kernels read. A launch takes an *instance* (a copy of all this) and an arena, writes the
addresses and numbers of this call into the blocks and hands it to the executor: one native call, whatever the
number of tasks.

    tasks = [Task("scale", "train.py:7", kernel_address, block=0, units=1000, chunk=100, uses=(0, 1))]
    program = Program(tasks, template=[0, 0], patches=[(0, 0, 0), (1, 1, 0)], arguments=[READ, FRESH])
    packed = struct.pack("4q", x.address, y.address, x_variable.address, y_variable.address)
    program.launch(packed, keep=(x, y))

A launch whose estimated cost is small and whose variables are free runs inside that call. Otherwise the call
returns at once, or, if too many launches of this program are in flight, when the oldest of them has ended.

A caller that must know after an interrupt whether the launch was made passes a list, `started`: the native
call itself appends its return value.
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

SMALL = 1 << 18  # cost up to which a launch runs on the calling thread: about 20 us of memory traffic
LOOK_AHEAD = 1 << 30  # bytes of arenas that the launches of one program may hold
MOST_INSTANCES = 8

PROGRAMS: WeakValueDictionary[int, Program] = WeakValueDictionary()
"""Live programs by number, for the profiler."""

_numbers = itertools.count(1)


class Program:
    """A static graph of tasks.

    tasks:          in an order in which they could run
    template:       the argument blocks of all tasks, one after the other, as int64 slots
    patches:        (slot, argument, addend): the launch's value of the argument plus `addend` goes to the
                    slot;
                    (slot, ARENA - i, addend): the address of the launch's arena on device i plus `addend`
    arena_bytes:    private memory of each launch while it runs: on device 0, or by the number of the device
    scratch_bytes:  private memory of each thread while it runs a chunk
    arguments:      mode of each argument
    on_error:       makes the exception when a kernel returns a nonzero status: ``on_error(task_index, status,
                    block)``, where `block` is the address of the task's argument block, whose pointers are
                    still valid
    keep:           is referred to as long as the program or a launch of it lives: the code of its kernels

    A launch that fails skips its remaining tasks, except those that run always. For WRITE and OVERWRITE
    arguments to keep their content then, every task that can fail has to come before all tasks that write
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
        blocks = np.array(template, np.int64)
        arenas = {0: arena_bytes} if isinstance(arena_bytes, int) else arena_bytes
        arenas = {device: nbytes for device, nbytes in arenas.items() if nbytes}
        _check(self.tasks, len(blocks), patches, arguments)
        self._on_error = on_error
        self._python_lanes = {task.queue for task in self.tasks if task.callable}
        self._has_python = bool(self._python_lanes)
        small = not (self._has_python or any(task.is_issued for task in self.tasks))
        small = small and sum(task.estimate for task in self.tasks) <= SMALL
        number = self.number = next(_numbers)
        self.template, self.patches, self.arguments = blocks, tuple(patches), tuple(arguments)
        self.is_small, self.arena_bytes, self.scratch_bytes = small, sum(arenas.values()), scratch_bytes
        self._plan = InstancePlan(number, self.tasks, blocks, patches, arguments, arenas)
        workers.serve(task.queue for task in self.tasks if not task.callable)
        self._plan.image[INSTANCE_SCRATCH // 8] = scratch_bytes
        self._plan.image[INSTANCE_SMALL // 8] = small
        PROGRAMS[number] = self
        profiler.keep(self)
        self._packed_bytes, self._has_arenas = 16 * len(arguments), bool(arenas)
        self._most = max(1, min(MOST_INSTANCES, LOOK_AHEAD // max(1, sum(arenas.values()))))
        self._instances: list[ref[Instance]] = []  # weak references to all of them, some dead
        self._free: deque[Instance] = deque()
        self._next = iter(self._free.pop, None)
        self._launch = native.calls().launch

    def launch(self, packed: bytes, keep: object, started: list[int] | None = None) -> None:
        """Start the program.

        packed:  one int64 per argument (an address, or the bits of a number), then per argument the address
                 of its variable (0: nothing to order), in native byte order
        keep:    is referred to until the launch has ended: buffers and variables of all its arguments
        started: an empty list, which is no longer empty once the launch has been made, whatever is raised;
                 it holds FINISHED if the launch has ended already, and none of its tasks has failed
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
            for instance in self._next:  # not a call, after which an interrupt could lose it
                address = instance.address
                break
        except IndexError:  # all are in flight
            instance = self._another()
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
                threads.own().grow()
                code = self._launch(address, packed, threads.address(), started)
                assert code != NEEDS_SCRATCH, "it has as much as it asked for"
            if code == FINISHED:
                del IN_FLIGHT[address]
                if self._has_arenas:
                    instance.return_arenas()
                self._free.append(instance)
            else:
                self._go_on(flight, started)
        except BaseException:
            self._go_on(flight, started, helps=False)
            raise

    def _prepare(self, instance: Instance, packed: bytes, keep: object) -> None:
        """Store the arguments in the instance for the launch's Python tasks."""
        instance.packed = packed

    def _go_on(
        self, flight: tuple[Program, Instance, object], started: list[int], *, helps: bool = True
    ) -> None:
        """Handle a launch that was made or failed to start; repeated after an interrupt, which is not kept
        waiting: then this thread no longer `helps`.
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

    def _another(self) -> Instance:
        """An instance when none is free: a new one, or the next to become free when there are enough.

        A Python task never waits for one here: launches in flight may wait for that task.
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

    def _too_many(self, more: int) -> bool:
        """Whether `more` instances would exceed the bound. Interrupts may have lost some."""
        with LOCK:
            if len(self._instances) < self._most + more:
                return False
            self._instances = [instance for instance in self._instances if instance() is not None]
            return len(self._instances) >= self._most + more

    def _oldest(self) -> Record | None:
        """The oldest launch of this program that has not ended."""
        mine = [
            i for program, i, _ in list(IN_FLIGHT.values()) if program is self and i.words[INSTANCE_LEFT >> 3]
        ]
        return min(mine, key=lambda instance: instance.words[INSTANCE_SEQUENCE >> 3], default=None)

    def recycle(self, instance: Instance) -> None:
        """Reuse an instance whose launch has ended; the engine calls this."""
        instance.return_arenas()
        if len(self._instances) <= self._most or not self._too_many(1):
            self._free.append(instance)

    def describe(self, task: int, status: int, instance: Instance) -> Callable[[], BaseException]:
        """Return a function that makes the exception of a failed task; the engine calls this."""
        failed = self.tasks[task]
        error: BaseException = locate(
            EngineError(f"task {failed.name!r} failed with status {status}"), failed.location
        )
        if self._on_error is not None:
            try:
                error = self._on_error(task, status, instance.block + 8 * failed.block)
            except Exception as problem:  # must not keep the engine from ending other launches
                error.__cause__ = problem
        return partial(failures.renew, error)

    def _failure(self, instance: Instance) -> BaseException | None:
        """The exception of a launch that has failed; None if it has not, so far."""
        return failure_of(instance.words[INSTANCE_ERROR >> 3])

    def call(self, task: int, instance: Instance, keep: object) -> HostCall:
        """The call of a Python task; the engine calls this."""
        packed, count = instance.packed, len(instance.packed) // 16

        def variables() -> tuple[int, ...]:
            return struct.unpack(f"{2 * count}q", packed)[count:]

        def written() -> tuple[int, ...]:
            kept = zip(variables(), self.arguments, strict=True)
            return tuple(address for address, mode in kept if mode in (WRITE, OVERWRITE))

        this = self.tasks[task]
        assert this.callable is not None
        block = instance.block + 8 * this.block
        return HostCall(
            function=this.callable,
            arguments=(block, self._failure(instance)) if this.always else (block,),
            name=this.name,
            location=this.location,
            asynchronous=this.asynchronous,
            communicates=this.queue == COMMUNICATION,
            variables=variables,
            written=written,
            label=self.number * LABEL + task,
        )


def _check(
    tasks: Sequence[Task], slots: int, patches: Sequence[tuple[int, int, int]], arguments: Sequence[int]
) -> None:
    """Raise if an index is out of range: native code does not check it."""
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
