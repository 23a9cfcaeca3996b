"""Discrete Fourier transforms: ``fft``, ``rfft`` and ``irfft``, by the inner loops of NumPy's.

The scratch memory begins with what an inner loop takes by reference: the factor 1, and the addresses, the
counts and the strides of its arguments. Numbers in single precision are transformed in double precision and
rounded, as in NumPy; some lines at a time, which follow in the scratch memory.
"""

from __future__ import annotations

from numba import float32, float64, int64

from tracejit.kernels.compiler.memory import call_c, load, pointer, slot, store
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.library.blocks import TransformPasses
from tracejit.kernels.library.inner_loops import TRANSFORM_HEAD

FACTOR, ARGUMENTS, COUNTS, STRIDES = 0, 8, 32, 56
"""Offsets in the scratch memory."""


@subroutine
def call_loop(block, scratch, source, target, count):
    """Transform `count` lines. The extents of a line are in the scratch memory, and the strides."""
    store(scratch + FACTOR, float64(1))
    store(scratch + ARGUMENTS, source)
    store(scratch + ARGUMENTS + 8, scratch + FACTOR)
    store(scratch + ARGUMENTS + 16, target)
    store(scratch + COUNTS, count)
    store(scratch + STRIDES + 8, int64(0))
    operands = scratch + ARGUMENTS, scratch + COUNTS, scratch + STRIDES, slot(block, TransformPasses.DATA)
    call_c(slot(block, TransformPasses.LOOP), operands)


@subroutine
def set_strides(scratch, line_in, line_out, element_in, element_out):
    """Store the distances in bytes of lines and of elements, of the operand and of the result."""
    store(scratch + STRIDES, line_in)
    store(scratch + STRIDES + 16, line_out)
    store(scratch + STRIDES + 24, element_in)
    store(scratch + STRIDES + 32, element_out)


def make_double(parts_in, parts_out):
    """Return transform_lines for elements of one or two numbers in double precision.

    ``transform_lines(block, scratch, source, target, before, after, inner, count)`` transforms adjacent
    lines, whose elements are `inner` elements apart.
    """
    in_bytes, out_bytes = 8 * parts_in, 8 * parts_out

    @subroutine
    def transform_lines(block, scratch, source, target, before, after, inner, count):
        line_in = in_bytes * (before if inner == 1 else int64(1))
        line_out = out_bytes * (after if inner == 1 else int64(1))
        set_strides(scratch, line_in, line_out, in_bytes * inner, out_bytes * inner)
        call_loop(block, scratch, source, target, count)

    return transform_lines


def make_copy(to_dtype, from_dtype):
    """Return copy_lines(target, to_line, to_element, source, from_line, from_element, parts, n, count), which
    converts `count` lines of `n` elements. The other numbers are distances of lines and of elements, and the
    parts of an element.
    """

    @subroutine
    def copy_lines(target, to_line, to_element, source, from_line, from_element, parts, n, count):
        to, x = pointer(target, to_dtype), pointer(source, from_dtype)
        for i in range(count):
            for e in range(n):
                for part in range(parts):
                    value = x[(i * from_line + e * from_element) * parts + part]
                    to[(i * to_line + e * to_element) * parts + part] = to_dtype(value)

    return copy_lines


def make_single(parts_in, parts_out):
    """Return transform_lines for elements of one or two numbers in single precision, like `make_double`."""

    widen, narrow = make_copy(float64, float32), make_copy(float32, float64)

    @subroutine
    def transform_lines(block, scratch, source, target, before, after, inner, count):
        group, done = slot(block, TransformPasses.GROUP), int64(0)
        line_in = before if inner == 1 else int64(1)
        line_out = after if inner == 1 else int64(1)
        wide = scratch + TRANSFORM_HEAD
        result = wide + 8 * parts_in * before * group
        while done < count:
            some = min(group, count - done)
            first, last = source + 4 * parts_in * done * line_in, target + 4 * parts_out * done * line_out
            widen(wide, before, 1, first, line_in, inner, parts_in, before, some)
            set_strides(scratch, 8 * parts_in * before, 8 * parts_out * after, 8 * parts_in, 8 * parts_out)
            call_loop(block, scratch, wide, result, some)
            narrow(last, line_out, inner, result, after, 1, parts_out, after, some)
            done += some

    return transform_lines


def make_transform(part_bytes, parts_in, parts_out):
    """Return the kernel of a transform of elements that have one or two parts of this size."""
    transform_lines = (make_single if part_bytes == 4 else make_double)(parts_in, parts_out)
    in_bytes, out_bytes = part_bytes * parts_in, part_bytes * parts_out

    @subroutine
    def along_axis(block, at, source, target, lo, hi, scratch):
        """Transform the lines `lo` to `hi`, whose extents and distances are in the slots from `at` on."""
        before, after = load(block + 8 * at, int64), load(block + 8 * at + 8, int64)
        inner = load(block + 8 * at + 16, int64)
        store(scratch + COUNTS + 8, before)
        store(scratch + COUNTS + 16, after)
        line = lo
        while line < hi:
            outer, i = line // inner, line % inner
            count = hi - line if inner == 1 else min(hi - line, inner - i)
            x = source + in_bytes * (outer * before * inner + i)
            y = target + out_bytes * (outer * after * inner + i)
            transform_lines(block, scratch, x, y, before, after, inner, count)
            line += count

    def transform(block, lo, hi, scratch):
        passes = slot(block, TransformPasses.PASSES)
        operands = block + 8 * (TransformPasses.PASS + 3 * passes)
        source, target = load(operands, int64), load(operands + 8, int64)
        if passes == 1:
            along_axis(block, TransformPasses.PASS, source, target, lo, hi, scratch)
        else:
            for p in range(passes):
                at = TransformPasses.PASS + 3 * p
                lines = slot(block, TransformPasses.LENGTH) // load(block + 8 * at, int64)
                along_axis(block, at, source, target, 0, lines, scratch)
                source = target
        return int64(0)

    return transform
