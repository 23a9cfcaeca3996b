"""NumPy 2's type promotion: the dtypes to which operands are cast, and the numbers that fit a dtype.

Arrays and NumPy scalars have their dtype. Python numbers are *weak*: they adopt the dtype of the arrays among
the operands, or without arrays their default (bool, int64, float32, complex64). A NumPy float64 scalar, such
as the result of ``np.sqrt(2)``, is weak as well, but its default is float64. bfloat16, which NumPy does not
know, is promoted as float16; both together are promoted to float32.

>>> common_dtype("add", (1, 2.5))
dtype('float32')
>>> floating(np.dtype("int8"))
dtype('float16')
>>> result_type(BFLOAT16, np.dtype("int8"), 0.5)
dtype(bfloat16)
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracejit.errors import ArgumentError, DTypeError, TracejitError, locate
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.number import NumberProxy
from tracejit.ir.op import Op
from tracejit.ir.types import BFLOAT16, DTYPES, FLOAT16, HALVES, ArrayType, is_inexact

PromotionOperand = Any

KNOWN = {dtype: dtype for dtype in DTYPES}
"""The supported dtypes, to map equal dtypes to one object, so that comparisons are fast."""

UINT64 = np.dtype("uint64")
INTEGERS = frozenset(d for d in DTYPES if d.kind in "iu")
SINGLE = np.dtype("float32")
DOUBLES = {np.dtype("float32"): np.dtype("float64"), np.dtype("complex64"): np.dtype("complex128")}
"""The double precision dtypes by the single precision dtypes."""


# -- kinds ---------------------------------------------------------------------------------------------------

Kind = np.dtype | type
"""An operand's kind for promotion: its dtype, or the type of a weak number."""

_NUMBERS: dict[Any, Any] = {np.float64: 0.0, bool: np.dtype(bool), int: 0, float: 0.0, complex: 0j}


def kind_of(x: PromotionOperand) -> Kind:
    """Return the kind of an operand, without a look at a traced number."""
    if type(x) is not NumberProxy and isinstance(x, ArrayCore):
        return x._storage.type.dtype
    number = x._value if type(x) is NumberProxy else x
    if type(number) is float or type(number) is int:
        return type(number)
    if isinstance(number, np.generic) and not isinstance(number, float):
        return number.dtype
    return next(kind for kind in _NUMBERS if isinstance(number, kind))


def is_zero(number: Any) -> bool:
    """Whether a number is a built-in 0; a traced number is never one, and is not looked at."""
    return type(number) in (int, float) and number == 0


# -- dtypes --------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def promoted(op: Op, kinds: tuple[Kind, ...]) -> tuple[np.dtype, ...]:
    """Return the dtype to which each operand of `op` is cast, from the kinds of all operands."""
    if op.promotion == "choice":
        chosen = common(op.name, kinds[1:])
        return np.dtype(bool), chosen, chosen
    dtype = common(op.name, kinds)
    if op.promotion == "bool":
        dtype = np.dtype(bool)
    elif op.admits and dtype not in op.admits:
        if isinstance(op.evaluate, np.ufunc):
            dtype = _numpy_loop(op.evaluate, kinds, dtype)
        elif op.promotion == "float":
            dtype = floating(dtype)
    if op.admits and dtype in HALVES and dtype not in op.admits:
        dtype = SINGLE
    if op.admits and dtype not in op.admits:
        admitted = ", ".join(str(d) for d in DTYPES if d in op.admits)
        raise locate(
            DTypeError(f"{op.name}: not defined for {dtype}; it takes {admitted} (cast with astype)"),
            user_location(),
        )
    return (dtype,) * len(kinds)


def _numpy_loop(ufunc: np.ufunc, kinds: Sequence[Kind], common: np.dtype) -> np.dtype:
    """Return the dtype in which NumPy's ufunc computes these operands; `common` if it rejects them."""
    types = (np.dtype(bool) if kind is bool else float if kind is np.float64 else kind for kind in kinds)
    try:
        return ufunc.resolve_dtypes((*types, *[None] * ufunc.nout))[0]
    except TypeError:
        return common


