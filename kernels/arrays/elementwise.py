"""Loops of the four arithmetic operators that are correctly rounded on every target, over rows of strided
elements.
"""

from __future__ import annotations

import operator

from numba.types import float32, float64

from tracejit.kernels.compiler.memory import load, pointer, store
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.compiler.words import word_function as native

ADD, SUBTRACT, MULTIPLY, DIVIDE = range(4)


def _loop(apply, dtype, size):
    """Return the loop over one row: ``out[i] = apply(a[i], b[i])``; addresses and strides in bytes."""

    @subroutine
    def loop(out, out_step, a, a_step, b, b_step, count):
        if out_step == size and a_step == size and b_step == size:
            p, q, r = pointer(out, dtype), pointer(a, dtype), pointer(b, dtype)
            for i in range(count):
                p[i] = apply(q[i], r[i])
        elif out_step == size and a_step == size and b_step == 0:
            p, q, c = pointer(out, dtype), pointer(a, dtype), load(b, dtype)
            for i in range(count):
                p[i] = apply(q[i], c)
        else:
            for i in range(count):
                store(out + i * out_step, apply(load(a + i * a_step, dtype), load(b + i * b_step, dtype)))
        return 0

    return loop


_add32, _add64 = _loop(operator.add, float32, 4), _loop(operator.add, float64, 8)
_subtract32, _subtract64 = _loop(operator.sub, float32, 4), _loop(operator.sub, float64, 8)
_multiply32, _multiply64 = _loop(operator.mul, float32, 4), _loop(operator.mul, float64, 8)
_divide32, _divide64 = _loop(operator.truediv, float32, 4), _loop(operator.truediv, float64, 8)


@native
def compute_row(op, size, out, out_step, a, a_step, b, b_step, count):
    """Compute one row of an operator, for elements of `size` bytes."""
    if size == 4:
        if op == ADD:
            return _add32(out, out_step, a, a_step, b, b_step, count)
        if op == SUBTRACT:
            return _subtract32(out, out_step, a, a_step, b, b_step, count)
        if op == MULTIPLY:
            return _multiply32(out, out_step, a, a_step, b, b_step, count)
        return _divide32(out, out_step, a, a_step, b, b_step, count)
    if op == ADD:
        return _add64(out, out_step, a, a_step, b, b_step, count)
    if op == SUBTRACT:
        return _subtract64(out, out_step, a, a_step, b, b_step, count)
    if op == MULTIPLY:
        return _multiply64(out, out_step, a, a_step, b, b_step, count)
    return _divide64(out, out_step, a, a_step, b, b_step, count)
