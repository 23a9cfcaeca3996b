"""Small operations that are computed at once, instead of being recorded.

Recording an operation on a few elements, and launching it later, costs many times what computing it takes. So
in eager code an operator is computed here, when it is called, if

- its arrays are small (`eager.SMALL`), and it is either NumPy's bit for bit (`Trait.EXACT`), then NumPy
  computes it, or its kernels can run without a launch (`direct`);
- its operands are in memory: no recording has touched them, and nothing under way writes them; what it
  writes, no launch has used yet (`storage.Computed`);
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

import contextvars
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tracejit.errors import TracejitError, locate
from tracejit.frontend.arrays import direct, promotion
from tracejit.frontend.arrays.core import ArrayCore, computed
from tracejit.frontend.recording import eager
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.recording import lock, thread
from tracejit.frontend.recording.storage import Computed, memory_lock, type_of
from tracejit.ir.op import Op, Trait
from tracejit.ir.types import CPU, DTYPES, ArrayType, Device
from tracejit.ops import matmul

NO_ATTRIBUTES: dict[str, Any] = {}
LITERALS = 1024  # numbers whose arrays are kept
EXACT_FLOAT = 1 << 53  # integers up to this are floats, too

WEAKEST = {bool: "biuf", int: "iuf", float: "f"}
"""Kinds of dtypes that hold the numbers of a type as they are."""

INDICES = frozenset({int, slice, type(None), type(...)})
"""Types of the parts of an index that mean here what they mean in NumPy."""

with np.errstate(all="ignore"):
    QUIET = contextvars.copy_context()
    """A context in which NumPy warns of nothing. Entering a copy of it takes a tenth of `np.errstate`."""

_empty = np.empty
_plans: dict[tuple[Any, ...], Plan | None] = {}
_literals: dict[tuple[Any, np.dtype], np.ndarray] = {}


# -- elementwise operators -----------------------------------------------------------------------------------


class Plan(NamedTuple):
    """How an operator is computed on operands of some kinds (`promotion.Kind`).

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
    elements = [_at_hand(x) for x in operands]
    if not any([e is None for e in elements]):
        out = _applied(op, elements)
        if out is None or _still_computed(operands):
            return None if out is None else computed(out)
    with lock, memory_lock:
        before = _writes(*operands)
        elements = [_elements(x) for x in operands]
        out = None if any([e is None for e in elements]) else _applied(op, elements)
        return computed(out) if out is not None and _writes(*operands) == before else None


def _applied(op: Op, operands: list[Any]) -> np.ndarray | None:
    """``op(*operands)`` of NumPy arrays and numbers, of which one is an array."""
    kinds = [x.dtype if type(x) is np.ndarray else type(x) for x in operands]
    if not any([type(x) is np.ndarray for x in operands]) or any([k.__class__ is type and k not in WEAKEST for k in kinds]):
        return None
    plan = plan_for(op, *kinds)
    return None if plan is None else _compute(op, plan, operands)


def _compute(op: Op, plan: Plan, operands: list[Any]) -> np.ndarray | None:
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
    if any([x.shape != shape for x in arrays]):
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
    """A function that computes ``op(x1, x2)``, fast where nothing is cast or broadcast: else it is `apply`."""
    plans: dict[tuple[Any, Any], Plan | None] = {}
    by_kernel = direct.computer(op, 2, NO_ATTRIBUTES)

    def plan_of(kinds: tuple[Any, Any]) -> Plan | None:
        plan = plan_for(op, *kinds)
        if plan is not None and any(
            kind != dtype for kind, dtype in zip(kinds, plan.inputs, strict=True) if kind.__class__ is not type
        ):
            plan = None
        plans[kinds] = plan
        return plan

    def compute(x1: Any, x2: Any) -> Any:
        if thread.busy:
            return None
        array = ArrayCore.concrete
        if type(x1) is array and type(x1._storage) is Computed and x1._memory is not None:
            a = x1._memory
            if type(x2) is array:
                b = x2._memory if type(x2._storage) is Computed else None
                if b is None or a.shape != b.shape or a.size > eager.SMALL:
                    return apply(op, x1, x2)
                kinds = a.dtype, b.dtype
                plan = plans[kinds] if kinds in plans else plan_of(kinds)
            elif type(x2) in WEAKEST and a.size <= eager.SMALL:
                kinds = a.dtype, type(x2)
                plan = plans[kinds] if kinds in plans else plan_of(kinds)
                b = None if plan is None else literal(x2, a.dtype) if plan.ufunc else number(x2, a.dtype)
            else:
                return apply(op, x1, x2)
            if plan is not None and b is not None:
                if plan.ufunc is None:
                    out = by_kernel(a, b)
                else:
                    out = _empty(a.shape, plan.result)
                    QUIET.copy().run(plan.ufunc, a, b, out)
                if out is not None and type(x1._storage) is Computed and (type(x2) is not array or type(x2._storage) is Computed):
                    return computed(out)
        return apply(op, x1, x2)

    return compute


