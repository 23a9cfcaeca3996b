"""Initial weights: `tj.nn.init`, from the stream of random numbers of the device.

Every function accepts a shape and returns a new array, float32 by default. Weights have PyTorch's layout,
(outputs, inputs, *window): `fans` returns the number of inputs on which one output depends, and the number of
outputs that depend on one input.

>>> import tracejit as tj
>>> tj.random.seed(1)
>>> weight = tj.nn.init.kaiming_normal((64, 3, 5, 5))
>>> weight.shape, bool(abs(weight.std() - (2 / 75) ** 0.5) < 0.01)
((64, 3, 5, 5), True)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tracejit.errors import ArgumentError, ShapeError, locate
from tracejit.frontend.arrays import promotion, random
from tracejit.frontend.arrays.axes import new_shape
from tracejit.frontend.arrays.functions import creation
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.recording.location import user_location
from tracejit.nn.common import check_choice

MODES = ("fan_in", "fan_out", "fan_avg")

# ---- distributions


def zeros(shape: Any, dtype: Any = None, *, device: Any = None) -> NDArray:
    """Return an array of zeros.

    float32 unless a `dtype` is given.
    Raises ShapeError for a negative extent.

    >>> import tracejit as tj
    >>> tj.nn.init.zeros(2)
    NDArray([0., 0.], dtype=float32)
    """
    return creation.zeros(shape, dtype, device=device)


def ones(shape: Any, dtype: Any = None, *, device: Any = None) -> NDArray:
    """Return an array of ones.

    float32 unless a `dtype` is given.
    Raises ShapeError for a negative extent.

    >>> import tracejit as tj
    >>> tj.nn.init.ones(2)
    NDArray([1., 1.], dtype=float32)
    """
    return creation.ones(shape, dtype, device=device)


def constant(shape: Any, value: Any, dtype: Any = None, *, device: Any = None) -> NDArray:
    """Return an array in which all elements are `value`.

    float32 unless a `dtype` is given.
    Raises ShapeError for a negative extent.

    >>> import tracejit as tj
    >>> tj.nn.init.constant(2, 0.5)
    NDArray([0.5, 0.5], dtype=float32)
    """
    return creation.full(shape, value, np.float32 if dtype is None else dtype, device=device)


def uniform(shape: Any, low: Any = 0.0, high: Any = 1.0, dtype: Any = None, *, device: Any = None) -> NDArray:
    """Return numbers uniformly distributed in [low, high).

    float32 unless a floating `dtype` is given.
    Raises ShapeError for a negative extent, ArgumentError for a dtype that is not floating.

    >>> import tracejit as tj
    >>> bool((tj.nn.init.uniform(100, 2.0, 3.0) >= 2).all())
    True
    """
    return random.uniform(low, high, shape, dtype, device=device)


def normal(shape: Any, mean: Any = 0.0, std: Any = 1.0, dtype: Any = None, *, device: Any = None) -> NDArray:
    """Return normally distributed numbers with this mean and standard deviation.

    float32 unless a floating `dtype` is given.
    Raises ShapeError for a negative extent, ArgumentError for a dtype that is not floating.

    >>> import tracejit as tj
    >>> tj.nn.init.normal((2, 3)).shape
    (2, 3)
    """
    return random.normal(mean, std, shape, dtype, device=device)


def truncated_normal(
    shape: Any,
    mean: Any = 0.0,
    std: Any = 1.0,
    low: float = -2.0,
    high: float = 2.0,
    dtype: Any = None,
    *,
    device: Any = None,
) -> NDArray:
    """Return normally distributed numbers, truncated to `low` to `high` standard deviations from the mean.

    Computed by the inverse of the distribution function. `std` is that of the untruncated distribution.
    float32 unless a floating `dtype` is given.
    Raises ShapeError for a negative extent, ArgumentError for a dtype that is not floating or ``low >=
    high``.

    >>> import tracejit as tj
    >>> bool((abs(tj.nn.init.truncated_normal(1000)) <= 2).all())
    True
    """
    if not low < high:
        message = f"nn.init.truncated_normal: expected low < high, got {low} and {high}"
        raise locate(ArgumentError(message), user_location())
    return random.truncated_normal(low, high, shape, dtype, device=device) * std + mean


# ---- scaled by the extents


def fans(shape: Any) -> tuple[int, int]:
    """Return fan-in and fan-out: the number of inputs per output, and the number of outputs per input.

    shape: (outputs, inputs, *window).
    Raises ShapeError for fewer than two dimensions.

    >>> import tracejit as tj
    >>> tj.nn.init.fans((64, 3, 5, 5))
    (75, 1600)
    """
    extents = new_shape("nn.init.fans", shape)
    if len(extents) < 2:
        raise locate(
            ShapeError(f"nn.init: a weight of shape {extents}; expected (outputs, inputs, *window)"),
            user_location(),
        )
    window = math.prod(extents[2:])
    return extents[1] * window, extents[0] * window


GAINS = {"linear": 1.0, "sigmoid": 1.0, "tanh": 5 / 3, "relu": math.sqrt(2), "selu": 0.75}


def gain(nonlinearity: str, slope: float = 0.01) -> float:
    """Return the factor for weights before an activation that preserves variances, as in PyTorch.

    nonlinearity: "linear", "sigmoid", "tanh", "relu", "selu", or "leaky_relu"; `slope` is the slope of the
    latter below 0.
    Raises ArgumentError for another nonlinearity.

    >>> import tracejit as tj
    >>> round(tj.nn.init.gain("relu") ** 2, 6)
    2.0
    """
    check_choice("nn.init.gain", "nonlinearity", nonlinearity, (*GAINS, "leaky_relu"))
    return GAINS.get(nonlinearity, math.sqrt(2 / (1 + slope * slope)))


def _scaled(
    name: str, shape: Any, factor: float, mode: str, distribution: str, dtype: Any, device: Any
) -> Any:
    """Return random numbers with standard deviation ``factor / sqrt(fan)``."""
    check_choice(name, "mode", mode, MODES)
    fan_in, fan_out = fans(shape)
    fan = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}[mode]
    std = factor / math.sqrt(max(fan, 1))
    if distribution == "normal":
        return normal(shape, 0.0, std, dtype, device=device)
    bound = math.sqrt(3) * std
    return uniform(shape, -bound, bound, dtype, device=device)


def xavier_uniform(shape: Any, gain: float = 1.0, dtype: Any = None, *, device: Any = None) -> NDArray:
    """Even numbers of variance ``gain ** 2 * 2 / (inputs + outputs)``. Glorot and Bengio, 2010.

    float32 unless a floating `dtype` is given.
    Raises ShapeError for fewer than two dimensions, ArgumentError for a dtype that is not floating.

    >>> import tracejit as tj
    >>> bool((abs(tj.nn.init.xavier_uniform((2, 4))) <= 1).all())
    True
    """
    return _scaled("nn.init.xavier_uniform", shape, gain, "fan_avg", "uniform", dtype, device)


def xavier_normal(shape: Any, gain: float = 1.0, dtype: Any = None, *, device: Any = None) -> NDArray:
    """Normal numbers of variance ``gain ** 2 * 2 / (inputs + outputs)``. Glorot and Bengio, 2010.

    float32 unless a floating `dtype` is given.
    Raises ShapeError for fewer than two dimensions, ArgumentError for a dtype that is not floating.

    >>> import tracejit as tj
    >>> tj.nn.init.xavier_normal((2, 4)).shape
    (2, 4)
    """
    return _scaled("nn.init.xavier_normal", shape, gain, "fan_avg", "normal", dtype, device)


def kaiming_uniform(
    shape: Any,
    *,
    mode: str = "fan_in",
    nonlinearity: str = "relu",
    slope: float = 0.01,
    dtype: Any = None,
    device: Any = None,
) -> NDArray:
    """Even numbers of variance ``gain(nonlinearity, slope) ** 2 / inputs``. He et al., 2015.

    mode: "fan_in" (inputs), "fan_out" (outputs), or "fan_avg" (their mean).
    float32 unless a floating `dtype` is given.
    Raises ShapeError for fewer than two dimensions, ArgumentError for another `mode` or `nonlinearity`.

    >>> import tracejit as tj
    >>> bool((abs(tj.nn.init.kaiming_uniform((2, 6))) <= 1).all())
    True
    """
    factor = gain(nonlinearity, slope)
    return _scaled("nn.init.kaiming_uniform", shape, factor, mode, "uniform", dtype, device)


def kaiming_normal(
    shape: Any,
    *,
    mode: str = "fan_in",
    nonlinearity: str = "relu",
    slope: float = 0.01,
    dtype: Any = None,
    device: Any = None,
) -> NDArray:
    """Normal numbers of variance ``gain(nonlinearity, slope) ** 2 / inputs``. He et al., 2015.

    mode: "fan_in" (inputs), "fan_out" (outputs), or "fan_avg" (their mean).
    float32 unless a floating `dtype` is given.
    Raises ShapeError for fewer than two dimensions, ArgumentError for another `mode` or `nonlinearity`.

    >>> import tracejit as tj
    >>> tj.nn.init.kaiming_normal((2, 6), mode="fan_out").shape
    (2, 6)
    """
    factor = gain(nonlinearity, slope)
    return _scaled("nn.init.kaiming_normal", shape, factor, mode, "normal", dtype, device)


def lecun_uniform(shape: Any, dtype: Any = None, *, device: Any = None) -> NDArray:
    """Even numbers of variance ``1 / inputs``. LeCun et al., Efficient BackProp, 1998.

    float32 unless a floating `dtype` is given.
    Raises ShapeError for fewer than two dimensions, ArgumentError for a dtype that is not floating.

    >>> import tracejit as tj
    >>> bool((abs(tj.nn.init.lecun_uniform((2, 3))) <= 1).all())
    True
    """
    return _scaled("nn.init.lecun_uniform", shape, 1.0, "fan_in", "uniform", dtype, device)


def lecun_normal(shape: Any, dtype: Any = None, *, device: Any = None) -> NDArray:
    """Normal numbers of variance ``1 / inputs``. LeCun et al., Efficient BackProp, 1998.

    float32 unless a floating `dtype` is given.
    Raises ShapeError for fewer than two dimensions, ArgumentError for a dtype that is not floating.

    >>> import tracejit as tj
    >>> tj.nn.init.lecun_normal((2, 3)).shape
    (2, 3)
    """
    return _scaled("nn.init.lecun_normal", shape, 1.0, "fan_in", "normal", dtype, device)


def orthogonal(shape: Any, gain: float = 1.0, dtype: Any = None, *, device: Any = None) -> NDArray:
    """Return a random matrix with orthonormal rows, or columns if there are fewer columns, times `gain`.

    Dimensions after the first are flattened. Saxe et al., Exact solutions, 2014; computed by the QR
    decomposition of a normal matrix. This looks at values: a traced function that calls it runs piecewise.
    float32 unless a floating `dtype` is given.
    Raises ShapeError for fewer than two dimensions, ArgumentError for a dtype that is not floating.

    >>> import tracejit as tj
    >>> w = tj.nn.init.orthogonal((2, 3), dtype=tj.float64)
    >>> (w @ w.T).numpy().round(6) + 0
    array([[1., 0.],
           [0., 1.]])
    """
    fans(shape)
    extents = new_shape("nn.init.orthogonal", shape)
    result_dtype = np.dtype("float32") if dtype is None else promotion.supported("nn.init.orthogonal", dtype)
    rows, columns = extents[0], math.prod(extents[1:])
    samples = normal((max(rows, columns), min(rows, columns)), dtype=result_dtype, device=device)
    basis, triangle = np.linalg.qr(samples.numpy())
    basis *= np.sign(np.diag(triangle))
    oriented = basis if rows >= columns else basis.T
    return creation.asarray((gain * oriented).astype(result_dtype).reshape(extents), device=device)


glorot_uniform, glorot_normal = xavier_uniform, xavier_normal
he_uniform, he_normal = kaiming_uniform, kaiming_normal

__all__ = [
    "constant",
    "fans",
    "gain",
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "kaiming_normal",
    "kaiming_uniform",
    "lecun_normal",
    "lecun_uniform",
    "normal",
    "ones",
    "orthogonal",
    "truncated_normal",
    "uniform",
    "xavier_normal",
    "xavier_uniform",
    "zeros",
]
