"""Scalar functions on GPUs, without one: every one becomes PTX, whole, without calls, as it is written. Only
the C library's functions are refused.
"""

import inspect
import re

import numpy as np
import pytest

from tests.gpu.simulator import Simulated, object_code
from tests.kernels.loops import TYPES, same
from tests.kernels.scalar.test_exact import pairs
from tracejit.codegen.gpu.launch import LaunchDimensions
from tracejit.codegen.objects.ptx import draft, finish
from tracejit.kernels import c_functions
from tracejit.kernels.compiler.memory import pointer_slot, slot
from tracejit.kernels.gpu.words import block_x, blocks_x, thread_x, threads_x
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
WITH_PARTS = {"real", "imag", "conj", "complex", "angle"}
"""Functions of complex numbers."""

OF_C = {f"c_{name}" for name in c_functions.UNARY | c_functions.BINARY}
"""Functions of the CPU's C library."""


def cases():
    """Names, dtypes of the operands, and of the result."""
    for name, function in FUNCTIONS.items():
        arity = len(inspect.signature(function.on_scalars).parameters)
        if name == "where":
            yield name, ["bool", "float32", "float32"], "float32"
        elif name.startswith("random_bits_"):
            yield name, ["uint64", "uint64", "int64"], name.removeprefix("random_bits_")
        elif name.startswith("astype_"):
            if name.removeprefix("astype_") in TYPES:
                for dtype in ("float64", "int8", "bool"):
                    yield name, [dtype], name.removeprefix("astype_")
        elif name.startswith("bitcast_"):
            result = name.removeprefix("bitcast_")
            for dtype in ("float32", "float64", "int8", "uint16"):
                if result in TYPES and np.dtype(dtype).itemsize == np.dtype(result).itemsize:
                    yield name, [dtype], result
        elif name not in WITH_PARTS | OF_C:
            for dtype in OPERANDS.get(name, ["float32", "float64"]):
                yield name, [dtype] * arity, "bool" if name in PREDICATES | COMPARISONS else dtype


def loop(operands, functions):
    """A kernel for GPUs: a loop over scalar functions, names to dtypes of results, of the same operands."""
    first = len(operands) + 1
    lines = ["def kernel(block):", "    n = slot(block, 0)"]
    for n, dtype in enumerate([*operands, *functions.values()], 1):
        lines.append(f"    p{n} = pointer_slot(block, {n}, {'uint8' if dtype == 'bool' else dtype})")
    lines += ["    i = block_x() * threads_x() + thread_x()", "    while i < n:"]
    for n, dtype in enumerate(operands, 1):
        lines.append(f"        x{n} = p{n}[i]{' != 0' if dtype == 'bool' else ''}")
    arguments = ", ".join(f"x{n}" for n in range(1, first))
    for n, (name, dtype) in enumerate(functions.items(), first):
        value = f"f_{name}({arguments})"
        lines.append(f"        p{n}[i] = {f'uint8({value})' if dtype == 'bool' else value}")
    lines.append("        i += blocks_x() * threads_x()")
    namespace = {"slot": slot, "pointer_slot": pointer_slot, **TYPES}
    namespace |= {"block_x": block_x, "blocks_x": blocks_x, "thread_x": thread_x, "threads_x": threads_x}
    namespace |= {f"f_{name}": FUNCTIONS[name] for name in functions}
    exec("\n".join(lines), namespace)
    return draft("kernel", namespace["kernel"], first + len(functions))


GROUPS = {}
for name_, operands_, result_ in cases():
    GROUPS.setdefault(tuple(operands_), {})[name_] = result_


@pytest.mark.parametrize("operands", list(GROUPS), ids="-".join)
def test_becomes_ptx(operands):
    text = finish(loop(operands, GROUPS[operands]), "sm_90")
    assert ".entry kernel" in text
    assert not re.search(r"\bcall\b|\.extern|\.local", text)


def test_functions_of_the_c_library_are_refused():
    with pytest.raises(TypeError, match="the C library's exp computes float64 on the CPU"):
        loop(["float64"], {"c_exp": "float64"})


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_are_rounded_before_they_are_added(dtype):
    """A product and a sum do not become one instruction that rounds once, here and in the driver."""
    text = finish(loop([dtype], {"square": dtype}), "sm_90")
    assert "mul.rn." in text
    text = finish(loop([dtype], {"sinh": dtype}), "sm_90")
    assert not re.findall(rf"(?:mul|add|sub)\.{dtype.replace('float', 'f')}", text)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_remainders_are_exact(dtype):
    x, y = pairs(dtype)
    out = np.empty_like(x)
    block = np.array([x.size, x.ctypes.data, y.ctypes.data, out.ctypes.data])
    kernel = Simulated(object_code(loop([dtype] * 2, {"remainder": dtype})))
    kernel(block.ctypes.data, LaunchDimensions((2, 1), (16, 1), 0))
    with np.errstate(all="ignore"):
        wanted = np.remainder(x, y)
    agree = same(out, wanted)
    assert agree.all(), (x[~agree][:3], y[~agree][:3], out[~agree][:3], wanted[~agree][:3])
