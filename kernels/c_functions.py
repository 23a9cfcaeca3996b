"""Functions of the C library that Python's `math` and ``**`` call, for kernels that compute Python's numbers.

LLVM knows functions by the names `exp` and `pow`, and evaluates or replaces calls with constant operands,
which changes last bits. It does not know the names of ISO/IEC TS 18661-3 (`expf64`, `powf64`), which glibc
gives to the same functions of float64. Other C libraries lack them; `agrees` tells.

>>> symbol("exp")
'expf64'
>>> "hypot" in UNARY | BINARY  # Python has its own algorithm
False
"""

from __future__ import annotations

import ctypes
import functools
import math
import struct
from collections.abc import Callable

UNARY = frozenset(
    {
        *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "erfc", "exp", "expm1"),
        *("log", "log10", "log1p", "log2", "sin", "sinh", "tan", "tanh"),
    }
)
"""The functions of one number."""

BINARY = frozenset({"atan2", "fmod", "pow"})
"""The functions of two numbers."""

EXTREMES = (*(k / 7 - 2 for k in range(29)), 1e-300, 1e-9, 0.1, 2.5, 10.3, 97.0, 700.1, 1e6, 1.7e9, 3.3e100)
SAMPLES = (
    *EXTREMES,
    *((k * 0.6180339887498949 % 1 - 0.4) * scale for scale in (1.0, 20.0) for k in range(200)),
)


def symbol(name: str) -> str:
    """Return the symbol of a function of float64 in the C library."""
    return f"{name}f64"


def of_python(name: str) -> Callable[..., float]:
    """Return Python's function, with nan where that raises an error.

    >>> of_python("log")(-1.0)
    nan
    """
    function: Callable[..., float] = getattr(math, name)

    def compute(*operands: float) -> float:
        try:
            return function(*map(float, operands))
        except (ValueError, OverflowError):
            return math.nan

    return compute


@functools.cache
def agrees(name: str) -> bool:
    """Whether the process has the function under its symbol, with the bits of Python's function for a number
    of samples wherever Python's result is finite.
    """
    arity = 1 if name in UNARY else 2
    try:
        function = getattr(ctypes.CDLL(None), symbol(name))
    except (AttributeError, OSError, TypeError):
        return False
    function.argtypes, function.restype = (ctypes.c_double,) * arity, ctypes.c_double
    python = of_python(name)
    operands = [(x,) for x in SAMPLES] if arity == 1 else [(x, y) for x in EXTREMES for y in EXTREMES]
    return all(_is_same(python(*each), function(*each)) for each in operands)


def _is_same(expected: float, result: float) -> bool:
    """Whether a result has the expected bits, or neither is finite."""
    if not math.isfinite(expected):
        return not math.isfinite(result)
    return struct.pack("d", result) == struct.pack("d", expected)
