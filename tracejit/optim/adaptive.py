"""Adaptive optimizers: the step of each element is scaled by the history of its gradients."""

from __future__ import annotations

from typing import Any

from tracejit import ops
from tracejit.frontend.arrays import dispatch
from tracejit.frontend.arrays.functions import reductions
from tracejit.frontend.arrays.promotion import is_zero
from tracejit.frontend.python import kinds
from tracejit.optim.descent import decayed, zeros_like
from tracejit.optim.rows import check_state, rows

kinds.treat_like_users(__name__)


def _sqrt(x: Any) -> Any:
    return dispatch.apply(ops.sqrt, x)


def _square(x: Any) -> Any:
    return dispatch.apply(ops.square, x)


def _average(average: Any, x: Any, beta: Any) -> None:
    """Update an exponential moving average by `x`, in place."""
    average *= beta
    average += x * (1 - beta)


def adam_state(params: Any) -> dict[str, Any]:
    """Return the initial state of `adam`: the number of steps, and first and second moments like `params`.

    params: a tree of floating arrays.
    Raises ArgumentError for leaves that are not arrays or numbers.

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
    """Apply Adam (Kingma and Ba, 2015), with AdamW's decoupled weight decay (Loshchilov and Hutter, 2019).

    state: the result of `adam_state`; its step counter and moments are updated in place.
    params, grads: trees of one structure with arrays of equal shapes; other arguments are numbers.
    Raises ArgumentError for trees of different structure, or leaves of `params` that are not NDArrays.

    >>> import tracejit as tj
    >>> params = {"w": tj.ones(2)}
    >>> state = tj.optim.adam_state(params)
    >>> tj.optim.adam(params, {"w": tj.ones(2)}, state, lr=0.5)
    >>> params["w"].numpy().round(3), state["step"]
    (array([0.5, 0.5], dtype=float32), 1)
    """
    check_state("adam", state, "step", "first", "second")
    step = state["step"] = state["step"] + 1
    rate, scale = lr / (1 - beta1**step), 1 / (1 - beta2**step)
    for p, g, first, second in rows("adam", params, grads, state["first"], state["second"]):
        _average(first, g, beta1)
        _average(second, _square(g), beta2)
        update = first * rate / (_sqrt(second * scale) + eps)
        p -= update if is_zero(weight_decay) else update + p * (lr * weight_decay)


def adamw(
    params: Any,
    grads: Any,
    state: dict[str, Any],
    lr: Any = 1e-3,
    beta1: Any = 0.9,
    beta2: Any = 0.999,
    eps: Any = 1e-8,
    *,
    weight_decay: Any = 0.01,
) -> None:
    """Apply `adam` with a weight decay of 0.01 by default (Loshchilov and Hutter, 2019).

    state: the result of `adam_state`; its step counter and moments are updated in place.
    params, grads: trees of one structure with arrays of equal shapes; other arguments are numbers.
    Raises ArgumentError for trees of different structure, or leaves of `params` that are not NDArrays.

    >>> import tracejit as tj
    >>> params = {"w": tj.ones(2)}
    >>> tj.optim.adamw(params, {"w": tj.ones(2)}, tj.optim.adam_state(params), lr=0.5, weight_decay=0.5)
    >>> params["w"].numpy().round(3)
    array([0.25, 0.25], dtype=float32)
    """
    adam(params, grads, state, lr, beta1, beta2, eps, weight_decay=weight_decay)


def lamb(
    params: Any,
    grads: Any,
    state: dict[str, Any],
    lr: Any = 1e-3,
    beta1: Any = 0.9,
    beta2: Any = 0.999,
    eps: Any = 1e-6,
    *,
    weight_decay: Any = 0.01,
) -> None:
    """Apply LAMB: `adamw`'s update of each array, scaled to the norm of the array (You et al., 2020).

    The update is not scaled if the norm of the array or of its update is 0.
    state: the result of `adam_state`; its step counter and moments are updated in place.
    params, grads: trees of one structure with arrays of equal shapes; other arguments are numbers.
    Raises ArgumentError for trees of different structure, or leaves of `params` that are not NDArrays.

    >>> import tracejit as tj
    >>> params = {"w": tj.ones(2)}
    >>> tj.optim.lamb(params, {"w": tj.ones(2)}, tj.optim.adam_state(params), lr=0.5)
    >>> params["w"].numpy().round(3)
    array([0.5, 0.5], dtype=float32)
    """
    check_state("lamb", state, "step", "first", "second")
    step = state["step"] = state["step"] + 1
    rate, scale = 1 / (1 - beta1**step), 1 / (1 - beta2**step)
    for p, g, first, second in rows("lamb", params, grads, state["first"], state["second"]):
        _average(first, g, beta1)
        _average(second, _square(g), beta2)
        update = decayed(first * rate / (_sqrt(second * scale) + eps), p, weight_decay)
        norm, update_norm = (_sqrt(reductions.sum(_square(x))) for x in (p, update))
        is_zero_norm = dispatch.apply(ops.logical_or, norm == 0, update_norm == 0)
        p -= update * (dispatch.apply(ops.where, is_zero_norm, 1, norm / update_norm) * lr)


def rmsprop_state(params: Any, *, momentum: bool = False, centered: bool = False) -> dict[str, Any]:
    """Return the initial state of `rmsprop`: mean squares like `params`; optionally a velocity, and means.

    params: a tree of floating arrays.
    Raises ArgumentError for leaves that are not arrays or numbers.

    >>> import tracejit as tj
    >>> sorted(tj.optim.rmsprop_state({"w": tj.ones(1)}, momentum=True))
    ['square', 'velocity']
    """
    members = {"square": True, "velocity": momentum, "mean": centered}
    return {name: zeros_like(params) for name, is_included in members.items() if is_included}


def rmsprop(
    params: Any,
    grads: Any,
    state: dict[str, Any],
    lr: Any = 1e-2,
    beta: Any = 0.99,
    eps: Any = 1e-8,
    *,
    momentum: Any = 0.9,
    weight_decay: Any = 0.0,
) -> None:
    """Apply RMSProp: divide the gradient by the root of its mean square (Tieleman and Hinton, 2012).

    state: the result of `rmsprop_state`, updated in place; it determines whether there is a velocity, which
    decays by `momentum`, and whether the squared mean is subtracted from the mean square (Graves, 2013).
    params, grads: trees of one structure with arrays of equal shapes; other arguments are numbers. With
    `weight_decay`, g is ``g + weight_decay * p``.
    Raises ArgumentError for trees of different structure, or leaves of `params` that are not NDArrays.

    >>> import tracejit as tj
    >>> params = {"w": tj.ones(2)}
    >>> tj.optim.rmsprop(params, {"w": tj.ones(2)}, tj.optim.rmsprop_state(params), lr=0.1, beta=0.75)
    >>> params["w"].numpy().round(3)
    array([0.8, 0.8], dtype=float32)
    """
    check_state("rmsprop", state, "square")
    square = state["square"]
    others = [state.get(name, square) for name in ("velocity", "mean")]
    for p, g, s, v, m in rows("rmsprop", params, grads, square, *others):
        slope = decayed(g, p, weight_decay)
        _average(s, _square(slope), beta)
        variance = s
        if "mean" in state:
            _average(m, slope, beta)
            variance = s - _square(m)
        update = slope / (_sqrt(variance) + eps)
        if "velocity" in state:
            v *= momentum
            v += update
            update = v
        p -= update * lr


def adagrad(
    params: Any, grads: Any, square: Any, lr: Any = 1e-2, eps: Any = 1e-10, *, weight_decay: Any = 0.0
) -> None:
    """Apply Adagrad: divide the gradient by the root of the sum of all its squares (Duchi et al., 2011).

    square: a tree like params, initially `zeros_like`; updated in place.
    params, grads: trees of one structure with arrays of equal shapes; other arguments are numbers. With
    `weight_decay`, g is ``g + weight_decay * p``.
    Raises ArgumentError for trees of different structure, or leaves of `params` that are not NDArrays.

    >>> import tracejit as tj
    >>> params = {"w": tj.ones(2)}
    >>> tj.optim.adagrad(params, {"w": tj.ones(2)}, tj.optim.zeros_like(params), 0.25)
    >>> params
    {'w': NDArray([0.75, 0.75], dtype=float32)}
    """
    for p, g, s in rows("adagrad", params, grads, square):
        slope = decayed(g, p, weight_decay)
        s += _square(slope)
        p -= slope / (_sqrt(s) + eps) * lr


def adadelta_state(params: Any) -> dict[str, Any]:
    """Return the initial state of `adadelta`: mean squares of gradients and of updates, like `params`.

    params: a tree of floating arrays.
    Raises ArgumentError for leaves that are not arrays or numbers.

    >>> import tracejit as tj
    >>> sorted(tj.optim.adadelta_state({"w": tj.ones(1)}))
    ['square', 'update']
    """
    return {"square": zeros_like(params), "update": zeros_like(params)}


def adadelta(
    params: Any,
    grads: Any,
    state: dict[str, Any],
    lr: Any = 1.0,
    rho: Any = 0.9,
    eps: Any = 1e-6,
    *,
    weight_decay: Any = 0.0,
) -> None:
    """Apply Adadelta: scale the gradient by the ratio of root mean squares of updates and gradients (Zeiler,
    2012).

    state: the result of `adadelta_state`, updated in place.
    params, grads: trees of one structure with arrays of equal shapes; other arguments are numbers. With
    `weight_decay`, g is ``g + weight_decay * p``.
    Raises ArgumentError for trees of different structure, or leaves of `params` that are not NDArrays.

    >>> import tracejit as tj
    >>> params = {"w": tj.ones(2)}
    >>> tj.optim.adadelta(params, {"w": tj.ones(2)}, tj.optim.adadelta_state(params), eps=0.1, rho=0.1)
    >>> params["w"].numpy().round(3)
    array([0.684, 0.684], dtype=float32)
    """
    check_state("adadelta", state, "square", "update")
    for p, g, s, u in rows("adadelta", params, grads, state["square"], state["update"]):
        slope = decayed(g, p, weight_decay)
        _average(s, _square(slope), rho)
        update = slope * (_sqrt(u + eps) / _sqrt(s + eps))
        _average(u, _square(update), rho)
        p -= update * lr


__all__ = [
    "adadelta",
    "adadelta_state",
    "adagrad",
    "adam",
    "adam_state",
    "adamw",
    "lamb",
    "rmsprop",
    "rmsprop_state",
]
