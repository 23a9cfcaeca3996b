"""Jacobians and Hessians: derivatives along all basis vectors at once, by `vmap`.

Of a function from N to M numbers, the reverse mode pulls back M cotangents, the forward mode pushes N
tangents forward; both give the M x N derivatives:

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
    """A function that returns all derivatives of `function` with respect to the arguments at `argnums`.

    The result is a tree like the value, in which each array is replaced by a tree like the argument (a tuple
    of them for several), of arrays with the shape of the value followed by that of the argument's leaf; None
    for leaves that are not floating. With `has_aux`, `function` returns (value, aux), and (derivatives, aux)
    comes back. mode: "reverse" computes row by row, "forward" column by column, all of them at once; by
    default it is the one with fewer. Source: `jacrev` and `jacfwd` of JAX.
    When called, it raises DTypeError for arguments without a floating array, and for complex arrays or
    results that are not floating; ArgumentError for another mode, or an argument that was not given.

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
        wanted = arguments_at("jacobian", function, positions, args)
        places = [position % len(args) for position in positions]

        def of_wanted(*given: Any) -> Any:
            every = list(args)
            for place, argument in zip(places, given, strict=True):
                every[place] = argument
            return function(*every, **kwargs)

        inputs = _FlatTree("argument", wanted)
        if not any(inputs.sizes):
            raise locate(
                DTypeError("jacobian: no floating array among the arguments to differentiate"),
                user_location(),
            )
        with taping(), recorded():
            value, pull_back, aux = pull_back_of(of_wanted, wanted, has_aux=has_aux, launch=False)
            outputs = _FlatTree("result", value)
            if mode == "forward" or (mode is None and inputs.total < outputs.total):
                push_forward = push_forward_of("jacobian", pull_back, wanted, value, launch=False)
                rows = _by_columns(push_forward, inputs, outputs)
            else:
                rows = _by_rows(pull_back, inputs, outputs)
        found = [trees.unflatten(inputs.structure, row) for row in rows]
        result = trees.unflatten(outputs.structure, [tree[0] if single else tree for tree in found])
        return (result, aux) if has_aux else result

    return wrapper


def hessian(
    function: Callable[..., Any], argnums: int | Sequence[int] = 0, *, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that returns the second derivatives of `function`: the Jacobian of its Jacobian.

    Of a function that returns a scalar it is, for each pair of leaves of the arguments, an array with the
    shapes of both; see `jacobian` for the trees. Products with vectors need no Hessian: ``tj.jvp`` of
    ``tj.grad``. Source: `hessian` of JAX.
    Raises what `jacobian` raises.

    >>> import tracejit as tj
    >>> tj.hessian(lambda x: x[0] ** 2 * x[1])(tj.asarray([3.0, 5.0]))
    NDArray([[10.,  6.],
             [ 6.,  0.]], dtype=float32)
    """
    first = jacobian(function, argnums, mode="reverse", has_aux=has_aux)
    return jacobian(first, argnums, has_aux=has_aux)


class _FlatTree:
    """The arguments or the results of a function: leaves, and how many numbers each one has (0: no array that
    takes part).
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
        self.taking_part = [isinstance(x, NDArray) and is_floating(x.dtype) for x in self.leaves]
        self.sizes = [
            math.prod(x.shape) if takes else 0 for x, takes in zip(self.leaves, self.taking_part, strict=True)
        ]
        self.total = sum(self.sizes)

    def basis(self) -> Any:
        """A tree of arrays with a leading dimension, along which each number is 1 once, and else 0."""
        found, start = [], 0
        for leaf, size, takes in zip(self.leaves, self.sizes, self.taking_part, strict=True):
            rows = eye(self.total, size, k=-start, dtype=leaf.dtype) if takes else None
            found.append(None if rows is None else reshape(rows, (self.total, *leaf.shape)))
            start += size
        return trees.unflatten(self.structure, found)

    def parts(self, array: Any) -> list[Any]:
        """The parts of an array with such a leading dimension that belong to each leaf."""
        found, start = [], 0
        for size in self.sizes:
            found.append(array[start : start + size])
            start += size
        return found


def _by_rows(pull_back: Callable[[Any], Any], inputs: _FlatTree, outputs: _FlatTree) -> list[list[Any]]:
    """The derivatives of each result with respect to each argument's leaf."""
    if outputs.total == 1:  # a gradient
        one = trees.map(ones_like, trees.unflatten(outputs.structure, outputs.leaves))
        columns = [None if x is None else x[None] for x in _leaves(pull_back(one), inputs)]
    else:
        columns = _leaves(vmap(pull_back)(outputs.basis()), inputs)
    rows: list[list[Any]] = [[] for _ in outputs.leaves]
    for column, argument in zip(columns, inputs.leaves, strict=True):
        parts = [None] * len(rows) if column is None else outputs.parts(column)
        for row, part, result in zip(rows, parts, outputs.leaves, strict=True):
            row.append(None if part is None else reshape(part, (*result.shape, *argument.shape)))
    return rows


def _by_columns(push_forward: Callable[..., Any], inputs: _FlatTree, outputs: _FlatTree) -> list[list[Any]]:
    basis = inputs.basis()
    axes = trees.map(lambda leaf: 0, basis)
    pushed = trees.leaves(vmap(push_forward, in_axes=axes)(*basis))
    rows = []
    for tangent, result in zip(pushed, outputs.leaves, strict=True):
        row = []
        parts = inputs.parts(tangent)
        for part, argument, takes in zip(parts, inputs.leaves, inputs.taking_part, strict=True):
            shape = (*result.shape, *argument.shape) if takes else ()
            row.append(reshape(moveaxis(part, 0, -1), shape) if takes else None)
        rows.append(row)
    return rows


def _leaves(found: Any, side: _FlatTree) -> list[Any]:
    """The leaves of what a pull-back returns, None for those without a cotangent."""
    given = iter(trees.leaves(found))
    return [next(given) if takes else None for takes in side.taking_part]


__all__ = ["hessian", "jacobian"]
