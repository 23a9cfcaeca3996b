"""Transcendental functions against NumPy and SciPy in double precision (float32) and mpmath (float64)."""

import functools
import itertools

import mpmath
import numpy as np
import pytest
import scipy.special

from tests.kernels.loops import Loops, error_f64, errors_f32, same

INF, NAN = np.inf, np.nan
SINGLE = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sigmoid": scipy.special.expit,
    "tanh": np.tanh,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "erf": scipy.special.erf,
}
PAIRS = {"pow": np.power, "atan2": np.arctan2, "hypot": np.hypot, "logaddexp": np.logaddexp}
MPMATH = {
    "exp2": lambda x: mpmath.mpf(2) ** x,
    "log2": lambda x: mpmath.log(x) / mpmath.log(2),
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "pow": mpmath.power,
    "logaddexp": lambda x, y: max(x, y) + mpmath.log1p(mpmath.exp(-abs(x - y))),
}
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    INF,
    -INF,
    NAN,
    0.5,
    -0.5,
    2.0,
    -2.0,
    3.0,
    -3.0,
    1e-30,
    -1e-30,
    1e30,
    -1e30,
    2.5,
    -2.5,
]
SPECIAL_F32 = [
    *SPECIAL,
    1e-45,
    -1e-45,
    1e-38,
    3.4028235e38,
    -3.4028235e38,
    88.72,
    88.73,
    -103.9,
    -104.1,
    16777217.0,
]
SPECIAL_F64 = [
    *SPECIAL,
    *(5e-324, -5e-324, 1e-310, 1.7976931348623157e308, -1.7976931348623157e308, 1e300, -1e300, 1e-300),
    *(709.78, 709.79, -745.13, -745.14, 2.0**53, 2.0**53 + 2, -(2.0**53) - 2, 1 + 2.0**-52, 1 - 2.0**-53),
]


@functools.cache
def loops(dtype):
    cases = [([name], [dtype], [dtype]) for name in SINGLE] + [
        ([name], [dtype] * 2, [dtype]) for name in PAIRS
    ]
    return Loops(cases)


def compute(name, *arrays):
    """The function's results as a kernel computes them."""
    return loops(arrays[0].dtype.name)([*SINGLE, *PAIRS].index(name), *arrays)[0]


@np.errstate(all="ignore")
def reference(name, *arrays):
    """What NumPy or SciPy compute, from float32 operands in float64."""
    return {**SINGLE, **PAIRS}[name](*(a.astype(np.float64) for a in arrays))


def pairs_of(special, dtype, seed):
    """All pairs of special values, then pairs of many sizes, of like size, and positive ones."""
    g = np.random.default_rng(seed)
    product = np.array(list(itertools.product(special, special))).T
    size = 1000
    wide = g.normal(size=(2, size)) * np.exp(g.normal(size=(2, size)) * 6)
    near = np.exp(g.normal(size=size)) * g.normal(size=(2, size))
    powers = np.abs(g.normal(size=(2, size))) * np.exp(g.normal(size=(2, size)) * 2)
    with np.errstate(all="ignore"):
        return np.concatenate([product, wide, near, powers], axis=1).astype(dtype)


def worst(errors, *arrays):
    """The largest error and where it is, for the message."""
    at = int(np.argmax(errors))
    return f"{errors[at]:.3f} ulp at {', '.join(repr(a[at]) for a in arrays)}"


@pytest.mark.parametrize("name", SINGLE)
def test_float32_within_2_ulp_on_all_kinds_of_bits(name):
    patterns = np.arange(0, 2**32, 997, dtype=np.uint64).astype(np.uint32).view(np.float32)
    x = np.concatenate([patterns, np.array(SPECIAL_F32, np.float32)])
    errors = errors_f32(compute(name, x), reference(name, x))
    assert errors.max() <= 2, worst(errors, x)


@np.errstate(all="ignore")
def relative_to_operands(actual, exact, x, y):
    """Errors in ulp of the larger operand: what `logaddexp` promises where its result nearly cancels."""
    errors = np.abs(actual - exact).astype(float) / np.spacing(np.maximum(np.abs(x), np.abs(y)))
    return np.where(np.isnan(errors), INF, errors)


