"""Dispatch of user calls to nodes: promote, broadcast, cast, emit, wrap.

All array code records operators through `apply(op, *operands, **attrs)` and the other functions here.
Operands are NDArrays, NumPy arrays and scalars, Python numbers, or the number proxies of a trace. Dtypes
follow NumPy 2: `np.result_type` between arrays, and Python numbers are weak. Operators never receive an
ArrayCore, but values of one dtype and one shape.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracejit.errors import ArgumentError, DeviceError, DTypeError, ShapeError, TracejitError, locate
from tracejit.frontend.arrays import dlpack, immediate, in_memory, promotion
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.devices import default_device
from tracejit.frontend.arrays.promotion import PromotionOperand
from tracejit.frontend.arrays.views import dropped
from tracejit.frontend.recording import eager
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.number import NumberProxy, is_of, unproxied
from tracejit.frontend.recording.origins import RuntimeNumber
from tracejit.frontend.recording.recording import Recording, lock, quiet, thread
from tracejit.frontend.recording.storage import Uncounted
from tracejit.ir.graph import Value
from tracejit.ir.op import Op, Trait
from tracejit.ir.types import CPU, Device, is_floating, is_inexact
from tracejit.ir.view import View
from tracejit.ops import astype, copy_to, less, where
from tracejit.ops import complex as complex_op
from tracejit.ops import copy as copy_op
from tracejit.ops import full as full_op
from tracejit.ops import view as view_op
from tracejit.ops.complex_numbers import part_dtype


def _check_number(name: str, x: PromotionOperand, dtype: np.dtype) -> None:
    """Raise DTypeError if `x` is a number that does not fit `dtype`.

    For an integer dtype, the check of a traced number is a look.
    """
    if isinstance(x, complex) and dtype.kind != "c":
        raise locate(
            DTypeError(f"{name}: the complex number {x} does not fit into {dtype}; take its real part"),
            user_location(),
        )
    is_number = not isinstance(x, ArrayCore) and (dtype.kind in "iu" or type(x) is not NumberProxy)
    if is_number and not promotion.fits(x, dtype):
        raise promotion.too_wide(name, x, dtype)


def apply(op: Op, *operands: PromotionOperand, **attrs: Any) -> Any:
    """Perform ``op(*operands)`` on promoted and broadcast operands, immediately or by recording it."""
    computed = None if attrs else immediate.apply(op, *operands)
    return record(op, *operands, **attrs) if computed is None else computed


def record(op: Op, *operands: PromotionOperand, **attrs: Any) -> Any:
    """Record `op` on promoted and broadcast operands, and wrap its results."""
    for x in operands:
        if type(x) is not ArrayCore.concrete and type(x) not in NATIVE:
            device = device_of(operands)
            operands = tuple(
                [operand_on(op.name, x, device, is_read_only=True) for x in operands]
            )  # may run user code
            break
    with quiet:
        return _record(op, operands, attrs)


NATIVE = frozenset({NumberProxy, bool, int, float, complex})
"""The types of numbers that are operands without conversion."""

Wrap = Callable[[Recording, Any], Any]
"""A function that converts a node's result to the object that is returned to the caller."""


def wrap(recording: Recording, result: Value | tuple[Value, ...]) -> Any:
    """Return new arrays with the results of a node."""
    if isinstance(result, tuple):
        return tuple([ArrayCore.new(recording.new(v)) for v in result])
    return ArrayCore.new(recording.new(result))


def _record(op: Op, operands: Sequence[PromotionOperand], attrs: dict[str, Any], wrap: Wrap = wrap) -> Any:
    """Implement `record` for converted operands; `wrap` converts the result."""
    arrays: list[ArrayCore] = []
    kinds: list[Any] = []
    for x in operands:
        if isinstance(x, ArrayCore):
            storage = x._storage
            if type(storage) is Uncounted:
                result = storage.buffer.applied(lambda *parts: record(op, *parts, **attrs), operands)
                return _record(op, operands, attrs, wrap) if result is None else result
            arrays.append(x)
            kinds.append(storage.type.dtype)
        else:
            kinds.append(type(x) if type(x) is float else promotion.kind_of(x))
    is_mixed = len(arrays) == 2 == op.arity and kinds[0] is not kinds[1] and promotion.mixed_signs(*kinds)
    if is_mixed and promotion.is_comparison(op):
        return _compare_mixed(op, *operands)
    dtypes = promotion.promoted(op, tuple(kinds))
    trace = thread.trace
    if trace is not None and trace.recorded_numpy:
        _check_weak(op, arrays, dtypes)
    shape = common_shape(op.name, arrays)
    if len(arrays) < len(operands):
        misfit = _too_wide(operands, dtypes)
        if misfit is not None:
            return _compare_wide(op, operands, misfit, shape)
    with lock:
        recording = eager.current()
        values = _operands(recording, operands, dtypes, shape)
        if not arrays and values[0].type.on_host:  # complex numbers are arrays already
            values[0] = recording.emit(full_op, values[0], shape=(), device=device_of(operands))
        result = wrap(recording, recording.emit(op, *values, **attrs))
    recording.end_operation()
    return result


