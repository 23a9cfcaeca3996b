"""Python functions as tasks.

    total = Variable("total")
    push(add, reads=[x], writes=[total])
    push(show, reads=[total])               # runs after add, on a thread of its own
    wait_all()

A task names what it reads and writes by variables, or by objects that have one: `Ordered`, such as arrays.
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import operator
import re
import struct
import sys
from collections.abc import Callable, Sequence
from functools import cache
from types import FrameType
from typing import Any, NamedTuple, Protocol

from tracejit.engine.hosts import HostCall
from tracejit.engine.instance import Instance
from tracejit.engine.program import Program
from tracejit.engine.task import FRESH, READ, Task
from tracejit.engine.variable import Variable
from tracejit.errors import ArgumentError, DeviceError, TracejitError, locate
from tracejit.kernels.executor.layout import INSTANCE_BYTES, TASK_PRIORITY

_PRIORITY = (INSTANCE_BYTES + TASK_PRIORITY) // 8
_LISTS = (list, tuple, set, frozenset)
_CPU = re.compile(r"cpu(:\d+)?").fullmatch


class Ordered(Protocol):
    """An object whose use a variable orders."""

    def __variable__(self) -> Variable:
        """Its variable, on which all its operations so far are enrolled."""


def push(
    fn: Callable[..., object],
    reads: Sequence[Variable | Ordered] = (),
    writes: Sequence[Variable | Ordered] = (),
    priority: int = 0,
    device: object = None,
    name: str | None = None,
    asynchronous: bool = False,
) -> None:
    """Run `fn()` when all tasks pushed before that write `reads`, or use `writes`, have ended.

    It runs on a thread of its own; tasks of higher `priority` first, when several are ready. An
    `asynchronous` task is called as ``fn(on_complete)`` and ends when somebody calls ``on_complete()`` or
    ``on_complete(error)``, from any thread. If it raises, waits for what it writes raise `EngineError` with
    the exception as ``__cause__``, and tasks that read it do not run, until a later task that only writes it
    succeeds.

    `reads` and `writes` hold variables or arrays. The task may look at the arrays it reads, and write to
    those it writes, as usual (``batch[...] = loaded``); what it starts with them ends before the task does.

    `device`: None or a CPU device; all of them share the host threads.
    Raises ArgumentError for what is no function, no list, or no variable and has none, DeviceError for a
    device without host threads.

    >>> import tracejit as tj
    >>> done = []
    >>> v = tj.engine.Variable("done")
    >>> tj.engine.push(lambda: done.append(1), writes=[v])
    >>> tj.engine.push(lambda: done.append(2), writes=[v])
    >>> tj.engine.wait(v)
    >>> done
    [1, 2]
    """
    frame = _caller(sys._getframe(1))
    if not callable(fn):
        raise _located(ArgumentError(f"push: expected a function, got {type(fn).__name__}"), frame)
    if device is not None and not _CPU(str(device)):
        raise _located(DeviceError(f"push: Python tasks run on CPU devices, got {device}"), frame)
    try:
        fits = -(1 << 63) <= operator.index(priority) < 1 << 63
    except TypeError:
        fits = False
    if not fits:
        raise _located(
            ArgumentError(f"push: priority must be an integer of 64 bits, got {priority!r}"), frame
        )
    if not (isinstance(reads, _LISTS) and isinstance(writes, _LISTS)):
        wrong = writes if isinstance(reads, _LISTS) else reads
        kind = type(wrong).__name__
        what = f"push: reads and writes are lists, got {kind}; write [x] for one"
        raise _located(ArgumentError(what), frame)
    kept = (*reads, *writes)
    variables = [x if isinstance(x, Variable) else _variable(x, frame) for x in kept]
    code, line = frame.f_code, frame.f_lineno
    call = _PushedCall(fn, variables, kept, name, code.co_filename, line, asynchronous, priority)
    program = _program(len(reads), len(writes))
    program.launch(program.pack(*program.zeros, *[v.address for v in variables]), call)


def _caller(frame: FrameType) -> FrameType:
    """The nearest frame from `frame` on that is not of this package; `frame` itself if there is none."""
    outer: FrameType | None = frame
    while outer is not None and str(outer.f_globals.get("__name__")).startswith("tracejit."):
        outer = outer.f_back
    return frame if outer is None else outer


def _located(error: TracejitError, caller: FrameType) -> TracejitError:
    """The error with the line that calls `push`."""
    return locate(error, f"{caller.f_code.co_filename}:{caller.f_lineno}")


def _variable(x: Any, caller: FrameType) -> Variable:
    if not hasattr(type(x), "__variable__"):
        kind = type(x).__name__
        what = f"push: reads and writes are arrays or engine variables, got {kind}"
        raise _located(ArgumentError(what), caller)
    variable: Variable = x.__variable__()
    return variable


class _PushedCall(NamedTuple):
    """The arguments of one push; lives as long as its launch."""

    fn: Callable[..., object]
    variables: list[Variable]
    kept: tuple[object, ...]
    name: str | None
    filename: str
    line: int
    asynchronous: bool
    priority: int


class _PushProgram(Program):
    """The program of all pushes with so many variables: one Python task that uses them all."""

    def __init__(self, reads: int, writes: int) -> None:
        task = Task("push", None, 0, 0, 0, 1, uses=range(reads + writes), callable=_never)
        super().__init__([task], arguments=[READ] * reads + [FRESH] * writes)
        self._most = sys.maxsize  # no arena, so no bound
        self.pack = struct.Struct(f"{2 * (reads + writes)}q").pack
        self.zeros = (0,) * (reads + writes)

    def _prepare(self, instance: Instance, packed: bytes, keep: object) -> None:
        assert isinstance(keep, _PushedCall)
        instance.words[_PRIORITY] = keep.priority

    def call(self, task: int, instance: Instance, keep: object) -> HostCall:
        assert isinstance(keep, _PushedCall)
        variables = keep.variables
        return HostCall(
            function=keep.fn,
            arguments=(),
            name=keep.name or getattr(keep.fn, "__qualname__", None) or repr(keep.fn),
            location=f"{keep.filename}:{keep.line}",
            asynchronous=keep.asynchronous,
            communicates=False,
            variables=lambda: tuple(variable.address for variable in variables),
            written=tuple,  # they are poisoned in any case
        )


def _never(block: int) -> None:
    raise AssertionError("a pushed task runs what was pushed")


@cache
def _program(reads: int, writes: int) -> _PushProgram:
    return _PushProgram(reads, writes)