def unary_of(op: Op) -> Callable[[Any], Any]:
    """A function that computes ``op(x)``, like `binary_of`."""
    by_kernel = direct.computer(op, 1, NO_ATTRIBUTES)

    def compute(x: Any) -> Any:
        if thread.busy:
            return None
        if type(x) is ArrayCore.concrete and type(x._storage) is Computed:
            a = x._memory
            if a is not None and a.size <= eager.SMALL:
                plan = plan_for(op, a.dtype)
                if plan is None or plan.inputs[0] != a.dtype:
                    return apply(op, x)
                if plan.ufunc is None:
                    out = by_kernel(a)
                else:
                    out = _empty(a.shape, plan.result)
                    QUIET.copy().run(plan.ufunc, a, out)
                if out is not None and type(x._storage) is Computed:
                    return computed(out)
        return apply(op, x)

    return compute


def in_place(op: Op, x: Any, other: Any) -> bool:
    """Compute ``op(x, other)`` into the elements of `x`."""
    if thread.busy:
        return False
    with memory_lock:
        a = x._writable()
        if a is None or a.size > eager.SMALL:
            return False
        if type(other) is ArrayCore.concrete and type(other._storage) is Computed:
            b, before = _at_hand(other), 0
        else:
            before, b = _writes(other), _elements(other)
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
        if out is None or out.shape != a.shape or _writes(other) != before:
            return False
        a[...] = out
        return True


def plan_for(op: Op, *kinds: promotion.Kind) -> Plan | None:
    """The plan of an elementwise operator for operands of these kinds; None if it has to be recorded."""
    key = (op, *kinds)
    try:
        return _plans[key]
    except KeyError:
        found = _plans[key] = _make_plan(op, kinds)
        return found


def _make_plan(op: Op, kinds: tuple[promotion.Kind, ...]) -> Plan | None:
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
        return Plan(op.evaluate, inputs, result)
    return Plan(None, inputs, result)


# -- other operators -----------------------------------------------------------------------------------------


