"""Small operations that NumPy computes at once, instead of being recorded.

Recording an operation on a few elements, and launching it later, costs many times what NumPy takes for it. So
in eager code an operator is computed here, when it is called, if

- its result is NumPy's bit for bit (`Trait.EXACT`), it cannot fail, and its arrays are small (`eager.SMALL`);
- its operands are in memory: no recording has touched them, and nothing under way writes them; what it
  writes, no launch has used yet, so that no other thread can start one meanwhile (`storage.memory_lock`);
- the thread records nothing that has to know of it: no trace, no gradient, no Python task of the engine, nor
  an in-place operator, which reads when it is launched.

Otherwise the functions here return None (`in_place`, `write`: False) and the operation is recorded. Which of
the two happened shows in nothing but time. Operands have one dtype here; what has to be cast is recorded.

>>> import tracejit as tj
>>> x = tj.asarray([1, 2, 3])
>>> y = x + 1
>>> y._storage.pending is None          # it has been computed
True
"""

from __future__ import annotations

import contextvars
import functools
from typing import Any

import numpy as np

from tracejit.errors import TracejitError, locate
from tracejit.frontend.arrays import promotion
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.recording import eager
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.recording import lock, thread
from tracejit.frontend.recording.storage import Storage, memory_lock, type_of
from tracejit.ir.op import Op, Trait
from tracejit.ir.types import CPU, DTYPES, ArrayType, Device
from tracejit.ir.view import View

Plan = tuple[np.ufunc, np.dtype, np.dtype]
"""The ufunc of an operator, the dtype of its array operands and the one of its result."""

LITERALS = 1024  # numbers whose arrays are kept
EXACT_FLOAT = 1 << 53  # integers up to this are floats, too

with np.errstate(all="ignore"):
    QUIET = contextvars.copy_context()
    """A context in which NumPy warns of nothing. Entering a copy of it takes a tenth of `np.errstate`."""

_plans: dict[tuple[Any, ...], Plan | None] = {}
_literals: dict[tuple[Any, np.dtype], np.ndarray] = {}


def binary(op: Op, x1: Any, x2: Any) -> Any:
    """``op(x1, x2)``; operands may also be NumPy arrays, and one of them a Python number."""
    for x in (x1, x2):
        if type(x) is ArrayCore.concrete and (x._storage.recording or x._view.size > eager.SMALL):
            return None
    if thread.plain or thread.updates or thread.trace is not None:
        return None
    with lock, memory_lock:
        before = _writes(x1, x2)
        a, b = _elements(x1), _elements(x2)
        found = _operands(op, a, b) if a is not None and b is not None else None
        if found is None:
            return None
        function, result, a, b, shape = found
        out = np.empty(shape, result)
        QUIET.copy().run(function, a, b, out)
        return new(out) if _writes(x1, x2) == before else None


def unary(op: Op, x: Any) -> Any:
    """``op(x)``."""
    if type(x) is not ArrayCore.concrete or thread.plain or thread.updates or thread.trace is not None:
        return None
    plan = _plan(op, (x._storage.type.dtype,))
    if plan is None:
        return None
    with lock, memory_lock:
        before = _writes(x)
        a = _elements(x)
        if a is None:
            return None
        out = np.empty(a.shape, plan[2])
        QUIET.copy().run(plan[0], a, out)
        return new(out) if _writes(x) == before else None


def in_place(op: Op, x: Any, other: Any) -> bool:
    """Compute ``op(x, other)`` into the elements of `x`."""
    if thread.plain or thread.updates or thread.trace is not None:
        return False
    with lock, memory_lock:
        a = x._writable()
        if a is None or a.size > eager.SMALL:
            return False
        before = _writes(other)
        b = _elements(other)
        found = _operands(op, a, b) if b is not None else None
        if found is None:
            return False
        function, result, a, b, shape = found
        if shape != a.shape or result != a.dtype:
            return False
        out = a if before == 0 else np.empty(shape, result)
        QUIET.copy().run(function, a, b, out)
        if _writes(other) != before:
            return False
        if out is not a:
            a[...] = out
        return True


def write(target: Any, value: Any) -> bool:
    """Store a number, or an array of the same dtype, into the elements of `target`."""
    if thread.plain or thread.updates or thread.trace is not None:
        return False
    with lock, memory_lock:
        a = target._writable()
        if a is None or a.size > eager.SMALL:
            return False
        if type(value) is ArrayCore.concrete:
            before = _writes(value)
            b = _elements(value)
            if b is None or b.dtype != a.dtype or (b.shape != a.shape and _shape(a, b) != a.shape):
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


def getitem(x: Any, index: Any) -> Any:
    """``x[index]`` with arrays as indices; None for what the recorder has to say something about."""
    if thread.plain or thread.updates or thread.trace is not None:
        return None
    with lock, memory_lock:
        before, a, parts = _writes(x, *_parts(index)), _elements(x), _index(index)
        if a is None or parts is None:
            return None
        try:
            out = np.asarray(a[parts], order="C")  # NumPy may order it as it iterated
        except IndexError:
            return None
        return new(out) if out.size <= eager.SMALL and _writes(x, *_parts(index)) == before else None


def setitem(x: Any, index: Any, value: Any) -> bool:
    """``x[index] = value`` with arrays as indices; False for what the recorder has to say something about."""
    if thread.plain or thread.updates or thread.trace is not None:
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


