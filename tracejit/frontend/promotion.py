"""NumPy 2's promotion: which dtype operands are cast to, and which numbers fit.

Arrays and NumPy scalars have their dtype; Python numbers are *weak*: they take the dtype of the arrays they
meet, and their default (bool, int64, float32) where they are alone. float16, which arrays cannot have,
becomes float32.

>>> common_dtype("add", (1, 2.5))
dtype('float32')
>>> floating(np.dtype("int8"))
dtype('float32')
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracejit.errors import ArgumentError, DTypeError, TracejitError, locate
from tracejit.frontend.array import ArrayCore
from tracejit.frontend.location import user_location
from tracejit.frontend.number import NumberProxy
from tracejit.ir.op import Op
from tracejit.ir.types import DTYPES, ArrayType

Operand = Any

UINT64 = np.dtype("uint64")
INTEGERS = frozenset(d for d in DTYPES if d.kind in "iu")
HALF, SINGLE = np.dtype("float16"), np.dtype("float32")


# -- operands ------------------------------------------------------------------------------------------------


def is_weak(x: Operand) -> bool:
    """Whether `x` is no array: a number, whose dtype may adapt to the arrays it meets."""
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


# -- dtypes --------------------------------------------------------------------------------------------------


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
        found = ufunc.resolve_dtypes((*kinds, *[None] * ufunc.nout))[0]
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


# -- numbers and signs that have no common dtype ------------------------------------------------------------


def fits(number: int, dtype: np.dtype) -> bool:
    """Whether a dtype can hold an integer."""
    if dtype.kind not in "iu":
        return True
    bounds = np.iinfo(dtype)
    return bool(bounds.min <= number <= bounds.max)


def too_wide(name: str, number: int, dtype: np.dtype) -> TracejitError:
    """The error for a number that does not fit."""
    message = f"{name}: the number {number} does not fit into {dtype}; cast the array to a wider dtype"
    return locate(DTypeError(message), user_location())


def is_comparison(op: Op) -> bool:
    """Whether an operator compares two numbers."""
    number = ArrayType((), np.dtype("int64"))
    return op.admits >= INTEGERS and op.arity == 2 and op.infer(number, number).dtype == bool


def mixed_signs(operands: Sequence[Operand]) -> bool:
    """Whether these are arrays of signed and of uint64 integers, which no integer dtype holds both."""
    kinds = {x.dtype.kind for x in operands if isinstance(x, ArrayCore)}
    return kinds == {"i", "u"} and any(x.dtype == UINT64 for x in operands)
