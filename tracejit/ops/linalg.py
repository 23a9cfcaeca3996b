"""The matrix product, `matmul`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tracejit.errors import ShapeError
from tracejit.ir.op import Trait, register
from tracejit.ir.types import ArrayType
from tracejit.ops.batching import BatchNode
from tracejit.ops.rules import (
    REAL_NUMBERS,
    check_array,
    check_count,
    check_dtype,
    check_one_device,
    check_one_dtype,
    describe_types,
)
from tracejit.ops.symbolic import Operator, Sym, SymNode


def _infer_matmul(*types: ArrayType) -> ArrayType:
    check_count("matmul", types, 2)
    for operand in types:
        check_array("matmul", operand)
    check_one_dtype("matmul", types)
    a, b = types
    check_dtype("matmul", a.dtype, REAL_NUMBERS)
    check_one_device("matmul", types)
    if a.ndim < 2 or b.ndim < 2:
        raise ShapeError(
            f"matmul needs at least two dimensions on both sides, got {describe_types(types)}; reshape first"
        )
    if a.shape[-1] != b.shape[-2]:
        raise ShapeError(
            f"matmul got {describe_types(types)}: the last extent of the first ({a.shape[-1]}) must be the "
            f"second-to-last of the second ({b.shape[-2]}); transpose one of them"
        )
    if a.shape[:-2] != b.shape[:-2]:
        raise ShapeError(
            f"matmul got {describe_types(types)}: the leading (batch) shapes differ; broadcast them first"
        )
    return ArrayType((*a.shape[:-1], b.shape[-1]), a.dtype, a.device)


def _matmul_gradient(node: SymNode, cotangents: Sequence[Sym]) -> list[Sym | None]:
    (a, b), (ct,) = node.inputs, cotangents
    return [ct @ b.mT, a.mT @ ct]


def _matmul_batch(node: BatchNode) -> Sym:
    """Batching of `matmul`: if one operand is mapped, a product of the rows or columns of all examples."""
    (a, b), (a_mapped, b_mapped) = node.inputs, node.mapped
    if a_mapped and b_mapped:
        return a @ b
    return _multiply_all_rows(a, b) if a_mapped else _multiply_all_rows(b.mT, a.mT).mT


def _multiply_all_rows(a: Sym, b: Sym) -> Sym:
    """Multiply a mapped `a` by an unmapped `b`: the rows of all examples form one matrix per batch index."""
    size, *batch, rows, inner = a.shape
    n = len(batch)
    products = a.permute((*range(1, n + 1), 0, n + 1, n + 2)).reshape((*batch, size * rows, inner)) @ b
    split = products.reshape((*batch, size, rows, b.shape[-1]))
    return split.permute((n, *range(n), n + 1, n + 2))


matmul: Operator = Operator(
    "matmul",
    _infer_matmul,
    np.matmul,
    _matmul_gradient,
    traits=frozenset({Trait.LIBRARY}),
    doc="Matrix product over the last two dimensions, for each index of the leading ones.",
    admits=REAL_NUMBERS,
    work=lambda shapes, attrs: math.prod(shapes[-1]) * shapes[0][-1],
    batch=_matmul_batch,
)
register(matmul)
