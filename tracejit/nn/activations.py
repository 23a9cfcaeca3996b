"""Activations: elementwise functions between layers, gates, and softmax.

All are composed of array functions, so that they fuse with neighbouring operations; softmax and its logarithm
over the last axis each become one kernel over rows. Derivatives are finite wherever the mathematical
derivatives are, even where an exponential in the unselected branch of a `where` would overflow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tracejit import ops
from tracejit.errors import ShapeError, locate
from tracejit.frontend.arrays import dispatch
from tracejit.frontend.arrays.axes import normalize_axes, normalize_axis
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.functions import elementwise, reductions
from tracejit.frontend.arrays.functions.manipulation import reshape
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.arrays.views import dropped, sliced
from tracejit.frontend.recording.location import user_location
from tracejit.nn.common import check_choice, floating, floats, where

sigmoid: Any = elementwise.sigmoid
tanh: Any = elementwise.tanh


def relu(x: Any, /) -> NDArray:
    """Return max(x, 0); nan is propagated. The gradient at 0 is 0.

    Preserves shape and dtype.
    Raises ArgumentError for an operand that is not an array or a number.

    >>> import tracejit as tj
    >>> tj.nn.relu(tj.asarray([-1.0, 2.0]))
    NDArray([0., 2.], dtype=float32)
    """
    array = dispatch.as_array("nn.relu", x)
    return where(array <= 0, 0, array)


def _between(array: Any, low: Any, high: Any) -> Any:
    """Clip `array` to [low, high]; the gradient is 0 at both bounds."""
    return where(array <= low, low, where(array >= high, high, array))


def relu6(x: Any, /) -> NDArray:
    """Clip x to [0, 6]; the gradient is 0 at and beyond the bounds.

    Preserves shape and dtype.
    Raises ArgumentError for an operand that is not an array or a number.

    >>> import tracejit as tj
    >>> tj.nn.relu6(tj.asarray([-1.0, 2.0, 8.0]))
    NDArray([0., 2., 6.], dtype=float32)
    """
    return _between(dispatch.as_array("nn.relu6", x), 0, 6)


def hard_tanh(x: Any, /, low: Any = -1.0, high: Any = 1.0) -> NDArray:
    """Clip x to [low, high]; the gradient is 0 at and beyond the bounds.

    Preserves the shape and floating dtypes; integers become floating.
    Raises ArgumentError for an operand that is not an array or a number.

    >>> import tracejit as tj
    >>> tj.nn.hard_tanh(tj.asarray([-3.0, 0.5, 2.0]))
    NDArray([-1. ,  0.5,  1. ], dtype=float32)
    """
    return _between(floating("nn.hard_tanh", x), low, high)


def hard_sigmoid(x: Any, /) -> NDArray:
    """Return (x + 3) / 6, clipped to [0, 1].

    Preserves the shape and floating dtypes; integers become floating.
    Raises ArgumentError for an operand that is not an array or a number.

    >>> import tracejit as tj
    >>> tj.nn.hard_sigmoid(tj.asarray([-4.0, 0.0, 4.0]))
    NDArray([0. , 0.5, 1. ], dtype=float32)
    """
    return _between(floating("nn.hard_sigmoid", x) + 3, 0, 6) / 6


def hard_swish(x: Any, /) -> NDArray:
    """Return x * hard_sigmoid(x). Howard et al., Searching for MobileNetV3, 2019.

    Preserves the shape and floating dtypes; integers become floating.
    Raises ArgumentError for an operand that is not an array or a number.

    >>> import tracejit as tj
    >>> tj.nn.hard_swish(tj.asarray([-4.0, 3.0]))
    NDArray([-0.,  3.], dtype=float32)
    """
    array = floating("nn.hard_swish", x)
    return array * hard_sigmoid(array)


def leaky_relu(x: Any, /, slope: Any = 0.01) -> NDArray:
    """Return x where x > 0, else ``slope * x``. Maas et al., Rectifier nonlinearities, 2013.

    Preserves the shape and floating dtypes; integers become floating.
    Raises ArgumentError for an operand that is not an array or a number.

    >>> import tracejit as tj
    >>> tj.nn.leaky_relu(tj.asarray([-1.0, 2.0]), 0.25)
    NDArray([-0.25,  2.  ], dtype=float32)
    """
    array = floating("nn.leaky_relu", x)
    return where(array > 0, array, array * slope)


def prelu(x: Any, weight: Any, /) -> NDArray:
    """Return x where x > 0, else ``weight * x``. He et al., Delving deep into rectifiers, 2015.

    weight: one number, or one for each channel (the second dimension of `x`, or its only dimension).
    Preserves the shape; the result has the common floating dtype.
    Raises ShapeError for another shape of `weight`, ArgumentError for an operand that is not an array or a
    number.

    >>> import tracejit as tj
    >>> tj.nn.prelu(tj.asarray([[-1.0, -1.0]]), tj.asarray([0.5, 0.25]))
    NDArray([[-0.5 , -0.25]], dtype=float32)
    """
    if not isinstance(dispatch.as_operand("nn.prelu", weight), ArrayCore):
        return leaky_relu(x, weight)
    array, slope = floats("nn.prelu", x, weight)
    channel_axis = min(1, array.ndim - 1)
    if slope.size == 1:
        slope = reshape(slope, ())
    elif channel_axis < 0 or slope.shape != (array.shape[channel_axis],):
        message = f"nn.prelu: weight has shape {slope.shape} for x of shape {array.shape}; expected "
        raise locate(ShapeError(message + "one number, or one for each channel"), user_location())
    else:
        slope = reshape(slope, (-1, *(1,) * (array.ndim - channel_axis - 1)))
    return where(array > 0, array, array * slope)


def elu(x: Any, /, alpha: Any = 1.0) -> NDArray:
    """Return x where x > 0, else ``alpha * (exp(x) - 1)``. Clevert et al., Exponential linear units, 2016.

    Preserves the shape and floating dtypes; integers become floating.
    Raises ArgumentError for an operand that is not an array or a number.

    >>> import tracejit as tj
    >>> tj.nn.elu(tj.asarray([-100.0, 2.0]))
    NDArray([-1.,  2.], dtype=float32)
    """
    array = floating("nn.elu", x)
    return where(array > 0, array, _exponential_part(array, 1) * alpha)


def _exponential_part(array: Any, scale: Any) -> Any:
    """Return exp(x / scale) - 1 where x < 0, else 0, so that the exponential does not overflow."""
    return dispatch.apply(ops.expm1, where(array > 0, 0, array / scale))


def celu(x: Any, /, alpha: Any = 1.0) -> NDArray:
    """Return x where x > 0, else ``alpha * (exp(x / alpha) - 1)``. Barron, CELU, 2017.

    Preserves the shape and floating dtypes; integers become floating.
    Raises ArgumentError for an operand that is not an array or a number.

    >>> import tracejit as tj
    >>> tj.nn.celu(tj.asarray([-100.0, 2.0]), 0.5)
    NDArray([-0.5,  2. ], dtype=float32)
    """
    array = floating("nn.celu", x)
    return where(array > 0, array, _exponential_part(array, alpha) * alpha)


SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805


def selu(x: Any, /) -> NDArray:
    """Return a scaled `elu` that preserves mean 0 and variance 1. Klambauer et al., Self-normalizing
    networks, 2017.

    Preserves the shape and floating dtypes; integers become floating.
    Raises ArgumentError for an operand that is not an array or a number.

    >>> import tracejit as tj
    >>> tj.nn.selu(tj.asarray([1.0]))
    NDArray([1.050701], dtype=float32)
    """
    array = floating("nn.selu", x)
    return where(array > 0, array, _exponential_part(array, 1) * SELU_ALPHA) * SELU_SCALE


def gelu(x: Any, /, *, approximate: str = "none") -> NDArray:
    """Return x times the probability that a normal variable is below x; ``approximate="tanh"`` is faster.

    Hendrycks and Gimpel, Gaussian error linear units, 2016.
    Preserves the shape and floating dtypes; integers become floating.
    Raises ArgumentError for another `approximate`, or for an argument that is not an array or a number.

    >>> import tracejit as tj
    >>> tj.nn.gelu(tj.asarray([0.0]))
    NDArray([0.], dtype=float32)
    """
    check_choice("nn.gelu", "approximate", approximate, ("none", "tanh"))
    array = floating("nn.gelu", x)
    if approximate == "none":
        return array * 0.5 * (dispatch.apply(ops.erf, array * math.sqrt(0.5)) + 1)
    inner = (array * array * array * 0.044715 + array) * math.sqrt(2 / math.pi)
    return array * 0.5 * (dispatch.apply(ops.tanh, inner) + 1)


def silu(x: Any, /) -> NDArray:
    """Return x * sigmoid(x), also called swish. Elfwing et al., 2017; Ramachandran et al., 2017.

    Preserves the shape and floating dtypes; integers become floating.
    Raises ArgumentError for an operand that is not an array or a number.

    >>> import tracejit as tj
    >>> tj.nn.silu(tj.asarray([0.0, 100.0]))
    NDArray([  0., 100.], dtype=float32)
    """
    array = floating("nn.silu", x)
    return array * sigmoid(array)


swish = silu


def softplus(x: Any, /, beta: Any = 1.0) -> NDArray:
    """Return log(1 + exp(beta * x)) / beta, without overflow: a smooth `relu`. Dugas et al., 2001.

    Preserves the shape and floating dtypes; integers become floating.
    Raises ArgumentError for an operand that is not an array or a number.

    >>> import tracejit as tj
    >>> tj.nn.softplus(tj.asarray([0.0, 100.0]))
    NDArray([  0.6931472, 100.       ], dtype=float32)
    """
    return dispatch.apply(ops.logaddexp, floating("nn.softplus", x) * beta, 0) / beta


def log_sigmoid(x: Any, /) -> NDArray:
    """Return the logarithm of `sigmoid`, accurate also where the sigmoid is small.

    Preserves the shape and floating dtypes; integers become floating.
    Raises ArgumentError for an operand that is not an array or a number.

    >>> import tracejit as tj
    >>> tj.nn.log_sigmoid(tj.asarray([0.0, -100.0]))
    NDArray([  -0.6931472, -100.       ], dtype=float32)
    """
    return -dispatch.apply(ops.logaddexp, -floating("nn.log_sigmoid", x), 0)


def mish(x: Any, /) -> NDArray:
    """Return x * tanh(softplus(x)). Misra, Mish, 2019.

    Preserves the shape and floating dtypes; integers become floating.
    Raises ArgumentError for an operand that is not an array or a number.

    >>> import tracejit as tj
    >>> tj.nn.mish(tj.asarray([0.0, 100.0]))
    NDArray([  0., 100.], dtype=float32)
    """
    array = floating("nn.mish", x)
    return array * tanh(softplus(array))


def softsign(x: Any, /) -> NDArray:
    """Return x / (1 + abs(x)).

    Preserves the shape and floating dtypes; integers become floating.
    Raises ArgumentError for an operand that is not an array or a number.

    >>> import tracejit as tj
    >>> tj.nn.softsign(tj.asarray([-1.0, 3.0]))
    NDArray([-0.5 ,  0.75], dtype=float32)
    """
    array = floating("nn.softsign", x)
    return array / (dispatch.apply(ops.abs, array) + 1)


def glu(x: Any, /, axis: int = -1) -> NDArray:
    """Return the first half of x along an axis, times the sigmoid of the second half. Dauphin et al., 2017.

    The extent of the axis is halved; floating dtypes are preserved, integers become floating.
    Raises ShapeError for an odd extent, AxisError for an axis out of range, ArgumentError for an operand that
    is not an array or a number.

    >>> import tracejit as tj
    >>> tj.nn.glu(tj.asarray([1.0, 2.0, 0.0, 0.0]))
    NDArray([0.5, 1. ], dtype=float32)
    """
    array = floating("nn.glu", x)
    position = normalize_axis("nn.glu", axis, array.ndim)
    half, odd = divmod(array.shape[position], 2)
    if odd:
        raise locate(
            ShapeError(f"nn.glu: axis {position} of shape {array.shape} has an odd extent; it is halved"),
            user_location(),
        )
    value, gate = (sliced(array, position, start, start + half) for start in (0, half))
    return value * sigmoid(gate)


# ---- softmax


def shifted(name: str, x: Any, axis: Any) -> tuple[Any, tuple[int, ...]]:
    """Return x minus its maximum over axes, and the axes. The maximum has no gradient."""
    array = floating(name, x)
    axes = normalize_axes(name, axis, array.ndim)
    highest = dispatch.emit(ops.stop_gradient, reductions.max(array, axes, keepdims=True))
    return array - highest, axes


def softmax(x: Any, /, axis: int | Sequence[int] | None = -1) -> NDArray:
    """Return exp(x) divided by its sum over `axis`, without overflow.

    Preserves the shape and floating dtypes; integers become floating.
    Raises AxisError for an axis out of range or repeated, ArgumentError for an operand that is not an array
    or a number.

    >>> import tracejit as tj
    >>> tj.nn.softmax(tj.asarray([1.0, 1.0]))
    NDArray([0.5, 0.5], dtype=float32)
    """
    differences, axes = shifted("nn.softmax", x, axis)
    exponentials = dispatch.apply(ops.exp, differences)
    return exponentials / reductions.sum(exponentials, axes, keepdims=True)


def log_softmax(x: Any, /, axis: int | Sequence[int] | None = -1) -> NDArray:
    """Return the logarithm of `softmax`, accurate also where the softmax is small.

    Preserves the shape and floating dtypes; integers become floating.
    Raises AxisError for an axis out of range or repeated, ArgumentError for an operand that is not an array
    or a number.

    >>> import tracejit as tj
    >>> tj.nn.log_softmax(tj.asarray([0.0, 0.0]))
    NDArray([-0.6931472, -0.6931472], dtype=float32)
    """
    differences, axes = shifted("nn.log_softmax", x, axis)
    exponentials = dispatch.apply(ops.exp, differences)
    return differences - dispatch.apply(ops.log, reductions.sum(exponentials, axes, keepdims=True))


def logsumexp(x: Any, /, axis: int | Sequence[int] | None = None, *, keepdims: bool = False) -> NDArray:
    """Return log(sum(exp(x))) over `axis` (all by default), without overflow; -inf if all elements are -inf.

    The result has the shape of `x` without the axes (extent 1 with `keepdims`).
    Raises AxisError for an axis out of range or repeated, ArgumentError for an operand that is not an array
    or a number.

    >>> import tracejit as tj
    >>> tj.nn.logsumexp(tj.asarray([1000.0, 1000.0]))
    NDArray(1000.6932, dtype=float32)
    """
    array = floating("nn.logsumexp", x)
    axes = normalize_axes("nn.logsumexp", axis, array.ndim)
    highest = dispatch.emit(ops.stop_gradient, reductions.max(array, axes, keepdims=True))
    highest = where(dispatch.apply(ops.isfinite, highest), highest, 0)
    exponentials = dispatch.apply(ops.exp, array - highest)
    result = dispatch.apply(ops.log, reductions.sum(exponentials, axes, keepdims=True)) + highest
    return result if keepdims else dropped(result, *axes)


__all__ = [
    "celu",
    "elu",
    "gelu",
    "glu",
    "hard_sigmoid",
    "hard_swish",
    "hard_tanh",
    "leaky_relu",
    "log_sigmoid",
    "log_softmax",
    "logsumexp",
    "mish",
    "prelu",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "softsign",
    "swish",
    "tanh",
]