def _check_weak(op: Op, arrays: list[ArrayCore], dtypes: Sequence[np.dtype]) -> None:
    """Fall back to piecewise execution if a 0-d float64 array may stand for a NumPy scalar.

    A scalar would be weak; the fallback happens only if weak promotion would give another dtype.
    """
    if any(x.dtype == np.float64 and not x.ndim for x in arrays) and any(
        x.dtype in promotion.DOUBLES and promotion.DOUBLES[x.dtype] in dtypes for x in arrays
    ):
        thread.trace.refuse_number(f"{op.name}: a float64 number widens an array")


def _too_wide(
    operands: Sequence[PromotionOperand], dtypes: Sequence[np.dtype]
) -> tuple[Any, np.dtype] | None:
    """Return a number that does not fit the dtype to which it is cast, and this dtype; None if all fit."""
    for x, dtype in zip(operands, dtypes, strict=True):
        if type(x) is float or (type(x) is NumberProxy and is_floating(dtype)):
            continue  # a run-time integer too large for a float is an error of the launch
        if not isinstance(x, ArrayCore) and not promotion.fits(x, dtype):
            return x, dtype
    return None


def _compare_wide(
    op: Op, operands: Sequence[PromotionOperand], misfit: tuple[Any, np.dtype], shape: tuple[int, ...]
) -> Any:
    """Compare integers with a number outside the range of their dtype; raise an error for other operators."""
    number, dtype = misfit
    if not promotion.is_comparison(op) or dtype.kind not in "iu":
        raise promotion.too_wide(op.name, number, dtype)
    truth = op.evaluate(*(x if x is number else 0 for x in operands))
    return full(bool(truth), shape, np.dtype(bool), device_of(operands))


def _compare_mixed(op: Op, x1: Any, x2: Any) -> Any:
    """Compare a signed with a uint64 array exactly, as NumPy does: negative elements are the smallest."""
    signed = x1 if x1.dtype.kind == "i" else x2
    truth = bool(op.evaluate(-1, 0) if signed is x1 else op.evaluate(0, -1))
    result = apply(op, *(emit(astype, x, dtype=promotion.UINT64) if x is signed else x for x in (x1, x2)))
    return apply(where, apply(less, signed, 0), truth, result)


def emit(op: Op, *operands: ArrayCore | Value, **attrs: Any) -> Any:
    """Perform `op` on arrays without promotion and broadcasting, immediately or by recording it."""
    computed = immediate.evaluate(op, operands, attrs)
    if computed is not None:
        return computed
    for x in operands:
        if isinstance(x, ArrayCore) and type(x._storage) is Uncounted:
            result = _emitted(op, x._storage.buffer, operands, attrs)
            if result is not None:
                return result
    with quiet, lock:
        recording = eager.current()
        values = read_all(
            recording,
            lambda: [
                recording.read(x._storage, x._view) if isinstance(x, ArrayCore) else x for x in operands
            ],
        )
        result = wrap(recording, recording.emit(op, *values, **attrs))
    recording.end_operation()
    return result


def element(x: ArrayCore) -> Any:
    """Return a new array of the only element of `x`.

    In a trace it can be a view, since values are immutable.
    """
    trace = thread.trace
    if trace is None or type(x._storage) is Uncounted:
        return emit(copy_op, x)
    with quiet, lock:
        (value,) = read_all(trace, lambda: [trace.read(x._storage, x._view)])
        last = trace.nodes[-1] if trace.nodes else None
        if last is None or last.op is not view_op or last.outputs[0] is not value:
            value = trace.emit(copy_op, value)
        result = wrap(trace, value)
        trace.note_number(result._storage)
    trace.end_operation()
    return result


