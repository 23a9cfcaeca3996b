"""The package's errors: each is a `TracejitError` and also the built-in exception that a user would expect.

A message names the operator, the argument, the expectation, the user's ``file:line`` and the remedy.
`locate` appends the location where it is known, so that the code that detects errors need not pass it.

>>> issubclass(ShapeError, ValueError) and issubclass(ShapeError, TracejitError)
True
"""

from __future__ import annotations

from numpy.linalg import LinAlgError as _LinAlgError


class TracejitError(Exception):
    """The base class of every error that this package raises intentionally.

    location: the user's line, ``file:line``, if it is known; the text of the error ends with it.
    message:  the text without it, empty if no location is known.

    >>> import tracejit as tj
    >>> issubclass(tj.errors.ShapeError, tj.TracejitError)
    True
    """

    location: str | None = None
    message: str = ""


class ShapeError(TracejitError, ValueError):
    """The shapes of operands are invalid for the operator.

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
    """An index is out of range for its axis, detected while recording or by a running kernel.

    >>> import tracejit as tj
    >>> try:
    ...     tj.ones(2)[5]
    ... except tj.errors.OutOfBoundsError as error:
    ...     print(type(error).__name__)
    OutOfBoundsError
    """


class DeviceError(TracejitError, ValueError):
    """Operands are on different devices, or a device does not exist.

    >>> import tracejit as tj
    >>> try:
    ...     tj.zeros(2, device="tpu:0")
    ... except tj.errors.DeviceError as error:
    ...     print(type(error).__name__)
    DeviceError
    """


class ArgumentError(TracejitError, TypeError):
    """An argument has the wrong type, or a value that the operator does not accept.

    >>> import tracejit as tj
    >>> try:
    ...     tj.sqrt("two")
    ... except tj.errors.ArgumentError as error:
    ...     print(type(error).__name__)
    ArgumentError
    """


class AllocationError(TracejitError, MemoryError):
    """Memory for an array, or for the intermediate results of a call, cannot be allocated.

    Raised where an array is created, or, as arrays are lazy, where it is read.

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
    """A task failed on the engine; `__cause__` is the original exception, if any.

    >>> import tracejit as tj
    >>> issubclass(tj.errors.EngineError, RuntimeError)
    True
    """


class PeerError(TracejitError, ConnectionError):
    """Another rank of `tj.distributed` has failed or ended, does not respond, or takes part in a different
    exchange.

    >>> import tracejit as tj
    >>> issubclass(tj.errors.PeerError, ConnectionError)
    True
    """

    out_of_step = True
    """Whether no further exchanges are possible, so that the program must restart from a checkpoint. False if
    all ranks failed the same step, and continue with the content that arrays had before it.
    """


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
    """Return the message of any exception, including one whose ``__str__`` raises.

    >>> message(ValueError("bang"))
    'bang'
    """
    try:
        return str(error)
    except Exception as problem:
        return f"({type(error).__name__}, whose message cannot be had: {type(problem).__name__})"


def text(error: BaseException) -> str:
    """Return ``type: message`` of any exception, including one whose ``__str__`` raises.

    >>> text(KeyError("bang"))
    "KeyError: 'bang'"
    """
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as problem:
        return f"{type(error).__name__} (its message cannot be had: {type(problem).__name__})"


def file_and_line(location: str | None) -> tuple[str, str]:
    """Split a location ``file:line`` into file and line, which are empty if there is no location.

    >>> file_and_line("model.py:12")
    ('model.py', '12')
    """
    file, _, line = (location or "").rpartition(":")
    return (file, line) if line.isdigit() else ("", "")


def message_of(error: BaseException) -> str:
    """Return the message of an error without the locations that `locate` has appended.

    >>> message_of(locate(locate(ShapeError("2 and 3 differ"), "model.py:7"), "train.py:12"))
    '2 and 3 differ'
    """
    return error.message if isinstance(error, TracejitError) and error.message else str(error)


def locate(error: TracejitError, location: str | None) -> TracejitError:
    """Append ``at file:line`` to the message of `error`, unless it contains the location, and return it."""
    if location and error.args and location not in str(error.args[0]):
        error.message, error.location = error.message or str(error.args[0]), location
        error.args = (f"{error.args[0]}\n  at {location}", *error.args[1:])
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
