"""Elementwise arithmetic, comparison, bitwise and classification operators.

A gradient of None means that the derivative is zero wherever it exists (`floor`, `sign`). Where the
derivative does not exist, that of `abs` at 0 is 0, as in PyTorch (1 in JAX), and `maximum` and `minimum`
split ties evenly, as in JAX. `EXACT` operators agree with NumPy bit for bit; `floor_divide` and `remainder`
follow NumPy's definition in terms of fmod. `maximum` and `minimum` are not `EXACT`, because NumPy does not
specify the sign of a zero result.
"""

from __future__ import annotations

import numpy as np

from tracejit.ir.op import COMMUTATIVE, EXACT, OPS, PRODUCT, QUOTIENT, SLOW, UsageExample
from tracejit.ir.types import is_floating
from tracejit.ops.rules import (
    ALL,
    BOOL,
    FLOATING,
    INEXACT,
    INTEGERS,
    NUMERIC,
    REAL,
    REAL_NUMBERS,
    binary,
    comparison,
    unary,
)
from tracejit.ops.select import where
from tracejit.ops.symbolic import Operator, Sym, emit

BOOL_DTYPE = np.dtype("bool")
BITWISE = BOOL | INTEGERS


def _pass_through(ct: Sym, *_: Sym) -> Sym:
    """Pass the cotangent unchanged."""
    return ct


def _selected_cotangent(ct: Sym, is_selected: Sym, tie: Sym) -> Sym:
    """The cotangent of one operand of `maximum` or `minimum`: `ct` if it is selected, half of it in a tie."""
    return where(is_selected, ct, where(tie, 0.5 * ct, 0))


def _abs_gradient(ct: Sym, x: Sym, y: Sym) -> Sym:
    """Gradient of `abs`: ct times the sign, conjugated if complex (see `ops.complex_numbers`)."""
    return ct.astype(x.dtype) * (emit(OPS["conj"], sign(x)) if x.dtype.kind == "c" else sign(x))


def _sign_gradient(ct: Sym, x: Sym, y: Sym) -> Sym | None:
    """Gradient of `sign`: zero for real numbers; for complex numbers that of x / abs(x)."""
    if x.dtype.kind != "c":
        return None
    magnitude = abs(x)
    radial = emit(OPS["real"], ct * y) / magnitude
    return ct / magnitude.astype(x.dtype) - radial.astype(x.dtype) * emit(OPS["conj"], y)


def _round(x: np.ndarray) -> np.ndarray:
    return np.rint(x) if is_floating(x.dtype) else np.copy(x)


# ---- arithmetic