def common_dtype(name: str, operands: Sequence[PromotionOperand]) -> np.dtype:
    """Return NumPy 2's common dtype of operands. If all are Python numbers, it is their common default."""
    return common(name, tuple(map(kind_of, operands)))


@functools.lru_cache(maxsize=4096)
def common(name: str, kinds: tuple[Kind, ...]) -> np.dtype:
    """Return the common dtype of kinds."""
    if all(kind in _NUMBERS for kind in kinds):
        single = np.dtype(np.complex64) if complex in kinds else SINGLE
        if np.float64 in kinds:
            return DOUBLES[single]
        if complex in kinds or float in kinds:
            return single
        return np.dtype(bool if all(kind is bool for kind in kinds) else np.int64)
    return supported(name, result_type(*(_NUMBERS.get(kind, kind) for kind in kinds)))


def result_type(*kinds: Any) -> np.dtype:
    """Return NumPy's `result_type`, with bfloat16 treated as float16; both together give float32."""
    if BFLOAT16 not in kinds:
        return np.result_type(*kinds)
    promoted_dtype = np.result_type(*(FLOAT16 if kind == BFLOAT16 else kind for kind in kinds))
    if promoted_dtype != FLOAT16:
        return promoted_dtype
    return SINGLE if FLOAT16 in kinds else BFLOAT16


def supported(name: str, dtype: Any) -> np.dtype:
    """Return `dtype` as a NumPy dtype. Raises DTypeError if arrays do not support it."""
    try:
        requested = np.dtype(dtype)
    except TypeError:
        raise locate(ArgumentError(f"{name}: {dtype!r} is no dtype"), user_location()) from None
    known = KNOWN.get(requested.newbyteorder("="))
    if known is None:
        raise locate(
            DTypeError(
                f"{name}: dtype {requested} is not supported; arrays hold {', '.join(map(str, DTYPES))} "
                "(cast to one of these first)"
            ),
            user_location(),
        )
    return known


def floating(dtype: np.dtype) -> np.dtype:
    """Return the dtype of the result of a floating-point function of `dtype`, as in NumPy."""
    if is_inexact(dtype):
        return dtype
    return np.dtype(f"float{min(64, 16 * dtype.itemsize)}")


# -- numbers and signs that have no common dtype ------------------------------------------------------------


def fits(number: Any, dtype: np.dtype) -> bool:
    """Whether an integer, or the integral part of a float, is in the range of a dtype."""
    if is_inexact(dtype):  # integers beyond float64 are an error, as in Python; others become infinite
        return not isinstance(number, int) or bool(-MAX_FLOAT64 <= number <= MAX_FLOAT64)
    low, high = _bounds(dtype)
    return dtype.kind not in "iu" or bool(low - 1 < number < high + 1)


MAX_FLOAT64 = int(np.finfo("float64").max)


@functools.cache
def _bounds(dtype: np.dtype) -> tuple[int, int]:
    """Return the least and the greatest integer of an integer dtype."""
    if dtype.kind not in "iu":
        return 0, 0
    bounds = np.iinfo(dtype)
    return int(bounds.min), int(bounds.max)


def too_wide(name: str, number: Any, dtype: np.dtype) -> TracejitError:
    """Return the error for a number that does not fit `dtype`."""
    text = "of more than 1000 bits" if isinstance(number, int) and abs(number) >> 1000 else str(number)
    message = f"{name}: the number {text} does not fit into {dtype}"
    if isinstance(number, int):
        message += "; cast the array to a wider dtype"
    return locate(DTypeError(message), user_location())


@functools.cache
def is_comparison(op: Op) -> bool:
    """Whether an operator compares two numbers."""
    number = ArrayType((), np.dtype("int64"))
    return op.admits >= INTEGERS and op.arity == 2 and op.infer(number, number).dtype == bool


@functools.cache
def mixed_signs(first: np.dtype, second: np.dtype) -> bool:
    """Whether one dtype is signed and the other one is uint64: no integer dtype represents both."""
    return {first.kind, second.kind} == {"i", "u"} and UINT64 in (first, second)