def evaluate(op: Op, operands: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
    """``op(*operands, **attrs)`` of arrays as they are, by the operator's meaning in NumPy."""
    if thread.plain or thread.updates or thread.trace is not None or not _is_exact(op):
        return None
    with lock, memory_lock:
        before = _writes(*operands)
        arrays: list[np.ndarray] = [a for x in operands if type(a := _elements(x)) is np.ndarray]
        if len(arrays) < len(operands) or not op.is_exact(a.dtype for a in arrays):
            return None
        try:
            result = op.infer(*map(type_of, arrays), **attrs)
        except TracejitError as error:
            raise locate(error, user_location()) from None
        if isinstance(result, tuple) or result.size > eager.SMALL or result.device is not CPU:
            return None
        out = np.empty(result.shape, result.dtype)
        out[...] = QUIET.copy().run(op.evaluate, *arrays, **attrs)  # may be a view of an operand
        return new(out) if _writes(*operands) == before else None


def full(value: Any, shape: tuple[int, ...], dtype: np.dtype, device: Device) -> Any:
    """A new array of any size filled with a number: filling memory needs no kernel."""
    if (
        thread.plain
        or thread.updates
        or thread.trace is not None
        or device is not CPU
        or type(value) not in WEAKEST
    ):
        return None
    held = dtype.kind in WEAKEST[type(value)] or (type(value) is int and dtype.kind == "b")
    number = literal(value, dtype) if held else None
    if number is None:
        return None
    storage = Storage(ArrayType(shape, dtype))
    storage.materialise()
    storage.elements.fill(number)
    return ArrayCore.new(storage)


def new(out: np.ndarray) -> Any:
    """The array that is a NumPy array in C order that nobody else has."""
    made = ArrayCore.concrete(Storage.on(out), View.of_shape(out.shape))
    made._memory = out
    return made


# -- what NumPy is called with -------------------------------------------------------------------------------


def _elements(x: Any) -> Any:
    """The elements of a small array that are there now; other operands as they are; None otherwise."""
    if type(x) is not ArrayCore.concrete:
        return x
    seen = x._readable()
    return seen if seen is None or seen.size <= eager.SMALL else None


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


NUMBERS = frozenset({int, bool})

INDICES = frozenset({int, slice, type(None), type(...)})
"""Types of the parts of an index that mean here what they mean in NumPy."""


def _held(value: Any, dtype: np.dtype) -> np.ndarray | None:
    """A number of Python's that a dtype holds as it is."""
    if type(value) in WEAKEST and dtype.kind in WEAKEST[type(value)]:
        return literal(value, dtype)
    return None


def _writes(*operands: Any) -> int:
    """Count the launches that write the operands: if there are more than before, values read may be
    partly old. It is 0 for operands that no launch can use meanwhile."""
    concrete, count = ArrayCore.concrete, 0
    for x in operands:
        if type(x) is concrete and not x._storage.untouched and x._storage.variable is not None:
            count += 1 + x._storage.variable.writes
    return count


WEAKEST = {bool: "biuf", int: "iuf", float: "f"}
"""Kinds of dtypes that hold the numbers of a type as they are."""


def _operands(op: Op, a: Any, b: Any) -> tuple[np.ufunc, np.dtype, Any, Any, tuple[int, ...]] | None:
    """Ufunc, dtype of the result, operands as NumPy arrays, and the shape of the result."""
    if type(a) is not np.ndarray:
        if type(a) not in WEAKEST or type(b) is not np.ndarray:
            return None
        plan = _plan(op, (type(a), b.dtype))
        if plan is None or (a := literal(a, plan[1])) is None:
            return None
        return plan[0], plan[2], a, b, b.shape
    if type(b) is not np.ndarray:
        if type(b) not in WEAKEST:
            return None
        plan = _plan(op, (a.dtype, type(b)))
        if plan is None or (b := literal(b, plan[1])) is None:
            return None
        return plan[0], plan[2], a, b, a.shape
    plan = _plan(op, (a.dtype, b.dtype))
    if plan is None:
        return None
    shape = a.shape if a.shape == b.shape else _shape(a, b)
    return None if shape is None else (plan[0], plan[2], a, b, shape)


def _shape(a: np.ndarray, b: np.ndarray) -> tuple[int, ...] | None:
    """The shape to which two arrays broadcast; None where it is large or there is none."""
    for n, m in zip(reversed(a.shape), reversed(b.shape), strict=False):
        if n != m and n != 1 and m != 1:
            return None
    both = np.broadcast(a, b)
    return both.shape if both.size <= eager.SMALL else None


def _plan(op: Op, kinds: tuple[promotion.Kind, ...]) -> Plan | None:
    key = (op, *kinds)
    try:
        return _plans[key]
    except KeyError:
        found = _plans[key] = _make_plan(op, kinds)
        return found


def _make_plan(op: Op, kinds: tuple[promotion.Kind, ...]) -> Plan | None:
    """Plan how NumPy computes an operator on operands of these kinds; None if it has to be recorded."""
    if not _is_exact(op) or not isinstance(op.evaluate, np.ufunc) or op.evaluate.nout != 1:
        return None
    dtypes = {kind for kind in kinds if isinstance(kind, np.dtype)}
    dtype = dtypes.pop()
    if (
        not op.is_exact((dtype,))
        or dtypes
        or dtype not in DTYPES
        or promotion.promoted(op, kinds)[0] != dtype
    ):
        return None
    number = ArrayType((), dtype)
    return op.evaluate, dtype, op.infer(*(number for _ in kinds)).dtype


@functools.cache
def _is_exact(op: Op) -> bool:
    return Trait.EXACT in op.traits and Trait.ORDERED not in op.traits and Trait.CAN_FAIL not in op.traits


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
