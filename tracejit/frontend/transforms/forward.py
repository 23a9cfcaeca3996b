"""Forward mode: directional derivatives, computed by applying reverse mode twice.

A pull-back is linear in its cotangent, so the pull-back of a pull-back is its transpose, which is the
derivative itself. This transpose depends neither on the cotangent (zeros) nor on values that only the first
pull-back computes, so dead code elimination leaves the forward pass and the derivatives along it.

    value, pull_back = vjp(f, x)            u -> J^T u
    _, push_forward = vjp(pull_back, 0)     v -> J v
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tracejit.errors import ArgumentError, DTypeError, ShapeError, locate
from tracejit.frontend.arrays import trees
from tracejit.frontend.arrays.functions.creation import zeros_like
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.grad.reverse import pull_back_of
from tracejit.frontend.grad.tape import recorded
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.recording import taping
from tracejit.frontend.transforms.leaves import is_differentiable, matched, type_of

PushForward = Callable[..., Any]


def jvp(
    function: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], *, has_aux: bool = False
) -> Any:
    """Return ``(value, tangent)``: the result of ``function(*primals)``, and its directional derivative.

    `tangents` has the direction of each argument: a tree like the argument, with None for zero tangents and
    for leaves that are not floating arrays. The tangent of the value is a tree like the value, with None for
    leaves that are not floating arrays. With `has_aux`, `function` returns (value, aux), and the result is
    ``(value, tangent, aux)``. The derivative is with respect to the arrays, as for `tj.grad`.
    Raises ArgumentError for tangents of another structure, ShapeError for tangents of other shapes or dtypes,
    DTypeError if no argument is floating.

    >>> import tracejit as tj
    >>> tj.jvp(lambda x: x * x, (tj.asarray([1.0, 3.0]),), (tj.asarray([1.0, 10.0]),))
    (NDArray([1., 9.], dtype=float32), NDArray([ 2., 60.], dtype=float32))
    """
    with taping(), recorded():
        value, push_forward, aux = _linearized("jvp", function, tuple(primals), has_aux=has_aux, launch=False)
        tangent = push_forward(*tangents)
    return (value, tangent, aux) if has_aux else (value, tangent)


def linearize(function: Callable[..., Any], *primals: Any) -> tuple[Any, PushForward]:
    """Return ``(value, push_forward)``: the result of ``function(*primals)``, and the derivative at this
    point, a linear function from tangents of the arguments to the tangent of the value.

    `function` runs once; see `tj.jvp` for the trees.
    Raises ArgumentError for tangents of another structure, ShapeError for tangents of other shapes or dtypes,
    DTypeError if no argument is floating.

    >>> import tracejit as tj
    >>> value, push_forward = tj.linearize(lambda x: x * x, tj.asarray([1.0, 3.0]))
    >>> push_forward(tj.asarray([1.0, 0.0])), push_forward(tj.asarray([0.0, 1.0]))
    (NDArray([2., 0.], dtype=float32), NDArray([0., 6.], dtype=float32))
    """
    value, push_forward, _ = _linearized("linearize", function, primals, has_aux=False, launch=True)
    return value, push_forward


def _linearized(
    name: str, function: Callable[..., Any], primals: tuple[Any, ...], *, has_aux: bool, launch: bool
) -> tuple[Any, PushForward, Any]:
    """Return the value, the derivative, and aux; see `pull_back_of` for `launch`."""
    if not any(map(is_differentiable, trees.leaves(primals))):
        raise locate(DTypeError(f"{name}: no floating array among the arguments"), user_location())
    value, pull_back, aux = pull_back_of(function, primals, has_aux=has_aux, launch=launch)
    return value, push_forward_of(name, pull_back, primals, value, launch=launch), aux


def push_forward_of(
    name: str, pull_back: Callable[[Any], Any], primals: tuple[Any, ...], value: Any, *, launch: bool
) -> PushForward:
    """Return the transpose of `pull_back`, which maps the value's cotangents to those of `primals`."""
    leaves, structure = trees.flatten(primals)
    types = [type_of(leaf) if is_differentiable(leaf) else None for leaf in leaves]
    zero = trees.map(zeros_like, value)
    _, push_back, _ = pull_back_of(pull_back, (zero,), has_aux=False, launch=launch)

    def push_forward(*tangents: Any) -> Any:
        leaf_tangents = matched(structure, tangents)
        if leaf_tangents is None:
            raise locate(
                ArgumentError(f"{name}: tangents of another structure than the arguments {structure}"),
                user_location(),
            )
        rows = zip(leaf_tangents, types, leaves, strict=True)
        return push_back(trees.unflatten(structure, [_tangent(name, *row) for row in rows]))[0]

    return push_forward


def _tangent(name: str, tangent: Any, kind: Any, leaf: Any) -> Any:
    """Return the tangent of a leaf: zeros if it is None, and None if the leaf has no derivatives."""
    if kind is None:
        return None
    if tangent is None:
        return zeros_like(leaf)
    if not isinstance(tangent, NDArray):
        raise locate(
            ArgumentError(f"{name}: tangents are arrays or None, got {type(tangent).__name__}"),
            user_location(),
        )
    if type_of(tangent) != kind:
        raise locate(
            ShapeError(f"{name}: a tangent {type_of(tangent)} for an argument {kind}"), user_location()
        )
    return tangent
