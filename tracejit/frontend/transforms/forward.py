"""Forward mode: directional derivatives, from the reverse mode applied twice.

A pull-back is linear in its cotangent, so its own pull-back is its transpose: the derivative itself. Neither
the cotangent (zeros) nor what only the first pull-back computes is needed for that, so dead code elimination
leaves the forward pass and the derivatives along it.

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
    """``(value, tangent)``: the result of ``function(*primals)``, and its derivative in a direction.

    `tangents` has the direction of each argument: a tree like it, with None where it does not move (and for
    what is no floating array). The tangent of the value is a tree like it, with None for leaves that are not
    floating arrays. With `has_aux`, `function` returns (value, aux) and so ``(value, tangent, aux)`` comes
    back. The derivative is with respect to the arrays, as for `tj.grad`.
    Raises ArgumentError for tangents of another structure, ShapeError for those of other shapes or dtypes,
    DTypeError where no argument is floating.

    >>> import tracejit as tj
    >>> tj.jvp(lambda x: x * x, (tj.asarray([1.0, 3.0]),), (tj.asarray([1.0, 10.0]),))
    (NDArray([1., 9.], dtype=float32), NDArray([ 2., 60.], dtype=float32))
    """
    with taping(), recorded():
        value, push_forward, aux = _linearized("jvp", function, tuple(primals), has_aux=has_aux, launch=False)
        tangent = push_forward(*tangents)
    return (value, tangent, aux) if has_aux else (value, tangent)


def linearize(function: Callable[..., Any], *primals: Any) -> tuple[Any, PushForward]:
    """``(value, push_forward)``: the result of ``function(*primals)``, and its derivative there, a linear
    function from tangents of the arguments to that of the value.

    `function` runs once; see `tj.jvp` for the trees.
    Raises ArgumentError for tangents of another structure, ShapeError for those of other shapes or dtypes,
    DTypeError where no argument is floating.

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
    """The value, the derivative, and aux; see `pull_back_of` for `launch`."""
    if not any(map(is_differentiable, trees.leaves(primals))):
        raise locate(DTypeError(f"{name}: no floating array among the arguments"), user_location())
    value, pull_back, aux = pull_back_of(function, primals, has_aux=has_aux, launch=launch)
    return value, push_forward_of(name, pull_back, primals, value, launch=launch), aux


def push_forward_of(
    name: str, pull_back: Callable[[Any], Any], primals: tuple[Any, ...], value: Any, *, launch: bool
) -> PushForward:
    """The transpose of a pull-back, from the value's cotangents to those of `primals`."""
    leaves, structure = trees.flatten(primals)
    types = [type_of(leaf) if is_differentiable(leaf) else None for leaf in leaves]
    zero = trees.map(zeros_like, value)
    _, push_back, _ = pull_back_of(pull_back, (zero,), has_aux=False, launch=launch)

    def push_forward(*tangents: Any) -> Any:
        given = matched(structure, tangents)
        if given is None:
            raise locate(
                ArgumentError(f"{name}: tangents of another structure than the arguments {structure}"),
                user_location(),
            )
        rows = zip(given, types, leaves, strict=True)
        return push_back(trees.unflatten(structure, [_tangent(name, *row) for row in rows]))[0]

    return push_forward


def _tangent(name: str, given: Any, kind: Any, leaf: Any) -> Any:
    """The tangent of a leaf; zeros if none is given, None if there is none."""
    if kind is None:
        return None
    if given is None:
        return zeros_like(leaf)
    if not isinstance(given, NDArray):
        raise locate(
            ArgumentError(f"{name}: tangents are arrays or None, got {type(given).__name__}"), user_location()
        )
    if type_of(given) != kind:
        raise locate(
            ShapeError(f"{name}: a tangent {type_of(given)} for an argument {kind}"), user_location()
        )
    return given
