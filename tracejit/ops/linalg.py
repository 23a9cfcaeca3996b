"""Matrix products."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tracejit.errors import ShapeError
from tracejit.ir.op import Trait, register
from tracejit.ir.types import ArrayType
from tracejit.ops.rules import (
    REAL_NUMBERS,
    check_array,
    check_count,
    check_dtype,
    check_one_device,
    check_one_dtype,
    text,
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
            f"matmul needs at least two dimensions on both sides, got {text(types)}; reshape first"
        )
    if a.shape[-1] != b.shape[-2]:
        raise ShapeError(
            f"matmul got {text(types)}: the last extent of the first ({a.shape[-1]}) must be the "
            f"second-to-last of the second ({b.shape[-2]}); transpose one of them"
        )
    if a.shape[:-2] != b.shape[:-2]:
        raise ShapeError(f"matmul got {text(types)}: the leading (batch) shapes differ; broadcast them first")
    return ArrayType((*a.shape[:-1], b.shape[-1]), a.dtype, a.device)


def _matmul_gradient(node: SymNode, cotangents: Sequence[Sym]) -> list[Sym | None]:
    (a, b), (ct,) = node.inputs, cotangents
    return [ct @ b.mT, a.mT @ ct]


matmul = Operator(
    "matmul",
    _infer_matmul,
    np.matmul,
    _matmul_gradient,
    traits=frozenset({Trait.LIBRARY}),
    doc="Matrix product over the last two dimensions, for each index of the leading ones.",
    admits=REAL_NUMBERS,
    work=lambda shapes, attrs: math.prod(shapes[-1]) * shapes[0][-1],
)
register(matmul)
