"""Elementwise transcendental functions: those of NumPy, the logistic function and erf.

Derivatives use the result `y` where that saves a second evaluation. They are finite wherever the exact
derivative is: `pow` at base 0, `logaddexp` at infinities, `hypot` at the origin (where it is 0, a
subgradient).
"""

from __future__ import annotations

import math

import numpy as np

from tracejit.ir.op import Trait, UsageExample
from tracejit.ir.types import HALVES
from tracejit.ops.arithmetic import equal, isinf, logical_and, sqrt
from tracejit.ops.rules import FLOATING, INEXACT, NUMERIC, binary, unary
from tracejit.ops.select import where
from tracejit.ops.symbolic import Operator, Sym, dense, literal

COMMUTATIVE, EXPENSIVE = Trait.COMMUTATIVE, Trait.EXPENSIVE
LN2, LN10 = math.log(2), math.log(10)

# ---- exponentials, logarithms

exp = unary(
    "exp",
    np.exp,
    INEXACT,
    "e to the power of the operand.",
    lambda ct, x, y: ct * y,
    EXPENSIVE,
    example=UsageExample(([0.0, 1.0],), "[1. , 2.71828...]", "float32"),
)
exp2 = unary(
    "exp2",
    np.exp2,
    INEXACT,
    "2 to the power of the operand.",
    lambda ct, x, y: ct * y * LN2,
    EXPENSIVE,
    example=UsageExample(([0.0, 3.0],), "[1., 8.]", "float32"),
)
expm1 = unary(
    "expm1",
    np.expm1,
    INEXACT,
    "exp(x) - 1, accurate near 0.",
    lambda ct, x, y: ct * (y + 1),
    EXPENSIVE,
    example=UsageExample(([0.0, 1.0],), "[0. , 1.71828...]", "float32"),
)
log = unary(
    "log",
    np.log,
    INEXACT,
    "Natural logarithm.",
    lambda ct, x, y: ct / x,
    EXPENSIVE,
    example=UsageExample(([1.0, 10.0],), "[0. , 2.30258...]", "float32"),
)
log2 = unary(
    "log2",
    np.log2,
    INEXACT,
    "Logarithm to base 2.",
    lambda ct, x, y: ct / (x * LN2),
    EXPENSIVE,
    example=UsageExample(([1.0, 8.0],), "[0., 3.]", "float32"),
)
log10 = unary(
    "log10",
    np.log10,
    INEXACT,
    "Logarithm to base 10.",
    lambda ct, x, y: ct / (x * LN10),
    EXPENSIVE,
    example=UsageExample(([1.0, 1000.0],), "[0., 3.]", "float32"),
)
log1p = unary(
    "log1p",
    np.log1p,
    INEXACT,
    "log(1 + x), accurate near 0.",
    lambda ct, x, y: ct / (x + 1),
    EXPENSIVE,
    example=UsageExample(([0.0, 1.0],), "[0. , 0.69314...]", "float32"),
)

# ---- trigonometric, hyperbolic

sin = unary(
    "sin",
    np.sin,
    INEXACT,
    "Sine, in radians.",
    lambda ct, x, y: ct * cos(x),
    EXPENSIVE,
    example=UsageExample(([0.0, 0.5],), "[0. , 0.47942...]", "float32"),
)
cos: Operator = unary(
    "cos",
    np.cos,
    INEXACT,
    "Cosine, in radians.",
    lambda ct, x, y: -(ct * sin(x)),
    EXPENSIVE,
    example=UsageExample(([0.0, 0.5],), "[1. , 0.87758...]", "float32"),
)
tan = unary(
    "tan",
    np.tan,
    INEXACT,
    "Tangent, in radians.",
    lambda ct, x, y: ct * (y * y + 1),
    EXPENSIVE,
    example=UsageExample(([0.0, 0.5],), "[0. , 0.54630...]", "float32"),
)
asin = unary(
    "asin",
    np.arcsin,
    INEXACT,
    "Inverse sine.",
    lambda ct, x, y: ct / _cosine(x),
    EXPENSIVE,
    example=UsageExample(([0.0, 0.5],), "[0. , 0.52359...]", "float32"),
)
acos = unary(
    "acos",
    np.arccos,
    INEXACT,
    "Inverse cosine.",
    lambda ct, x, y: -(ct / _cosine(x)),
    EXPENSIVE,
    example=UsageExample(([0.0, 0.5],), "[1.57079..., 1.04719...]", "float32"),
)
atan = unary(
    "atan",
    np.arctan,
    INEXACT,
    "Inverse tangent.",
    lambda ct, x, y: ct / (x * x + 1),
    EXPENSIVE,
    example=UsageExample(([0.0, 0.5],), "[0. , 0.46364...]", "float32"),
)
sinh = unary(
    "sinh",
    np.sinh,
    INEXACT,
    "Hyperbolic sine.",
    lambda ct, x, y: ct * cosh(x),
    EXPENSIVE,
    example=UsageExample(([0.0, 1.0],), "[0. , 1.17520...]", "float32"),
)
cosh: Operator = unary(
    "cosh",
    np.cosh,
    INEXACT,
    "Hyperbolic cosine.",
    lambda ct, x, y: ct * sinh(x),
    EXPENSIVE,
    example=UsageExample(([0.0, 0.5],), "[1. , 1.12762...]", "float32"),
)
tanh = unary(
    "tanh",
    np.tanh,
    INEXACT,
    "Hyperbolic tangent.",
    lambda ct, x, y: ct * (1 - y * y),
    EXPENSIVE,
    example=UsageExample(([0.0, 0.5],), "[0. , 0.46211...]", "float32"),
)
asinh = unary(
    "asinh",
    np.arcsinh,
    INEXACT,
    "Inverse hyperbolic sine.",
    lambda ct, x, y: ct / sqrt(x * x + 1),
    EXPENSIVE,
    example=UsageExample(([0.0, 0.5],), "[0. , 0.48121...]", "float32"),
)
acosh = unary(
    "acosh",
    np.arccosh,
    INEXACT,
    "Inverse hyperbolic cosine.",
    lambda ct, x, y: ct / (sqrt(x - 1) * sqrt(x + 1)),
    EXPENSIVE,
    example=UsageExample(([1.0, 2.0],), "[0. , 1.31695...]", "float32"),
)
atanh = unary(
    "atanh",
    np.arctanh,
    INEXACT,
    "Inverse hyperbolic tangent.",
    lambda ct, x, y: ct / ((1 - x) * (1 + x)),
    EXPENSIVE,
    example=UsageExample(([0.0, 0.5],), "[0. , 0.54930...]", "float32"),
)


