"""Immediate execution of small operations, instead of recording.

Recording and launching an operation on a few elements costs many times its computation. In eager code an
operator is therefore computed here, when it is called, if

- its arrays are small (`eager.SMALL`), and either its results equal NumPy's bit for bit (`Trait.EXACT`), so
  that NumPy computes it, or its kernels can run without a launch (`direct`);
- its operands are in memory: no recording uses them and no task in flight writes them. Memory that it writes
  must not have been used by any launch (`storage.ComputedStorage`);
- the thread does not record anything that depends on the operation (`thread.busy`): no trace, no gradient, no
  Python task of the engine, and no in-place operator, which reads its operands when it is launched.

Otherwise the functions of this module return None (`in_place`, `write`: False), and the operation is
recorded. The choice affects only the time.

Another thread may access an array concurrently. Writers acquire `memory_lock`, without which no launch can
start to use the memory. Readers do not: they check afterwards whether an operand has been written. If so, the
result is discarded, and the operation is recorded.

>>> import tracejit as tj
>>> x = tj.asarray([1, 2, 3])
>>> y = x + 1
>>> y._storage.pending is None          # already computed
True
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tracejit.errors import TracejitError, locate
from tracejit.frontend.arrays import direct, promotion
from tracejit.frontend.arrays.at_hand import (
    QUIET,
    WEAK_KINDS,
    are_integers,
    at_hand,
    elements_of,
    literal,
    number,
    still_computed,
    writes_of,
)
from tracejit.frontend.arrays.axes import DIMENSIONS
from tracejit.frontend.arrays.core import ArrayCore, computed, empty
from tracejit.frontend.recording import eager
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.recording import lock, thread
from tracejit.frontend.recording.storage import ComputedStorage, memory_lock, type_of
from tracejit.ir.evaluate import evaluate_operator
from tracejit.ir.op import Op, Trait
from tracejit.ir.types import CPU, DTYPES, HALVES, ArrayType, Device

NO_ATTRIBUTES: dict[str, Any] = {}

_plans: dict[tuple[Any, ...], ImmediatePlan | None] = {}


# -- elementwise operators -----------------------------------------------------------------------------------


class ImmediatePlan(NamedTuple):
    """How an operator is computed for operands of some kinds (`promotion.Kind`).

    ufunc:  NumPy's ufunc; None for a direct call
    inputs: the dtypes to which the operands are cast
    result: the dtype of the result
    """

    ufunc: np.ufunc | None
    inputs: tuple[np.dtype, ...]
    result: np.dtype


def apply(op: Op, *operands: Any) -> Any:
    """Compute ``op(*operands)`` for an elementwise operator.

    Operands may also be NumPy arrays and Python numbers.
    """
    if thread.busy:
        return None
    elements = [at_hand(x) for x in operands]
    if not any(e is None for e in elements):
        out = _applied(op, elements)
        if out is None or still_computed(operands):
            return None if out is None else computed(out)
    with lock, memory_lock:
        before = writes_of(*operands)
        elements = [elements_of(x) for x in operands]
        out = None if any(e is None for e in elements) else _applied(op, elements)
        return computed(out) if out is not None and writes_of(*operands) == before else None


def _applied(op: Op, operands: list[Any]) -> np.ndarray | None:
    """Compute ``op(*operands)`` for NumPy arrays and numbers, at least one of them an array."""
    kinds = [x.dtype if type(x) is np.ndarray else type(x) for x in operands]
    if not any(type(x) is np.ndarray for x in operands) or any(
        k.__class__ is type and k not in WEAK_KINDS for k in kinds
    ):
        return None
    plan = plan_for(op, *kinds)
    return None if plan is None else _compute(op, plan, operands)


def _compute(op: Op, plan: ImmediatePlan, operands: list[Any]) -> np.ndarray | None:
    """Compute `plan` on NumPy arrays and numbers.

    Return None if a number does not fit its dtype, or if the result is not small.
    """
    cast_operands: list[Any] = []
    for x, dtype in zip(operands, plan.inputs, strict=True):
        if type(x) is not np.ndarray:
            x = literal(x, dtype) if plan.ufunc else number(x, dtype)
            if x is None:
                return None
        cast_operands.append(x if x.dtype == dtype else x.astype(dtype))
    arrays = [x for x in cast_operands if type(x) is np.ndarray]
    shape = arrays[0].shape
    if any(x.shape != shape for x in arrays):
        try:
            broadcast = np.broadcast(*arrays)
        except ValueError:
            return None  # the recorder raises the error
        if broadcast.size > eager.SMALL:
            return None
        shape = broadcast.shape
    if plan.ufunc is None:
        return direct.compute(op, tuple(cast_operands), {})
    out = np.empty(shape, plan.result)
    QUIET.copy().run(plan.ufunc, *cast_operands, out)
    return out


def binary_of(op: Op) -> Callable[[Any, Any], Any]:
    """Return a function that computes ``op(x1, x2)``, with a fast path for operands that need no cast.

    Other operands are passed to `apply`. The function must not be called while the thread is busy.
    """
    routines: dict[tuple[Any, Any], ImmediateRoutine | None] = {}

    def compute(x1: Any, x2: Any) -> Any:
        array, kind1, kind2 = ArrayCore.concrete, type(x1), type(x2)
        if kind1 is array:
            a = x1._memory if type(x1._storage) is ComputedStorage else None
        else:
            a = x1 if kind1 in WEAK_KINDS else None
        if kind2 is array:
            b = x2._memory if type(x2._storage) is ComputedStorage else None
        else:
            b = x2 if kind2 in WEAK_KINDS else None
        if a is not None and b is not None:
            kinds = a.dtype if kind1 is array else kind1, b.dtype if kind2 is array else kind2
            routine = routines[kinds] if kinds in routines else _routine(routines, op, kinds)
            out = None if routine is None else routine(a, b)
            if (
                out is not None
                and (kind1 is not array or type(x1._storage) is ComputedStorage)
                and (kind2 is not array or type(x2._storage) is ComputedStorage)
            ):
                return computed(out)
        return apply(op, x1, x2)

    return compute


ImmediateRoutine = Callable[[Any, Any], "np.ndarray | None"]
"""A function that computes a binary operator on operands of fixed kinds, without casts; it returns None if
the operation has to be recorded."""


def _routine(
    routines: dict[tuple[Any, Any], ImmediateRoutine | None],
    op: Op,
    kinds: tuple[promotion.Kind, promotion.Kind],
) -> ImmediateRoutine | None:
    """Build and cache the routine for operands of these kinds; None if an operand has to be cast."""
    plan = None if all(kind.__class__ is type for kind in kinds) else plan_for(op, *kinds)
    if plan is None:
        routine = None
    elif isinstance(kinds[0], type):
        routine = _with_number(plan, _routine_of(op, plan), first=True)
    elif isinstance(kinds[1], type):
        routine = _with_number(plan, _routine_of(op, plan), first=False)
    else:
        routine = _routine_of(op, plan) if kinds == plan.inputs else None
    routines[kinds] = routine
    return routine


def _routine_of(op: Op, plan: ImmediatePlan) -> ImmediateRoutine:
    """Return the routine of a plan for operands of its dtypes.

    Numbers are passed as 0-d arrays or as `direct.Number`.
    """
    if plan.ufunc is None:
        return direct.computer(op, 2, NO_ATTRIBUTES)
    ufunc, result = plan.ufunc, plan.result

    def compute(a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
        if a.shape == b.shape or not b.ndim:
            if a.size > eager.SMALL:
                return None
            out = np.empty(a.shape, result)
            QUIET.copy().run(ufunc, a, b, out)
            return out
        if a.size * b.size > eager.SMALL:
            return None
        try:
            return np.asarray(QUIET.copy().run(ufunc, a, b), order="C")
        except ValueError:
            return None  # the shapes do not broadcast: the recorder raises the error

    return compute


def _with_number(plan: ImmediatePlan, compute: ImmediateRoutine, *, first: bool) -> ImmediateRoutine:
    """Return the routine for a Python number as the first or the second operand."""
    dtype = plan.inputs[0]
    convert: Callable[..., Any] = number if plan.ufunc is None else literal

    def with_first(x: Any, b: np.ndarray) -> np.ndarray | None:
        converted = convert(x, dtype) if b.dtype == dtype and b.size <= eager.SMALL else None
        return None if converted is None else compute(converted, b)

    def with_second(a: np.ndarray, x: Any) -> np.ndarray | None:
        converted = convert(x, dtype) if a.dtype == dtype and a.size <= eager.SMALL else None
        return None if converted is None else compute(a, converted)

    return with_first if first else with_second


def unary_of(op: Op) -> Callable[[Any], Any]:
    """Return a function that computes ``op(x)``, as `binary_of` does for two operands."""
    by_kernel = direct.computer(op, 1, NO_ATTRIBUTES)

    def compute(x: Any) -> Any:
        if type(x) is ArrayCore.concrete and type(x._storage) is ComputedStorage:
            a = x._memory
            if a is not None and a.size <= eager.SMALL:
                plan = plan_for(op, a.dtype)
                if plan is None or plan.inputs[0] != a.dtype:
                    return apply(op, x)
                if plan.ufunc is None:
                    out = by_kernel(a)
                else:
                    out = np.empty(a.shape, plan.result)
                    QUIET.copy().run(plan.ufunc, a, out)
                if out is not None and type(x._storage) is ComputedStorage:
                    return computed(out)
        return apply(op, x)

    return compute


def joined(arrays: list[Any], axis: int, dtype: np.dtype) -> Any:
    """Concatenate arrays of one dtype along `axis`."""
    elements: list[Any] = [None if thread.busy else at_hand(x) for x in arrays]
    if any(e is None or e.dtype != dtype for e in elements) or sum(p.size for p in elements) > eager.SMALL:
        return None
    out: np.ndarray = np.ascontiguousarray(np.concatenate(elements, axis))
    return computed(out) if still_computed(arrays) else None


def select(condition: Any, x1: Any, x2: Any) -> Any:
    """Compute ``where(condition, x1, x2)`` for arrays of one shape."""
    arrays = [at_hand(x) for x in (condition, x1, x2) if type(x) is ArrayCore.concrete]
    if thread.busy or len(arrays) < 3 or any(a is None for a in arrays):
        return None
    c, a, b = arrays
    if c.dtype.kind != "b" or a.dtype != b.dtype or not c.shape == a.shape == b.shape:
        return None
    out = np.asarray(np.where(c, a, b), order="C")
    return computed(out) if still_computed((condition, x1, x2)) else None


def in_place(op: Op, x: Any, other: Any) -> bool:
    """Compute ``op(x, other)`` into the elements of `x`."""
    if thread.busy:
        return False
    with memory_lock:
        a = x._writable()
        if a is None or a.size > eager.SMALL:
            return False
        if type(other) is ArrayCore.concrete and type(other._storage) is ComputedStorage:
            b, before = at_hand(other), 0
        else:
            before, b = writes_of(other), elements_of(other)
        if b is None or (type(b) is not np.ndarray and type(b) not in WEAK_KINDS):
            return False
        plan = plan_for(op, a.dtype, b.dtype if type(b) is np.ndarray else type(b))
        if plan is None or plan.result != a.dtype:
            return False
        if plan.ufunc is not None and not before:
            operand = b if type(b) is np.ndarray else literal(b, a.dtype)
            if operand is not None and operand.dtype == a.dtype and operand.shape in (a.shape, ()):
                QUIET.copy().run(plan.ufunc, a, operand, a)
                return True
        out = _compute(op, plan, [a, b])
        if out is None or out.shape != a.shape or writes_of(other) != before:
            return False
        a[...] = out
        return True


def plan_for(op: Op, *kinds: promotion.Kind) -> ImmediatePlan | None:
    """The plan of an elementwise operator for operands of these kinds; None if it must be recorded."""
    key = (op, *kinds)
    try:
        return _plans[key]
    except KeyError:
        plan = _plans[key] = _make_plan(op, kinds)
        return plan


def _make_plan(op: Op, kinds: tuple[promotion.Kind, ...]) -> ImmediatePlan | None:
    """Implement `plan_for` without its cache."""
    dtypes = [kind for kind in kinds if isinstance(kind, np.dtype)]
    if not direct.UNSUPPORTED.isdisjoint(op.traits) or any(dtype not in DTYPES for dtype in dtypes):
        return None
    if len(dtypes) == 2 and promotion.is_comparison(op) and promotion.mixed_signs(*dtypes):
        return None
    inputs = promotion.promoted(op, kinds)
    result = op.infer(*(ArrayType((), dtype) for dtype in inputs)).dtype
    weak = (k.__class__ is type and d.kind not in WEAK_KINDS[k] for k, d in zip(kinds, inputs, strict=True))
    if any(d.kind == "c" for d in (*inputs, result)) or any(weak):
        return None
    if op.is_exact(inputs) and isinstance(op.evaluate, np.ufunc) and op.evaluate.nout == 1:
        return ImmediatePlan(op.evaluate, inputs, result)
    return ImmediatePlan(None, inputs, result)


# -- other operators -----------------------------------------------------------------------------------------


def evaluate(op: Op, operands: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
    """Compute ``op(*operands, **attrs)`` without promotion, by its NumPy meaning or by a direct call."""
    if thread.busy:
        return None
    arrays: list[Any] = [at_hand(x) for x in operands]
    if all(type(a) is np.ndarray for a in arrays):
        out = _evaluated(op, arrays, attrs)
        if out is None or still_computed(operands):
            return None if out is None else computed(out)
    with lock, memory_lock:
        before = writes_of(*operands)
        arrays = [a for x in operands if type(a := elements_of(x)) is np.ndarray]
        out = _evaluated(op, arrays, attrs) if len(arrays) == len(operands) else None
        return computed(out) if out is not None and writes_of(*operands) == before else None


def reduction(op: Op, x: Any, axis: Any) -> Any:
    """Compute a reduction of floats, in their dtype, over one axis or (None) all axes."""
    a = at_hand(x) if type(x) is ArrayCore.concrete and not thread.busy else None
    if a is None or a.dtype.kind != "f" or a.dtype in HALVES:  # means of halves are rounded only at the end
        return None
    if axis is None:
        axes = ALL_AXES[a.ndim]
    elif type(axis) is int and -a.ndim <= axis < a.ndim:
        axes = (axis % a.ndim,)
    else:
        return None
    out = direct.compute(op, (a,), {"axes": axes, "pieces": 0})
    return computed(out) if out is not None and type(x._storage) is ComputedStorage else None


ALL_AXES = [tuple(range(n)) for n in range(65)]


def product(x1: Any, x2: Any) -> Any:
    """Compute the matrix product of vectors and matrices of one floating dtype."""
    if thread.busy or type(x1) is not ArrayCore.concrete or type(x2) is not ArrayCore.concrete:
        return None
    s1, s2 = x1._storage, x2._storage
    if type(s1) is not ComputedStorage or type(s2) is not ComputedStorage:
        return None
    a, b = x1._memory, x2._memory
    if a is None or b is None or a.dtype != b.dtype or a.dtype.kind != "f":
        return None
    if not (0 < a.ndim < 3 and 0 < b.ndim < 3) or a.shape[-1] != b.shape[0]:
        return None
    if a.size > eager.SMALL or b.size > eager.SMALL:
        return None
    out = direct.product(a, b)
    return (
        computed(out)
        if out is not None and type(s1) is ComputedStorage and type(s2) is ComputedStorage
        else None
    )


def _evaluated(op: Op, arrays: list[np.ndarray], attrs: dict[str, Any]) -> np.ndarray | None:
    """Compute ``op(*arrays, **attrs)``; None if the operation has to be recorded."""
    if Trait.CAN_FAIL in op.traits:
        return None  # its error must be raised by a look at a dependent value, not here
    if Trait.HOST not in op.traits and not (_is_exact(op) and op.is_exact([a.dtype for a in arrays])):
        return direct.compute(op, tuple(arrays), attrs) if arrays else None
    try:
        result = op.infer(*map(type_of, arrays), **attrs)
    except TracejitError as error:
        raise locate(error, user_location()) from None
    if isinstance(result, tuple) or result.size > eager.SMALL or result.device is not CPU:
        return None
    out = np.empty(result.shape, result.dtype)
    # The result may be a view of an operand.
    (out[...],) = QUIET.copy().run(evaluate_operator, op, arrays, attrs, (result,))
    return out


@functools.cache
def _is_exact(op: Op) -> bool:
    return Trait.EXACT in op.traits and Trait.ORDERED not in op.traits


def full(value: Any, shape: tuple[int, ...], dtype: np.dtype, device: Device) -> Any:
    """Return a new array of any size filled with a number. Filling memory needs no kernel."""
    if thread.busy or device is not CPU or type(value) not in WEAK_KINDS:
        return None
    fits = dtype.kind in WEAK_KINDS[type(value)] or (type(value) is int and dtype.kind == "b")
    number = literal(value, dtype) if fits else None
    if number is None:
        return None
    array = empty(shape, dtype)
    array._memory.fill(number)
    return array


def filled(value: Any, shape: Any, dtype: np.dtype | None) -> Any:
    """Return a new small array filled with a number; a `dtype` of None means float32, int64 or bool."""
    if (
        thread.busy
        or thread.device is not CPU
        or type(value) not in WEAK_KINDS
        or not (type(shape) is int or (type(shape) is tuple and are_integers(shape)))
    ):
        return None
    if dtype is None:
        dtype = promotion.common("full", (type(value),))
    elif type(value) is float and dtype.kind != "f":
        return None
    number = literal(value, dtype)
    extents = shape if type(shape) is tuple else (shape,)
    if (
        number is None
        or dtype not in DTYPES
        or len(extents) > DIMENSIONS
        or any(n < 0 for n in extents)
        or math.prod(extents) > eager.SMALL
    ):
        return None
    out = np.empty(extents, dtype)
    out.fill(number)
    return computed(out)
