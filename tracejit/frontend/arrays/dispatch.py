"""Dispatch of users' calls to nodes: promote, broadcast, cast, emit, wrap.

`apply(op, *operands, **attrs)` is the one way in which array code reaches the recorder. Operands are
NDArrays, NumPy arrays and scalars, Python numbers or the number proxies of a trace. Dtypes follow NumPy 2:
`np.result_type` between arrays, Python numbers are weak. Operators never see an ArrayCore: they get values of
one dtype and one shape.
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
from tracejit.frontend.arrays.promotion import Operand
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


def _check_number(name: str, x: Operand, dtype: np.dtype) -> None:
    """Raise if `x` is a number that `dtype` cannot hold. Of traced ones it looks, for integers."""
    if isinstance(x, complex) and dtype.kind != "c":
        raise locate(
            DTypeError(f"{name}: the complex number {x} does not fit into {dtype}; take its real part"),
            user_location(),
        )
    is_number = not isinstance(x, ArrayCore) and (dtype.kind in "iu" or type(x) is not NumberProxy)
    if is_number and not promotion.fits(x, dtype):
        raise promotion.too_wide(name, x, dtype)


def apply(op: Op, *operands: Operand, **attrs: Any) -> Any:
    """``op(*operands)`` on promoted and broadcast operands: computed at once, or recorded."""
    computed = None if attrs else immediate.apply(op, *operands)
    return record(op, *operands, **attrs) if computed is None else computed


def record(op: Op, *operands: Operand, **attrs: Any) -> Any:
    """Record `op` on promoted and broadcast operands, and wrap its results."""
    for x in operands:
        if type(x) is not ArrayCore.concrete and type(x) not in NATIVE:
            device = device_of(operands)
            operands = tuple([beside(op.name, x, device) for x in operands])  # may run code of the user's
            break
    with quiet:
        return _record(op, operands, attrs)


NATIVE = frozenset({NumberProxy, bool, int, float, complex})
"""The types of numbers that are operands as they are."""

Wrap = Callable[[Recording, Any], Any]
"""A function from a node's result to the object that the caller gets."""


def wrap(recording: Recording, result: Value | tuple[Value, ...]) -> Any:
    """New arrays that hold the results of a node."""
    if isinstance(result, tuple):
        return tuple([ArrayCore.new(recording.new(v)) for v in result])
    return ArrayCore.new(recording.new(result))


def _record(op: Op, given: Sequence[Operand], attrs: dict[str, Any], wrap: Wrap = wrap) -> Any:
    arrays: list[ArrayCore] = []
    kinds: list[Any] = []
    for x in given:
        if isinstance(x, ArrayCore):
            storage = x._storage
            if type(storage) is Uncounted:
                made = storage.buffer.applied(lambda *parts: record(op, *parts, **attrs), given)
                return _record(op, given, attrs, wrap) if made is None else made
            arrays.append(x)
            kinds.append(storage.type.dtype)
        else:
            kinds.append(type(x) if type(x) is float else promotion.kind_of(x))
    is_mixed = len(arrays) == 2 == op.arity and kinds[0] is not kinds[1] and promotion.mixed_signs(*kinds)
    if is_mixed and promotion.is_comparison(op):
        return _compare_mixed(op, *given)
    dtypes = promotion.promoted(op, tuple(kinds))
    trace = thread.trace
    if trace is not None and trace.recorded_numpy:
        _check_weak(op, arrays, dtypes)
    shape = common_shape(op.name, arrays)
    if len(arrays) < len(given):
        wide = _too_wide(given, dtypes)
        if wide is not None:
            return _compare_wide(op, given, wide, shape)
    with lock:
        recording = eager.current()
        values = _operands(recording, given, dtypes, shape)
        if not arrays and values[0].type.on_host:  # complex numbers are arrays already
            values[0] = recording.emit(full_op, values[0], shape=(), device=device_of(given))
        result = wrap(recording, recording.emit(op, *values, **attrs))
    recording.end_operation()
    return result


