"""Sorting and searching: `sort`, `argsort`, `search_sorted`, which call NumPy (trait HOST).

sort(x; axis)                          the elements in ascending order; nan comes last
argsort(x; axis)                       the indices that sort x; the sort is stable
search_sorted(x, values; side)         insertion indices of values into a sorted x, or into each x of a batch
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracejit.errors import ArgumentError, ShapeError
from tracejit.ir.op import Trait, register
from tracejit.ir.types import ArrayType
from tracejit.ops.batching import BatchNode, shifting
from tracejit.ops.creation import iota
from tracejit.ops.movement import gather
from tracejit.ops.rules import (
    ALL,
    INT64,
    check_along,
    check_array,
    check_count,
    check_one_dtype,
    describe_types,
)
from tracejit.ops.symbolic import Operator, Sym, SymNode

ROUTINE = frozenset({Trait.HOST, Trait.EXACT})


def _infer_sort(*types: ArrayType, axis: int) -> ArrayType:
    return check_along("sort", types, axis, ALL)


def _infer_argsort(*types: ArrayType, axis: int) -> ArrayType:
    x = check_along("argsort", types, axis, ALL)
    return ArrayType(x.shape, INT64, x.device)


def _infer_search(*types: ArrayType, side: str) -> ArrayType:
    check_count("search_sorted", types, 2)
    x, values = types
    check_array("search_sorted", x)
    check_array("search_sorted", values)
    check_one_dtype("search_sorted", types)
    if x.ndim < 1 or x.shape[:-1] != values.shape[: x.ndim - 1]:
        raise ShapeError(
            f"search_sorted needs a sorted array of one dimension, or a batch of them and of the values, got "
            f"{describe_types(types)}"
        )
    if side not in ("left", "right"):
        raise ArgumentError(f'search_sorted: side is "left" or "right", not {side!r}')
    return ArrayType(values.shape, INT64, values.device)


def _search(x: np.ndarray, values: np.ndarray, *, side: Any) -> np.ndarray:
    if x.ndim == 1:
        return np.asarray(np.searchsorted(x, values, side))
    positions = np.empty(values.shape, INT64)
    for example in np.ndindex(x.shape[:-1]):
        positions[example] = np.searchsorted(x[example], values[example], side)
    return positions


def _search_batch(node: BatchNode) -> Sym:
    return node.apply(*(node.mapped_operands() if node.mapped[0] else node.inputs))


def take_along(x: Sym, index: Sym, axis: int) -> Sym:
    """``y[..., i, ...] = x[..., index[..., i, ...], ...]`` along `axis`.

    All elements of `index` are in range; the extents of `x` and `index` along the other axes are equal.
    """
    size, stride = math.prod(x.shape), math.prod(x.shape[axis + 1 :])
    first = iota(size=size, device=x.device).reshape(x.shape)
    first = first.view(first.identity_view().slice_axis(axis, 0, 1).broadcast(index.shape))
    return gather(x.reshape((size,)), first + index * stride, axis=0)


def _sort_gradient(node: SymNode, cotangents: Sequence[Sym]) -> list[Sym | None]:
    (x,), (ct,), axis = node.inputs, cotangents, node.attrs["axis"]
    order = argsort(x, axis=axis)
    return [take_along(ct, argsort(order, axis=axis), axis) if 0 not in x.shape else ct]


sort = Operator(
    "sort",
    _infer_sort,
    lambda x, *, axis: np.sort(x, axis),
    _sort_gradient,
    traits=ROUTINE,
    doc="The elements in ascending order along an axis, nan last.",
    admits=ALL,
    batch=shifting("axis"),
)
register(sort)

argsort = Operator(
    "argsort",
    _infer_argsort,
    lambda x, *, axis: np.argsort(x, axis, kind="stable"),
    traits=ROUTINE,
    doc="The indices that sort the elements along an axis; equal elements keep their order.",
    admits=ALL,
    batch=shifting("axis"),
)
register(argsort)

search_sorted = Operator(
    "search_sorted",
    _infer_search,
    _search,
    traits=ROUTINE,
    doc="The indices at which inserting values keeps a sorted array sorted.",
    admits=ALL,
    batch=_search_batch,
)
register(search_sorted)
