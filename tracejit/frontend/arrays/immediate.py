"""Small operations that are computed at once, instead of being recorded.

Recording an operation on a few elements, and launching it later, costs many times what computing it takes. So
in eager code an operator is computed here, when it is called, if

- its arrays are small (`eager.SMALL`), and it is either NumPy's bit for bit (`Trait.EXACT`), then NumPy
  computes it, or its kernels can run without a launch (`direct`);
- its operands are in memory: no recording has touched them, and nothing under way writes them; what it
  writes, no launch has used yet (`storage.ComputedStorage`);
- the thread records nothing that has to know of it (`thread.busy`): no trace, no gradient, no Python task of
  the engine, nor an in-place operator, which reads when it is launched.

Otherwise the functions here return None (`in_place`, `write`: False) and the operation is recorded. Which of
the two happened shows in nothing but time.

Another thread may touch an array meanwhile. Writing holds `memory_lock`, without which no launch can begin to
use the memory. Reading does not: it looks afterwards whether its operands have been written, and if so, what
it computed is dropped and the operation recorded.

>>> import tracejit as tj
>>> x = tj.asarray([1, 2, 3])
>>> y = x + 1
>>> y._storage.pending is None          # it has been computed
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
    WEAKEST,
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
from tracejit.ir.evaluate import meaning
from tracejit.ir.op import Op, Trait
from tracejit.ir.types import CPU, DTYPES, HALVES, ArrayType, Device

NO_ATTRIBUTES: dict[str, Any] = {}

_plans: dict[tuple[Any, ...], ImmediatePlan | None] = {}


# -- elementwise operators -----------------------------------------------------------------------------------


class ImmediatePlan(NamedTuple):
    """The computation of an operator on operands of some kinds (`promotion.Kind`).

    ufunc:  NumPy's, with the dtype of its `result`; None: by a direct call
    inputs: the dtypes of the operands
    """

    ufunc: np.ufunc | None
    inputs: tuple[np.dtype, ...]
    result: np.dtype


def apply(op: Op, *operands: Any) -> Any:
    """``op(*operands)`` of an elementwise operator; operands may also be NumPy arrays and Python numbers."""
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
    """``op(*operands)`` of NumPy arrays and numbers, of which one is an array."""
    kinds = [x.dtype if type(x) is np.ndarray else type(x) for x in operands]
    if not any(type(x) is np.ndarray for x in operands) or any(
        k.__class__ is type and k not in WEAKEST for k in kinds
    ):
        return None
    plan = plan_for(op, *kinds)
    return None if plan is None else _compute(op, plan, operands)


def _compute(op: Op, plan: ImmediatePlan, operands: list[Any]) -> np.ndarray | None:
    """Compute `plan` on NumPy arrays and numbers; None where a number does not fit, or much comes out."""
    given: list[Any] = []
    for x, dtype in zip(operands, plan.inputs, strict=True):
        if type(x) is not np.ndarray:
            x = literal(x, dtype) if plan.ufunc else number(x, dtype)
            if x is None:
                return None
        given.append(x if x.dtype == dtype else x.astype(dtype))
    arrays = [x for x in given if type(x) is np.ndarray]
    shape = arrays[0].shape
    if any(x.shape != shape for x in arrays):
        try:
            both = np.broadcast(*arrays)
        except ValueError:
            return None  # the recorder says so
        if both.size > eager.SMALL:
            return None
        shape = both.shape
    if plan.ufunc is None:
        return direct.compute(op, tuple(given), {})
    out = np.empty(shape, plan.result)
    QUIET.copy().run(plan.ufunc, *given, out)
    return out


def binary_of(op: Op) -> Callable[[Any, Any], Any]:
    """A function that computes ``op(x1, x2)``, fast where no operand has to be cast: else it is `apply`. Call
    it unless the thread is busy.
    """
    routines: dict[tuple[Any, Any], Routine | None] = {}

    def compute(x1: Any, x2: Any) -> Any:
        array, kind1, kind2 = ArrayCore.concrete, type(x1), type(x2)
        if kind1 is array:
            a = x1._memory if type(x1._storage) is ComputedStorage else None
        else:
            a = x1 if kind1 in WEAKEST else None
        if kind2 is array:
            b = x2._memory if type(x2._storage) is ComputedStorage else None
        else:
            b = x2 if kind2 in WEAKEST else None
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


Routine = Callable[[Any, Any], "np.ndarray | None"]
"""Computes a binary operator on operands of some kinds, as they are; None for what it does not do."""


def _routine(
    routines: dict[tuple[Any, Any], Routine | None], op: Op, kinds: tuple[promotion.Kind, promotion.Kind]
) -> Routine | None:
    """Find the routine for operands of these kinds, and note it; None where one has to be cast."""
    plan = None if all(kind.__class__ is type for kind in kinds) else plan_for(op, *kinds)
    if plan is None:
        found = None
    elif isinstance(kinds[0], type):
        found = _with_number(plan, _fast(op, plan), first=True)
    elif isinstance(kinds[1], type):
        found = _with_number(plan, _fast(op, plan), first=False)
    else:
        found = _fast(op, plan) if kinds == plan.inputs else None
    routines[kinds] = found
    return found


def _fast(op: Op, plan: ImmediatePlan) -> Routine:
    """The routine of a plan for operands of its dtypes; a number is a 0-d array, or a `direct.Number`."""
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
            return None  # they do not broadcast: the recorder says so

    return compute


def _with_number(plan: ImmediatePlan, compute: Routine, *, first: bool) -> Routine:
    """The routine where one operand is a Python number, the first or the second."""
    dtype = plan.inputs[0]
    find: Callable[..., Any] = number if plan.ufunc is None else literal

    def with_first(x: Any, b: np.ndarray) -> np.ndarray | None:
        held = find(x, dtype) if b.dtype == dtype and b.size <= eager.SMALL else None
        return None if held is None else compute(held, b)

    def with_second(a: np.ndarray, x: Any) -> np.ndarray | None:
        held = find(x, dtype) if a.dtype == dtype and a.size <= eager.SMALL else None
        return None if held is None else compute(a, held)

    return with_first if first else with_second


def unary_of(op: Op) -> Callable[[Any], Any]:
    """A function that computes ``op(x)``, like `binary_of`."""
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
    """Arrays of one dtype, one after the other along `axis`."""
    parts: list[Any] = [None if thread.busy else at_hand(x) for x in arrays]
    if any(part is None or part.dtype != dtype for part in parts) or sum(p.size for p in parts) > eager.SMALL:
        return None
    out: np.ndarray = np.ascontiguousarray(np.concatenate(parts, axis))
    return computed(out) if still_computed(arrays) else None


def select(condition: Any, x1: Any, x2: Any) -> Any:
    """``where(condition, x1, x2)`` of arrays of one shape."""
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
        if b is None or (type(b) is not np.ndarray and type(b) not in WEAKEST):
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
    """The plan of an elementwise operator for operands of these kinds; None if it has to be recorded."""
    key = (op, *kinds)
    try:
        return _plans[key]
    except KeyError:
        found = _plans[key] = _make_plan(op, kinds)
        return found


def _make_plan(op: Op, kinds: tuple[promotion.Kind, ...]) -> ImmediatePlan | None:
    dtypes = [kind for kind in kinds if isinstance(kind, np.dtype)]
    if not direct.NEVER.isdisjoint(op.traits) or any(dtype not in DTYPES for dtype in dtypes):
        return None
    if len(dtypes) == 2 and promotion.is_comparison(op) and promotion.mixed_signs(*dtypes):
        return None
    inputs = promotion.promoted(op, kinds)
    result = op.infer(*(ArrayType((), dtype) for dtype in inputs)).dtype
    weak = (k.__class__ is type and d.kind not in WEAKEST[k] for k, d in zip(kinds, inputs, strict=True))
    if any(d.kind == "c" for d in (*inputs, result)) or any(weak):
        return None
    if op.is_exact(inputs) and isinstance(op.evaluate, np.ufunc) and op.evaluate.nout == 1:
        return ImmediatePlan(op.evaluate, inputs, result)
    return ImmediatePlan(None, inputs, result)


# -- other operators -----------------------------------------------------------------------------------------


def evaluate(op: Op, operands: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
    """``op(*operands, **attrs)`` of arrays as they are: by its meaning in NumPy, or by a direct call."""
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
    """A reduction of floats, in their dtype, over one axis or (None) all."""
    a = at_hand(x) if type(x) is ArrayCore.concrete and not thread.busy else None
    if a is None or a.dtype.kind != "f" or a.dtype in HALVES:  # means of half numbers stay wide to the end
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
    """The matrix product of vectors and matrices of one floating dtype."""
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
    if Trait.CAN_FAIL in op.traits:
        return None  # it fails when somebody looks at what depends on it
    if Trait.HOST not in op.traits and not (_is_exact(op) and op.is_exact([a.dtype for a in arrays])):
        return direct.compute(op, tuple(arrays), attrs) if arrays else None
    try:
        result = op.infer(*map(type_of, arrays), **attrs)
    except TracejitError as error:
        raise locate(error, user_location()) from None
    if isinstance(result, tuple) or result.size > eager.SMALL or result.device is not CPU:
        return None
    out = np.empty(result.shape, result.dtype)
    (out[...],) = QUIET.copy().run(meaning, op, arrays, attrs, (result,))  # may be a view of an operand
    return out


@functools.cache
def _is_exact(op: Op) -> bool:
    return Trait.EXACT in op.traits and Trait.ORDERED not in op.traits


def full(value: Any, shape: tuple[int, ...], dtype: np.dtype, device: Device) -> Any:
    """A new array of any size filled with a number: filling memory needs no kernel."""
    if thread.busy or device is not CPU or type(value) not in WEAKEST:
        return None
    held = dtype.kind in WEAKEST[type(value)] or (type(value) is int and dtype.kind == "b")
    number = literal(value, dtype) if held else None
    if number is None:
        return None
    made = empty(shape, dtype)
    made._memory.fill(number)
    return made


def filled(value: Any, shape: Any, dtype: np.dtype | None) -> Any:
    """A new small array filled with a number, float32, int64 or bool where `dtype` is None."""
    if (
        thread.busy
        or thread.device is not CPU
        or type(value) not in WEAKEST
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