def _check_weak(op: Op, arrays: list[ArrayCore], dtypes: Sequence[np.dtype]) -> None:
    """Fall back to piecewise execution where a float64 array without dimensions may be a number of NumPy's,
    which would be weak, and that would make a difference.
    """
    if any(x.dtype == np.float64 and not x.ndim for x in arrays) and any(
        x.dtype in promotion.DOUBLES and promotion.DOUBLES[x.dtype] in dtypes for x in arrays
    ):
        thread.trace.refuse_number(f"{op.name}: a float64 number widens an array")


def _too_wide(given: Sequence[Operand], dtypes: Sequence[np.dtype]) -> tuple[Any, np.dtype] | None:
    """A number that the dtype does not hold to which it is to be cast, with that."""
    for x, dtype in zip(given, dtypes, strict=True):
        if type(x) is float or (type(x) is NumberProxy and is_floating(dtype)):
            continue  # a run-time integer that no float holds is an error of the launch
        if not isinstance(x, ArrayCore) and not promotion.fits(x, dtype):
            return x, dtype
    return None


def _compare_wide(
    op: Op, given: Sequence[Operand], wide: tuple[Any, np.dtype], shape: tuple[int, ...]
) -> Any:
    """A comparison of integers with a number beyond them all; an error for other operators."""
    number, dtype = wide
    if not promotion.is_comparison(op) or dtype.kind not in "iu":
        raise promotion.too_wide(op.name, number, dtype)
    truth = op.evaluate(*(x if x is number else 0 for x in given))
    return full(bool(truth), shape, np.dtype(bool), device_of(given))


def _compare_mixed(op: Op, x1: Any, x2: Any) -> Any:
    """A comparison of a signed with a uint64 array, exact as in NumPy: negative is below all others."""
    signed = x1 if x1.dtype.kind == "i" else x2
    truth = bool(op.evaluate(-1, 0) if signed is x1 else op.evaluate(0, -1))
    exact = apply(op, *(emit(astype, x, dtype=promotion.UINT64) if x is signed else x for x in (x1, x2)))
    return apply(where, apply(less, signed, 0), truth, exact)


def emit(op: Op, *operands: ArrayCore | Value, **attrs: Any) -> Any:
    """Record `op` on arrays as they are: no promotion, no broadcasting."""
    computed = immediate.evaluate(op, operands, attrs)
    if computed is not None:
        return computed
    for x in operands:
        if isinstance(x, ArrayCore) and type(x._storage) is Uncounted:
            made = _emitted(op, x._storage.buffer, operands, attrs)
            if made is not None:
                return made
    with lock, quiet:
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
    """A new array of the one element that `x` sees. In a trace its value is the view: values never change."""
    trace = thread.trace
    if trace is None or type(x._storage) is Uncounted:
        return emit(copy_op, x)
    with lock, quiet:
        (value,) = read_all(trace, lambda: [trace.read(x._storage, x._view)])
        last = trace.nodes[-1] if trace.nodes else None
        if last is None or last.op is not view_op or last.outputs[0] is not value:
            value = trace.emit(copy_op, value)
        result = wrap(trace, value)
    trace.end_operation()
    return result