add = binary(
    "add",
    np.add,
    ALL,
    "Sum.",
    (_pass_through, _pass_through),
    COMMUTATIVE,
    EXACT,
    example=UsageExample(([1, 2], 0.5), "[1.5, 2.5]", "float64"),
)
subtract = binary(
    "subtract",
    np.subtract,
    NUMERIC,
    "Difference.",
    (_pass_through, lambda ct, x1, x2, y: -ct),
    EXACT,
    example=UsageExample(([1, 2], [1, 1]), "[0, 1]", "int64"),
)
multiply = binary(
    "multiply",
    np.multiply,
    ALL,
    "Product.",
    (lambda ct, x1, x2, y: ct * x2, lambda ct, x1, x2, y: ct * x1),
    COMMUTATIVE,
    EXACT,
    PRODUCT,
    example=UsageExample(([1, 2], 0.5), "[0.5, 1. ]", "float64"),
)
divide = binary(
    "divide",
    np.divide,
    INEXACT,
    "Quotient.",
    (lambda ct, x1, x2, y: ct / x2, lambda ct, x1, x2, y: -(ct * y / x2)),
    EXACT,
    SLOW,
    QUOTIENT,
    example=UsageExample(([1, 2], 4), "[0.25, 0.5 ]", "float64"),
)
floor_divide = binary(
    "floor_divide",
    np.floor_divide,
    REAL_NUMBERS,
    "Quotient rounded down.",
    (None, None),
    EXACT,
    example=UsageExample(([7, -7], 2), "[ 3, -4]", "int64"),
)
remainder = binary(
    "remainder",
    np.remainder,
    REAL_NUMBERS,
    "Remainder with the sign of the divisor.",
    (_pass_through, lambda ct, x1, x2, y: -(ct * floor_divide(x1, x2))),
    EXACT,
    example=UsageExample(([7, -7], 3), "[1, 2]", "int64"),
)
maximum = binary(
    "maximum",
    np.maximum,
    REAL,
    "The larger operand; nan if either is nan.",
    (
        lambda ct, x1, x2, y: _selected_cotangent(ct, x1 > x2, equal(x1, x2)),
        lambda ct, x1, x2, y: _selected_cotangent(ct, x2 > x1, equal(x1, x2)),
    ),
    COMMUTATIVE,
    example=UsageExample(([1, 5], 3), "[3, 5]", "int64"),
)
minimum = binary(
    "minimum",
    np.minimum,
    REAL,
    "The smaller operand; nan if either is nan.",
    (
        lambda ct, x1, x2, y: _selected_cotangent(ct, x1 < x2, equal(x1, x2)),
        lambda ct, x1, x2, y: _selected_cotangent(ct, x2 < x1, equal(x1, x2)),
    ),
    COMMUTATIVE,
    example=UsageExample(([1, 5], 3), "[1, 3]", "int64"),
)
negative = unary(
    "negative",
    np.negative,
    NUMERIC,
    "The operand negated.",
    lambda ct, x, y: -ct,
    EXACT,
    example=UsageExample(([1, -2],), "[-1, 2]", "int64"),
)
abs = unary(
    "abs",
    np.absolute,
    ALL,
    "Absolute value; the magnitude of a complex number.",
    _abs_gradient,
    EXACT,
    result=lambda dtype: np.dtype(f"float{4 * dtype.itemsize}") if dtype.kind == "c" else dtype,
    example=UsageExample(([1, -2],), "[1, 2]", "int64"),
)
sign: Operator = unary(
    "sign",
    np.sign,
    NUMERIC,
    "-1, 0 or 1; nan for nan; x / abs(x) for complex numbers.",
    _sign_gradient,
    EXACT,
    example=UsageExample(([-3, 0, 2],), "[-1, 0, 1]", "int64"),
)
square = unary(
    "square",
    np.square,
    NUMERIC,
    "The operand times itself.",
    lambda ct, x, y: 2 * ct * x,
    EXACT,
    PRODUCT,
    example=UsageExample(([2, 3],), "[4, 9]", "int64"),
)
sqrt = unary(
    "sqrt",
    np.sqrt,
    INEXACT,
    "Square root.",
    lambda ct, x, y: 0.5 * ct / y,
    EXACT,
    SLOW,
    example=UsageExample(([4.0, 9.0],), "[2., 3.]", "float32"),
)
# Not EXACT: for the integer 0, NumPy's result depends on the processor; kernels return 0.
reciprocal = unary(
    "reciprocal",
    np.reciprocal,
    NUMERIC,
    "One over the operand.",
    lambda ct, x, y: -(ct * y * y),
    SLOW,
    example=UsageExample(([2.0, 4.0],), "[0.5 , 0.25]", "float32"),
)

# ---- rounding

floor = unary(
    "floor",
    np.floor,
    REAL,
    "The operand rounded down to an integer.",
    None,
    EXACT,
    example=UsageExample(([1.5, -1.5],), "[ 1., -2.]", "float32"),
)
ceil = unary(
    "ceil",
    np.ceil,
    REAL,
    "The operand rounded up to an integer.",
    None,
    EXACT,
    example=UsageExample(([1.5, -1.5],), "[ 2., -1.]", "float32"),
)
trunc = unary(
    "trunc",
    np.trunc,
    REAL,
    "The operand rounded towards zero to an integer.",
    None,
    EXACT,
    example=UsageExample(([1.5, -1.5],), "[ 1., -1.]", "float32"),
)
round = unary(
    "round", _round, REAL_NUMBERS, "The operand rounded to the nearest integer, ties to even.", None, EXACT
)

# ---- signs, neighbours

copysign = binary(
    "copysign",
    np.copysign,
    FLOATING,
    "The magnitude of the first operand with the sign of the second.",
    (lambda ct, x1, x2, y: where(equal(signbit(x1), signbit(y)), ct, -ct), None),
    EXACT,
    example=UsageExample(([1.0, 2.0], -1.0), "[-1., -2.]", "float32"),
)
signbit: Operator = unary(
    "signbit",
    np.signbit,
    FLOATING,
    "Whether the sign bit is set.",
    None,
    EXACT,
    result=BOOL_DTYPE,
    example=UsageExample(([-0.0, 1.0],), "[ True, False]", "bool"),
)
nextafter = binary(
    "nextafter",
    np.nextafter,
    FLOATING,
    "The next number after the first operand towards the second.",
    (None, None),
    EXACT,
    example=UsageExample(([1.0], 2.0), "[1.00000...]", "float32"),
)
isfinite = unary(
    "isfinite",
    np.isfinite,
    ALL,
    "Whether the operand is neither nan nor infinite.",
    None,
    EXACT,
    result=BOOL_DTYPE,
    example=UsageExample(([1.0, np.inf],), "[ True, False]", "bool"),
)
isinf = unary(
    "isinf",
    np.isinf,
    ALL,
    "Whether the operand is infinite, of either sign.",
    None,
    EXACT,
    result=BOOL_DTYPE,
    example=UsageExample(([1.0, np.inf],), "[False, True]", "bool"),
)
isnan = unary(
    "isnan",
    np.isnan,
    ALL,
    "Whether the operand is nan.",
    None,
    EXACT,
    result=BOOL_DTYPE,
    example=UsageExample(([1.0, np.nan],), "[False, True]", "bool"),
)

