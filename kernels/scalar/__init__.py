"""Scalar functions: elementwise operators on one element, for CPU and CUDA.

    from tracejit.kernels.scalar import FUNCTIONS, function_name

    name = function_name("exp", "float32")     # 'exp': operator's kernel, dtype of the result
    FUNCTIONS[name]                            # a generated kernel calls this by its name

`FUNCTIONS` maps each name to an object that a kernel, for a CPU or a GPU, can call as a global, and `from
tracejit.kernels.scalar import exp` imports the same object. One name serves all dtypes that its operator
admits: the arguments must have exactly one dtype (booleans are `numba.boolean`), the result has the dtype
that the operator's typing rule specifies, and nothing is promoted. If the result's dtype is not determined by
the arguments it is part of the name: ``astype_float32(x)``, ``random_bits_uint64(key, counter, index)``;
`function_name` adds it. Complex numbers have separate formulas, in `tracejit.kernels.scalar.complex_numbers`.

The functions have the semantics of NumPy. Transcendental functions are within 2 units in the last place of
the correctly rounded result in float32 and 4 in float64, and exact on special values; all others are exact.
All are branch-free, so loops over them vectorise.

A new function is defined with the decorator `scalar` in the module where it belongs, written as a function of
typed values (see `tracejit.kernels.compiler.typed_values` and `tracejit.kernels.compiler.intrinsics`).

Modules; each imports only modules to its right and below:

    complex_numbers                    functions of complex numbers, in terms of those of their real and
                                       imaginary parts
    c_library                          functions of the C library, for Python's numbers
    special, power, inverse, trigonometric
                                       the error function; powers and hypot; inverse functions; sine,
                                       cosine, tangent
    exponential, logarithm, reduction  exponentials; logarithms; reduction of angles
    arithmetic, casts, philox          arithmetic and comparison; casts between dtypes; random bits
    accumulate                         accumulators and indices of generated kernels
    declare, building_blocks           the decorator `scalar` and its table; polynomials, powers of two

The package imports `c_functions` and `compiler`.
"""

from tracejit.kernels.scalar import (
    arithmetic,
    c_library,
    casts,
    complex_numbers,
    exponential,
    inverse,
    logarithm,
    philox,
    power,
    special,
    trigonometric,
)
from tracejit.kernels.scalar.declare import FUNCTIONS, scalar

__all__ = [
    "FUNCTIONS",
    "arithmetic",
    "c_library",
    "casts",
    "complex_numbers",
    "exponential",
    "function_name",
    "inverse",
    "logarithm",
    "power",
    "special",
    "trigonometric",
]

scalar("uint32")(philox.random_bits_uint32)
scalar("uint64")(philox.random_bits_uint64)


def function_name(kernel, dtype):
    """The key in `FUNCTIONS` of an operator's kernel whose result has `dtype` (a name: 'float32'). Raises
    KeyError if there is none.
    """
    for name in (kernel, f"{kernel}_{dtype}"):
        if name in FUNCTIONS:
            return name
    raise KeyError(f"no scalar function for kernel {kernel!r} with a result of {dtype}")


def __getattr__(name):
    try:
        return FUNCTIONS[name]
    except KeyError:
        raise AttributeError(f"tracejit.kernels.scalar has no function {name!r}") from None