def evaluate(op: Op, operands: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
    """``op(*operands, **attrs)`` of arrays as they are: by its meaning in NumPy, or by a direct call."""
    if thread.busy:
        return None
    arrays: list[Any] = [_at_hand(x) for x in operands]
    if all([type(a) is np.ndarray for a in arrays]):
        out = _evaluated(op, arrays, attrs)
        if out is None or _still_computed(operands):
            return None if out is None else computed(out)
    with lock, memory_lock:
        before = _writes(*operands)
        arrays = [a for x in operands if type(a := _elements(x)) is np.ndarray]
        out = _evaluated(op, arrays, attrs) if len(arrays) == len(operands) else None
        return computed(out) if out is not None and _writes(*operands) == before else None


def reduction(op: Op, x: Any, axis: Any) -> Any:
    """A reduction of floats, in their dtype, over one axis or (None) all."""
    a = _at_hand(x) if type(x) is ArrayCore.concrete and not thread.busy else None
    if a is None or a.dtype.kind != "f":
        return None
    if axis is None:
        axes = ALL_AXES[a.ndim]
    elif type(axis) is int and -a.ndim <= axis < a.ndim:
        axes = (axis % a.ndim,)
    else:
        return None
    out = direct.compute(op, (a,), {"axes": axes, "pieces": 0})
    return computed(out) if out is not None and type(x._storage) is Computed else None


ALL_AXES = [tuple(range(n)) for n in range(65)]


def product(x1: Any, x2: Any) -> Any:
    """The matrix product of vectors and matrices of one floating dtype."""
    if thread.busy or type(x1) is not ArrayCore.concrete or type(x2) is not ArrayCore.concrete:
        return None
    s1, s2 = x1._storage, x2._storage
    if type(s1) is not Computed or type(s2) is not Computed:
        return None
    a, b = x1._memory, x2._memory
    if a is None or b is None or a.dtype != b.dtype or a.dtype.kind != "f" or not (0 < a.ndim < 3 and 0 < b.ndim < 3):
        return None
    if a.shape[-1] != b.shape[0] or a.size > eager.SMALL or b.size > eager.SMALL:
        return None
    out = direct.compute(matmul, (a if a.ndim == 2 else a[None], b if b.ndim == 2 else b[:, None]), {})
    if out is None or type(s1) is not Computed or type(s2) is not Computed:
        return None
    return computed(out if a.ndim == b.ndim == 2 else out.reshape((*a.shape[:-1], *b.shape[1:])))


def _evaluated(op: Op, arrays: list[np.ndarray], attrs: dict[str, Any]) -> np.ndarray | None:
    if not _is_exact(op) or not op.is_exact([a.dtype for a in arrays]):
        return direct.compute(op, tuple(arrays), attrs)
    try:
        result = op.infer(*map(type_of, arrays), **attrs)
    except TracejitError as error:
        raise locate(error, user_location()) from None
    if isinstance(result, tuple) or result.size > eager.SMALL:
        return None
    out = np.empty(result.shape, result.dtype)
    out[...] = QUIET.copy().run(op.evaluate, *arrays, **attrs)  # may be a view of an operand
    return out


@functools.cache
def _is_exact(op: Op) -> bool:
    return Trait.EXACT in op.traits and Trait.ORDERED not in op.traits and Trait.CAN_FAIL not in op.traits


def full(value: Any, shape: tuple[int, ...], dtype: np.dtype, device: Device) -> Any:
    """A new array of any size filled with a number: filling memory needs no kernel."""
    if thread.busy or device is not CPU or type(value) not in WEAKEST:
        return None
    held = dtype.kind in WEAKEST[type(value)] or (type(value) is int and dtype.kind == "b")
    number = literal(value, dtype) if held else None
    if number is None:
        return None
    made = ArrayCore.empty(shape, dtype)
    made._memory.fill(number)
    return made


def filled(value: Any, shape: Any, dtype: np.dtype | None) -> Any:
    """A new small array filled with a number, float32, int64 or bool where `dtype` is None."""
    if thread.busy or type(value) not in WEAKEST or not (type(shape) is int or (type(shape) is tuple and _are_integers(shape))):
        return None
    if dtype is None:
        dtype = promotion.common("full", (type(value),))
    elif type(value) is float and dtype.kind != "f":
        return None
    number = literal(value, dtype)
    extents = shape if type(shape) is tuple else (shape,)
    if number is None or dtype not in DTYPES or any([n < 0 for n in extents]) or math.prod(extents) > eager.SMALL:
        return None
    out = np.empty(extents, dtype)
    out.fill(number)
    return computed(out)


# -- writing -------------------------------------------------------------------------------------------------


def write(target: Any, value: Any) -> bool:
    """Store a number, or an array of the same dtype, into the elements of `target`."""
    if thread.busy:
        return False
    with memory_lock:
        a = target._writable()
        if a is None or a.size > eager.SMALL:
            return False
        if type(value) is ArrayCore.concrete:
            before = _writes(value)
            b = _elements(value)
            if b is None or b.dtype != a.dtype or (b.shape != a.shape and not _fits(b.shape, a.shape)):
                return False
            if before:
                b = b.copy()
                if _writes(value) != before:
                    return False
        else:
            b = _held(value, a.dtype)
            if b is None:
                return False
        a[...] = b
        return True


def _fits(shape: tuple[int, ...], into: tuple[int, ...]) -> bool:
    """Whether `shape` broadcasts to `into`."""
    return len(shape) <= len(into) and all(
        n in (1, m) for n, m in zip(reversed(shape), reversed(into), strict=False)
    )


# -- indexing ------------------------------------------------------------------------------------------------


def basic(x: Any, index: Any) -> Any:
    """``x[index]`` for integers, slices, None and Ellipsis as indices: a view, or one element as a new array.

    None for other indices.
    """
    if type(x._storage) is not Computed or thread.busy or x._memory is None or not _is_basic(index):
        return None
    try:
        seen = x._memory[index]
    except (IndexError, TypeError, ValueError):
        return None  # the recorder says what is wrong
    return x._seen_as(seen) if type(seen) is np.ndarray else computed(np.asarray(seen))


def _is_basic(index: Any) -> bool:
    return all([type(i) in INDICES for i in index]) if type(index) is tuple else type(index) in INDICES


def view(x: Any, see: Callable[[np.ndarray], np.ndarray]) -> Any:
    """The view of `x` that `see` gives for its elements; None where they are not there."""
    a = x._memory if type(x._storage) is Computed and not thread.busy else None
    return None if a is None else x._seen_as(see(a))


def reshape(x: Any, shape: Any) -> Any:
    """The elements of a contiguous array under another shape, a view."""
    a = x._memory if type(x._storage) is Computed and not thread.busy else None
    if a is None or not a.flags.c_contiguous or not (type(shape) is int or (type(shape) is tuple and _are_integers(shape))):
        return None
    try:
        return x._seen_as(a.reshape(shape))
    except ValueError:
        return None  # the recorder says what is wrong


def _are_integers(extents: tuple[Any, ...]) -> bool:
    return all([type(n) is int for n in extents])


def set_basic(x: Any, index: Any, value: Any) -> bool:
    """``x[index] = value`` for the same indices, and what `write` stores."""
    if thread.busy or type(x._storage) is not Computed or not _is_basic(index):
        return False
    a = x._memory
    if a is None or a.size > eager.SMALL:
        return False
    if type(value) is ArrayCore.concrete:
        b = value._memory if type(value._storage) is Computed else None
        if b is None or b.dtype != a.dtype:
            return False
    else:
        b = _held(value, a.dtype)
        if b is None:
            return False
    with memory_lock:
        if type(x._storage) is not Computed or (b is not a and type(value) is ArrayCore.concrete and type(value._storage) is not Computed):
            return False
        try:
            a[index] = b
        except (IndexError, TypeError, ValueError):
            return False
        return True


def getitem(x: Any, index: Any) -> Any:
    """``x[index]`` with arrays as indices; None for what the recorder has to say something about."""
    if thread.busy:
        return None
    with lock, memory_lock:
        before, a, parts = _writes(x, *_parts(index)), _elements(x), _index(index)
        if a is None or parts is None:
            return None
        try:
            out = np.asarray(a[parts], order="C")  # NumPy may order it as it iterated
        except IndexError:
            return None
        return computed(out) if out.size <= eager.SMALL and _writes(x, *_parts(index)) == before else None


def setitem(x: Any, index: Any, value: Any) -> bool:
    """``x[index] = value`` with arrays as indices; False for what the recorder has to say something about."""
    if thread.busy:
        return False
    with lock, memory_lock:
        a, parts, given = x._writable(), _index(index), (*_parts(index), value)
        if a is None or parts is None or a.size > eager.SMALL:
            return False
        before = _writes(*given)
        b = _elements(value) if type(value) is ArrayCore.concrete else _held(value, a.dtype)
        if b is None or b.dtype != a.dtype:
            return False
        if before:
            b, parts = b.copy(), tuple([p.copy() if type(p) is np.ndarray else p for p in parts])
            if _writes(*given) != before:
                return False
        try:
            a[parts] = b
        except (IndexError, TypeError, ValueError):
            return False
        return True


NUMBERS = frozenset({int, bool})


def _parts(index: Any) -> tuple[Any, ...]:
    return index if type(index) is tuple else (index,)


def _index(index: Any) -> tuple[Any, ...] | None:
    """An index whose arrays NumPy can read now; None if there are none, or others than small ones."""
    found: list[Any] = []
    for part in _parts(index):
        seen = part
        if type(part) is ArrayCore.concrete:
            seen = _elements(part)
            if seen is None:
                return None
        elif type(part) is list:
            if not NUMBERS.issuperset(map(type, part)):
                return None  # arrays in it would be looked at, and waited for, under the locks held here
            seen = np.asarray(part)
        if type(seen) is np.ndarray:
            if seen.dtype.kind not in "biu" or not seen.ndim:
                return None
        elif type(part) not in INDICES:
            return None
        found.append(seen)
    return tuple(found) if any(type(part) is np.ndarray for part in found) else None


# -- what is there -------------------------------------------------------------------------------------------


def _at_hand(x: Any) -> Any:
    """The elements of a small array that was computed at once; operands of other types as they are; or None."""
    if type(x) is ArrayCore.concrete:
        a = x._memory if type(x._storage) is Computed else None
        return a if a is not None and a.size <= eager.SMALL else None
    return _elements(x)


def _still_computed(operands: tuple[Any, ...]) -> bool:
    """Whether no launch can have written any of the arrays."""
    concrete = ArrayCore.concrete
    return all([type(x) is not concrete or type(x._storage) is Computed for x in operands])


def _elements(x: Any) -> Any:
    """The elements of a small array that are there now; other operands as they are; None otherwise."""
    if type(x) is not ArrayCore.concrete:
        if isinstance(x, np.ndarray):
            return x if type(x) is np.ndarray and x.size <= eager.SMALL and x.dtype.isnative else None
        return x
    seen = x._readable()
    return seen if seen is None or seen.size <= eager.SMALL else None


def _writes(*operands: Any) -> int:
    """Count the launches that write the operands: if there are more than before, values read may be
    partly old. It is 0 for operands that no launch can use meanwhile."""
    concrete, count = ArrayCore.concrete, 0
    for x in operands:
        if type(x) is concrete and type(x._storage) is not Computed:
            storage = x._storage
            if not storage.untouched and storage.variable is not None:
                count += 1 + storage.variable.writes
    return count


def _held(value: Any, dtype: np.dtype) -> np.ndarray | None:
    """A number of Python's that a dtype holds as it is."""
    if type(value) in WEAKEST and dtype.kind in WEAKEST[type(value)]:
        return literal(value, dtype)
    return None


_numbers: dict[tuple[Any, np.dtype], direct.Number] = {}


def number(x: bool | int | float, dtype: np.dtype) -> direct.Number | None:
    """A number as an operand of a direct call; None if the dtype does not hold it."""
    key = (x, dtype)
    found = _numbers.get(key) if x else None
    if found is None:
        held = literal(x, dtype)
        if held is None:
            return None
        bits = int.from_bytes(held.tobytes().ljust(8, b"\0"), "little", signed=True)
        found = direct.Number(bits, dtype)
        if x:
            if len(_numbers) >= LITERALS:
                _numbers.clear()
            _numbers[key] = found
    return found


def literal(number: bool | int | float, dtype: np.dtype) -> np.ndarray | None:
    """A number as a 0-d array; None if the dtype does not hold it (the recorder says so)."""
    key = (number, dtype)
    found = _literals.get(key) if number else None  # 0.0 and -0.0 are equal
    if found is None:
        if type(number) is int and not (
            promotion.fits(number, dtype) and (dtype.kind in "iu" or abs(number) <= EXACT_FLOAT)
        ):
            return None
        found = QUIET.copy().run(np.asarray, number, dtype)
        if number:
            if len(_literals) >= LITERALS:
                _literals.clear()
            _literals[key] = found
    return found
