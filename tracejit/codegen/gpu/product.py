"""Matrix products on GPUs: a block of threads computes a tile, and each thread a sub-tile in registers.

    for each DEPTH columns of A:
        the tile's panels of A and B     memory -> shared memory, all threads
        barrier
        for each of these columns:       a thread multiplies EACH elements of A by EACH of B
        barrier

Neighbouring threads read neighbouring elements for either storage order of an operand; the source depends on
that order. All other parameters are in the block (`GpuProduct`), so one kernel serves all shapes. A single
thread accumulates each element, in order, so results are bitwise reproducible.

>>> print(product_source("float32", False, True).splitlines()[0])
# product of float32: tiles of 64 x 64, A by rows, B by columns
"""

from __future__ import annotations

import enum

from tracejit.codegen.gpu.launch import LaunchDimensions
from tracejit.codegen.text import memory_type
from tracejit.kernels.gemm.plan import GemmLayout, GemmOperand
from tracejit.kernels.library.plan import SIZES
from tracejit.kernels.split import ceil_div

TILE, DEPTH, EACH = 64, 16, 4
SIDE = TILE // EACH
"""The number of threads of a block along x and along y."""

LINE = TILE + 4
"""The number of elements between the columns of a tile in shared memory, padded to avoid bank conflicts."""


class GpuProduct(enum.IntEnum):
    """Slots of the block of a batched product: C = A @ B, or C += A @ B if ADD.

    Matrix ``i`` of the batch reads A at element ``i // INNER * A_OUTER + i % INNER * A_INNER``, B likewise,
    and writes C, which is C-contiguous, at ``i * M * N``. Strides are in elements.
    """

    M = 0
    N = 1
    K = 2
    A_DOWN = 3
    A_ACROSS = 4
    B_DOWN = 5
    B_ACROSS = 6
    INNER = 7
    A_OUTER = 8
    A_INNER = 9
    B_OUTER = 10
    B_INNER = 11
    ADD = 12
    A = 13
    B = 14
    C = 15


def product_words(layout: GemmLayout, add: bool) -> tuple[int, ...]:
    """Return the values of the slots before the operands' addresses."""
    a, b = layout.a, layout.b
    return (
        *(layout.m, layout.n, layout.k, *_strides(a), *_strides(b)),
        *(layout.inner, a.outer, a.inner, b.outer, b.inner, int(add)),
    )


def _strides(operand: GemmOperand) -> tuple[int, int]:
    """Return the distances in elements between adjacent rows and between adjacent columns."""
    return (1, operand.leading) if operand.transposed else (operand.leading, 1)


def product_units(layout: GemmLayout) -> int:
    """Return the number of tiles."""
    return layout.batch * ceil_div(layout.m, TILE) * ceil_div(layout.n, TILE)


def product_launch(layout: GemmLayout, dtype: str) -> LaunchDimensions:
    """Return the launch of a product: one block per tile, up to the maximum grid size."""
    blocks = max(1, min(product_units(layout), 1 << 30))
    return LaunchDimensions((blocks, 1), (SIDE, SIDE), 2 * DEPTH * LINE * SIZES[dtype])


def product_source(dtype: str, a_transposed: bool, b_transposed: bool) -> str:
    """Return the source of ``kernel(block)`` for a dtype and the storage orders of the operands."""
    kind, size = memory_type(dtype), SIZES[dtype]
    orders = ["by columns" if transposed else "by rows" for transposed in (a_transposed, b_transposed)]
    floating = dtype.startswith("float")
    imports = (
        ["from tracejit.kernels.scalar.accumulate import multiply_add_reassoc"]
        if floating
        else ["from tracejit.kernels.library.table import arithmetic"]
    )
    lines = [
        f"# product of {dtype}: tiles of {TILE} x {TILE}, A {orders[0]}, B {orders[1]}",
        "",
        f"from numba import {'boolean, ' * (dtype == 'bool')}{kind}",
        "from tracejit.kernels.compiler.memory import pointer, slot",
        "from tracejit.kernels.gpu.words import barrier, block_x, blocks_x, shared, thread_x, thread_y",
        *imports,
        "",
    ]
    if not floating:
        lines += [f"add, multiply_add = arithmetic({'boolean' if dtype == 'bool' else kind})", ""]
    lines += ["", "def kernel(block):", *("    " + line for line in _setup(kind, size))]
    lines += ["    while unit < units:", *("        " + line for line in _tile(kind, size))]
    for operand, transposed in (("a", a_transposed), ("b", b_transposed)):
        lines += ["            " + line for line in _fetch(operand, transposed, kind)]
    lines += ["            " + line for line in _multiply(floating)]
    lines += ["        " + line for line in _store(floating)]
    return "\n".join([*lines, "        unit += blocks_x()", ""])


