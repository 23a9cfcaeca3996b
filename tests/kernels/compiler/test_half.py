"""Conversions of half numbers, by instructions and by integers, against NumPy and ml_dtypes.

Loops that called functions of a run-time library could not be linked.
"""

import re

import ml_dtypes
import numpy as np
import pytest

from tests.kernels.loops import Loops
from tracejit.kernels.compiler import half

DTYPES = {"float16": np.dtype("float16"), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
BITS = np.arange(1 << 16, dtype=np.uint16)


def same(result, expected):
    """The same numbers with the same signs, nan apart."""
    isnan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(result), isnan)
    np.testing.assert_array_equal(result[~isnan], expected[~isnan])
    np.testing.assert_array_equal(np.signbit(result)[~isnan], np.signbit(expected)[~isnan])


def singles(dtype):
    """float32 numbers of all sizes: half ones, their neighbours, what lies in the middle of two of them."""
    with np.errstate(all="ignore"):
        exact = BITS.view(dtype).astype(np.float32)
        middle = ((exact.astype(np.float64) + np.roll(exact, -1)) / 2).astype(np.float32)
    near = [np.nextafter(x, np.float32(to)) for x in (exact, middle) for to in (np.inf, -np.inf)]
    random = np.random.default_rng(0).integers(0, 2**32, 1 << 16, np.uint32).view(np.float32)
    return np.concatenate([exact, middle, *near, random])


@pytest.mark.filterwarnings("ignore:.*encountered in")
@pytest.mark.parametrize("instructions", [True, False], ids=["instructions", "integers"])
@pytest.mark.parametrize("name", DTYPES)
def test_conversions(name, instructions, monkeypatch):
    if not instructions:
        monkeypatch.setattr(half, "_has_conversions", lambda builder: False)
    dtype = DTYPES[name]
    loops = Loops([(["astype_float32"], [name], ["float32"]), ([f"astype_{name}"], ["float32"], [name])])
    same(loops(0, BITS.view(dtype))[0], BITS.view(dtype).astype(np.float32))
    given = singles(dtype)
    same(loops(1, given)[0].astype(np.float32), given.astype(dtype).astype(np.float32))
    vectors = re.findall(r"<\d+ x (?:float|half|i16)>", loops.llvm_ir)
    assert vectors, "the loops are not vectorised"