@pytest.mark.parametrize("name", PAIRS)
def test_float32_pairs_within_2_ulp(name):
    x, y = pairs_of(SPECIAL_F32, np.float32, 1)
    actual, exact = compute(name, x, y), reference(name, x, y)
    errors = errors_f32(actual, exact)
    if name == "logaddexp":
        errors = np.minimum(errors, relative_to_operands(actual, exact, x, y))
    assert errors.max() <= 2, worst(errors, x, y)


def exactly(name, *operands):
    """The exact result: NumPy's where it is special, else mpmath's."""
    approximate = float(reference(name, *(np.array([x, x]) for x in operands))[0])
    if not np.isfinite(approximate) or approximate == 0 or not all(map(np.isfinite, operands)):
        return approximate
    if name == "atan2" and operands[0] == 0:
        return approximate
    bits = 1300 if name in ("sin", "cos", "tan") else 170
    with mpmath.workprec(bits):
        return MPMATH.get(name, getattr(mpmath, name, None))(*map(mpmath.mpf, operands))


def single_samples(name, seed):
    g = np.random.default_rng(seed)
    n = 250
    reach = {"exp": 745, "exp2": 1075, "expm1": 710, "sinh": 711, "cosh": 711, "sigmoid": 745}.get(name, 1e6)
    return np.concatenate(
        [
            SPECIAL_F64,
            g.normal(size=n),
            g.uniform(-1, 1, n),
            np.exp(g.uniform(-40, np.log(reach), n)) * g.choice([-1, 1], n),
            1 + g.normal(size=n) * np.exp(g.uniform(-30, 0, n)),
            np.exp(g.uniform(-700, np.log(reach) if reach < 1e6 else 700, n)),
            np.arange(1, n) * (np.pi / 2),
        ]
    )


@pytest.mark.parametrize("name", SINGLE)
def test_float64_within_4_ulp(name):
    x = single_samples(name, 2)
    x = (
        x[~(np.abs(x) > 1e5) | np.isinf(x)]
        if name in ("exp", "exp2", "expm1", "sinh", "cosh", "tanh", "erf")
        else x
    )
    actual = compute(name, x)
    errors = np.array([error_f64(float(a), exactly(name, float(v))) for a, v in zip(actual, x, strict=True)])
    assert errors.max() <= 4, worst(errors, x)


@pytest.mark.parametrize("name", PAIRS)
def test_float64_pairs_within_4_ulp(name):
    x, y = pairs_of(SPECIAL_F64, np.float64, 3)
    actual = compute(name, x, y)
    exact = [exactly(name, float(a), float(b)) for a, b in zip(x, y, strict=True)]
    errors = np.array([error_f64(float(a), e) for a, e in zip(actual, exact, strict=True)])
    if name == "logaddexp":
        errors = np.minimum(errors, relative_to_operands(actual, np.array(exact, object), x, y))
    assert errors.max() <= 4, worst(errors, x, y)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", SINGLE)
def test_special_values_are_numpys(name, dtype):
    x = np.array([0.0, -0.0, INF, -INF, NAN, 1.0, -1.0], dtype)
    expected, actual = reference(name, x).astype(dtype), compute(name, x)
    exact = ~np.isfinite(expected) | (expected == 0)
    assert same(actual, expected)[exact].all(), (actual, expected)


def test_hardest_arguments_of_trigonometric_functions():
    # the float64 numbers nearest to multiples of pi/2, found by Kahan; and float32's
    x = np.array([6381956970095103.0 * 2.0**797, 5.319372648326541e255, 1.0e22])
    for name in ("sin", "cos", "tan"):
        for value, actual in zip(x, compute(name, x), strict=True):
            assert error_f64(float(actual), exactly(name, float(value))) <= 4, (name, value, actual)
    single = np.array([16367173.0 * 2.0**72, 2.1e9, 3.4028235e38], np.float32)
    for name in ("sin", "cos", "tan"):
        assert errors_f32(compute(name, single), reference(name, single)).max() <= 2
