"""Quotients by what does not change along a loop are those of NumPy, to the last bit."""

import numpy as np
import pytest
from numba import float32, float64

from tests.kernels.native import SIGNATURE
from tracejit.codegen.objects.build import EntryPoint, build_object
from tracejit.codegen.objects.linker import link
from tracejit.kernels.compiler.memory import number_slot, pointer_slot, slot
from tracejit.kernels.compiler.ranges import independent
from tracejit.kernels.scalar import divide
from tracejit.kernels.streams import quotient as quotients
from tracejit.kernels.streams.quotient import BOUNDS, quotient

PRECISION = {"float32": 24, "float64": 53}
LLVM = {"float32": "float", "float64": "double"}


def make_kernel(dtype):
    def kernel(block, lo, hi, scratch):
        count, y = slot(block, 0), number_slot(block, 1, dtype)
        x, out = pointer_slot(block, 2, dtype), pointer_slot(block, 3, dtype)
        r = divide(dtype(1), y)
        for i in independent(0, count):
            out[i] = quotient(x[i], y, r)
        return 0

    return kernel


@pytest.fixture(scope="module")
def built():
    kernels = {"float32": make_kernel(float32), "float64": make_kernel(float64)}
    return {dtype: build_object([EntryPoint("kernel", kernel)]) for dtype, kernel in kernels.items()}


@pytest.fixture(scope="module")
def divided(built):
    """A function of numerators and a denominator."""
    kernels = {
        n: SIGNATURE(link(f"quotient {n}", b.object_code, ["kernel"])["kernel"]) for n, b in built.items()
    }

    def divide_by(x, y):
        out = np.full(len(x), 7, x.dtype)
        block = np.zeros(4, np.int64)
        block[0], block[2], block[3] = len(x), x.ctypes.data, out.ctypes.data
        block[1:2].view(x.dtype)[0] = y
        assert kernels[str(x.dtype)](block.ctypes.data, 0, 1, 0) == 0
        return out

    return divide_by


def assert_quotients(divided, x, y):
    with np.errstate(all="ignore"):
        expected = x / x.dtype.type(y)
    found = divided(x, y)
    same = (found.view(f"u{x.itemsize}") == expected.view(f"u{x.itemsize}")) | (
        np.isnan(found) & np.isnan(expected)
    )
    assert same.all(), (x[~same][:5], y, found[~same][:5], expected[~same][:5])


@pytest.mark.parametrize("dtype", PRECISION)
def test_loops_become_vectors_that_divide_only_where_they_must(built, dtype):
    kind, text = LLVM[dtype], built[dtype].llvm_ir
    assert f"x {kind}> @llvm.fma." in text
    assert f"x {kind}> " in "".join(line for line in text.splitlines() if "fdiv" in line)
    assert "call" not in "".join(line for line in text.splitlines() if "@quotient" in line)


@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("seed", range(20))
def test_random_numbers(divided, dtype, seed):
    rng = np.random.default_rng(seed)
    (least, most), (low, high) = BOUNDS[LLVM[dtype]]
    for _ in range(20):
        y = np.ldexp(rng.uniform(1, 2) * rng.choice([-1, 1]), int(rng.integers(low - 2, high + 3)))
        exponents = rng.integers(least - 2, most + 3, 5000)
        x = np.ldexp(rng.uniform(1, 2, 5000) * rng.choice([-1, 1], 5000), exponents).astype(dtype)
        assert_quotients(divided, x, y)
        assert_quotients(divided, rng.standard_normal(4001).astype(dtype), y)


@pytest.mark.parametrize("dtype", PRECISION)
def test_quotients_next_to_the_middle_of_two_numbers(divided, dtype):
    """The hardest: for an odd denominator Y, the numerator X whose quotient misses the middle of two
    numbers by 1 / (2 Y) of their distance.
    """
    rng = np.random.default_rng(0)
    bits = PRECISION[dtype]
    tried = 0
    while tried < 3000:
        y = int(rng.integers(1 << (bits - 1), 1 << bits)) | 1
        inverse = pow(y, -1, 1 << (bits + 1))
        numerators = []
        for miss in (-5, -3, -1, 1, 3, 5):
            middle = -miss * inverse % (1 << (bits + 1))  # 2 Q + 1
            x, rest = divmod(middle * y + miss, 1 << (bits + 1))
            if middle >= 1 << bits and x.bit_length() == bits:
                assert rest == 0
                numerators.append(x)
        tried += len(numerators)
        x = np.resize(np.array(numerators or [1], dtype), 64)
        for scale in (0, -20, 10):
            assert_quotients(divided, np.ldexp(x, scale - bits).astype(dtype), np.ldexp(float(y), -bits))


@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("count", [1, 7, 16, 33, 64])
def test_special_numbers_among_usual_ones(divided, dtype, count):
    info = np.finfo(dtype)
    specials = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        info.tiny,
        -info.tiny / 8,
        info.max,
        -info.max,
        info.eps,
        1.0,
    ]
    rng = np.random.default_rng(count)
    for y in [3.0, -0.7, 1.0, *specials, 2.0**70 if dtype == "float32" else 2.0**600]:
        for special in specials:
            x = rng.standard_normal(count).astype(dtype)
            x[rng.integers(0, count)] = special
            assert_quotients(divided, x, y)
        assert_quotients(divided, np.resize(np.array(specials, dtype), count), y)


@pytest.mark.parametrize(
    ("features", "multiplies"), [({}, True), ({"fma": True}, True), ({"fma": False}, False)]
)
def test_processors_without_fused_multiply_add_divide(features, multiplies, monkeypatch):
    monkeypatch.setattr(quotients, "features", lambda: features)
    text = "\n".join(quotients._variant("float", 8))
    assert ("call <8 x float> @llvm.fma" in text) == multiplies
    assert "fdiv <8 x float>" in text
