"""Routines for numbers, real or complex, for kernels that are written for both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from numba import types

from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.scalar import FUNCTIONS, abs, conj, divide

complex_of, real_of, imag_of = (FUNCTIONS[name] for name in ("complex", "real", "imag"))


class NumberRoutines(NamedTuple):
    """Subroutines for numbers of a dtype.

    real:      the dtype of the real and imaginary parts, or the dtype itself
    number:    the number with the given real and imaginary parts; for real numbers, the real part
    real_part: the real part
    imag_part: the imaginary part
    conjugate: the complex conjugate
    magnitude: the absolute value; of a complex number, the sum of the absolute values of its parts
    direction: a nonzero number divided by its absolute value; 1 for a real nan
    """

    real: Any
    number: Callable[..., Any]
    real_part: Callable[..., Any]
    imag_part: Callable[..., Any]
    conjugate: Callable[..., Any]
    magnitude: Callable[..., Any]
    direction: Callable[..., Any]


def numbers(dtype: Any) -> NumberRoutines:
    """Return the subroutines for a Numba type."""
    return _complex(dtype) if isinstance(dtype, types.Complex) else _real(dtype)


def _complex(dtype: Any) -> NumberRoutines:
    real = dtype.underlying_float

    @subroutine
    def magnitude(x):
        return abs(real_of(x)) + abs(imag_of(x))

    @subroutine
    def direction(x):
        return divide(x, complex_of(abs(x), real(0)))

    return NumberRoutines(real, complex_of, real_of, imag_of, conj, magnitude, direction)


def _real(dtype: Any) -> NumberRoutines:
    @subroutine
    def number(x, y):
        return x

    @subroutine
    def unchanged(x):
        return x

    @subroutine
    def zero(x):
        return dtype(0)

    @subroutine
    def direction(x):
        return dtype(-1) if x < dtype(0) else dtype(1)

    return NumberRoutines(dtype, number, unchanged, zero, unchanged, abs, direction)
