"""What becomes of scalar functions: loops over them vectorise, and plain Python computes the same."""

import re

import numpy as np
import pytest
from numba import float32, int64

from tests.kernels.loops import CALL, Loops, same
from tests.kernels.scalar.test_transcendental import PAIRS, SINGLE
from tracejit.codegen.objects.build import EntryPoint, build_object
from tracejit.codegen.objects.linker import link
from tracejit.kernels.compiler.memory import load, pointer
from tracejit.kernels.scalar import FUNCTIONS, maximum, minimum

UNARY = [
    *SINGLE,
    "abs",
    "sign",
    "square",
    "floor",
    "ceil",
    "trunc",
    "round",
    "sqrt",
    "reciprocal",
    "negative",
]
BINARY = [*PAIRS, "add", "subtract", "multiply", "divide", "maximum", "minimum", "copysign", "nextafter"]


def test_loops_over_float32_functions_vectorise():
    cases = [([name], ["float32"], ["float32"]) for name in UNARY]
    cases += [([name], ["float32", "float32"], ["float32"]) for name in BINARY]
    loops = Loops(cases)
    for n, case in enumerate(cases):
        widths = [int(width) for width in re.findall(r"<(\d+) x (?:float|i32)>", loops.body(n))]
        assert max(widths, default=1) >= 4, case


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_plain_python_computes_the_same_bits(dtype):
    """The functions as plain Python on NumPy scalars."""
    g = np.random.default_rng(0)
    special = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-30, 1e30, 100.0]
    x = np.concatenate([special, g.normal(size=20) * 5, g.uniform(-1, 1, 10)]).astype(dtype)
    y = g.permutation(x)
    results = [[FUNCTIONS[name].on_scalars(a) for a in x] for name in UNARY]
    results += [[FUNCTIONS[name].on_scalars(a, b) for a, b in zip(x, y, strict=True)] for name in BINARY]
    assert all(value.dtype == x.dtype for row in results for value in row)
    cases = [([name], [dtype], [dtype]) for name in UNARY]
    cases += [([name], [dtype, dtype], [dtype]) for name in BINARY]
    loops = Loops(cases)
    for n, (case, plain) in enumerate(zip(cases, np.array(results), strict=True)):
        compiled = loops(n, x)[0] if len(case[1]) == 1 else loops(n, x, y)[0]
        if case[0][0] in ("maximum", "minimum"):  # NumPy leaves the sign of a zero open
            compiled, plain = compiled + 0, plain + 0
        agree = same(compiled, plain)
        assert agree.all(), (case[0], x[~agree], compiled[~agree], plain[~agree])


def test_reductions_vectorise_and_nan_wins():
    def extremes(block, lo, hi, scratch):
        x, results = pointer(load(block, int64), float32), pointer(load(block + 8, int64), float32)
        largest, smallest = float32(-np.inf), float32(np.inf)
        for i in range(lo, hi):
            largest = maximum(largest, x[i])
        for i in range(lo, hi):
            smallest = minimum(smallest, x[i])
        results[0], results[1] = largest, smallest
        return 0

    built = build_object([EntryPoint("extremes", extremes)])
    assert re.search(r"llvm\.vector\.reduce\.fmaximum\.v\d+f32", built.llvm_ir)
    assert re.search(r"llvm\.vector\.reduce\.fminimum\.v\d+f32", built.llvm_ir)
    kernel = CALL(link("extremes", built.object_code, ["extremes"])["extremes"])
    x, results = np.random.default_rng(0).normal(size=1000).astype("float32"), np.empty(2, "float32")
    block = np.array([x.ctypes.data, results.ctypes.data])
    assert kernel(block.ctypes.data, 0, x.size, 0) == 0
    assert results.tolist() == [x.max(), x.min()]
    x[700] = np.nan
    assert kernel(block.ctypes.data, 0, x.size, 0) == 0
    assert np.isnan(results).all()