def _emitted(op: Op, selection: Any, operands: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """Apply an operator to a masked selection without its extent.

    If the operator needs the extent, count the selected elements and return None.
    """
    if Trait.ELEMENTWISE in op.traits and Trait.CAN_FAIL not in op.traits:
        return selection.applied(lambda *parts: emit(op, *parts, **attrs), operands)
    selection.gather()
    return None


def full(
    value: PromotionOperand, shape: tuple[int, ...], dtype: np.dtype, device: Device, name: str = "full"
) -> Any:
    """Return a new array filled with a number, or with a broadcastable array."""
    value = as_operand(name, value)
    _check_number(name, value, dtype)
    computed = immediate.full(value, shape, dtype, device)
    if computed is not None:
        return computed
    with quiet, lock:
        recording = eager.current()
        kind = _dtype_of_number(value, dtype)
        content = value_of(recording, value, kind, shape, device)
        if content.type.on_host:
            content = recording.emit(full_op, content, shape=shape, device=device)
            if kind != dtype:
                content = recording.emit(astype, content, dtype=dtype)
        elif isinstance(value, ArrayCore):
            content = recording.emit(copy_op, content)
        result = wrap(recording, content)
    recording.end_operation()
    return result


def as_array(name: str, x: Any) -> Any:
    """Return `x` as an NDArray; numbers become 0-d arrays of their default dtype."""
    operand = as_operand(name, x)
    if isinstance(operand, ArrayCore):
        return operand
    return full(operand, (), promotion.common_dtype(name, (operand,)), default_device(), name)


def _dtype_of_number(x: PromotionOperand, dtype: np.dtype) -> np.dtype:
    """Return the dtype in which an operand is recorded before a cast to `dtype`.

    A float number for an integer dtype is recorded as float64, because only arrays can be truncated.
    """
    truncated = not is_inexact(dtype) and not isinstance(x, ArrayCore) and isinstance(x, float)
    return np.dtype("float64") if truncated else dtype


def cast(x: Any, dtype: np.dtype) -> Any:
    """Cast `x` to `dtype`; return the array itself if it already has this dtype."""
    return x if x.dtype == dtype else emit(astype, x, dtype=dtype)


def write(
    target: ArrayCore, value: PromotionOperand, name: str = "assignment", *, casts: bool = False
) -> None:
    """Store `value`, broadcast and cast, into the elements that `target` views.

    As in NumPy, an assignment (`casts`) converts between all dtypes, an in-place operator only as
    ``same_kind`` casting allows.
    """
    if not in_memory.write(target, value):
        operand = operand_on(name, value, target.device)
        with quiet:
            _record_write(target, operand, name, casts=casts)


def _record_write(target: ArrayCore, value: PromotionOperand, name: str, *, casts: bool) -> None:
    """Implement `write` for converted operands, by recording."""
    is_alike = (
        isinstance(value, ArrayCore)
        and value._storage.type.dtype is target._storage.type.dtype
        and value._storage.type.device is target._storage.type.device
        and value._view.shape == target._view.shape
    )
    if not is_alike:
        value = _storable(target, value, name, casts)
    dtype = target.dtype
    with quiet, lock:
        recording = eager.current(cut=casts)  # an in-place operator must not be split
        exact = _dtype_of_number(value, dtype)
        new = value_of(recording, value, exact, target.shape, target.device)
        if new.type.on_host:
            new = recording.emit(full_op, new, shape=target.shape, device=target.device)
        if exact != dtype:
            new = recording.emit(astype, new, dtype=dtype)
        _rebind(recording, target, new)
    recording.end_operation()


def _rebind(recording: Recording, target: ArrayCore, new: Value) -> None:
    """Record `new`, of the shape, dtype and device of `target`, as the new content of its elements."""
    storage = target._storage
    try:
        is_pending = storage.pending is not None and storage.recording is recording
        if not is_pending and recording is not thread.trace:
            new = _with_window(recording, target, new)
        recording.write(storage, target._view, new)
    except TracejitError as error:
        raise locate(error, user_location()) from None


def _storable(target: ArrayCore, value: PromotionOperand, name: str, casts: bool) -> PromotionOperand:
    """Return `value` without excess leading dimensions; raise an error if it cannot be stored in `target`."""
    if isinstance(value, ArrayCore) and value.device is not target.device:
        what = (
            f"{name}: an array on {value.device} is stored into one on {target.device}; "
            f'move it first, as in x.to("{target.device}")'
        )
        raise locate(DeviceError(what), user_location())
    dtype = target.dtype
    _check_number(name, value, dtype)
    kind = promotion.kind_of(value)
    source = promotion.common(name, (kind, dtype)) if isinstance(kind, type) else kind
    if not casts and not np.can_cast(source, dtype, "same_kind"):
        kind_name = kind.__name__ if isinstance(kind, type) else str(kind)
        raise locate(
            DTypeError(
                f"{name}: cannot store {kind_name} values in an array of dtype {dtype} without losing "
                f"information; cast the value with astype({dtype}) or use an array of dtype {source}"
            ),
            user_location(),
        )
    shape = value.shape if isinstance(value, ArrayCore) else ()
    if isinstance(value, ArrayCore) and len(shape) > target.ndim:
        extra = len(shape) - target.ndim
        if all(n == 1 for n in shape[:extra]):
            value = dropped(value, *range(extra))
            shape = value.shape
    if broadcast_shape(name, [shape, target.shape]) != target.shape:
        raise locate(
            ShapeError(
                f"{name}: a value of shape {shape} does not fit into an array of shape {target.shape}"
            ),
            user_location(),
        )
    return value


def update(op: Op, target: ArrayCore, other: PromotionOperand) -> None:
    """Store ``op(target, other)`` into the elements of `target`, atomically with respect to other threads."""
    trace = thread.trace
    with quiet:
        if trace is not None and not trace.recorded_numpy and _are_counted(target, other):
            with lock:  # no launch of the trace can intervene, so the result needs no array
                new = _record(op, (target, other), {}, _unwrapped)
                new_type, old_type = new.type, target._storage.type
                if (
                    new_type.dtype == old_type.dtype
                    and new_type.device is old_type.device
                    and new_type.shape == target._view.shape
                ):
                    _rebind(trace, target, new)
                else:
                    _record_write(target, wrap(trace, new), f"in-place {op.name}", casts=False)
            trace.end_operation()
            return
    in_place(op.name, functools.partial(record, op), target, other)


def _are_counted(target: ArrayCore, other: PromotionOperand) -> bool:
    """Whether the extents of both operands are known, and `other` needs no conversion by `operand_on`."""
    if type(target._storage) is Uncounted:
        return False
    if type(other) is ArrayCore.concrete:
        return type(other._storage) is not Uncounted
    return type(other) in NATIVE


def _unwrapped(_recording: Recording, result: Any) -> Any:
    return result


def in_place(
    name: str, function: Callable[[Any, Any], Any], target: ArrayCore, other: PromotionOperand
) -> None:
    """Store ``function(target, other)`` into the elements of `target`, atomically for other threads."""
    if type(other) not in NATIVE and not isinstance(other, ArrayCore):
        other = operand_on(name, other, target.device)
    for x in (target, other):
        if isinstance(x, ArrayCore) and type(x._storage) is Uncounted:
            if x is target:
                x._storage.buffer.trace.picks.check_write(x._storage)
            contents = x._storage.buffer.contents((target, other)) if x is target else None
            if contents is not None:
                return in_place(name, function, *contents)
            x._storage.initialise()
    trace = thread.trace
    if trace is not None and trace.recorded_numpy and not target.ndim and target._storage.pending is not None:
        trace.refuse_number(f"in-place {name} changes an array without dimensions")
    with quiet:
        with lock:
            before = thread.updates, thread.busy
            try:
                thread.be_busy(thread.busy + 1)
                thread.updates += 1
                _record_write(target, function(target, other), f"in-place {name}", casts=False)
            finally:
                thread.updates, thread.busy = before
                thread.be_busy(thread.busy)
            recording = eager.current(cut=False)
        recording.end_operation()


def _with_window(recording: Recording, target: ArrayCore, new: Value) -> Value:
    """Create the window through which `target` is written, and return `new`, read again after a flush."""
    array = recording.new(new)
    recording.window(target._storage, target._view, write=True)
    return new if new in recording.defined else recording.read(array, View.of_shape(new.type.shape))


def read_all(recording: Recording, read: Callable[[], list[Value]]) -> list[Value]:
    """Call `read`, and repeat it if reading one operand launched the recording with the other operands."""
    values = read()
    return values if all(v in recording.defined for v in values) else read()


def _operands(
    recording: Recording,
    operands: Sequence[PromotionOperand],
    dtypes: Sequence[np.dtype],
    shape: tuple[int, ...],
) -> list[Value]:
    """Return operands as values of the recording; see `value_of`."""
    device = device_of(operands) if dtypes[-1].kind == "c" else CPU  # used for complex numbers only
    values = [value_of(recording, x, d, shape, device) for x, d in zip(operands, dtypes, strict=True)]
    for value in values:
        if value not in recording.defined:  # reading another operand launched the recording
            return _operands(recording, operands, dtypes, shape)
    return values


def value_of(
    recording: Recording, operand: PromotionOperand, dtype: np.dtype, shape: tuple[int, ...], device: Device
) -> Value:
    """Return an operand as a value of the recording with this dtype; arrays are broadcast to `shape`.

    Real numbers are values on the host. Complex numbers are built from two real ones by kernels on `device`.
    """
    if isinstance(operand, ArrayCore):
        view = operand._view if operand._view.shape == shape else operand._view.broadcast(shape)
        value = recording.read(operand._storage, view)
        return value if value.type.dtype == dtype else recording.emit(astype, value, dtype=dtype)
    if dtype.kind == "c":
        return _complex_of(recording, operand, dtype, shape, device)
    if type(operand) is NumberProxy:
        if is_of(operand, recording.numbers):
            return recording.number(RuntimeNumber(operand._value, operand._source), dtype)
        operand = unproxied(operand)
    return recording.literal(operand, dtype)


def _complex_of(
    recording: Recording, number: PromotionOperand, dtype: np.dtype, shape: tuple[int, ...], device: Device
) -> Value:
    """Return a complex array of `shape` filled with a number."""
    real = part_dtype(dtype)
    parts = (number.real, number.imag) if isinstance(number, complex) else (number,)
    filled = [
        recording.emit(full_op, value_of(recording, x, real, shape, device), shape=shape, device=device)
        for x in parts
    ]
    if len(filled) == 2:
        return recording.emit(complex_op, *filled)
    return recording.emit(astype, filled[0], dtype=dtype)


# -- operands ------------------------------------------------------------------------------------------------


def _builtin_number(x: Any) -> int | float | complex:
    """Convert an instance of a subclass to the built-in number type."""
    return int(x) if isinstance(x, int) else float(x) if isinstance(x, float) else complex(x)


def as_operand(name: str, x: Any) -> PromotionOperand:
    """Return `x` as an operand, on the default device."""
    if type(x) in NATIVE or isinstance(x, ArrayCore):
        return x
    return operand_on(name, x, default_device())


def operand_on(name: str, x: Any, device: Device, *, is_read_only: bool = False) -> PromotionOperand:
    """Return `x` as an operand: NDArrays, numbers and proxies as they are, NumPy's scalars on `device`.

    `device` is that of the other operands. NumPy arrays are copied to a GPU; for CPU devices they remain on
    the first one; if nothing writes to the operand (`is_read_only`), a trace uses one for equal arrays.
    Raises ArgumentError for other objects.
    """
    if type(x) in NATIVE or isinstance(x, ArrayCore):
        return x
    if isinstance(x, (bool, int, float, complex)) and not isinstance(x, np.generic):  # a user's subclass
        return _builtin_number(x)
    if isinstance(x, np.float64):
        return x
    if isinstance(x, np.generic):
        return placed(ArrayCore.from_numpy(np.asarray(x)), device)
    if isinstance(x, np.ndarray) or hasattr(x, "__dlpack__"):
        array = _imported(x, is_read_only)
        return array if device.is_addressable else placed(array, device)
    raise locate(
        ArgumentError(
            f"{name}: expected an array or a number, got {type(x).__name__}; convert it with tj.asarray(...)"
        ),
        user_location(),
    )


def _imported(x: Any, is_read_only: bool) -> Any:
    """Return a copy of a NumPy array, or of another array that supports DLPack."""
    share = getattr(thread.trace, "imported_operand", None)
    if share is None or not is_read_only or type(x) is not np.ndarray:
        return ArrayCore.from_numpy(x if isinstance(x, np.ndarray) else dlpack.read(x))
    return ArrayCore.new(share(x, lambda: ArrayCore.from_numpy(x)._storage))


def placed(x: Any, device: Device) -> Any:
    """Copy `x` to a device; return the array itself if it is already there."""
    return x if x.device is device else emit(copy_to, x, device=device, priority=0)


def device_of(operands: Sequence[PromotionOperand]) -> Any:
    """Return the device of the first array among the operands, or the default device."""
    return next((x.device for x in operands if isinstance(x, ArrayCore)), default_device())


def common_shape(name: str, arrays: Sequence[ArrayCore]) -> tuple[int, ...]:
    """Return the shape to which arrays broadcast."""
    if not arrays:
        return ()
    first = arrays[0]._view.shape
    for x in arrays:
        if x._view.shape != first:
            return broadcast_shape(name, [x.shape for x in arrays])
    return first


def broadcast_shape(name: str, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Broadcast shapes by NumPy's rules. Raises ShapeError, with the shapes, if they do not broadcast."""
    distinct = {*shapes, ()}
    if len(distinct) <= 2:  # one shape, and scalars
        return max(distinct, key=len)
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise locate(
            ShapeError(
                f"{name}: shapes {' and '.join(map(str, shapes))} do not broadcast; each pair of trailing "
                "extents must be equal or 1 (insert axes with x[..., None] or reshape)"
            ),
            user_location(),
        ) from None
