"""Optimizers as functions on trees of arrays: they update the parameters in place.

State is a tree like the parameters (`zeros_like`) or a dict that holds such trees (`adam_state`), so it can
be passed to traced functions, saved and loaded like anything else. Learning rates and step counters are
numbers: changing them retraces nothing.

>>> import tracejit as tj
>>> params, grads = {"w": tj.ones(2)}, {"w": tj.ones(2)}
>>> tj.optim.sgd(params, grads, 0.25)
>>> params
{'w': NDArray([0.75, 0.75], dtype=float32)}
"""

from __future__ import annotations

from typing import Any

from tracejit import ops
from tracejit.errors import ArgumentError, locate
from tracejit.frontend.arrays import dispatch, trees
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.functions import creation
from tracejit.frontend.recording.location import user_location


def _rows(name: str, params: Any, *others: Any) -> list[tuple[Any, ...]]:
    """Corresponding leaves of trees of arrays with one structure."""
    leaves, structure = trees.flatten(params)
    columns = [leaves]
    for other in others:
        more, found = trees.flatten(other)
        if found != structure:
            raise locate(
                ArgumentError(f"optim.{name}: the trees differ: params are {structure}, given was {found}"),
                user_location(),
            )
        columns.append(more)
    wrong = [leaf for leaf in leaves if not isinstance(leaf, ArrayCore)]
    if wrong:
        path = next(p for p, leaf in trees.leaves_with_paths(params, "params") if leaf is wrong[0])
        raise locate(
            ArgumentError(f"optim.{name}: {path} is a {type(wrong[0]).__name__}, expected an NDArray"),
            user_location(),
        )
    return list(zip(*columns, strict=True))


def zeros_like(params: Any) -> Any:
    """A tree like `params` with zeros in place of its arrays: the initial state of `momentum`.

    params: a tree of arrays of any shapes and dtypes.
    Raises ArgumentError for leaves that are no arrays or numbers.

    >>> import tracejit as tj
    >>> tj.optim.zeros_like({"w": tj.ones(2)})
    {'w': NDArray([0., 0.], dtype=float32)}
    """
    return trees.map(creation.zeros_like, params)


def sgd(params: Any, grads: Any, lr: Any) -> None:
    """Gradient descent: ``p -= lr * g``.

    params, grads: trees of one structure with arrays of equal shapes; lr: a number.
    Raises ArgumentError for trees of different structure, or leaves of `params` that are no NDArrays.

    >>> import tracejit as tj
    >>> params = {"w": tj.ones(2)}
    >>> tj.optim.sgd(params, {"w": tj.ones(2)}, 0.5)
    >>> params
    {'w': NDArray([0.5, 0.5], dtype=float32)}
    """
    for p, g in _rows("sgd", params, grads):
        p -= g * lr


def momentum(
    params: Any, grads: Any, velocity: Any, lr: Any, beta: Any = 0.9, *, nesterov: bool = False
) -> None:
    """Gradient descent with momentum: ``v = beta * v + g``, then ``p -= lr * v`` (Sutskever et al., 2013).

    velocity: a tree like params, `zeros_like` at first; updated in place. With `nesterov`, ``p -= lr * (g +
    beta * v)``.
    params, grads: trees of one structure with arrays of equal shapes; lr, beta: numbers.
    Raises ArgumentError for trees of different structure, or leaves of `params` that are no NDArrays.

    >>> import tracejit as tj
    >>> params, grads = {"w": tj.ones(2)}, {"w": tj.ones(2)}
    >>> velocity = tj.optim.zeros_like(params)
    >>> for _ in range(2):
    ...     tj.optim.momentum(params, grads, velocity, 0.25, beta=0.5)
    >>> params["w"], velocity["w"]
    (NDArray([0.375, 0.375], dtype=float32), NDArray([1.5, 1.5], dtype=float32))
    """
    for p, g, v in _rows("momentum", params, grads, velocity):
        v *= beta
        v += g
        p -= (g + v * beta if nesterov else v) * lr


def adam_state(params: Any) -> dict[str, Any]:
    """The initial state of `adam`: the number of steps taken, and first and second moments like `params`.

    params: a tree of floating arrays.
    Raises ArgumentError for leaves that are no arrays or numbers.

    >>> import tracejit as tj
    >>> tj.optim.adam_state({"w": tj.ones(1)})["first"]
    {'w': NDArray([0.], dtype=float32)}
    """
    return {"step": 0, "first": zeros_like(params), "second": zeros_like(params)}


def adam(
    params: Any,
    grads: Any,
    state: dict[str, Any],
    lr: Any = 1e-3,
    beta1: Any = 0.9,
    beta2: Any = 0.999,
    eps: Any = 1e-8,
    *,
    weight_decay: Any = 0.0,
) -> None:
    """Adam (Kingma and Ba, 2015), with AdamW's decoupled weight decay (Loshchilov and Hutter, 2019).

    state: the result of `adam_state`; its step counter and moments are updated in place.
    params, grads: trees of one structure with arrays of equal shapes; all others are numbers.
    Raises ArgumentError for trees of different structure, or leaves of `params` that are no NDArrays.

    >>> import tracejit as tj
    >>> params = {"w": tj.ones(2)}
    >>> state = tj.optim.adam_state(params)
    >>> tj.optim.adam(params, {"w": tj.ones(2)}, state, lr=0.5)
    >>> params["w"].numpy().round(3), state["step"]
    (array([0.5, 0.5], dtype=float32), 1)
    """
    step = state["step"] = state["step"] + 1
    rate, scale = lr / (1 - beta1**step), 1 / (1 - beta2**step)
    for p, g, first, second in _rows("adam", params, grads, state["first"], state["second"]):
        first *= beta1
        first += g * (1 - beta1)
        second *= beta2
        second += dispatch.apply(ops.square, g) * (1 - beta2)
        update = first * rate / (dispatch.apply(ops.sqrt, second * scale) + eps)
        p -= update if type(weight_decay) is float and weight_decay == 0 else update + p * (lr * weight_decay)


__all__ = ["adam", "adam_state", "momentum", "sgd", "zeros_like"]
