"""How public elementwise functions cast their operands: NumPy's rules, asked from NumPy.

Operators are strict; the frontend casts every operand to `operand_dtype` first. Python numbers are weak
(NumPy 2): they are given as the types `bool`, `int` or `float`. Where NumPy would compute in float16,
float32 is used.

>>> from tracejit.ops import add, sin, logical_and
>>> operand_dtype(add, np.dtype("int8"), np.dtype("float32")), operand_dtype(add, np.dtype("float32"), float)
(dtype('float32'), dtype('float32'))
>>> operand_dtype(sin, np.dtype("int64")), operand_dtype(sin, np.dtype("int8"))
(dtype('float64'), dtype('float32'))
>>> operand_dtype(logical_and, np.dtype("int8"), int)
dtype('bool')
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.errors import ArgumentError, DTypeError
from tracejit.ir.op import Op

Weak = type[bool] | type[int] | type[float]


def operand_dtype(op: Op, *operands: np.dtype | Weak) -> np.dtype:
    """The dtype to which all operands of the public elementwise operator `op` are cast.

    At least one operand is a dtype. Raises `DTypeError` if NumPy has no such operation (subtracting bools,
    say).
    """
    if op.promotion is None:
        raise ArgumentError(f"{op.name} is no public elementwise function")
    if op.promotion == "bool":
        return np.dtype(bool)
    if isinstance(op.evaluate, np.ufunc):
        dtype = _of_ufunc(op.name, op.evaluate, operands)
    elif op.promotion == "float":
        dtype = _of_ufunc(op.name, np.exp, (common_dtype(*operands),))
    else:
        dtype = common_dtype(*operands)
    dtype = np.dtype("float32") if dtype == np.dtype("float16") else dtype
    if dtype not in op.admits:
        raise DTypeError(f"{op.name} is not defined for {', '.join(map(_name, operands))}; cast with astype")
    return dtype


def common_dtype(*operands: np.dtype | Weak) -> np.dtype:
    """NumPy's common dtype, Python numbers being weak."""
    return np.result_type(*(x if isinstance(x, np.dtype) else x(0) for x in operands))


def _of_ufunc(name: str, ufunc: np.ufunc, operands: tuple[Any, ...]) -> np.dtype:
    strong = [np.dtype(bool) if x is bool else x for x in operands]
    try:
        return ufunc.resolve_dtypes((*strong, *(None,) * ufunc.nout))[0]
    except TypeError as error:
        raise DTypeError(f"{name} of {', '.join(map(_name, operands))}: {error}") from None


def _name(operand: np.dtype | Weak) -> str:
    return str(operand) if isinstance(operand, np.dtype) else f"a Python {operand.__name__}"
