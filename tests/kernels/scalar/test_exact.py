"""Exact scalar functions against NumPy, bit for bit: all dtypes, random and extreme values."""

import itertools

import numpy as np
import pytest

from tests.kernels.loops import DTYPES, FLOATS, INTEGERS, Loops, same
from tracejit.kernels.scalar import FUNCTIONS, function_name

UNARY = {
    "negative": np.negative,
    "positive": np.positive,
    "abs": np.abs,
    "square": np.square,
    "sign": np.sign,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "copy": np.copy,
}
BINARY = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "floor_divide": np.floor_divide,
    "remainder": np.remainder,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
BITS = {"bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor}
SHIFTS = {"bitwise_left_shift": np.left_shift, "bitwise_right_shift": np.right_shift}
COMPARISONS = {
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}
CLASSES = {"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite}
LOGICAL = {"logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor}
FLOAT_UNARY = {"sqrt": np.sqrt, "reciprocal": np.reciprocal, "round": np.rint}
FLOAT_BINARY = {"divide": np.divide, "copysign": np.copysign, "nextafter": np.nextafter}


def values(dtype, seed=0, count=2000):
    """Extreme and random values."""
    g = np.random.default_rng(seed)
    if dtype == "bool":
        return g.integers(0, 2, count).astype(bool)
    if dtype in FLOATS:
        limits = np.finfo(dtype)
        special = [
            0.0,
            -0.0,
            1,
            -1,
            0.5,
            -0.5,
            1.5,
            2.5,
            -2.5,
            np.inf,
            -np.inf,
            np.nan,
            limits.max,
            -limits.max,
        ]
        special += [
            limits.tiny,
            limits.smallest_subnormal,
            -limits.smallest_subnormal,
            1 / limits.eps,
            3,
            -7,
            1e9,
        ]
        wide = g.normal(size=count) * np.exp(g.normal(size=count) * 5)
        return np.concatenate([special, wide, np.round(wide * 8) / 2]).astype(dtype)
    limits = np.iinfo(dtype)
    edges = [limits.min, limits.min + 1, limits.max, limits.max - 1, 0, 1, 2, 3, 7, limits.max // 2]
    edges += [-1, -2, -7] if limits.min else []
    small = g.integers(max(limits.min, -9), 10, count)
    wide = g.integers(limits.min, limits.max, count, dtype=dtype, endpoint=True)
    return np.concatenate([np.array(edges, dtype), small.astype(dtype), wide])


def pairs(dtype):
    """All pairs of extreme values, then random ones."""
    x = values(dtype)
    edges = x[:24]
    product = np.array(list(itertools.product(edges, edges)), dtype).T
    shuffled = np.random.default_rng(1).permutation(x)
    return np.concatenate([product[0], x]), np.concatenate([product[1], shuffled])


def check(functions, *operands, result=None):
    """Compile all `functions` into one kernel and compare each with NumPy."""
    dtypes = [x.dtype.name for x in operands]
    results = [result or dtypes[-1]] * len(functions)
    outputs = Loops([(list(functions), dtypes, results)])(0, *operands)
    for (name, meaning), actual in zip(functions.items(), outputs, strict=True):
        with np.errstate(all="ignore"):
            expected = meaning(*operands)
        assert expected.dtype == actual.dtype, name
        agree = same(actual, expected) if actual.dtype.kind == "f" else actual == expected
        if name in ("maximum", "minimum"):  # NumPy leaves the sign of a zero open
            agree |= (actual == 0) & (expected == 0)
        at = np.flatnonzero(~agree)[:1]
        assert agree.all(), f"{name} of {[x[at] for x in operands]}: {actual[at]}, NumPy has {expected[at]}"


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(dtype):
    x, y = pairs(dtype)
    check({**UNARY, "bitwise_invert": np.invert, "round": np.copy}, x)
    check({**BINARY, **BITS}, x, y)
    check(COMPARISONS, x, y, result="bool")
    check(CLASSES, x, result="bool")


@pytest.mark.parametrize("dtype", INTEGERS)
def test_shifts_beyond_the_width(dtype):
    x = values(dtype)
    width = x.dtype.itemsize * 8
    counts = np.random.default_rng(2).integers(0, min(2 * width, np.iinfo(dtype).max), x.size).astype(dtype)
    check(SHIFTS, x, counts)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_power_wraps(dtype):
    x = values(dtype)
    largest = np.iinfo(dtype).max
    exponents = np.random.default_rng(3).integers(0, 70, x.size).astype(dtype)
    exponents[:3] = largest, largest - 1, 0
    check({"pow": np.power}, x, exponents)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_reciprocal_is_the_truncated_quotient(dtype):
    x = values(dtype)
    check({"reciprocal": np.reciprocal}, x[x != 0])
    check({"reciprocal": lambda x: x}, np.zeros(3, dtype))  # of 0 it is 0, as 1 // 0 is


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats(dtype):
    x, y = pairs(dtype)
    check({**UNARY, **FLOAT_UNARY}, x)
    check({**BINARY, **FLOAT_BINARY}, x, y)
    check(COMPARISONS, x, y, result="bool")
    check({**CLASSES, "signbit": np.signbit}, x, result="bool")


def test_bools():
    x = values("bool", 4)
    y = values("bool", 5)
    same_type = {"floor": np.copy, "copy": np.copy, "abs": np.abs}
    check({**same_type, "logical_not": np.logical_not, "bitwise_invert": np.invert}, x)
    check({name: BINARY[name] for name in ("add", "multiply", "maximum", "minimum")} | BITS | LOGICAL, x, y)
    check(COMPARISONS, x, y)
    check(CLASSES, x)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float32", "float64"])
def test_where(dtype):
    condition, x, y = values("bool", 6), values(dtype, 7)[:2000], values(dtype, 8)[:2000]
    check({"where": np.where}, condition, x, y)


@pytest.mark.parametrize("source", DTYPES)
def test_casts(source):
    x = values(source)
    if source in FLOATS:  # NumPy leaves to the processor what does not fit
        x = np.concatenate([x[np.abs(x) < 127], -x[np.abs(x) < 1]])
    casts = [f"astype_{dtype}" for dtype in DTYPES]
    outputs = Loops([(casts, [source], DTYPES)])(0, x)
    for dtype, actual in zip(DTYPES, outputs, strict=True):
        fits = x >= 0 if source in FLOATS and dtype.startswith("uint") else np.full(x.shape, True)
        expected = x[fits].astype(dtype)
        assert (same(actual[fits], expected) if dtype in FLOATS else actual[fits] == expected).all(), dtype


@pytest.mark.parametrize("source", FLOATS)
def test_casts_of_large_floats(source):
    x = values(source)
    names = [f"astype_{dtype}" for dtype in INTEGERS]
    for dtype, actual in zip(INTEGERS, Loops([(names, [source], INTEGERS)])(0, x), strict=True):
        limits = np.iinfo(dtype)
        for value, result in zip(x.tolist(), actual.tolist(), strict=True):
            expected = 0 if value != value else limits.max if value > limits.max else max(value, limits.min)
            assert result == int(expected), (dtype, value)


def test_nan_is_true_and_wide_floats_narrow():
    x = np.array([np.nan, 0.0, -0.0, 1e-320, np.inf, 1e300, -1e-300, 1 + 2.0**-24, 1 + 2.0**-24 + 2.0**-50])
    as_bool, as_single = Loops([(["astype_bool", "astype_float32"], ["float64"], ["bool", "float32"])])(0, x)
    assert as_bool.tolist() == [True, False, False, True, True, True, True, True, True]
    with np.errstate(all="ignore"):
        assert same(as_single, x.astype(np.float32)).all()


def test_lookup_names():
    assert function_name("exp", "float32") == "exp"
    assert function_name("astype", "uint8") == "astype_uint8"
    assert function_name("random_bits", "uint64") == "random_bits_uint64"
    with pytest.raises(KeyError, match="no scalar function for kernel 'frobnicate'"):
        function_name("frobnicate", "float32")
    assert "copysign" in FUNCTIONS


def test_nothing_is_promoted():
    with pytest.raises(TypeError, match="different dtypes: float32 and float64"):
        Loops([(["add"], ["float32", "float64"], ["float64"])])
    with pytest.raises(TypeError, match="/ is not defined for int32"):
        Loops([(["divide"], ["int32", "int32"], ["int32"])])
