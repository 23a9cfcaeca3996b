"""Variables, and waiting for them.

A `Variable` represents a resource that tasks read and write: a storage, a random stream, a communicator.
Tasks that share a variable which one of them writes run in the order in which they were pushed; all others
may run concurrently.

    v = Variable("total")
    push(task, writes=[v])
    wait(v)                     # raises the failure of the task

The native records of variables, *slots*, are recycled. The function that returns a slot is stored as the
attribute `__del__`, a partial call of a C function: no Python code runs when a variable is collected. So
neither an interrupt, which CPython delivers while it executes Python code, nor the slot can be lost there. A
slot is obtained in the head of a ``for`` statement for the same reason: no interrupt can occur between its
removal from the free list and its binding.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from tracejit.engine import failures, native, threads
from tracejit.engine.available_processors import LOADS_ACQUIRE
from tracejit.engine.launches import failure_of, find_failure, reap
from tracejit.engine.native import ENGINE, LOCK, Record
from tracejit.errors import ArgumentError, EngineError, text
from tracejit.kernels.executor.layout import (
    ALL,
    UNUSED,
    VARIABLE_BYTES,
    VARIABLE_DONE,
    VARIABLE_FAILURE,
    VARIABLE_HEAD,
    VARIABLE_POISON,
    VARIABLE_PUSHED,
    WRITTEN,
)

SLAB_SIZE = 256  # variables allocated together

_WORDS = VARIABLE_BYTES // 8
_free: deque[list[Any]] = deque()
"""The free slots: words, their address, and the function that returns the slot."""

_take = iter(_free.pop, None)


def _add_slab() -> None:
    with LOCK:
        slab = Record(SLAB_SIZE * VARIABLE_BYTES)
        slots = []
        for i in range(SLAB_SIZE):
            slot = [slab.words[i * _WORDS : (i + 1) * _WORDS], slab.address + i * VARIABLE_BYTES]
            slot.append(partial(_free.append, slot))
            slots.append(slot)
        _free.extend(slots)


def new_slot() -> list[Any]:
    """Return a slot without a `Variable`; calling its last item returns it to the free list."""
    while True:
        try:
            for slot in _take:
                return slot
        except IndexError:
            _add_slab()


class Variable:
    """A resource by which tasks are ordered. `address` is that of its native record, for launches.

    A launch that uses the address must `keep` the variable alive; the record is recycled when the variable
    is collected.

    >>> import tracejit as tj
    >>> tj.engine.Variable("total")
    Variable('total')
    """

    __slots__ = ("__del__", "__weakref__", "_committed", "_words", "address", "name")
    __del__: Callable[[], None]
    _committed: int  # the value of `writes` up to which writers cannot fail any more

    def __init__(self, name: str | None = None) -> None:
        self.name = name
        while True:
            try:
                for self._words, self.address, self.__del__ in _take:
                    break
            except IndexError:
                _add_slab()
                continue
            if self._words[VARIABLE_HEAD >> 3] == 0:
                break
            _add_slab()
            slot = [self._words, self.address, self.__del__]
            del self.__del__
            _free.appendleft(slot)  # a launch that did not keep it alive still uses it
        self._words[VARIABLE_POISON >> 3] = 0
        self._words[VARIABLE_FAILURE >> 3] = 0

    def __repr__(self) -> str:
        return f"Variable({self.name!r})" if self.name else f"<Variable at {self.address:#x}>"

    @property
    def ready(self) -> bool:
        """Whether all writers pushed so far have ended, and the variable is not poisoned. Does not wait.

        >>> import tracejit as tj
        >>> tj.engine.Variable().ready
        True
        """
        words = self._words
        return words[VARIABLE_PUSHED >> 3] == words[VARIABLE_DONE >> 3] and words[VARIABLE_POISON >> 3] == 0

    @property
    def writes(self) -> int:
        """A counter of the tasks and launches that write this variable; its initial value is arbitrary.

        >>> import tracejit as tj
        >>> v = tj.engine.Variable()
        >>> before = v.writes
        >>> tj.engine.push(lambda: None, writes=[v])
        >>> v.writes - before
        1
        """
        return int(self._words[VARIABLE_PUSHED >> 3])

    @property
    def poison(self) -> BaseException | None:
        """The exception of the failed task that poisoned this variable, or None. Does not wait.

        >>> import tracejit as tj
        >>> tj.engine.Variable().poison is None
        True
        """
        return failure_of(self._words[VARIABLE_POISON >> 3])


MAX_NOTES = 3
"""Maximum number of failures that `wait_all` names in addition to the one it raises."""

MAX_NOTE_LENGTH = 200
"""Maximum number of characters of such a note."""


def wait(*variables: Variable, exclusive: bool = False) -> None:
    """Wait until all tasks pushed so far that write `variables` have ended; raise if one of them failed.

    A failed Python task leaves its variables poisoned, and every wait raises until a later write succeeds. A
    failed launch of kernels preserves the contents of existing storage: a wait for that raises only if no
    wait has raised the failure yet. With `exclusive`, wait until no task uses the variables, so that the
    caller may write their memory. Ctrl-C interrupts the wait.

    Inside a Python task, variables that the task itself reads or writes are ready, so a wait for them returns
    immediately. Raises EngineError with the task's exception as ``__cause__``, ArgumentError if an argument
    is not a variable.

    >>> import tracejit as tj
    >>> v = tj.engine.Variable()
    >>> tj.engine.push(lambda: 1 / 0, writes=[v])
    >>> try:
    ...     tj.engine.wait(v)
    ... except tj.errors.EngineError as error:
    ...     print(type(error.__cause__).__name__)
    ZeroDivisionError
    """
    try:
        if succeeded(*variables, exclusive=exclusive):
            return
    except AttributeError:  # arguments are checked only here, as waits are frequent
        for variable in variables:
            if not isinstance(variable, Variable):
                kind = type(variable).__name__
                message = f"wait: expected engine variables, got {kind}; arrays have x.wait()"
                raise ArgumentError(message) from None
        raise
    for variable in variables:
        words: Any = variable._words
        while sequence := native.calls().observe(ENGINE.address, variable.address):
            if words[VARIABLE_POISON >> 3] == sequence or not failures.was_raised(sequence):
                raise find_failure(sequence)


def wait_once(variable: Variable) -> None:
    """Wait like `wait`, but raise a failure only if no wait has raised it yet.

    >>> import tracejit as tj
    >>> from tracejit.engine.variable import wait_once
    >>> v = tj.engine.Variable()
    >>> tj.engine.push(lambda: 1 / 0, writes=[v])
    >>> try:
    ...     tj.engine.wait_all()
    ... except tj.errors.EngineError:
    ...     wait_once(v)
    """
    if not succeeded(variable) and not failures.was_raised(variable._words[VARIABLE_POISON >> 3]):
        wait(variable)


def mark_committed(*variables: Variable) -> None:
    """Note that the launched writers of the variables cannot fail any more, although they may still run."""
    for variable in variables:
        variable._committed = variable._words[VARIABLE_PUSHED >> 3]


def wait_uncommitted(*variables: Variable) -> None:
    """Wait for the variables if one of their writers may still fail (see `mark_committed`)."""
    try:
        for variable in variables:
            if variable._committed != variable._words[VARIABLE_PUSHED >> 3]:
                break
        else:
            return
    except AttributeError:  # a variable that has never been marked
        pass
    wait(*variables)


def succeeded(*variables: Variable, exclusive: bool = False) -> bool:
    """Wait like `wait`, but raise no failure; return whether there is none that `wait` would raise.

    >>> import tracejit as tj
    >>> tj.engine.succeeded(tj.engine.Variable())
    True
    """
    if not native.loaded():
        return True  # there has been no launch
    task = threads.current().task
    for variable in variables:
        if LOADS_ACQUIRE and variable._words[VARIABLE_HEAD >> 3] == 0:
            continue  # no task uses it
        if task is None or variable.address not in task.variables():
            threads.block(UNUSED if exclusive else WRITTEN, variable.address)
    reap()
    for variable in variables:
        words = variable._words
        if words[VARIABLE_FAILURE >> 3] or words[VARIABLE_POISON >> 3]:
            return False
    return True


def _one_line(error: BaseException) -> str:
    shown = str(error) if type(error) is EngineError else text(error)
    line = " ".join(shown.split())
    return (
        line
        if len(line) <= MAX_NOTE_LENGTH
        else f"{line[: MAX_NOTE_LENGTH // 2]} ... {line[-MAX_NOTE_LENGTH // 2 :]}"
    )


def wait_all() -> None:
    """Wait until all launches so far have ended; raise the oldest failure that no wait has raised yet.

    Notes of the exception name a few more such failures and the number of others; all are marked as raised.
    Raises EngineError inside a task.

    >>> import tracejit as tj
    >>> tj.engine.push(lambda: None)
    >>> tj.engine.wait_all()
    """
    if not native.loaded():
        return
    if threads.current().task is not None:
        raise EngineError(
            "wait_all() inside a task would wait for the task itself; wait for single variables instead"
        )
    threads.block(ALL, 0)
    reap()
    errors = failures.take_unraised()
    if errors:
        for error in errors[1 : 1 + MAX_NOTES]:
            errors[0].add_note(f"also failed: {_one_line(error)}")
        if len(errors) > 1 + MAX_NOTES:
            errors[0].add_note(f"and {len(errors) - 1 - MAX_NOTES} more failed")
        raise errors[0]
