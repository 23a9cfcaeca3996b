"""Variables, and waiting for them.

A `Variable` represents something that tasks read and write: a storage, a random stream, a communicator. Tasks
that share a variable which one of them writes run in the order in which they were pushed; all others may run
at once.

    v = Variable("total")
    push(task, writes=[v])
    wait(v)                     # raises what the task raised

The words of variables are recycled. The function that returns a place is kept in the slot `__del__`, as a
partial call of a C function: no line of Python runs when a variable is collected, so an interrupt (which
CPython delivers between lines) cannot be lost there, nor the place with it. A place is taken in the head of a
``for`` for the same reason: nothing comes between the taking and the binding.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from tracejit.engine import failures, native, threads
from tracejit.engine.available_processors import ORDERED
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

SLAB = 256  # variables allocated at once

_WORDS = VARIABLE_BYTES // 8
_free: deque[list[Any]] = deque()
"""Free places of variables: words, their address, and the function that returns the place."""

_take = iter(_free.pop, None)


def _more() -> None:
    with LOCK:
        slab = Record(SLAB * VARIABLE_BYTES)
        places = []
        for i in range(SLAB):
            place = [slab.words[i * _WORDS : (i + 1) * _WORDS], slab.address + i * VARIABLE_BYTES]
            place.append(partial(_free.append, place))
            places.append(place)
        _free.extend(places)


def new_place() -> list[Any]:
    """A place without a `Variable`; a call of its last item returns it."""
    while True:
        try:
            for place in _take:
                return place
        except IndexError:
            _more()


class Variable:
    """A name for ordering. `address` is its native record, which launches take.

    A launch that uses the address must `keep` the variable; memory is recycled when the variable is
    collected.

    >>> import tracejit as tj
    >>> tj.engine.Variable("total")
    Variable('total')
    """

    __slots__ = ("__del__", "__weakref__", "_settled", "_words", "address", "name")
    __del__: Callable[[], None]
    _settled: int  # the number of writers that cannot fail any more

    def __init__(self, name: str | None = None) -> None:
        self.name = name
        while True:
            try:
                for self._words, self.address, self.__del__ in _take:
                    break
            except IndexError:
                _more()
                continue
            if self._words[VARIABLE_HEAD >> 3] == 0:
                break
            _more()
            place = [self._words, self.address, self.__del__]
            del self.__del__
            _free.appendleft(place)  # still used by a launch that did not keep it
        self._words[VARIABLE_POISON >> 3] = 0
        self._words[VARIABLE_FAILURE >> 3] = 0

    def __repr__(self) -> str:
        return f"Variable({self.name!r})" if self.name else f"<Variable at {self.address:#x}>"

    @property
    def ready(self) -> bool:
        """Whether everything pushed so far that writes this has ended and left no garbage. Does not wait.

        >>> import tracejit as tj
        >>> tj.engine.Variable().ready
        True
        """
        words = self._words
        return words[VARIABLE_PUSHED >> 3] == words[VARIABLE_DONE >> 3] and words[VARIABLE_POISON >> 3] == 0

    @property
    def writes(self) -> int:
        """A counter of the tasks and launches that write this; it begins anywhere, only its changes count.

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
        """The exception of the task that left garbage here, or None. Does not wait.

        >>> import tracejit as tj
        >>> tj.engine.Variable().poison is None
        True
        """
        return failure_of(self._words[VARIABLE_POISON >> 3])


NAMED = 3
"""The most failures that `wait_all` names besides the one that it raises."""

LINE = 200
"""The most characters of such a name."""


def wait(*variables: Variable, exclusive: bool = False) -> None:
    """Wait until everything pushed so far that writes `variables` has ended; raise if one of them failed.

    A failed Python task leaves its variables poisoned, and every wait raises until a later write succeeds. A
    failed launch of kernels keeps the contents of what existed before it: a wait for that raises only if no
    wait has raised the failure yet. With `exclusive`, wait until nothing uses the variables at all, so that
    the caller may write their memory. Ctrl-C works.

    Inside a Python task, what the task itself reads or writes is ready, and such a wait returns at once.
    Raises EngineError with the task's exception as ``__cause__``, ArgumentError for what is no variable.

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
    except AttributeError:  # looked for here, as waits are frequent
        for variable in variables:
            if not isinstance(variable, Variable):
                kind = type(variable).__name__
                what = f"wait: expected engine variables, got {kind}; arrays have x.wait()"
                raise ArgumentError(what) from None
        raise
    for variable in variables:
        words: Any = variable._words
        while sequence := native.calls().observe(ENGINE.address, variable.address):
            if words[VARIABLE_POISON >> 3] == sequence or not failures.told(sequence):
                raise find_failure(sequence)


def wait_once(variable: Variable) -> None:
    """Wait as `wait` does, but raise a failure only if no wait has raised it yet.

    >>> import tracejit as tj
    >>> from tracejit.engine.variable import wait_once
    >>> v = tj.engine.Variable()
    >>> tj.engine.push(lambda: 1 / 0, writes=[v])
    >>> try:
    ...     tj.engine.wait_all()
    ... except tj.errors.EngineError:
    ...     wait_once(v)
    """
    if not succeeded(variable) and not failures.told(variable._words[VARIABLE_POISON >> 3]):
        wait(variable)


def settle(*variables: Variable) -> None:
    """Note that what writes the variables so far cannot fail any more, though it may still run."""
    for variable in variables:
        variable._settled = variable._words[VARIABLE_PUSHED >> 3]


def wait_unsettled(*variables: Variable) -> None:
    """Wait for the variables if of their writers one may still fail (see `settle`)."""
    try:
        for variable in variables:
            if variable._settled != variable._words[VARIABLE_PUSHED >> 3]:
                break
        else:
            return
    except AttributeError:  # one that has never been settled
        pass
    wait(*variables)


def succeeded(*variables: Variable, exclusive: bool = False) -> bool:
    """Wait as `wait` does, but raise no failure; return whether there is none that `wait` would raise.

    >>> import tracejit as tj
    >>> tj.engine.succeeded(tj.engine.Variable())
    True
    """
    if not native.loaded():
        return True  # nothing has ever been launched
    task = threads.current().task
    for variable in variables:
        if ORDERED and variable._words[VARIABLE_HEAD >> 3] == 0:
            continue  # nothing uses it
        if task is None or variable.address not in task.variables():
            threads.block(UNUSED if exclusive else WRITTEN, variable.address)
    reap()
    for variable in variables:
        words = variable._words
        if words[VARIABLE_FAILURE >> 3] or words[VARIABLE_POISON >> 3]:
            return False
    return True


def _one_line(error: BaseException) -> str:
    line = " ".join(text(error).removeprefix("EngineError: ").split())
    return line if len(line) <= LINE else f"{line[: LINE // 2]} ... {line[-LINE // 2 :]}"


def wait_all() -> None:
    """Wait until everything launched so far has ended; raise the oldest failure that no wait has raised yet.

    Notes on the exception name the next few such failures and count the others; all of them count as raised.
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
    errors = failures.untold()
    if errors:
        for other in errors[1 : 1 + NAMED]:
            errors[0].add_note(f"also failed: {_one_line(other)}")
        if len(errors) > 1 + NAMED:
            errors[0].add_note(f"and {len(errors) - 1 - NAMED} more failed")
        raise errors[0]
