"""Functions of numbers, real or complex, for kernels that are written for both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from numba import types

from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.scalar import FUNCTIONS, abs, conj, divide

complex_of, real_of, imag_of = (FUNCTIONS[name] for name in ("complex", "real", "imag"))


class NumberRoutines(NamedTuple):
    """Subroutines for numbers of a dtype.

    real:      the dtype of the parts, or the dtype itself
    number:    the number with a real and an imaginary part; of real numbers only the first counts
    part:      the real part
    rest:      the imaginary part
    conjugate: the number with the other sign of the imaginary part
    size:      the magnitude; of a complex number, the sum of those of its parts
    direction: a number that is not 0 divided by its magnitude; of the real nan, 1
    """

    real: Any
    number: Callable[..., Any]
    part: Callable[..., Any]
    rest: Callable[..., Any]
    conjugate: Callable[..., Any]
    size: Callable[..., Any]
    direction: Callable[..., Any]


def numbers(dtype: Any) -> NumberRoutines:
    """The functions for a Numba type."""
    return _complex(dtype) if isinstance(dtype, types.Complex) else _real(dtype)


def _complex(dtype: Any) -> NumberRoutines:
    real = dtype.underlying_float

    @subroutine
    def size(x):
        return abs(real_of(x)) + abs(imag_of(x))

    @subroutine
    def direction(x):
        return divide(x, complex_of(abs(x), real(0)))

    return NumberRoutines(real, complex_of, real_of, imag_of, conj, size, direction)


def _real(dtype: Any) -> NumberRoutines:
    @subroutine
    def number(x, y):
        return x

    @subroutine
    def same(x):
        return x

    @subroutine
    def none(x):
        return dtype(0)

    @subroutine
    def direction(x):
        return dtype(-1) if x < dtype(0) else dtype(1)

    return NumberRoutines(dtype, number, same, none, same, abs, direction)