def _setup(kind: str, size: int) -> list[str]:
    return [
        *(f"{name.name.lower()} = slot(block, {int(name)})" for name in GpuProduct if name != GpuProduct.ADD),
        f"adding = slot(block, {int(GpuProduct.ADD)})",
        f"units = slot(block, {len(GpuProduct)})",
        f"box_a = shared(0, {kind})",
        f"box_b = shared({DEPTH * LINE * size}, {kind})",
        "row, column = thread_y(), thread_x()",
        f"me = row * {SIDE} + column",
        f"across = (n + {TILE - 1}) // {TILE}",
        f"tiles = (m + {TILE - 1}) // {TILE} * across",
        "unit = block_x()",
    ]


def _tile(kind: str, size: int) -> list[str]:
    totals = [f"t{i}{j}" for i in range(EACH) for j in range(EACH)]
    return [
        "matrix = unit // tiles",
        f"top, left = unit % tiles // across * {TILE}, unit % tiles % across * {TILE}",
        f"x = pointer(a + {size} * (matrix // inner * a_outer + matrix % inner * a_inner), {kind})",
        f"y = pointer(b + {size} * (matrix // inner * b_outer + matrix % inner * b_inner), {kind})",
        f"z = pointer(c + {size} * matrix * m * n, {kind})",
        *(f"{total} = {kind}(0)" for total in totals),
        f"for first in range(0, k, {DEPTH}):",
    ]


def _fetch(operand: str, transposed: bool, kind: str) -> list[str]:
    """Return the lines that copy a panel of an operand to shared memory, with zeros outside the operand."""
    along = transposed != (operand == "b")  # whether neighbours in memory are adjacent along the tile's side
    lines = []
    for chunk in range(TILE * DEPTH // SIDE**2):
        e = f"(me + {chunk * SIDE**2})" if chunk else "me"
        i, d = (f"{e} % {TILE}", f"{e} // {TILE}") if along else (f"{e} // {DEPTH}", f"{e} % {DEPTH}")
        source, start, end = ("x", "top", "m") if operand == "a" else ("y", "left", "n")
        offset = "at * a_down + deep * a_across" if operand == "a" else "deep * b_down + at * b_across"
        lines += [
            f"at, deep = {start} + {i}, first + {d}",
            f"value = {kind}(0)",
            f"if at < {end} and deep < k:",
            f"    value = {source}[{offset}]",
            f"box_{operand}[({d}) * {LINE} + {i}] = value",
        ]
    return lines


def _multiply(floating: bool) -> list[str]:
    lines = ["barrier()", f"for d in range({DEPTH}):"]
    lines += [f"    x{i} = box_a[d * {LINE} + row * {EACH} + {i}]" for i in range(EACH)]
    lines += [f"    y{j} = box_b[d * {LINE} + column * {EACH} + {j}]" for j in range(EACH)]
    for i in range(EACH):
        for j in range(EACH):
            total = f"t{i}{j}"
            call = (
                f"multiply_add_reassoc(x{i}, y{j}, {total})"
                if floating
                else f"multiply_add({total}, x{i}, y{j})"
            )
            lines.append(f"    {total} = {call}")
    return [*lines, "barrier()"]


def _store(floating: bool) -> list[str]:
    lines = []
    for i in range(EACH):
        lines += [f"i = top + row * {EACH} + {i}", "if i < m:"]
        for j in range(EACH):
            total = f"t{i}{j}"
            updated = f"z[i * n + j] + {total}" if floating else f"add(z[i * n + j], {total})"
            lines += [
                f"    j = left + column * {EACH} + {j}",
                "    if j < n:",
                f"        z[i * n + j] = {updated} if adding != 0 else {total}",
            ]
    return lines
