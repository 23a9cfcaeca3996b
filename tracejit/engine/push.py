"""Python functions as tasks.

    total = Variable("total")
    push(add, reads=[x], writes=[total])
    push(show, reads=[total])               # runs after add, on a thread of its own
    wait_all()

A task declares its reads and writes as variables, or as objects with a variable (`Ordered`), such as arrays.
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
_CPU = r"cpu(:\d+)?"


class Ordered(Protocol):
    """An object whose uses are ordered by a variable."""

    def __variable__(self) -> Variable:
        """Return the variable, after all operations on the object so far have been launched with it."""


def push(
    fn: Callable[..., object],
    reads: Sequence[Variable | Ordered] = (),
    writes: Sequence[Variable | Ordered] = (),
    priority: int = 0,
    device: object = None,
    name: str | None = None,
    asynchronous: bool = False,
) -> None:
    """Launch `fn()` as a task, after all previously pushed tasks that write `reads` or use `writes`.

    It runs on a host thread; if several tasks are ready, those of higher `priority` run first. An
    `asynchronous` task is called as ``fn(on_complete)`` and ends when ``on_complete()`` or
    ``on_complete(error)`` is called, from any thread. If a task fails, waits for `writes` raise `EngineError`
    with the exception as ``__cause__``, and tasks that read them are skipped, until a later task that
    overwrites them succeeds.

    reads, writes: lists of variables or arrays. The task may read the values of the former and write to the
                   latter as usual (``batch[...] = loaded``); operations that it launches on them end before
                   the task does.
    device:        None or a CPU device; all CPU devices share the host threads.
    Raises ArgumentError if `fn` is not callable, `reads` or `writes` is not a list, or an item neither is nor
    has a variable; DeviceError for a device without host threads.

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
    if device is not None and not re.fullmatch(_CPU, str(device)):
        raise _located(DeviceError(f"push: Python tasks run on CPU devices, got {device}"), frame)
    try:
        is_valid = -(1 << 63) <= operator.index(priority) < 1 << 63
    except TypeError:
        is_valid = False
    if not is_valid:
        raise _located(
            ArgumentError(f"push: priority must be an integer of 64 bits, got {priority!r}"), frame
        )
    if not (isinstance(reads, _LISTS) and isinstance(writes, _LISTS)):
        invalid = writes if isinstance(reads, _LISTS) else reads
        kind = type(invalid).__name__
        message = f"push: reads and writes are lists, got {kind}; write [x] for one"
        raise _located(ArgumentError(message), frame)
    operands = (*reads, *writes)
    variables = [x if isinstance(x, Variable) else _variable(x, frame) for x in operands]
    code, line = frame.f_code, frame.f_lineno
    call = _PushedCall(fn, variables, operands, name, code.co_filename, line, asynchronous, priority)
    program = _program(len(reads), len(writes))
    program.launch(program.pack(*program.zeros, *[v.address for v in variables]), call)


def _caller(frame: FrameType) -> FrameType:
    """Return the innermost frame, from `frame` outwards, outside this package; `frame` if there is none."""
    outer: FrameType | None = frame
    while outer is not None and str(outer.f_globals.get("__name__")).startswith("tracejit."):
        outer = outer.f_back
    return frame if outer is None else outer


def _located(error: TracejitError, caller: FrameType) -> TracejitError:
    """Add the line that calls `push` to an error."""
    return locate(error, f"{caller.f_code.co_filename}:{caller.f_lineno}")


def _variable(x: Any, caller: FrameType) -> Variable:
    if not hasattr(type(x), "__variable__"):
        kind = type(x).__name__
        message = f"push: reads and writes are arrays or engine variables, got {kind}"
        raise _located(ArgumentError(message), caller)
    variable: Variable = x.__variable__()
    return variable


class _PushedCall(NamedTuple):
    """The arguments of one `push`, kept alive until its launch has ended."""

    fn: Callable[..., object]
    variables: list[Variable]
    operands: tuple[object, ...]
    name: str | None
    filename: str
    line: int
    asynchronous: bool
    priority: int


class _PushProgram(Program):
    """The program of all pushes with these numbers of variables: a single Python task that uses them."""

    def __init__(self, reads: int, writes: int) -> None:
        task = Task("push", None, 0, 0, 0, 1, uses=range(reads + writes), callable=_placeholder)
        super().__init__([task], arguments=[READ] * reads + [FRESH] * writes)
        self._max_instances = sys.maxsize  # unlimited, as it has no arena
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
            plain=False,
            variables=lambda: tuple(variable.address for variable in variables),
            written=tuple,  # FRESH variables are poisoned in any case
        )


def _placeholder(block: int) -> None:
    raise AssertionError("`_PushProgram.call` replaces the function")


@cache
def _program(reads: int, writes: int) -> _PushProgram:
    return _PushProgram(reads, writes)