def _emitted(op: Op, selection: Any, operands: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """An operator on what a mask picks, if it needs no extent; None if it does, which is known then."""
    if Trait.ELEMENTWISE in op.traits and Trait.CAN_FAIL not in op.traits:
        return selection.applied(lambda *parts: emit(op, *parts, **attrs), operands)
    selection.gather()
    return None


def full(value: Operand, shape: tuple[int, ...], dtype: np.dtype, device: Device, name: str = "full") -> Any:
    """A new array filled with a number, or a 0-d or broadcastable array."""
    value = as_operand(name, value)
    _check_number(name, value, dtype)
    computed = immediate.full(value, shape, dtype, device)
    if computed is not None:
        return computed
    with lock, quiet:
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
    """`x` as an NDArray; numbers become 0-d arrays of their default dtype."""
    operand = as_operand(name, x)
    if isinstance(operand, ArrayCore):
        return operand
    return full(operand, (), promotion.common_dtype(name, (operand,)), default_device(), name)


def _dtype_of_number(x: Operand, wanted: np.dtype) -> np.dtype:
    """The dtype in which an operand is recorded that is to become `wanted`: a float number that is truncated
    has to be cast after it became an array."""
    truncated = not is_inexact(wanted) and not isinstance(x, ArrayCore) and isinstance(x, float)
    return np.dtype("float64") if truncated else wanted


def cast(x: Any, dtype: np.dtype) -> Any:
    """`x` in another dtype; the array itself if it has that already."""
    return x if x.dtype == dtype else emit(astype, x, dtype=dtype)


def write(target: ArrayCore, value: Operand, name: str = "assignment", *, casts: bool = False) -> None:
    """Store `value`, broadcast and cast, into the elements that `target` views.

    As in NumPy, an assignment `casts` to any dtype, while in-place operators cast as ``same_kind`` allows.
    """
    if not in_memory.write(target, value):
        operand = beside(name, value, target.device)
        with quiet:
            _record_write(target, operand, name, casts=casts)


def _record_write(target: ArrayCore, value: Operand, name: str, *, casts: bool) -> None:
    is_alike = (
        isinstance(value, ArrayCore)
        and value._storage.type.dtype is target._storage.type.dtype
        and value._storage.type.device is target._storage.type.device
        and value._view.shape == target._view.shape
    )
    if not is_alike:
        value = _check_stored(target, value, name, casts)
    dtype = target.dtype
    with lock, quiet:
        recording = eager.current(cut=casts)  # an in-place operator is not cut in two
        exact = _dtype_of_number(value, dtype)
        new = value_of(recording, value, exact, target.shape, target.device)
        if new.type.on_host:
            new = recording.emit(full_op, new, shape=target.shape, device=target.device)
        if exact != dtype:
            new = recording.emit(astype, new, dtype=dtype)
        _rebind(recording, target, new)
    recording.end_operation()


def _rebind(recording: Recording, target: ArrayCore, new: Value) -> None:
    """Have the elements of `target` be `new`, of its shape, dtype and device."""
    storage = target._storage
    try:
        is_pending = storage.pending is not None and storage.recording is recording
        if not is_pending and recording is not thread.trace:
            new = _with_window(recording, target, new)
        recording.write(storage, target._view, new)
    except TracejitError as error:
        raise locate(error, user_location()) from None


def _check_stored(target: ArrayCore, value: Operand, name: str, casts: bool) -> Operand:
    """Raise if `value` cannot be stored in `target`; else give it, without leading dimensions too many."""
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
        given = kind.__name__ if isinstance(kind, type) else str(kind)
        raise locate(
            DTypeError(
                f"{name}: cannot store {given} values in an array of dtype {dtype} without losing "
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


def update(op: Op, target: ArrayCore, other: Operand) -> None:
    """Store ``op(target, other)`` into the elements of `target`; no other thread comes in between."""
    trace = thread.trace
    with quiet:
        if trace is not None and not trace.recorded_numpy and _are_counted(target, other):
            with lock:  # nothing launches a trace meanwhile, so the result needs no array
                new = _record(op, (target, other), {}, _as_it_is)
                kind, own = new.type, target._storage.type
                if kind.dtype == own.dtype and kind.device is own.device and kind.shape == target._view.shape:
                    _rebind(trace, target, new)
                else:
                    _record_write(target, wrap(trace, new), f"in-place {op.name}", casts=False)
            trace.end_operation()
            return
    in_place(op.name, functools.partial(record, op), target, other)


def _are_counted(target: ArrayCore, other: Operand) -> bool:
    """Whether an operand needs no `beside`, and the extents of both are known."""
    if type(target._storage) is Uncounted:
        return False
    if type(other) is ArrayCore.concrete:
        return type(other._storage) is not Uncounted
    return type(other) in NATIVE


def _as_it_is(_recording: Recording, result: Any) -> Any:
    return result


def in_place(name: str, function: Callable[[Any, Any], Any], target: ArrayCore, other: Operand) -> None:
    """Store ``function(target, other)`` into the elements of `target`; no other thread comes in between."""
    if type(other) not in NATIVE and not isinstance(other, ArrayCore):
        other = beside(name, other, target.device)
    for x in (target, other):
        if isinstance(x, ArrayCore) and type(x._storage) is Uncounted:
            parts = x._storage.buffer.parts((target, other)) if x is target else None
            if parts is not None:
                return in_place(name, function, *parts)
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
    """Make the window through which `target` is written, and give `new` again: making it may flush."""
    holder = recording.new(new)
    recording.window(target._storage, target._view, write=True)
    return new if new in recording.defined else recording.read(holder, View.of_shape(new.type.shape))


def read_all(recording: Recording, read: Callable[[], list[Value]]) -> list[Value]:
    """Call `read`, and once more if reading one operand launched the recording, and the others with it."""
    values = read()
    return values if all(v in recording.defined for v in values) else read()


def _operands(
    recording: Recording, operands: Sequence[Operand], dtypes: Sequence[np.dtype], shape: tuple[int, ...]
) -> list[Value]:
    """Operands as values of the recording; see `value_of`."""
    place = device_of(operands) if dtypes[-1].kind == "c" else CPU  # of complex numbers
    values = [value_of(recording, x, d, shape, place) for x, d in zip(operands, dtypes, strict=True)]
    for value in values:
        if value not in recording.defined:  # reading another operand launched the recording
            return _operands(recording, operands, dtypes, shape)
    return values


def value_of(
    recording: Recording, operand: Operand, dtype: np.dtype, shape: tuple[int, ...], device: Device
) -> Value:
    """An operand as a value of the recording with this dtype; arrays are broadcast to `shape`.

    Numbers stay on the host but for complex ones, which kernels on `device` make of two real ones.
    """
    if isinstance(operand, ArrayCore):
        seen = operand._view if operand._view.shape == shape else operand._view.broadcast(shape)
        value = recording.read(operand._storage, seen)
        return value if value.type.dtype == dtype else recording.emit(astype, value, dtype=dtype)
    if dtype.kind == "c":
        return _complex_of(recording, operand, dtype, shape, device)
    if type(operand) is NumberProxy:
        if is_of(operand, recording.numbers):
            return recording.number(RuntimeNumber(operand._value, operand._source), dtype)
        operand = unproxied(operand)
    return recording.literal(operand, dtype)


def _complex_of(
    recording: Recording, number: Operand, dtype: np.dtype, shape: tuple[int, ...], device: Device
) -> Value:
    """An array of `shape` filled with a number, as complex ones."""
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


def _plain_number(x: Any) -> int | float | complex:
    """The Python number that an object of a subclass stands for."""
    return int(x) if isinstance(x, int) else float(x) if isinstance(x, float) else complex(x)


def as_operand(name: str, x: Any) -> Operand:
    """`x` as an operand beside no others."""
    if type(x) in NATIVE or isinstance(x, ArrayCore):
        return x
    return beside(name, x, default_device())


def beside(name: str, x: Any, device: Device) -> Operand:
    """`x` as an operand: NDArrays, numbers and proxies stay, NumPy's scalars go to `device`, where the others
    are, and so do its arrays if that is a GPU: among CPUs they lie on the first one.
    """
    if type(x) in NATIVE or isinstance(x, ArrayCore):
        return x
    if isinstance(x, (bool, int, float, complex)) and not isinstance(x, np.generic):  # a class of the user's
        return _plain_number(x)
    if isinstance(x, np.float64):
        return x
    if isinstance(x, np.generic):
        return placed(ArrayCore.from_numpy(np.asarray(x)), device)
    if isinstance(x, np.ndarray) or hasattr(x, "__dlpack__"):
        made = ArrayCore.from_numpy(x if isinstance(x, np.ndarray) else dlpack.read(x))
        return made if device.is_addressable else placed(made, device)
    raise locate(
        ArgumentError(
            f"{name}: expected an array or a number, got {type(x).__name__}; convert it with tj.asarray(...)"
        ),
        user_location(),
    )


def placed(x: Any, device: Device) -> Any:
    """`x` on a device."""
    return x if x.device is device else emit(copy_to, x, device=device, priority=0)


def device_of(operands: Sequence[Operand]) -> Any:
    """The device of the array operands, or the default."""
    return next((x.device for x in operands if isinstance(x, ArrayCore)), default_device())


def common_shape(name: str, arrays: Sequence[ArrayCore]) -> tuple[int, ...]:
    """The shape to which arrays broadcast."""
    if not arrays:
        return ()
    first = arrays[0]._view.shape
    for x in arrays:
        if x._view.shape != first:
            return broadcast_shape(name, [x.shape for x in arrays])
    return first


def broadcast_shape(name: str, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """NumPy's broadcasting, with an error that shows the shapes."""
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
