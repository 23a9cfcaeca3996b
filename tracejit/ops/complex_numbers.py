"""Complex numbers and their parts.

Gradients follow JAX's convention: the cotangent of a complex value ``x + iy`` of a real loss L is
``dL/dx - i dL/dy``. Then the rules of all holomorphic functions are those of real ones, without conjugates,
and only the operators here (and `abs`, `sign` and casts) differ. A step of gradient descent subtracts the
conjugate of the gradient.
"""

from __future__ import annotations

import numpy as np

from tracejit.ir.op import Trait
from tracejit.ops.rules import COMPLEX, WHOLE, elementwise
from tracejit.ops.symbolic import Operator, Sym

EXACT = Trait.EXACT


def part_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype of the parts of a complex dtype."""
    return np.dtype(f"float{4 * dtype.itemsize}")


def complex_dtype(dtype: np.dtype) -> np.dtype:
    """The complex dtype with parts of a floating dtype."""
    return np.dtype(f"complex{16 * dtype.itemsize}")


def _pair(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    result = np.empty(np.broadcast_shapes(x.shape, y.shape), complex_dtype(x.dtype))
    result.real, result.imag = x, y
    return result


def _as_imaginary(ct: Sym, *_: Sym) -> Sym:
    """The cotangent of an imaginary part: -i ct."""
    return complex(0 * ct, -ct)


complex: Operator = elementwise(
    "complex",
    2,
    _pair,
    WHOLE,
    "The complex numbers with these real and imaginary parts.",
    (lambda ct, x1, x2, y: real(ct), lambda ct, x1, x2, y: -imag(ct)),
    EXACT,
    result=complex_dtype,
    example="[1.0, 2.0]; [0.0, -1.0] -> [1.+0.j, 2.-1.j] complex64",
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
    (_as_imaginary,),
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
