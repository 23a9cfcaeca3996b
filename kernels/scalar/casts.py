"""Casts between all dtypes, with the semantics of NumPy's `astype`.

A cast to bool tests whether the value is not zero (NaN is true). Real numbers become complex ones with an
imaginary part of zero; the reverse does not occur. Integers wrap. Floats truncate towards zero; for values
that do not fit, NumPy's result depends on the processor; here they saturate and NaN becomes 0, on every
machine.
"""

from tracejit.kernels.compiler.half import HALVES
from tracejit.kernels.compiler.intrinsics import bitcast, convert, select
from tracejit.kernels.compiler.typed_values import DTYPES, PART_DTYPES, WIDTH, dtype_of, is_complex, is_float
from tracejit.kernels.scalar.declare import scalar


def cast(x, dtype):
    """The value `x` converted to `dtype`."""
    if dtype == "bool":
        return x if dtype_of(x) == "bool" else x != 0
    if is_complex(x) and dtype not in PART_DTYPES:
        raise TypeError(f"{dtype_of(x)} is not cast to {dtype}")
    if is_float(x) and dtype not in (*HALVES, "float32", "float64", *PART_DTYPES):
        return _saturating(x, dtype)
    return convert(x, dtype)


def _saturating(x, dtype):
    signed, width = dtype.startswith("int"), WIDTH[dtype]
    lowest, limit = (-(2.0 ** (width - 1)), 2.0 ** (width - 1)) if signed else (0.0, 2.0**width)
    inside = (x >= lowest) & (x < limit)
    converted = convert(select(inside, x, 0.0), dtype)
    least, most = (-(2 ** (width - 1)), 2 ** (width - 1) - 1) if signed else (0, 2**width - 1)
    return select(inside, converted, select(x >= limit, most, select(x <= lowest, least, converted)))


def _declare(dtype):
    def astype(x):
        return cast(x, dtype)

    astype.__name__ = f"astype_{dtype}"
    scalar(dtype)(astype)


def _declare_bits(dtype):
    def read(x):
        return bitcast(x, dtype)

    read.__name__ = f"bitcast_{dtype}"
    scalar(dtype)(read)


for _dtype in DTYPES:
    _declare(_dtype)
    if _dtype not in ("bool", *PART_DTYPES):
        _declare_bits(_dtype)
