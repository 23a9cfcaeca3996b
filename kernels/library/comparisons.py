"""The order of numbers by which kernels sort and search, which is NumPy's: nan is the largest."""

from __future__ import annotations

from numba import types

from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.scalar import FUNCTIONS

real_of, imag_of = FUNCTIONS["real"], FUNCTIONS["imag"]


@subroutine
def number_precedes(a, b):
    """Return whether `a` precedes `b`; nan is the largest."""
    return a < b or (a == a and b != b)


@subroutine
def integer_precedes(a, b):
    """Return whether `a` is less than `b`."""
    return a < b


@subroutine
def complex_precedes(a, b):
    """Return whether `a` precedes `b` in NumPy's order of complex numbers: by real parts, then by
    imaginary parts. Numbers with a nan come last, those with a nan only in the imaginary part first among
    them.
    """
    a_real, a_imag, b_real, b_imag = real_of(a), imag_of(a), real_of(b), imag_of(b)
    if a_real != a_real or b_real != b_real:
        if a_real != a_real and b_real != b_real:
            return number_precedes(a_imag, b_imag)
        return a_real == a_real
    if (a_imag != a_imag) != (b_imag != b_imag):
        return a_imag == a_imag
    if a_real != b_real:
        return a_real < b_real
    return number_precedes(a_imag, b_imag)


def comparison_of(dtype):
    """Return the comparison of elements of a dtype: ``precedes(a, b)``."""
    if isinstance(dtype, types.Complex):
        return complex_precedes
    return number_precedes if isinstance(dtype, types.Float) else integer_precedes
