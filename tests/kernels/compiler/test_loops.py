"""Which loops get two vectors at a time or go over independent rounds (`tracejit.kernels.compiler.loops`),
and that their results stay the same.
"""

import re

import numpy as np
from numba import float32, int64

from tests.kernels.loops import CALL
from tracejit.codegen.objects.build import EntryPoint, build_object, draft
from tracejit.codegen.objects.linker import link
from tracejit.kernels.compiler.memory import pointer, slot
from tracejit.kernels.compiler.ranges import independent
from tracejit.kernels.scalar import add, divide, multiply
from tracejit.kernels.scalar.accumulate import add_reassoc

HINT = re.compile(r"br label [^\n]*!llvm\.loop")


def rowwise(block, lo, hi, scratch):
    x = pointer(slot(block, 0), float32)
    y = pointer(slot(block, 1), float32)
    n = slot(block, 2)
    for i in range(lo, hi):
        for j in range(n):
            y[i * n + j] = divide(x[i * n + j], multiply(x[i * n + j], x[i * n + j]))
    return int64(0)


def total(block, lo, hi, scratch):
    x = pointer(slot(block, 0), float32)
    y = pointer(slot(block, 1), float32)
    total = float32(0)
    for i in range(lo, hi):
        total = add_reassoc(total, x[i])
        y[i] = x[i]
    y[hi] = total
    return int64(0)


def hints(function):
    return len(HINT.findall("\n".join(draft([EntryPoint("kernel", function)]).modules)))


def test_loops_that_store_and_carry_nothing_are_hinted():
    assert hints(rowwise) == 1  # the inner loop
    assert hints(total) == 0


def test_two_vectors_at_a_time():
    llvm_ir = build_object([EntryPoint("kernel", rowwise)]).llvm_ir
    bodies = re.findall(r"\nvector\.body:.*?\n  br ", llvm_ir, re.DOTALL)
    assert [len(re.findall(r"= fdiv <", body)) for body in bodies] == [2]


def test_results_for_every_length():
    address = link("rowwise", build_object([EntryPoint("kernel", rowwise)]).object_code, ["kernel"])["kernel"]
    for n in range(1, 80):
        x = np.random.default_rng(n).uniform(1, 2, (3, n)).astype(np.float32)
        y = np.full((4, n), -1, np.float32)
        block = np.array([x.ctypes.data, y.ctypes.data, n], np.int64)
        assert CALL(address)(block.ctypes.data, 0, 3, 0) == 0
        np.testing.assert_array_equal(y[:3], x / (x * x))
        np.testing.assert_array_equal(y[3], -1)


MANY = 24  # arrays; LLVM compares pointers for about ten


def adding_many(loop):
    """A kernel that adds each of many arrays to another one, in one loop over `loop`."""
    names = range(MANY)
    lines = [
        "def kernel(block, lo, hi, scratch):",
        *(f"    x{k} = pointer(slot(block, {k}), float32)" for k in names),
        *(f"    y{k} = pointer(slot(block, {MANY + k}), float32)" for k in names),
        f"    for i in {loop}(lo, hi):",
        *(f"        y{k}[i] = add(y{k}[i], x{k}[i])" for k in names),
        "    return int64(0)",
    ]  # fmt: skip
    space = {"add": add, "float32": float32, "independent": independent, "int64": int64}
    space |= {"pointer": pointer, "slot": slot}
    exec("\n".join(lines), space)
    return space["kernel"]


def test_loops_over_independent_rounds_are_vectors_whatever_their_number_of_pointers():
    plain, free = (
        build_object([EntryPoint("kernel", adding_many(loop))]) for loop in ("range", "independent")
    )
    assert not re.search(r"= fadd <", plain.llvm_ir)
    assert len(re.findall(r"= fadd <", free.llvm_ir)) >= MANY


def test_results_of_independent_rounds():
    address = link(
        "many", build_object([EntryPoint("kernel", adding_many("independent"))]).object_code, ["kernel"]
    )
    rng = np.random.default_rng(0)
    for n in (1, 7, 64, 333):
        x, y = rng.standard_normal((2, MANY, n)).astype(np.float32)
        expected = x + y
        block = np.array([*(row.ctypes.data for row in x), *(row.ctypes.data for row in y)], np.int64)
        assert CALL(address["kernel"])(block.ctypes.data, 0, n, 0) == 0
        np.testing.assert_array_equal(y, expected)