def _cosine(x: Sym) -> Sym:
    """Compute cos(asin(x)) without cancellation near -1 and 1."""
    return sqrt((1 - x) * (1 + x))


# ---- two operands


def _pow_base(ct: Sym, x: Sym, p: Sym, y: Sym) -> Sym | None:
    """ct * p * x**(p-1), and 0 where p is 0, for any x. Literal exponents are folded: x**2 has 2 * ct * x."""
    exponent = literal(p)
    if exponent is None:
        p = dense(p, x)
        zero = equal(p, 0)
        return where(zero, 0, ct * p * pow(x, where(zero, 1, p - 1)))
    if exponent == 0:
        return None
    if exponent == 1:
        return ct
    return exponent * ct * (x if exponent == 2 else pow(x, exponent - 1))


def _pow_exponent(ct: Sym, x: Sym, p: Sym, y: Sym) -> Sym:
    """ct * log(x) * x**p, and 0 where x is 0."""
    x = dense(x, p)
    return ct * y * log(where(equal(x, 0), 1, x))


def _atan2_gradient(ct: Sym, numerator: Sym, x1: Sym, x2: Sym) -> Sym:
    x1, x2 = dense(x1, ct), dense(x2, ct)
    return ct * numerator / (x1 * x1 + x2 * x2)


def _hypot_gradient(ct: Sym, x: Sym, y: Sym) -> Sym:
    return ct * (x / where(equal(y, 0), 1, y))


def _logaddexp_gradient(ct: Sym, x: Sym, other: Sym, y: Sym) -> Sym:
    """ct times the softmax weight of x; the weight is 0.5 where both operands are the same infinity."""
    return ct * sigmoid(where(logical_and(isinf(y), equal(x, other)), 0, x - other))


pow = binary(
    "pow",
    np.power,
    NUMERIC,
    "The first operand to the power of the second.",
    (_pow_base, _pow_exponent),
    EXPENSIVE,
)
atan2 = binary(
    "atan2",
    np.arctan2,
    FLOATING,
    "The angle of the point (x2, x1).",
    (
        lambda ct, x1, x2, y: _atan2_gradient(ct, x2, x1, x2),
        lambda ct, x1, x2, y: -_atan2_gradient(ct, x1, x1, x2),
    ),
    EXPENSIVE,
    example=UsageExample(([0.0, 1.0], 1.0), "[0. , 0.78539...]", "float32"),
)
hypot = binary(
    "hypot",
    np.hypot,
    FLOATING,
    "Length of the vector (x1, x2), without overflow.",
    (lambda ct, x1, x2, y: _hypot_gradient(ct, x1, y), lambda ct, x1, x2, y: _hypot_gradient(ct, x2, y)),
    COMMUTATIVE,
    EXPENSIVE,
    example=UsageExample(([3.0, 5.0], [4.0, 12.0]), "[ 5., 13.]", "float32"),
)
logaddexp = binary(
    "logaddexp",
    np.logaddexp,
    FLOATING,
    "log(exp(x1) + exp(x2)), without overflow.",
    (
        lambda ct, x1, x2, y: _logaddexp_gradient(ct, x1, x2, y),
        lambda ct, x1, x2, y: _logaddexp_gradient(ct, x2, x1, y),
    ),
    COMMUTATIVE,
    EXPENSIVE,
    example=UsageExample(([0.0, 1.0], 0.0), "[0.69314..., 1.31326...]", "float32"),
)

# ---- neural networks


def _sigmoid(x: np.ndarray) -> np.ndarray:
    """Compute 1 / (1 + exp(-x)) such that exp never overflows."""
    wide = x.astype(np.float32) if x.dtype in HALVES else x
    small = np.exp(-np.abs(wide))
    return (np.where(wide >= 0, 1, small).astype(wide.dtype) / (1 + small)).astype(x.dtype)


def _erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf, otypes=[np.float64])(x).astype(x.dtype)


sigmoid = unary(
    "sigmoid",
    _sigmoid,
    FLOATING,
    "The logistic function.",
    lambda ct, x, y: ct * y * (1 - y),
    EXPENSIVE,
    example=UsageExample(([0.0, 0.5],), "[0.5 , 0.62245...]", "float32"),
)
erf = unary(
    "erf",
    _erf,
    FLOATING,
    "The error function.",
    lambda ct, x, y: ct * (2 / math.sqrt(math.pi)) * exp(-(x * x)),
    EXPENSIVE,
    example=UsageExample(([0.0, 0.5],), "[0. , 0.52049...]", "float32"),
)
