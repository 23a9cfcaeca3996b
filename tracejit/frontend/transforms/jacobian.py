"""Jacobians and Hessians: derivatives along all basis vectors simultaneously, by `vmap`.

For a function from N to M numbers, reverse mode pulls back M cotangents and forward mode pushes N tangents
forward; either computes the M x N derivatives:

    value, pull_back = vjp(f, x)              vmap(pull_back)(identity matrix)       rows
    value, push_forward = linearize(f, x)     vmap(push_forward)(identity matrix)    columns
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from tracejit.errors import ArgumentError, DTypeError, locate
from tracejit.frontend.arrays import trees
from tracejit.frontend.arrays.functions.creation import ones_like
from tracejit.frontend.arrays.functions.manipulation import moveaxis, reshape
from tracejit.frontend.arrays.functions.ranges import eye
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.grad.reverse import arguments_at, pull_back_of
from tracejit.frontend.grad.tape import recorded
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.recording import taping
from tracejit.frontend.transforms.forward import push_forward_of
from tracejit.frontend.transforms.vmap import vmap
from tracejit.ir.types import is_floating


def jacobian(
    function: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    *,
    mode: str | None = None,
    has_aux: bool = False,
) -> Callable[..., Any]:
    """Return a function that computes the Jacobian of `function` with respect to the arguments at `argnums`.

    The result is a tree like the value, in which each array is replaced by a tree like the argument (a tuple
    of trees for several arguments). Its arrays have the shape of the value followed by that of the argument's
    leaf; leaves that are not floating arrays become None. With `has_aux`, `function` returns (value, aux),
    and the result is (derivatives, aux). mode: "reverse" computes all rows simultaneously, "forward" all
    columns; by default the mode is chosen that computes fewer. Source: `jacrev` and `jacfwd` of JAX.
    When called, the function raises DTypeError for arguments without a floating array, and for complex arrays
    or results that are not floating; ArgumentError for another mode, or a missing argument.

    >>> import tracejit as tj
    >>> tj.jacobian(lambda x: x[:2] * x[2])(tj.asarray([1.0, 2.0, 3.0]))
    NDArray([[3., 0., 1.],
             [0., 3., 2.]], dtype=float32)
    """
    if mode not in (None, "reverse", "forward"):
        raise locate(
            ArgumentError(f'jacobian: mode is "reverse", "forward" or None, not {mode!r}'), user_location()
        )
    single = isinstance(argnums, int)
    positions = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        primals = arguments_at("jacobian", function, positions, args)
        indices = [position % len(args) for position in positions]

        def of_primals(*values: Any) -> Any:
            all_args = list(args)
            for index, argument in zip(indices, values, strict=True):
                all_args[index] = argument
            return function(*all_args, **kwargs)

        inputs = _FlatTree("argument", primals)
        if not any(inputs.sizes):
            raise locate(
                DTypeError("jacobian: no floating array among the arguments to differentiate"),
                user_location(),
            )
        with taping(), recorded():
            value, pull_back, aux = pull_back_of(of_primals, primals, has_aux=has_aux, launch=False)
            outputs = _FlatTree("result", value)
            if mode == "forward" or (mode is None and inputs.total < outputs.total):
                push_forward = push_forward_of("jacobian", pull_back, primals, value, launch=False)
                rows = _by_columns(push_forward, inputs, outputs)
            else:
                rows = _by_rows(pull_back, inputs, outputs)
        derivatives = [trees.unflatten(inputs.structure, row) for row in rows]
        result = trees.unflatten(outputs.structure, [tree[0] if single else tree for tree in derivatives])
        return (result, aux) if has_aux else result

    return wrapper


def hessian(
    function: Callable[..., Any], argnums: int | Sequence[int] = 0, *, has_aux: bool = False
) -> Callable[..., Any]:
    """Return a function that computes the second derivatives of `function`: the Jacobian of its Jacobian.

    For a function that returns a scalar, the result has, for each pair of leaves of the arguments, an array
    whose shape is the concatenation of their shapes; see `jacobian` for the trees. Products of a Hessian and
    a vector do not need the Hessian: use ``tj.jvp`` of ``tj.grad``. Source: `hessian` of JAX.
    Raises the errors of `jacobian`.

    >>> import tracejit as tj
    >>> tj.hessian(lambda x: x[0] ** 2 * x[1])(tj.asarray([3.0, 5.0]))
    NDArray([[10.,  6.],
             [ 6.,  0.]], dtype=float32)
    """
    first = jacobian(function, argnums, mode="reverse", has_aux=has_aux)
    return jacobian(first, argnums, has_aux=has_aux)


class _FlatTree:
    """The leaves of a function's arguments or results, and the size of each: its number of elements, or 0 if
    it is not a floating array.
    """

    def __init__(self, what: str, tree: Any):
        self.leaves, self.structure = trees.flatten(tree)
        for leaf in self.leaves:
            is_array = isinstance(leaf, NDArray)
            if (is_array and leaf.dtype.kind == "c") or (what == "result" and not is_floating(leaf.dtype)):
                raise locate(
                    DTypeError(f"jacobian: a {what} of dtype {leaf.dtype}; only floating arrays have one"),
                    user_location(),
                )
        self.is_active = [isinstance(x, NDArray) and is_floating(x.dtype) for x in self.leaves]
        self.sizes = [
            math.prod(x.shape) if active else 0 for x, active in zip(self.leaves, self.is_active, strict=True)
        ]
        self.total = sum(self.sizes)

    def basis(self) -> Any:
        """Return the standard basis as a tree of arrays with a leading axis: along it, each element is 1 once
        and 0 otherwise.
        """
        columns, start = [], 0
        for leaf, size, active in zip(self.leaves, self.sizes, self.is_active, strict=True):
            rows = eye(self.total, size, k=-start, dtype=leaf.dtype) if active else None
            columns.append(None if rows is None else reshape(rows, (self.total, *leaf.shape)))
            start += size
        return trees.unflatten(self.structure, columns)

    def split(self, array: Any) -> list[Any]:
        """Split an array with such a leading axis into the blocks that belong to each leaf."""
        blocks, start = [], 0
        for size in self.sizes:
            blocks.append(array[start : start + size])
            start += size
        return blocks


def _by_rows(pull_back: Callable[[Any], Any], inputs: _FlatTree, outputs: _FlatTree) -> list[list[Any]]:
    """Return, for each leaf of the results, its derivatives with respect to each leaf of the arguments."""
    if outputs.total == 1:  # a gradient
        one = trees.map(ones_like, trees.unflatten(outputs.structure, outputs.leaves))
        columns = [None if x is None else x[None] for x in _leaves(pull_back(one), inputs)]
    else:
        columns = _leaves(vmap(pull_back)(outputs.basis()), inputs)
    rows: list[list[Any]] = [[] for _ in outputs.leaves]
    for column, argument in zip(columns, inputs.leaves, strict=True):
        blocks = [None] * len(rows) if column is None else outputs.split(column)
        for row, block, result in zip(rows, blocks, outputs.leaves, strict=True):
            row.append(None if block is None else reshape(block, (*result.shape, *argument.shape)))
    return rows


def _by_columns(push_forward: Callable[..., Any], inputs: _FlatTree, outputs: _FlatTree) -> list[list[Any]]:
    basis = inputs.basis()
    axes = trees.map(lambda leaf: 0, basis)
    pushed = trees.leaves(vmap(push_forward, in_axes=axes)(*basis))
    rows = []
    for tangent, result in zip(pushed, outputs.leaves, strict=True):
        row = []
        blocks = inputs.split(tangent)
        for block, argument, active in zip(blocks, inputs.leaves, inputs.is_active, strict=True):
            shape = (*result.shape, *argument.shape) if active else ()
            row.append(reshape(moveaxis(block, 0, -1), shape) if active else None)
        rows.append(row)
    return rows


def _leaves(result: Any, side: _FlatTree) -> list[Any]:
    """Return the leaves of a pull-back's result, with None for leaves without a cotangent."""
    cotangents = iter(trees.leaves(result))
    return [next(cotangents) if active else None for active in side.is_active]


__all__ = ["hessian", "jacobian"]
