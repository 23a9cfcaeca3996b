"""Data movement operators: views, updates, gathers, copies between devices.

view(x; view)              y[i] = x.flat[view(i)]
update(base, x; view)      base, with the elements that `view` selects replaced by those of x
gather(x, index; axis)     y[..., i, ...] = x[..., index[i], ...]; index is in range (see check_index)
scatter(base, x, index; axis)          base, with y[..., index[i], ...] = x[..., i, ...] in index order
scatter_add(x, index; axis, extent)    adjoint of gather: x[..., i, ...] added at index[i], in index order
check_index(index; extent, axis, what) index, with extent added to negative elements; an error at run time if
                                       one is out of range, with the message `what`
                                       (see `index_error_message`)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tracejit.errors import AxisError, DeviceError, DTypeError, OutOfBoundsError, ReadOnlyError, ShapeError
from tracejit.ir.op import Trait, register
from tracejit.ir.types import HOST, ArrayType, Device
from tracejit.ir.view import View
from tracejit.ops.arithmetic import equal
from tracejit.ops.batching import BatchNode, batched_view, first_axis, leading
from tracejit.ops.creation import iota
from tracejit.ops.rules import (
    INT64,
    REAL_NUMBERS,
    check_array,
    check_count,
    check_dtype,
    check_one_device,
    check_one_dtype,
)
from tracejit.ops.select import where
from tracejit.ops.symbolic import Operator, Sym, SymNode, by_components, full_like, number

EXACT = frozenset({Trait.EXACT})
EXACT_MOVE = EXACT | {Trait.MOVES}

# ---- views


def _check_view(name: str, base: ArrayType, view: View) -> None:
    low, high = view.span()
    if view.size and (low < 0 or high > base.size):
        raise OutOfBoundsError(
            f"{name} with {view} selects elements {low} to {high - 1} of {base}, which has {base.size}"
        )


def _infer_view(*types: ArrayType, view: View) -> ArrayType:
    check_count("view", types, 1)
    check_array("view", types[0])
    _check_view("view", types[0], view)
    return ArrayType(view.shape, types[0].dtype, types[0].device)


def _view_gradient(node: SymNode, cotangents: Sequence[Sym]) -> list[Sym | None]:
    (x,), (ct,) = node.inputs, cotangents
    return [view_adjoint(ct, node.attrs["view"], x)]


def view_adjoint(ct: Sym, view: View, like: Sym) -> Sym:
    """The adjoint of ``x.view(view)`` for x of the type of `like`; sums over elements that `view` repeats.

    >>> from tracejit.ir.types import ArrayType
    >>> from tracejit.ir.graph import Builder
    >>> from tracejit.ops.symbolic import building
    >>> b, f = Builder(), np.dtype("float32")
    >>> x, ct = Sym(b.input(ArrayType((3, 4), f))), Sym(b.input(ArrayType((4, 3), f)))
    >>> with building(b):
    ...     print(b.graph([view_adjoint(ct, x.identity_view().permute((1, 0)), x).value]))
    graph(%0: float32[3,4], %1: float32[4,3]) {
      %2: float32[3,4] = view(%1) [view=0+[3,4]:[1,3]]
      return %2
    }
    """
    repeated = [a for a, (n, s) in enumerate(zip(view.shape, view.strides, strict=True)) if s == 0 and n != 1]
    ct = ct.sum(repeated)
    kept = [a for a in range(len(view.shape)) if a not in repeated]
    view = view.permute(kept)
    if view.overlaps_itself():
        return _accumulate(ct, view, like)
    if view.covers(like.shape):
        return _inverse(ct, view, like.shape)
    return update(full_like(like, 0), ct, view=view)


def _inverse(ct: Sym, view: View, shape: tuple[int, ...]) -> Sym:
    """Rearrange `ct` by the inverse of `view`, which reads every element exactly once."""
    inverse = ct.identity_view()
    for axis, (extent, stride) in enumerate(zip(view.shape, view.strides, strict=True)):
        if stride < 0 and extent > 1:
            inverse = inverse.slice_axis(axis, None, None, -1)
    order = [a for a, n in enumerate(view.shape) if n != 1]
    unit_axes = [a for a, n in enumerate(view.shape) if n == 1]
    inverse = inverse.permute(unit_axes + sorted(order, key=lambda a: -abs(view.strides[a])))
    reshaped = inverse.reshape(shape)
    return ct.view(reshaped) if reshaped is not None else ct.view(inverse).reshape(shape)


def _accumulate(ct: Sym, view: View, like: Sym) -> Sym:
    """Accumulate `ct` for a `view` (such as sliding windows) that reads elements more than once."""
    size = math.prod(like.shape)
    index = iota(size=size, device=like.device).view(view)
    positions = index.reshape((view.size,))
    flat = by_components(lambda x: scatter_add(x, positions, axis=0, extent=size), ct.reshape((view.size,)))
    return flat.reshape(like.shape)


def _infer_update(*types: ArrayType, view: View) -> ArrayType:
    check_count("update", types, 2)
    base, x = types
    for operand in types:
        check_array("update", operand)
    check_one_dtype("update", types)
    _check_view("update", base, view)
    check_one_device("update", types)
    if x.shape != view.shape:
        raise ShapeError(f"update of {view} expects the shape {view.shape}, got {x}; broadcast it first")
    if view.overlaps_itself():
        raise ReadOnlyError(
            f"update of {view}: its elements overlap, so it cannot be written; write to a copy"
        )
    return base


def _evaluate_update(base: np.ndarray, x: np.ndarray, *, view: View) -> np.ndarray:
    result = np.array(base, order="C")
    view.read(result)[...] = x
    return result


def _update_gradient(node: SymNode, cotangents: Sequence[Sym]) -> list[Sym | None]:
    (_, x), (ct,), view = node.inputs, cotangents, node.attrs["view"]
    return [update(ct, full_like(x, 0), view=view), ct.view(view)]


def _update_batch(node: BatchNode) -> Sym:
    base, x = node.mapped_operands()
    return update(base, x, view=batched_view(node.attrs["view"], node.size, math.prod(base.shape[1:])))


view = Operator(
    "view",
    _infer_view,
    lambda x, *, view: view.read(np.ascontiguousarray(x)),
    _view_gradient,
    traits=EXACT | {Trait.VIEW},
    doc="The elements of the operand that an affine index map selects.",
)
register(view)

update = Operator(
    "update",
    _infer_update,
    _evaluate_update,
    _update_gradient,
    traits=EXACT_MOVE,
    doc="The first operand, with the elements that a view selects replaced by the second.",
    batch=_update_batch,
)
register(update)

# ---- indexing by arrays


def _check_gather(name: str, x: ArrayType, index: ArrayType, axis: int, ndim: int) -> None:
    for operand in (x, index):
        check_array(name, operand)
    if index.dtype != INT64:
        raise DTypeError(f"{name} needs an int64 index, got {index}; cast it with astype")
    check_one_device(name, (x, index))
    if not 0 <= axis < ndim:
        raise AxisError(f"{name} along axis {axis} of {x}: expected an axis from 0 to {ndim - 1}")


def _infer_gather(*types: ArrayType, axis: int) -> ArrayType:
    check_count("gather", types, 2)
    x, index = types
    _check_gather("gather", x, index, axis, x.ndim)
    return ArrayType((*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]), x.dtype, x.device)


def _evaluate_gather(x: np.ndarray, index: np.ndarray, *, axis: int) -> np.ndarray:
    return np.take(x, index, axis)


def _gather_gradient(node: SymNode, cotangents: Sequence[Sym]) -> list[Sym | None]:
    (x, index), (ct,), axis = node.inputs, cotangents, node.attrs["axis"]
    return [by_components(lambda y: scatter_add(y, index, axis=axis, extent=x.shape[axis]), ct), None]


def _infer_scatter_add(*types: ArrayType, axis: int, extent: int) -> ArrayType:
    check_count("scatter_add", types, 2)
    x, index = types
    _check_gather("scatter_add", x, index, axis, x.ndim - index.ndim + 1)
    check_dtype("scatter_add", x.dtype, REAL_NUMBERS)
    if x.shape[axis : axis + index.ndim] != index.shape:
        raise ShapeError(
            f"scatter_add at axis {axis} expects the index's shape {index.shape} inside that of the operand "
            f"{x.shape}; broadcast the operand first"
        )
    return ArrayType((*x.shape[:axis], extent, *x.shape[axis + index.ndim :]), x.dtype, x.device)


def _evaluate_scatter_add(x: np.ndarray, index: np.ndarray, *, axis: int, extent: int) -> np.ndarray:
    lead, trail = x.shape[:axis], x.shape[axis + index.ndim :]
    result = np.zeros((*lead, extent, *trail), x.dtype)
    flat = x.reshape(*lead, index.size, *trail)
    np.add.at(np.moveaxis(result, axis, 0), index.reshape(-1), np.moveaxis(flat, axis, 0))
    return result


def _scatter_add_gradient(node: SymNode, cotangents: Sequence[Sym]) -> list[Sym | None]:
    (_, index), (ct,) = node.inputs, cotangents
    return [gather(ct, index, axis=node.attrs["axis"]), None]


def _infer_scatter(*types: ArrayType, axis: int) -> ArrayType:
    check_count("scatter", types, 3)
    base, x, index = types
    _check_gather("scatter", base, index, axis, base.ndim)
    check_array("scatter", x)
    check_one_dtype("scatter", (base, x))
    check_one_device("scatter", types)
    expected = (*base.shape[:axis], *index.shape, *base.shape[axis + 1 :])
    if x.shape != expected:
        raise ShapeError(f"scatter at axis {axis} of {base} expects the shape {expected}, got {x}")
    return base


def _evaluate_scatter(base: np.ndarray, x: np.ndarray, index: np.ndarray, *, axis: int) -> np.ndarray:
    result = np.array(base, order="C")
    flat = x.reshape(*base.shape[:axis], index.size, *base.shape[axis + 1 :])
    targets = np.moveaxis(result, axis, 0)
    for i, values in zip(index.reshape(-1), np.moveaxis(flat, axis, 0), strict=True):
        targets[i] = values
    return result


def _scatter_gradient(node: SymNode, cotangents: Sequence[Sym]) -> list[Sym | None]:
    (base, x, index), (ct,), axis = node.inputs, cotangents, node.attrs["axis"]
    of_x = gather(ct, index, axis=axis)
    size, extent = math.prod(index.shape), base.shape[axis]
    if size > 1:  # of several elements of x for one element of the result, only the last one counts
        numbers = iota(size=size, device=base.device).reshape(index.shape)
        nowhere = number(-1, INT64).full((extent,), base.device)
        is_last = equal(gather(scatter(nowhere, numbers, index, axis=0), index, axis=0), numbers)
        others = [a for a in range(len(x.shape)) if not axis <= a < axis + len(index.shape)]
        of_x = where(is_last.spread(others, x.shape), of_x, full_like(x, 0))
    return [scatter(ct, full_like(x, 0), index, axis=axis), of_x, None]


def _scatter_batch(node: BatchNode) -> Sym:
    axis = node.attrs["axis"]
    base, x, index = node.mapped_operands()
    if not node.mapped[2]:
        return scatter(base, x, node.inputs[2], axis=axis + 1)
    inner = len(index.shape) - 1
    index_axes = range(axis + 1, axis + 1 + inner)
    x_first = x.permute((0, *index_axes, *(a for a in range(1, len(x.shape)) if a not in index_axes)))
    base_first = base.permute((0, axis + 1, *(a for a in range(1, len(base.shape)) if a != axis + 1)))
    size, extent, *others = base_first.shape
    merged = base_first.reshape((size * extent, *others))
    result = scatter(merged, x_first, _index_into_all(index, extent), axis=0)
    split = result.reshape((size, extent, *others))
    return split.permute((0, *range(2, 2 + axis), 1, *range(2 + axis, len(split.shape))))


def _index_into_all(index: Sym, extent: int) -> Sym:
    """Convert a mapped index into `extent` elements to an index into the concatenation of all examples."""
    first = iota(size=index.shape[0], device=index.device) * extent
    return index + first.spread(tuple(range(1, len(index.shape))), index.shape)


def _gather_batch(node: BatchNode) -> Sym:
    (x, index), axis = node.inputs, node.attrs["axis"]
    if not node.mapped[1]:
        return gather(x, index, axis=axis + 1)
    if not node.mapped[0]:
        return first_axis(gather(x, index, axis=axis), axis)
    axis_first = x.permute((0, axis + 1, *(a for a in range(1, len(x.shape)) if a != axis + 1)))
    size, extent, *others = axis_first.shape
    result = gather(axis_first.reshape((size * extent, *others)), _index_into_all(index, extent), axis=0)
    inner, outer = len(index.shape), len(result.shape)  # (examples, index dimensions, before, after)
    before = range(inner, inner + axis)
    return result.permute((0, *before, *range(1, inner), *range(inner + axis, outer)))


def _scatter_add_batch(node: BatchNode) -> Sym:
    axis, extent = node.attrs["axis"], node.attrs["extent"]
    if not node.mapped[1]:
        x, index = node.inputs
        return scatter_add(x, index, axis=axis + 1, extent=extent)
    x, index = node.mapped_operands()
    inner = len(index.shape) - 1
    index_axes = range(axis + 1, axis + 1 + inner)
    axis_first = x.permute((0, *index_axes, *(a for a in range(1, len(x.shape)) if a not in index_axes)))
    result = scatter_add(axis_first, _index_into_all(index, extent), axis=0, extent=node.size * extent)
    split = result.reshape((node.size, extent, *result.shape[1:]))
    return split.permute((0, *range(2, 2 + axis), 1, *range(2 + axis, len(split.shape))))


def _infer_check_index(*types: ArrayType, extent: int, axis: int, what: str = "") -> ArrayType:
    check_count("check_index", types, 1)
    if types[0].dtype != INT64:
        raise DTypeError(f"check_index needs an int64 index, got {types[0]}; cast it with astype")
    return types[0]


def index_error_message(what: str, label: object, extent: int) -> str:
    """Format the message `what` of a `check_index` with the offending label and the largest valid one.

    Negative labels are checked as indices minus `extent`, so that they do not count from the end.

    >>> index_error_message("label {label} is not one of 0 to {last}", 7, 5)
    'label 7 is not one of 0 to 4'
    """
    return what.replace("{label}", str(label)).replace("{last}", str(extent - 1))


def _evaluate_check_index(index: np.ndarray, *, extent: int, axis: int, what: str = "") -> np.ndarray:
    wrapped = np.where(index < 0, index + extent, index)
    out_of_range = (wrapped < 0) | (wrapped >= extent)
    if out_of_range.any():
        first = index[out_of_range].flat[0]
        raise OutOfBoundsError(
            index_error_message(what, first + extent if first < 0 else first, extent)
            or f"index {first} is out of bounds for axis {axis} with extent {extent}; "
            f"expected {-extent} to {extent - 1}"
        )
    return wrapped


gather = Operator(
    "gather",
    _infer_gather,
    _evaluate_gather,
    _gather_gradient,
    traits=EXACT_MOVE,
    doc="Elements selected along an axis by an array of indices in range.",
    batch=_gather_batch,
)
register(gather)

scatter = Operator(
    "scatter",
    _infer_scatter,
    _evaluate_scatter,
    _scatter_gradient,
    traits=EXACT_MOVE,
    doc="A copy whose elements at an array of indices in range along an axis are replaced, in index order.",
    batch=_scatter_batch,
)
register(scatter)

scatter_add = Operator(
    "scatter_add",
    _infer_scatter_add,
    _evaluate_scatter_add,
    _scatter_add_gradient,
    traits=EXACT,
    doc="Elements added along an axis at the positions in an array of indices in range, in index order.",
    batch=_scatter_add_batch,
)
register(scatter_add)

check_index = Operator(
    "check_index",
    _infer_check_index,
    _evaluate_check_index,
    None,
    "check_index",
    EXACT | {Trait.ELEMENTWISE, Trait.CAN_FAIL},
    "Indices, with negative ones counted from the end; fails if one is out of range.",
    admits=frozenset({INT64}),
)
register(check_index)

# ---- devices


def _infer_copy_to(*types: ArrayType, device: Device, priority: int = 0) -> ArrayType:
    check_count("copy_to", types, 1)
    check_array("copy_to", types[0])
    if device == HOST:
        raise DeviceError("copy_to moves arrays between devices; the host has numbers only")
    return ArrayType(types[0].shape, types[0].dtype, device)


def _copy_to_gradient(node: SymNode, cotangents: Sequence[Sym]) -> list[Sym | None]:
    (x,), (ct,) = node.inputs, cotangents
    return [copy_to(ct, device=x.device, priority=node.attrs.get("priority", 0))]


copy_to = Operator(
    "copy_to",
    _infer_copy_to,
    lambda x, *, device, priority=0: np.copy(x),
    _copy_to_gradient,
    traits=EXACT_MOVE,
    doc="The same array on another device; ready copies of higher priority run first.",
    batch=leading,
)
register(copy_to)
