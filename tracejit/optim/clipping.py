"""Gradient clipping: elementwise, or by the global norm."""

from __future__ import annotations

from typing import Any

from tracejit import ops
from tracejit.errors import ArgumentError, locate
from tracejit.frontend.arrays import dispatch, trees
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.functions import creation, elementwise, reductions
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.recording.location import user_location


def _map_arrays(function: Any, tree: Any) -> Any:
    """Apply `function` to all arrays of a tree, leaving other leaves unchanged."""
    return trees.map(lambda leaf: function(leaf) if isinstance(leaf, ArrayCore) else leaf, tree)


def clip_by_value(grads: Any, limit: Any) -> Any:
    """Return a tree like `grads`, with elements clipped to [-limit, limit].

    grads: a tree of arrays; limit: a number.
    Raises ShapeError for a limit that is an array which does not broadcast.

    >>> import tracejit as tj
    >>> tj.optim.clip_by_value({"w": tj.asarray([-3.0, 0.5])}, 1.0)
    {'w': NDArray([-1. ,  0.5], dtype=float32)}
    """
    return _map_arrays(lambda g: elementwise.clip(g, -limit, limit), grads)


def global_norm(grads: Any) -> NDArray:
    """Return the square root of the sum of squares of all arrays in a tree; 0 if there are no arrays.

    Returns a scalar in the common dtype.
    Raises DTypeError for arrays of dtypes that have no squares.

    >>> import tracejit as tj
    >>> tj.optim.global_norm({"w": tj.asarray([3.0]), "b": tj.asarray([[4.0]])})
    NDArray(5., dtype=float32)
    """
    squares = [
        reductions.sum(dispatch.apply(ops.square, leaf))
        for leaf in trees.leaves(grads)
        if isinstance(leaf, ArrayCore)
    ]
    total: Any = squares[0] if squares else creation.zeros(())
    for square in squares[1:]:
        total = total + square
    return dispatch.apply(ops.sqrt, total)


def clip_by_global_norm(grads: Any, limit: Any) -> Any:
    """Return a tree like `grads`, scaled by one number such that its `global_norm` is at most `limit`.

    grads: a tree of arrays; limit: a positive number. Pascanu et al., Training recurrent networks, 2013.
    Raises DTypeError for arrays of dtypes that have no squares, ArgumentError if `limit` is not positive.

    >>> import tracejit as tj
    >>> tj.optim.clip_by_global_norm({"w": tj.asarray([3.0, 4.0])}, 1.0)
    {'w': NDArray([0.6, 0.8], dtype=float32)}
    """
    if isinstance(limit, int | float) and not limit > 0:
        text = f"clip_by_global_norm: the limit {limit} is not above 0"
        raise locate(ArgumentError(text), user_location())
    norm = global_norm(grads)
    factor = limit / dispatch.apply(ops.maximum, norm, limit)
    return _map_arrays(lambda g: g * dispatch.cast(factor, g.dtype), grads)


__all__ = ["clip_by_global_norm", "clip_by_value", "global_norm"]
