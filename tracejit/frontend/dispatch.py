"""From a user's call to a node: promote, broadcast, cast, emit, wrap.

`apply(op, *operands, **attrs)` is the one way in which array code reaches the recorder. Operands are
NDArrays, NumPy arrays and scalars, Python numbers or the number proxies of a trace. Dtypes follow NumPy 2:
`np.result_type` between arrays, Python numbers are weak. Operators never see an ArrayCore: they get values of
one dtype and one shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracejit.errors import ArgumentError, DTypeError, ShapeError, TracejitError, locate
from tracejit.frontend import eager
from tracejit.frontend.array import ArrayCore
from tracejit.frontend.location import user_location
from tracejit.frontend.number import NumberProxy
from tracejit.frontend.recording import Number, Recording, lock, thread
from tracejit.ir.graph import Value
from tracejit.ir.op import Op
from tracejit.ir.types import DTYPES, ArrayType, Device
from tracejit.ir.view import View
from tracejit.ops import astype, less, not_equal, pow, square, where
from tracejit.ops import copy as copy_op
from tracejit.ops import full as full_op
from tracejit.ops import matmul as matmul_op

Operand = Any

_UINT64 = np.dtype("uint64")
_INTEGERS = frozenset(d for d in DTYPES if d.kind in "iu")


def apply(op: Op, *operands: Operand, **attrs: Any) -> Any:
    """Record `op` on `operands` (promoted and broadcast, for public elementwise operators) and wrap its
    results."""
    operands = tuple(as_operand(op.name, x) for x in operands)
    if op.promotion == "same" and len(operands) == 2 and _mixed_signs(operands) and _is_comparison(op):
        return _compare_mixed(op, *operands)
    dtypes = promoted(op, operands)
    shape = broadcast_shape(op.name, [x.shape for x in operands if isinstance(x, ArrayCore)])
    for x, dtype in zip(operands, dtypes, strict=True):
        if type(x) is int and not _fits(x, dtype):
            if _is_comparison(op):
                truth = op.evaluate(*(y if y is x else 0 for y in operands))
                return full(bool(truth), shape, np.dtype(bool), device_of(operands))
            raise _too_wide(op.name, x, dtype)
    with lock:
        recording = eager.current()
        values = _values(
            recording,
            lambda: [value_of(recording, x, d, shape) for x, d in zip(operands, dtypes, strict=True)],
        )
        if all(v.type.on_host for v in values):
            values[0] = recording.emit(full_op, values[0], shape=(), device=device_of(operands))
        return wrap(recording, recording.emit(op, *values, **attrs))


def _fits(number: int, dtype: np.dtype) -> bool:
    if dtype.kind not in "iu":
        return True
    bounds = np.iinfo(dtype)
    return bool(bounds.min <= number <= bounds.max)


def _too_wide(name: str, number: int, dtype: np.dtype) -> TracejitError:
    message = f"{name}: the number {number} does not fit into {dtype}; cast the array to a wider dtype"
    return locate(DTypeError(message), user_location())


def _is_comparison(op: Op) -> bool:
    number = ArrayType((), np.dtype("int64"))
    return op.admits >= _INTEGERS and op.arity == 2 and op.infer(number, number).dtype == bool


def _mixed_signs(operands: Sequence[Operand]) -> bool:
    """Whether these are arrays of signed and of uint64 integers, which no integer dtype holds both."""
    kinds = {x.dtype.kind for x in operands if isinstance(x, ArrayCore)}
    return kinds == {"i", "u"} and any(x.dtype == _UINT64 for x in operands)


def _compare_mixed(op: Op, x1: Any, x2: Any) -> Any:
    """A comparison of a signed with a uint64 array, exact as in NumPy: negative is below all others."""
    signed = x1 if x1.dtype.kind == "i" else x2
    truth = bool(op.evaluate(-1, 0) if signed is x1 else op.evaluate(0, -1))
    exact = apply(op, *(emit(astype, x, dtype=_UINT64) if x is signed else x for x in (x1, x2)))
    return apply(where, apply(less, signed, 0), truth, exact)


def emit(op: Op, *operands: ArrayCore | Value, **attrs: Any) -> Any:
    """Record `op` on arrays as they are: no promotion, no broadcasting."""
    with lock:
        recording = eager.current()
        values = _values(
            recording,
            lambda: [
                recording.read(x._storage, x._view) if isinstance(x, ArrayCore) else x for x in operands
            ],
        )
        return wrap(recording, recording.emit(op, *values, **attrs))


def full(value: Operand, shape: tuple[int, ...], dtype: np.dtype, device: Device) -> Any:
    """A new array filled with a number, or a 0-d or broadcastable array."""
    value = as_operand("full", value)
    if type(value) is int and not _fits(value, dtype):
        raise _too_wide("full", value, dtype)
    with lock:
        recording = eager.current()
        content = value_of(recording, value, dtype, shape)
        if content.type.on_host:
            content = recording.emit(full_op, content, shape=shape, device=device)
        elif isinstance(value, ArrayCore):
            content = recording.emit(copy_op, content)
        return wrap(recording, content)


def as_array(name: str, x: Any) -> Any:
    """`x` as an NDArray; numbers become 0-d arrays of their default dtype."""
    operand = as_operand(name, x)
    if isinstance(operand, ArrayCore):
        return operand
    return full(operand, (), common_dtype(name, (operand,)), ArrayCore.default_device)


def cast(x: Any, dtype: np.dtype) -> Any:
    """`x` in another dtype; the array itself if it has that already."""
    return x if x.dtype == dtype else emit(astype, x, dtype=dtype)


def wrap(recording: Recording, result: Value | tuple[Value, ...]) -> Any:
    """New arrays that hold the results of a node."""
    if isinstance(result, tuple):
        return tuple(wrap(recording, v) for v in result)
    return ArrayCore.new(recording.new(result))


def write(target: ArrayCore, value: Operand, name: str = "assignment") -> None:
    """Store `value` (broadcast, cast as NumPy's ``same_kind`` allows) into the elements that `target`
    views."""
    value = as_operand(name, value)
    dtype = target.dtype
    if type(value) is int and not _fits(value, dtype):
        raise _too_wide(name, value, dtype)
    source = np.result_type(weak_type(value), dtype) if is_weak(value) else weak_type(value)
    if not np.can_cast(source, dtype, "same_kind"):
        given = type(plain_type(value)).__name__ if is_weak(value) else str(source)
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
            value = value.reshape(shape[extra:])
            shape = value.shape
    if broadcast_shape(name, [shape, target.shape]) != target.shape:
        raise locate(
            ShapeError(
                f"{name}: a value of shape {shape} does not fit into an array of shape {target.shape}"
            ),
            user_location(),
        )
    with lock:
        recording = eager.current()
        new = value_of(recording, value, dtype, target.shape)
        if new.type.on_host:
            new = recording.emit(full_op, new, shape=target.shape, device=target.device)
        try:
            if target._storage.pending is None or target._storage.recording is not recording:
                new = _with_window(recording, target, new)
            recording.write(target._storage, target._view, new)
        except TracejitError as error:
            raise locate(error, user_location()) from None


def _with_window(recording: Recording, target: ArrayCore, new: Value) -> Value:
    """Make the window through which `target` is written, and give `new` again: making it may flush."""
    holder = recording.new(new)
    recording.window(target._storage, target._view, write=True)
    return new if new in recording.defined else recording.read(holder, View.of_shape(new.type.shape))


def _values(recording: Recording, read: Callable[[], list[Value]]) -> list[Value]:
    """What `read` gives; again if reading one operand flushed the recording, and the others with it."""
    values = read()
    return values if all(v in recording.defined for v in values) else read()


def value_of(recording: Recording, operand: Operand, dtype: np.dtype, shape: tuple[int, ...]) -> Value:
    """An operand as a value of the recording with this dtype; arrays are broadcast to `shape`."""
    if isinstance(operand, ArrayCore):
        seen = operand._view if operand.shape == shape else operand._view.broadcast(shape)
        value = recording.read(operand._storage, seen)
    elif type(operand) is NumberProxy:
        return recording.number(Number(operand._value, operand._source), dtype)
    else:
        return recording.literal(operand, dtype)
    if value.type.dtype != dtype:
        value = recording.emit(astype, value, dtype=dtype)
    return value


# -- operands ------------------------------------------------------------------------------------------------


def as_operand(name: str, x: Any) -> Operand:
    """`x` as an operand: NDArrays, numbers and proxies stay, NumPy arrays and scalars are brought in."""
    if isinstance(x, ArrayCore) or type(x) is NumberProxy or isinstance(x, (bool, int, float)):
        return x
    if isinstance(x, (np.ndarray, np.generic)):
        return ArrayCore.from_numpy(np.asarray(x))
    if hasattr(x, "__dlpack__"):
        return ArrayCore.from_numpy(np.from_dlpack(x))
    raise locate(
        ArgumentError(
            f"{name}: expected an array or a number, got {type(x).__name__}; convert it with tj.asarray(...)"
        ),
        user_location(),
    )


def is_weak(x: Operand) -> bool:
    """Whether `x` is a Python number, which adapts its dtype to the arrays it meets (NumPy scalars do
    not)."""
    return not isinstance(x, ArrayCore)


def plain_type(x: Operand) -> Any:
    """The Python number behind a weak operand, without looking at it."""
    return x._value if type(x) is NumberProxy else x


def weak_type(x: Operand) -> Any:
    """What `np.result_type` needs to know about an operand: its dtype, or a Python number of its kind."""
    if isinstance(x, ArrayCore):
        return x.dtype
    number = plain_type(x)
    if isinstance(number, np.generic):
        return number.dtype
    return number


def device_of(operands: Sequence[Operand]) -> Any:
    """The device of the array operands, or the default."""
    return next((x.device for x in operands if isinstance(x, ArrayCore)), ArrayCore.default_device)


def broadcast_shape(name: str, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """NumPy's broadcasting, with an error that shows the shapes."""
    if not shapes:
        return ()
    first = shapes[0]
    if all(s == first for s in shapes):
        return first
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


# -- promotion -----------------------------------------------------------------------------------------------

HALF, SINGLE = np.dtype("float16"), np.dtype("float32")


def promoted(op: Op, operands: Sequence[Operand]) -> list[np.dtype]:
    """The dtype each operand is cast to for `op`."""
    if op.name == "where":
        common = common_dtype(op.name, operands[1:])
        return [np.dtype(bool), common, common]
    common = common_dtype(op.name, operands)
    if op.promotion == "bool":
        common = np.dtype(bool)
    elif op.admits and common not in op.admits:
        if isinstance(op.evaluate, np.ufunc):
            common = _numpy_loop(op.evaluate, operands, common)
        elif op.promotion == "float":
            common = floating(common)
    if op.admits and common not in op.admits:
        admitted = ", ".join(str(d) for d in DTYPES if d in op.admits)
        raise locate(
            DTypeError(f"{op.name}: not defined for {common}; it takes {admitted} (cast with astype)"),
            user_location(),
        )
    return [common] * len(operands)


def _numpy_loop(ufunc: np.ufunc, operands: Sequence[Operand], common: np.dtype) -> np.dtype:
    """The dtype in which NumPy's ufunc would compute these operands; `common` where it would refuse them."""
    given = [weak_type(x) for x in operands]
    kinds = [
        np.dtype(bool) if isinstance(x, bool) else x if isinstance(x, np.dtype) else type(x) for x in given
    ]
    try:
        found = ufunc.resolve_dtypes((*kinds, *[None] * ufunc.nout))[0]  # type: ignore[arg-type]
    except TypeError:
        return common
    return SINGLE if found == HALF else found


def common_dtype(name: str, operands: Sequence[Operand]) -> np.dtype:
    """NumPy 2's common dtype; Python numbers alone give bool, int64 or float32."""
    if all(is_weak(x) for x in operands):
        kinds = [weak_type(x) for x in operands]
        strong = [k for k in kinds if isinstance(k, np.dtype)]
        if not strong:
            if any(isinstance(k, float) for k in kinds):
                return np.dtype("float32")
            return np.dtype(bool) if all(isinstance(k, bool) for k in kinds) else np.dtype("int64")
    try:
        dtype = np.result_type(*(weak_type(x) for x in operands))
    except OverflowError as error:
        raise locate(DTypeError(f"{name}: {error}"), user_location()) from None
    return supported(name, dtype)


def supported(name: str, dtype: Any) -> np.dtype:
    """`dtype` as a NumPy dtype, if arrays can have it."""
    try:
        given = np.dtype(dtype)
    except TypeError:
        raise locate(ArgumentError(f"{name}: {dtype!r} is no dtype"), user_location()) from None
    found = given.newbyteorder("=")
    if found not in DTYPES:
        raise locate(
            DTypeError(
                f"{name}: dtype {given} is not supported; arrays hold {', '.join(map(str, DTYPES))} "
                "(cast to one of these first)"
            ),
            user_location(),
        )
    return found


def floating(dtype: np.dtype) -> np.dtype:
    """The dtype of a floating function of `dtype`: NumPy's, with float32 where NumPy has float16."""
    if dtype.kind == "f":
        return dtype
    return SINGLE if dtype.itemsize <= 2 else np.dtype("float64")


def value_type(x: ArrayCore) -> ArrayType:
    """The IR type of an array."""
    return ArrayType(x.shape, x.dtype, x.device)


def in_trace() -> bool:
    """Whether this thread is recording a traced function."""
    return thread.trace is not None


# -- operators with rules of their own -----------------------------------------------------------------------


def power(base: Operand, exponent: Operand) -> Any:
    """``base ** exponent``; an exponent written as a literal 2 becomes a square, as in NumPy."""
    if type(exponent) is int and exponent == 2 and isinstance(base, ArrayCore) and base.dtype.kind != "b":
        return apply(square, base)
    if type(exponent) is int and exponent < 0 and isinstance(base, ArrayCore) and base.dtype.kind in "biu":
        raise locate(
            ArgumentError(
                f"pow: integers to the negative power {exponent} are no integers; cast the base to a float "
                "first"
            ),
            user_location(),
        )
    return apply(pow, base, exponent)


def matmul(a: Operand, b: Operand) -> Any:
    """NumPy's ``a @ b``: vectors are rows or columns, leading dimensions broadcast."""
    a, b = as_operand("matmul", a), as_operand("matmul", b)
    if not isinstance(a, ArrayCore) or not isinstance(b, ArrayCore) or not a.ndim or not b.ndim:
        raise locate(
            ShapeError("matmul: operands need at least one dimension; use * for numbers"), user_location()
        )
    left = a._view if a.ndim > 1 else a._view.expand(0)
    right = b._view if b.ndim > 1 else b._view.expand(1)
    if left.shape[-1] != right.shape[-2]:
        raise locate(
            ShapeError(
                f"matmul: {a.shape} @ {b.shape}: the last extent of the first ({left.shape[-1]}) must equal "
                f"the last but one of the second ({right.shape[-2]})"
            ),
            user_location(),
        )
    batch = broadcast_shape("matmul", [left.shape[:-2], right.shape[:-2]])
    dtype = common_dtype("matmul", (a, b))
    if dtype.kind == "b":
        return apply(not_equal, matmul(cast(a, np.dtype("int64")), cast(b, np.dtype("int64"))), 0)
    with lock:
        recording = eager.current()
        wide = [
            ArrayCore.new(x._storage, v.broadcast((*batch, *v.shape[-2:])))
            for x, v in ((a, left), (b, right))
        ]
        values = _values(recording, lambda: [value_of(recording, x, dtype, x.shape) for x in wide])
        result = wrap(recording, recording.emit(matmul_op, *values))
    view = result._view
    if b.ndim == 1:
        view = view.drop([len(view.shape) - 1])
    if a.ndim == 1:
        view = view.drop([len(view.shape) - (2 if b.ndim > 1 else 1)])
    return ArrayCore.new(result._storage, view)
