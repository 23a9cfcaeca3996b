"""Jobs of matrix products, including the generated kernels of their epilogues."""

from __future__ import annotations

import functools
from typing import Any

from tracejit.assembly.blocks import row, words_of
from tracejit.assembly.cpu_kernels import generated_kernel, library_kernel
from tracejit.assembly.words import BlockOffset, Job, KernelAddress, LaunchWord, ValueAddress, kernel_name
from tracejit.codegen.objects import linker
from tracejit.codegen.objects.loader import Recipe
from tracejit.codegen.spec import Lowered
from tracejit.errors import VerificationError
from tracejit.ir.graph import Node, Value
from tracejit.ir.types import is_floating, name_of
from tracejit.ir.view import View
from tracejit.kernels.gemm.plan import (
    TILE_FEATURE,
    Gemm,
    GemmPlan,
    gemm_layout,
    gemm_plan,
    gemm_slots,
    gram_plan,
    is_gram,
    is_split_by_rows,
    packing,
)
from tracejit.kernels.split import ceil_div
from tracejit.tuning import tuning_of


def panel(node: Node, lowered: Lowered) -> Job:
    """Return the job of a matrix product, followed by the generated kernel on the rows of each panel."""
    product = lowered.product
    assert product is not None
    operands = (*node.inputs, *node.outputs)
    has_epilogue = any(section.steps for section in lowered.spec.sections)
    a, b = (operands[product.a], product.a_view), (operands[product.b], product.b_view)
    in_scratch = product.result is None
    c = lowered.scratch if product.result is None else ValueAddress(operands[product.result])
    gemm, gemm_words, split, packed_bytes = _gemm(a, b, c, has_epilogue, product.add)
    name = kernel_name(node)
    dtype = a[0].type.dtype
    if not has_epilogue:
        gemm_words[Gemm.ADD] = product.add
        return Job(name, (gemm,), row(gemm_words, Gemm), split.units, split.chunk, packed_bytes)
    panel = in_scratch * split.panel_rows * split.panel_columns * dtype.itemsize
    line = tuning_of(node.outputs[0].type.device).caches.line
    packed_at = lowered.scratch + ceil_div(panel, line) * line
    epilogue_words: dict[Any, LaunchWord] = {
        Gemm.EPILOGUE: KernelAddress(1),
        Gemm.EPILOGUE_BLOCK: BlockOffset(len(Gemm)),
        Gemm.IN_SCRATCH: in_scratch,
        Gemm.PACKED: packed_at,
    }
    words = (*row({**gemm_words, **epilogue_words}, Gemm), *words_of(node, lowered))
    return Job(
        name,
        (gemm, generated_kernel(name, lowered)),
        words,
        split.units,
        split.chunk,
        packed_at + packed_bytes,
    )


def matmul(node: Node) -> Job:
    a, b = ((v, View.of_shape(v.type.shape)) for v in node.inputs)
    gemm, words, split, packed_bytes = _gemm(a, b, ValueAddress(node.output))
    return Job("matmul", (gemm,), row(words, Gemm), split.units, split.chunk, packed_bytes)


def _gemm(
    a: tuple[Value, View],
    b: tuple[Value, View],
    c: LaunchWord,
    has_epilogue: bool = False,
    adds: bool = False,
) -> tuple[Recipe, dict[Any, LaunchWord], GemmPlan, int]:
    """Return the kernel of the product of two views, its slots, its division into units, and the
    additional bytes of scratch memory that it needs. `adds`: the product is added to `c`.
    """
    (a_value, a_view), (b_value, b_view) = a, b
    dtype = a_value.type.dtype
    layout = gemm_layout(a_view.shape, a_view.strides, b_view.shape, b_view.strides)
    if layout is None:
        raise VerificationError(
            f"matmul of {a_view} and {b_view}: cannot be read with GEMM strides; fusion copies such operands"
        )
    kernel = "gemm"
    extents = layout.batch, layout.m, layout.n, layout.k
    by_rows = has_epilogue or (
        is_floating(dtype) and is_split_by_rows(*extents, dtype.itemsize, tiles=_has_tiles())
    )
    split = gemm_plan(*extents, dtype.itemsize, epilogue=by_rows)
    if is_floating(dtype) and layout.m == 1 and layout.n == 1:
        kernel = "dot"
    elif (
        is_floating(dtype)
        and not (has_epilogue or adds)
        and a_value is b_value
        and is_gram(layout)
        and a_view.offset == b_view.offset
    ):
        kernel, split = "gram", gram_plan(layout.batch, layout.n)
    slots: dict[Any, LaunchWord] = dict(gemm_slots(layout, split, name_of(dtype)))
    slots |= {
        Gemm.A: ValueAddress(a_value, a_view.offset * dtype.itemsize),
        Gemm.B: ValueAddress(b_value, b_view.offset * dtype.itemsize),
        Gemm.C: c,
        Gemm.EPILOGUE: 0,
        Gemm.EPILOGUE_BLOCK: 0,
        Gemm.IN_SCRATCH: 0,
        Gemm.ADD: 0,
        Gemm.PACKED: 0,
    }
    packed_bytes = packing(layout, split, dtype.itemsize) if is_floating(dtype) else 0
    return library_kernel(kernel, name_of(dtype)), slots, split, packed_bytes


@functools.cache
def _has_tiles() -> bool:
    """Whether the processor computes products in register tiles."""
    _, _, features = linker.host()
    return f"+{TILE_FEATURE}" in features.split(",")
