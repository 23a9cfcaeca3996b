"""Scalar functions on CUDA, without a GPU: every one becomes PTX, whole, without calls, as it is written."""

import inspect

import pytest
from numba import types

pytest.importorskip("numba_cuda", reason="numba-cuda compiles for CUDA")

from numba import cuda

from tracejit.kernels.scalar import FUNCTIONS

PREDICATES = {"isfinite", "isinf", "isnan", "signbit"}
COMPARISONS = {"equal", "greater", "greater_equal", "less", "less_equal", "not_equal"}
OPERANDS = {
    "bitwise_and": ["int32"],
    "bitwise_or": ["int32"],
    "bitwise_xor": ["int32"],
    "bitwise_invert": ["int32"],
    "bitwise_left_shift": ["int8", "uint64"],
    "bitwise_right_shift": ["int8", "uint64"],
    "logical_and": ["bool"],
    "logical_or": ["bool"],
    "logical_xor": ["bool"],
    "logical_not": ["bool"],
    "floor_divide": ["int16", "float32", "float64"],
    "remainder": ["uint32", "float32", "float64"],
    "pow": ["int32", "float32", "float64"],
}


def numba_type(name):
    return getattr(types, "boolean" if name == "bool" else name)


def cases():
    for name, function in FUNCTIONS.items():
        arity = len(inspect.signature(function).parameters) - 1  # without Numba's typing context
        if name == "where":
            yield name, ["bool", "float32", "float32"], "float32"
        elif name.startswith("random_bits_"):
            yield name, ["uint64", "uint64", "int64"], name.removeprefix("random_bits_")
        elif name.startswith("astype_"):
            for dtype in ("float64", "int8", "bool"):
                yield name, [dtype], name.removeprefix("astype_")
        else:
            for dtype in OPERANDS.get(name, ["float32", "float64"]):
                yield name, [dtype] * arity, "bool" if name in PREDICATES | COMPARISONS else dtype


@pytest.mark.parametrize(("name", "operands", "result"), list(cases()))
def test_becomes_ptx(name, operands, result):
    function = FUNCTIONS[name]

    def kernel1(out, x):
        out[0] = function(x[0])

    def kernel2(out, x, y):
        out[0] = function(x[0], y[0])

    def kernel3(out, x, y, z):
        out[0] = function(x[0], y[0], z[0])

    kernel = (kernel1, kernel2, kernel3)[len(operands) - 1]
    signature = tuple(numba_type(t)[:] for t in [result, *operands])
    text, _ = cuda.compile_ptx(kernel, signature, cc=(9, 0))
    assert "call.uni" not in text
    assert ".extern" not in text


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_are_rounded_before_they_are_added(dtype):
    """NVVM would make one instruction of ``x * y + z`` that rounds once."""
    multiply, add, subtract = (FUNCTIONS[name] for name in ("multiply", "add", "subtract"))

    def kernel(out, x, y, z):
        out[0] = add(multiply(x[0], y[0]), z[0])
        out[1] = subtract(z[0], multiply(x[0], y[0]))

    text, _ = cuda.compile_ptx(kernel, tuple(numba_type(dtype)[:] for _ in range(4)), cc=(9, 0))
    assert "fma." not in text
    assert "mul.rn." in text
