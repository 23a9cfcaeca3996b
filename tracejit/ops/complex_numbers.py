"""Operators that compose and decompose complex numbers: `complex`, `real`, `imag`, `conj`.

Gradients follow JAX's convention: for a real loss L, the cotangent of a complex value ``x + iy`` is ``dL/dx -
i dL/dy``. With this convention holomorphic functions have the same gradient rules as real functions, without
conjugates; only the operators of this module, `abs`, `sign` and casts need rules of their own. A step of
gradient descent subtracts the conjugate of the gradient.
"""

from __future__ import annotations

import numpy as np

from tracejit.ir.op import Trait, UsageExample
from tracejit.ops.rules import COMPLEX, FULL_PRECISION, elementwise
from tracejit.ops.symbolic import Operator, Sym

EXACT = Trait.EXACT


def part_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype of the real and imaginary parts of a complex dtype."""
    return np.dtype(f"float{4 * dtype.itemsize}")


def complex_dtype(dtype: np.dtype) -> np.dtype:
    """The complex dtype whose real and imaginary parts have the given floating dtype."""
    return np.dtype(f"complex{16 * dtype.itemsize}")


def _compose(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    result = np.empty(np.broadcast_shapes(x.shape, y.shape), complex_dtype(x.dtype))
    result.real, result.imag = x, y
    return result


def _imag_gradient(ct: Sym, *_: Sym) -> Sym:
    """The cotangent of the operand of `imag`: -i ct."""
    return complex(0 * ct, -ct)


complex: Operator = elementwise(
    "complex",
    2,
    _compose,
    FULL_PRECISION,
    "The complex numbers with the given real and imaginary parts.",
    (lambda ct, x1, x2, y: real(ct), lambda ct, x1, x2, y: -imag(ct)),
    EXACT,
    result=complex_dtype,
    example=UsageExample(([1.0, 2.0], [0.0, -1.0]), "[1.+0.j, 2.-1.j]", "complex64"),
)
real: Operator = elementwise(
    "real",
    1,
    np.real,
    COMPLEX,
    "The real parts of complex numbers.",
    (lambda ct, x, y: complex(ct, 0 * ct),),
    EXACT,
    result=part_dtype,
)
imag: Operator = elementwise(
    "imag",
    1,
    np.imag,
    COMPLEX,
    "The imaginary parts of complex numbers.",
    (_imag_gradient,),
    EXACT,
    result=part_dtype,
)
conj: Operator = elementwise(
    "conj",
    1,
    np.conjugate,
    COMPLEX,
    "Complex conjugates.",
    (lambda ct, x, y: conj(ct),),
    EXACT,
)
