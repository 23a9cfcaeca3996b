"""The dependency engine: runs opaque tasks in the order that their variables require.

An operation declares the variables it reads and writes. Operations that share a variable which one of them
writes run in the order of their launch; all others may run concurrently (MXNet's contract). `Program` is a
static graph of native tasks, `push` launches a single Python function; neither waits for its tasks. `wait`
waits for a variable, and raises the failure of its tasks.

    v = Variable()
    push(work, writes=[v])
    wait(v)

Modules; each imports only modules to its right and below:

    direct, push                        programs that run synchronously on the calling thread; Python
                                        functions as tasks
    lifecycle, program                  the engine around a fork and at exit; static graphs of tasks
    hosts                               the threads that run Python tasks, and their completion
    profiler                            one event per task and thread, in a ring buffer
    cuda, instance                      GPUs; the native records of a program's launches
    memory                              buffers in size classes, recycled
    variable                            variables, and waiting for them
    launches                            launches in flight, and their retirement
    failures, threads                   failures by launch; workers, and Python threads that wait
    native, available_processors, task  records and entry points of the native executor; processors; steps
                                        of a program

The package imports `kernels`. Tasks are opaque to it.
"""

from __future__ import annotations

from tracejit.engine import native
from tracejit.engine.available_processors import processors
from tracejit.engine.hosts import AROUND_TASKS, report, run_here
from tracejit.engine.instance import LABEL
from tracejit.engine.lifecycle import drain, stop
from tracejit.engine.memory import Buffer, ExhaustedError, Pool, Statistics, pool, pool_of
from tracejit.engine.profiler import Event, OpenProfile, Profile, TaskDescription
from tracejit.engine.program import FINISHED, PROGRAMS, Program
from tracejit.engine.push import push
from tracejit.engine.task import ARENA, COMMUNICATION, FRESH, HOST, NUMBER, OVERWRITE, READ, WRITE, Task
from tracejit.engine.threads import held, set_workers, workers
from tracejit.engine.variable import Variable, succeeded, wait, wait_all

__all__ = [
    "ARENA",
    "AROUND_TASKS",
    "COMMUNICATION",
    "FINISHED",
    "FRESH",
    "HOST",
    "NUMBER",
    "OVERWRITE",
    "READ",
    "WRITE",
    "Buffer",
    "Event",
    "ExhaustedError",
    "Pool",
    "Profile",
    "Program",
    "Statistics",
    "Task",
    "Variable",
    "held",
    "pool",
    "pool_of",
    "processors",
    "profile",
    "push",
    "report",
    "run_here",
    "set_workers",
    "start",
    "stop",
    "succeeded",
    "wait",
    "wait_all",
    "workers",
]


def start() -> None:
    """Load the native executor, compiling it if no kernel store contains it, and start the workers.

    Without this call, the first launch does so.

    >>> import tracejit as tj
    >>> tj.engine.start()
    """
    native.calls()
    workers.ensure()


def profile() -> OpenProfile:
    """Record the tasks of a ``with`` block, which waits at its start and end for all tasks in flight.

    Raises EngineError if a profile is open already.

    >>> import tracejit as tj
    >>> with tj.profile() as profile:
    ...     x = (tj.ones(100) * 2).wait()
    >>> isinstance(profile.events, list)
    True
    """
    return OpenProfile(_describe, drain)


def _describe(label: int) -> TaskDescription:
    program = PROGRAMS.get(label // LABEL)
    if program is None:
        return TaskDescription("task of a deleted program")
    task = program.tasks[label % LABEL]
    return TaskDescription(task.name, task.location, task.queue, task.estimate, program)
