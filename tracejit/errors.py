"""Errors that teach: every error is a `TracejitError` and also the builtin a Python programmer expects.

A message names the operator, the argument, the expectation, the user's ``file:line`` and the remedy.
`locate` adds the location once, at the place where it is known, so that the rules themselves stay short.

>>> issubclass(ShapeError, ValueError) and issubclass(ShapeError, TracejitError)
True
"""

from __future__ import annotations

from numpy.linalg import LinAlgError as _LinAlgError


class TracejitError(Exception):
    """Base of every error this package raises on purpose.

    >>> import tracejit as tj
    >>> issubclass(tj.errors.ShapeError, tj.TracejitError)
    True
    """


class ShapeError(TracejitError, ValueError):
    """Shapes do not fit the operator.

    >>> import tracejit as tj
    >>> try:
    ...     tj.ones(2) + tj.ones(3)
    ... except tj.errors.ShapeError as error:
    ...     print(type(error).__name__)
    ShapeError
    """


class DTypeError(TracejitError, TypeError):
    """A dtype is not supported by the operator, or a cast would lose information silently.

    >>> import tracejit as tj
    >>> try:
    ...     tj.zeros(2, dtype="datetime64")
    ... except tj.errors.DTypeError as error:
    ...     print(type(error).__name__)
    DTypeError
    """


class AxisError(TracejitError, ValueError, IndexError):
    """An axis is out of range or repeated.

    >>> import tracejit as tj
    >>> try:
    ...     tj.ones(2).sum(axis=1)
    ... except tj.errors.AxisError as error:
    ...     print(type(error).__name__)
    AxisError
    """


class OutOfBoundsError(TracejitError, IndexError):
    """An index lies outside its axis, found while recording or by a running kernel.

    >>> import tracejit as tj
    >>> try:
    ...     tj.ones(2)[5]
    ... except tj.errors.OutOfBoundsError as error:
    ...     print(type(error).__name__)
    OutOfBoundsError
    """


class DeviceError(TracejitError, ValueError):
    """Operands live on different devices, or a device does not exist.

    >>> import tracejit as tj
    >>> try:
    ...     tj.zeros(2, device="tpu:0")
    ... except tj.errors.DeviceError as error:
    ...     print(type(error).__name__)
    DeviceError
    """


class ArgumentError(TracejitError, TypeError):
    """An argument has the wrong type or a value the operator does not take.

    >>> import tracejit as tj
    >>> try:
    ...     tj.sqrt("two")
    ... except tj.errors.ArgumentError as error:
    ...     print(type(error).__name__)
    ArgumentError
    """


class AllocationError(TracejitError, MemoryError):
    """There is no memory for an array, or for the intermediate results of a call.

    Raised where an array is made, or, as arrays are lazy, where it is read.

    >>> import tracejit as tj
    >>> try:
    ...     tj.zeros((1 << 30, 1 << 20)).wait()
    ... except tj.errors.AllocationError as error:
    ...     print(isinstance(error, MemoryError))
    True
    """


class ReadOnlyError(TracejitError, ValueError):
    """A write to a read-only array, e.g. a broadcast view.

    >>> import tracejit as tj
    >>> try:
    ...     tj.broadcast_to(tj.ones(1), (2,)).fill(0)
    ... except tj.errors.ReadOnlyError as error:
    ...     print(type(error).__name__)
    ReadOnlyError
    """


class ReplayError(TracejitError, RuntimeError):
    """A traced function does something that cannot be replayed (raised with ``strict=True``).

    >>> import tracejit as tj
    >>> try:
    ...     tj.jit(lambda x: x.tolist(), strict=True)(tj.ones(()))
    ... except tj.errors.ReplayError as error:
    ...     print(type(error).__name__)
    ReplayError
    """


class LinAlgError(TracejitError, _LinAlgError):
    """A matrix has no such factorization or solution: it is singular, or not positive definite.

    It is also a ``numpy.linalg.LinAlgError``.

    >>> import tracejit as tj
    >>> issubclass(tj.errors.LinAlgError, ValueError)
    True
    """


class EngineError(TracejitError, RuntimeError):
    """A task failed on the engine; `__cause__` is the original exception where there is one.

    >>> import tracejit as tj
    >>> issubclass(tj.errors.EngineError, RuntimeError)
    True
    """


class PeerError(TracejitError, ConnectionError):
    """Another rank of `tj.distributed` has failed, has ended, does not answer, or exchanges something else.

    >>> import tracejit as tj
    >>> issubclass(tj.errors.PeerError, ConnectionError)
    True
    """

    out_of_step = True
    """Whether exchanges are over: the remedy is to start again from a checkpoint. False where all ranks
    failed the same step, and go on with the content that arrays had before it."""


class CheckError(TracejitError, AssertionError):
    """`TRACEJIT_CHECK=1` found an operator whose result differs from the NumPy evaluator's.

    >>> import tracejit as tj
    >>> issubclass(tj.errors.CheckError, AssertionError)
    True
    """


class VerificationError(TracejitError, AssertionError):
    """A graph breaks an invariant of the IR: a bug in a pass, not in user code.

    >>> import tracejit as tj
    >>> issubclass(tj.errors.VerificationError, AssertionError)
    True
    """


def message(error: BaseException) -> str:
    """Return the message of any exception, also of one whose ``__str__`` raises.

    >>> message(ValueError("bang"))
    'bang'
    """
    try:
        return str(error)
    except Exception as problem:
        return f"({type(error).__name__}, whose message cannot be had: {type(problem).__name__})"


def text(error: BaseException) -> str:
    """Return ``type: message`` of any exception, also of one whose ``__str__`` raises.

    >>> text(KeyError("bang"))
    "KeyError: 'bang'"
    """
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as problem:
        return f"{type(error).__name__} (its message cannot be had: {type(problem).__name__})"


AT = "\n  at "
"""The text between the message of an error and its location."""


def file_and_line(location: str | None) -> tuple[str, str]:
    """The two parts of a location ``file:line``; empty where there is none.

    >>> file_and_line("model.py:12")
    ('model.py', '12')
    """
    file, _, line = (location or "").rpartition(":")
    return (file, line) if line.isdigit() else ("", "")


def message_of(error: BaseException) -> str:
    """The message of an error without the location that `locate` has appended."""
    return str(error).partition(AT)[0]


def locate(error: TracejitError, location: str | None) -> TracejitError:
    """Return `error` with ``(at file:line)`` appended to its message, once."""
    if location and error.args and location not in str(error.args[0]):
        error.args = (f"{error.args[0]}{AT}{location}", *error.args[1:])
    return error


__all__ = [
    "AllocationError",
    "ArgumentError",
    "AxisError",
    "CheckError",
    "DTypeError",
    "DeviceError",
    "EngineError",
    "LinAlgError",
    "OutOfBoundsError",
    "PeerError",
    "ReadOnlyError",
    "ReplayError",
    "ShapeError",
    "TracejitError",
    "VerificationError",
]