# ---- comparison

equal: Operator = comparison(
    "equal",
    np.equal,
    "x1 == x2.",
    COMMUTATIVE,
    admits=ALL,
    example=UsageExample(([1, 2], 2), "[False, True]", "bool"),
)
not_equal = comparison(
    "not_equal",
    np.not_equal,
    "x1 != x2.",
    COMMUTATIVE,
    admits=ALL,
    example=UsageExample(([1, 2], 2), "[ True, False]", "bool"),
)
less = comparison("less", np.less, "x1 < x2.", example=UsageExample(([1, 2], 2), "[ True, False]", "bool"))
less_equal = comparison(
    "less_equal", np.less_equal, "x1 <= x2.", example=UsageExample(([1, 2], 2), "[ True, True]", "bool")
)
greater = comparison(
    "greater", np.greater, "x1 > x2.", example=UsageExample(([1, 2], 1), "[False, True]", "bool")
)
greater_equal = comparison(
    "greater_equal", np.greater_equal, "x1 >= x2.", example=UsageExample(([1, 2], 2), "[False, True]", "bool")
)

# ---- truth and bits

logical_and = binary(
    "logical_and",
    np.logical_and,
    BOOL,
    "Whether both operands are true.",
    (None, None),
    COMMUTATIVE,
    EXACT,
    example=UsageExample(([True, False], True), "[ True, False]", "bool"),
)
logical_or = binary(
    "logical_or",
    np.logical_or,
    BOOL,
    "Whether at least one operand is true.",
    (None, None),
    COMMUTATIVE,
    EXACT,
    example=UsageExample(([True, False], False), "[ True, False]", "bool"),
)
logical_xor = binary(
    "logical_xor",
    np.logical_xor,
    BOOL,
    "Whether exactly one operand is true.",
    (None, None),
    COMMUTATIVE,
    EXACT,
    example=UsageExample(([True, False], True), "[False, True]", "bool"),
)
logical_not = unary(
    "logical_not",
    np.logical_not,
    BOOL,
    "Whether the operand is false.",
    None,
    EXACT,
    example=UsageExample(([True, False],), "[False, True]", "bool"),
)

bitwise_and = binary(
    "bitwise_and",
    np.bitwise_and,
    BITWISE,
    "The bits that are set in both operands.",
    (None, None),
    COMMUTATIVE,
    EXACT,
    example=UsageExample(([6, 5], 3), "[2, 1]", "int64"),
)
bitwise_or = binary(
    "bitwise_or",
    np.bitwise_or,
    BITWISE,
    "The bits that are set in either operand.",
    (None, None),
    COMMUTATIVE,
    EXACT,
    example=UsageExample(([6, 5], 3), "[7, 7]", "int64"),
)
bitwise_xor = binary(
    "bitwise_xor",
    np.bitwise_xor,
    BITWISE,
    "The bits that are set in exactly one operand.",
    (None, None),
    COMMUTATIVE,
    EXACT,
    example=UsageExample(([6, 5], 3), "[5, 6]", "int64"),
)
bitwise_invert = unary(
    "bitwise_invert",
    np.bitwise_not,
    BITWISE,
    "The operand with all bits inverted.",
    None,
    EXACT,
    example=UsageExample(([0, 5],), "[-1, -6]", "int64"),
)
bitwise_left_shift = binary(
    "bitwise_left_shift",
    np.left_shift,
    INTEGERS,
    "The bits shifted left; 0 if the shift is at least the width.",
    (None, None),
    EXACT,
    example=UsageExample(([1, 3], 2), "[ 4, 12]", "int64"),
)
bitwise_right_shift = binary(
    "bitwise_right_shift",
    np.right_shift,
    INTEGERS,
    "The bits shifted right with sign extension; 0 or -1 if the shift is at least the width.",
    (None, None),
    EXACT,
    example=UsageExample(([8, -8], 2), "[ 2, -2]", "int64"),
)
