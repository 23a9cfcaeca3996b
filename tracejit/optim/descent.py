"""Gradient descent: plain, with momentum, or by the sign of the momentum."""

from __future__ import annotations

from typing import Any

from tracejit import ops
from tracejit.frontend.arrays import dispatch, trees
from tracejit.frontend.arrays.functions import creation
from tracejit.frontend.arrays.promotion import is_zero
from tracejit.optim.rows import rows


def decayed(g: Any, p: Any, weight_decay: Any) -> Any:
    """Return the gradient of the loss plus ``weight_decay / 2`` times the square of the parameter."""
    return g if is_zero(weight_decay) else g + p * weight_decay


def zeros_like(params: Any) -> Any:
    """Return a tree like `params` with arrays of zeros: the initial state of `momentum`.

    params: a tree of arrays of any shapes and dtypes.
    Raises ArgumentError for leaves that are not arrays or numbers.

    >>> import tracejit as tj
    >>> tj.optim.zeros_like({"w": tj.ones(2)})
    {'w': NDArray([0., 0.], dtype=float32)}
    """
    return trees.map(creation.zeros_like, params)


def sgd(params: Any, grads: Any, lr: Any, *, weight_decay: Any = 0.0) -> None:
    """Apply gradient descent: ``p -= lr * (g + weight_decay * p)``.

    params, grads: trees of one structure with arrays of equal shapes; lr, weight_decay: numbers.
    Raises ArgumentError for trees of different structure, or leaves of `params` that are not NDArrays.

    >>> import tracejit as tj
    >>> params = {"w": tj.ones(2)}
    >>> tj.optim.sgd(params, {"w": tj.ones(2)}, 0.5)
    >>> params
    {'w': NDArray([0.5, 0.5], dtype=float32)}
    """
    for p, g in rows("sgd", params, grads):
        p -= decayed(g, p, weight_decay) * lr


def momentum(
    params: Any,
    grads: Any,
    velocity: Any,
    lr: Any,
    beta: Any = 0.9,
    *,
    nesterov: bool = False,
    weight_decay: Any = 0.0,
) -> None:
    """Apply gradient descent with momentum: ``v = beta * v + g``, ``p -= lr * v`` (Sutskever et al., 2013).

    velocity: a tree like params, initially `zeros_like`; updated in place. With `nesterov`, ``p -= lr * (g +
    beta * v)``. With `weight_decay`, g is ``g + weight_decay * p``.
    params, grads: trees of one structure with arrays of equal shapes; lr, beta, weight_decay: numbers.
    Raises ArgumentError for trees of different structure, or leaves of `params` that are not NDArrays.

    >>> import tracejit as tj
    >>> params, grads = {"w": tj.ones(2)}, {"w": tj.ones(2)}
    >>> velocity = tj.optim.zeros_like(params)
    >>> for _ in range(2):
    ...     tj.optim.momentum(params, grads, velocity, 0.25, beta=0.5)
    >>> params["w"], velocity["w"]
    (NDArray([0.375, 0.375], dtype=float32), NDArray([1.5, 1.5], dtype=float32))
    """
    for p, g, v in rows("momentum", params, grads, velocity):
        slope = decayed(g, p, weight_decay)
        v *= beta
        v += slope
        p -= (slope + v * beta if nesterov else v) * lr


def lion(
    params: Any,
    grads: Any,
    velocity: Any,
    lr: Any = 1e-4,
    beta1: Any = 0.9,
    beta2: Any = 0.99,
    *,
    weight_decay: Any = 0.0,
) -> None:
    """Apply Lion: steps of equal size, along the sign of ``beta1 * v + (1 - beta1) * g`` (Chen et al., 2023).

    velocity: a tree like params, initially `zeros_like`; ``v = beta2 * v + (1 - beta2) * g``, in place.
    params, grads: trees of one structure with arrays of equal shapes; other arguments are numbers. The weight
    decay is decoupled, as in `adamw`.
    Raises ArgumentError for trees of different structure, or leaves of `params` that are not NDArrays.

    >>> import tracejit as tj
    >>> params = {"w": tj.ones(2)}
    >>> tj.optim.lion(params, {"w": tj.asarray([3.0, -0.1])}, tj.optim.zeros_like(params), 0.25)
    >>> params
    {'w': NDArray([0.75, 1.25], dtype=float32)}
    """
    for p, g, v in rows("lion", params, grads, velocity):
        update = dispatch.apply(ops.sign, v * beta1 + g * (1 - beta1))
        v *= beta2
        v += g * (1 - beta2)
        p -= decayed(update, p, weight_decay) * lr


__all__ = ["lion", "momentum", "sgd", "zeros_like"]
