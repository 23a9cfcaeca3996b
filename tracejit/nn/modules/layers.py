"""Layers as modules: they contain the weights of the functions with the same names, in PyTorch's layouts.

Weights are float32 unless a dtype is given. They are initialised as in PyTorch: uniformly distributed, with
absolute values up to one divided by the square root of the number of inputs.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from tracejit.frontend.arrays.axes import new_shape
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.arrays.random import Generator
from tracejit.frontend.python import kinds
from tracejit.nn import init
from tracejit.nn.attend import multi_head_attention
from tracejit.nn.convolution import conv1d, conv2d
from tracejit.nn.functional import dropout, embedding, linear
from tracejit.nn.modules.base import Module
from tracejit.nn.normalization import batch_norm, group_norm, layer_norm, rms_norm

kinds.treat_like_users(__name__)


def symmetric_uniform(shape: Any, inputs: int, dtype: Any) -> NDArray:
    """Return numbers uniformly distributed around 0, for outputs that depend on `inputs` inputs."""
    bound = 1 / math.sqrt(max(inputs, 1))
    return init.uniform(shape, -bound, bound, dtype)


class Linear(Module):
    """`linear` with a weight (outputs, inputs), and a bias (outputs,) unless ``bias=False``.

    >>> import tracejit as tj
    >>> tj.nn.Linear(3, 4)(tj.ones((2, 3))).shape
    (2, 4)
    """

    def __init__(self, inputs: int, outputs: int, *, bias: bool = True, dtype: Any = None) -> None:
        self.weight = symmetric_uniform((outputs, inputs), inputs, dtype)
        self.bias = symmetric_uniform((outputs,), inputs, dtype) if bias else None

    def forward(self, x: Any) -> NDArray:
        """Multiply by the weight, and add the bias.

        x: (..., inputs). Returns (..., outputs).

        Raises ShapeError for another last extent.

        >>> import tracejit as tj
        >>> tj.nn.Linear(3, 4).forward(tj.ones(3)).shape
        (4,)
        """
        return linear(x, self.weight, self.bias)


class Embedding(Module):
    """`embedding` with a table (rows, features) of normal numbers.

    >>> import tracejit as tj
    >>> tj.nn.Embedding(10, 4)(tj.asarray([1, 2, 1])).shape
    (3, 4)
    """

    def __init__(self, rows: int, features: int, *, dtype: Any = None) -> None:
        self.weight = init.normal((rows, features), dtype=dtype)

    def forward(self, labels: Any) -> NDArray:
        """Return the rows at the labels.

        labels: integers of any shape, from 0 to rows - 1. Returns (*labels.shape, features).

        Raises OutOfBoundsError for other labels, DTypeError for labels that are not integers.

        >>> import tracejit as tj
        >>> tj.nn.Embedding(10, 4).forward(tj.asarray(3)).shape
        (4,)
        """
        return embedding(labels, self.weight)


class Conv1d(Module):
    """`conv1d` with a weight (outputs, inputs / groups, window), and a bias unless ``bias=False``.

    >>> import tracejit as tj
    >>> tj.nn.Conv1d(3, 4, 5, padding="same")(tj.ones((2, 3, 9))).shape
    (2, 4, 9)
    """

    function: ClassVar[Any] = staticmethod(conv1d)
    dimensions: ClassVar[int] = 1

    def __init__(
        self,
        inputs: int,
        outputs: int,
        window: Any,
        *,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: Any = None,
    ) -> None:
        extents = tuple(window) if isinstance(window, tuple | list) else (window,) * self.dimensions
        shape = new_shape(f"nn.{type(self).__name__}", (outputs, inputs // groups, *extents))
        self.weight = symmetric_uniform(shape, init.fans(shape)[0], dtype)
        self.bias = symmetric_uniform((outputs,), init.fans(shape)[0], dtype) if bias else None
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups

    def forward(self, x: Any) -> NDArray:
        """Convolve lines (`Conv1d`) or images (`Conv2d`).

        x: (batch, inputs, length) or (batch, inputs, height, width). Returns (batch, outputs, ...) with
        extents ``(extent + padding - dilation * (window - 1) - 1) // stride + 1``; the padding is that of
        both ends.

        Raises ShapeError for another number of dimensions or channels, or a window larger than x.

        >>> import tracejit as tj
        >>> tj.nn.Conv1d(3, 4, 5).forward(tj.ones((2, 3, 9))).shape
        (2, 4, 5)
        >>> tj.nn.Conv2d(3, 4, 5).forward(tj.ones((2, 3, 9, 8))).shape
        (2, 4, 5, 4)
        """
        return type(self).function(
            x,
            self.weight,
            self.bias,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
        )


class Conv2d(Conv1d):
    """`conv2d` with a weight (outputs, inputs / groups, height, width), and a bias unless ``bias=False``.

    >>> import tracejit as tj
    >>> tj.nn.Conv2d(3, 4, (3, 1), stride=2)(tj.ones((2, 3, 9, 9))).shape
    (2, 4, 4, 5)
    """

    function: ClassVar[Any] = staticmethod(conv2d)
    dimensions: ClassVar[int] = 2


class LayerNorm(Module):
    """`layer_norm` over the last dimensions, with extents `shape`, and with a weight and a bias.

    >>> import tracejit as tj
    >>> tj.nn.LayerNorm(4)(tj.ones((2, 4))).shape
    (2, 4)
    """

    def __init__(self, shape: Any, *, epsilon: float = 1e-5, dtype: Any = None) -> None:
        extents = new_shape("nn.LayerNorm", shape)
        self.weight, self.bias = init.ones(extents, dtype), init.zeros(extents, dtype)
        self.epsilon = epsilon

    def forward(self, x: Any) -> NDArray:
        """Normalize.

        x: (..., *shape). Returns an array of the shape of x.

        Raises ShapeError for other last extents.

        >>> import tracejit as tj
        >>> tj.nn.LayerNorm((3, 4)).forward(tj.ones((2, 3, 4))).shape
        (2, 3, 4)
        """
        axes = tuple(range(-self.weight.ndim, 0))
        return layer_norm(x, self.weight, self.bias, axis=axes, epsilon=self.epsilon)


class RMSNorm(Module):
    """`rms_norm` over the last dimensions, with extents `shape`, and with a weight.

    >>> import tracejit as tj
    >>> tj.nn.RMSNorm(4)(tj.ones((2, 4))).shape
    (2, 4)
    """

    def __init__(self, shape: Any, *, epsilon: float = 1e-6, dtype: Any = None) -> None:
        self.weight = init.ones(new_shape("nn.RMSNorm", shape), dtype)
        self.epsilon = epsilon

    def forward(self, x: Any) -> NDArray:
        """Normalize.

        x: (..., *shape). Returns an array of the shape of x.

        Raises ShapeError for other last extents.

        >>> import tracejit as tj
        >>> tj.nn.RMSNorm((3, 4)).forward(tj.ones((2, 3, 4))).shape
        (2, 3, 4)
        """
        return rms_norm(x, self.weight, axis=tuple(range(-self.weight.ndim, 0)), epsilon=self.epsilon)


class GroupNorm(Module):
    """`group_norm` with a weight and a bias for each channel, for arrays (batch, channels, ...).

    >>> import tracejit as tj
    >>> tj.nn.GroupNorm(2, 4)(tj.ones((2, 4, 3))).shape
    (2, 4, 3)
    """

    def __init__(self, groups: int, channels: int, *, epsilon: float = 1e-5, dtype: Any = None) -> None:
        self.weight, self.bias = init.ones(channels, dtype), init.zeros(channels, dtype)
        self.groups, self.epsilon = groups, epsilon

    def forward(self, x: Any) -> NDArray:
        """Normalize.

        x: (batch, channels, ...). Returns an array of the shape of x.

        Raises ShapeError for another number of channels or for channels that `groups` does not divide.

        >>> import tracejit as tj
        >>> tj.nn.GroupNorm(2, 4).forward(tj.ones((2, 4, 3))).shape
        (2, 4, 3)
        """
        return group_norm(x, self.groups, self.weight, self.bias, epsilon=self.epsilon)


class BatchNorm(Module):
    """`batch_norm` with a weight and a bias for each channel, and running statistics, updated in training.

    x has two or more dimensions, the second of which is the channels.

    >>> import tracejit as tj
    >>> norm = tj.nn.BatchNorm(2)
    >>> norm(tj.asarray([[1.0, 3.0], [3.0, 3.0]])).shape, norm.running_mean
    ((2, 2), NDArray([0.2, 0.3], dtype=float32))
    """

    buffers: ClassVar[tuple[str, ...]] = ("running_mean", "running_var")

    def __init__(
        self, channels: int, *, momentum: float = 0.1, epsilon: float = 1e-5, dtype: Any = None
    ) -> None:
        self.weight, self.bias = init.ones(channels, dtype), init.zeros(channels, dtype)
        self.running_mean, self.running_var = init.zeros(channels, dtype), init.ones(channels, dtype)
        self.momentum, self.epsilon = momentum, epsilon

    def forward(self, x: Any) -> NDArray:
        """Normalize by the statistics of `x` in training, otherwise by the running statistics.

        x: (batch, channels, ...). Returns an array of the shape of x.

        Raises ShapeError for fewer than two dimensions, no elements, or another number of channels.

        >>> import tracejit as tj
        >>> tj.nn.BatchNorm(1).eval().forward(tj.zeros((1, 1)))
        NDArray([[0.]], dtype=float32)
        """
        return batch_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            training=self.training,
            momentum=self.momentum,
            epsilon=self.epsilon,
        )


class Dropout(Module):
    """`dropout` in training, with a separate generator if one is given; otherwise the identity.

    >>> import tracejit as tj
    >>> tj.nn.Dropout(0.5).eval()(tj.ones(3))
    NDArray([1., 1., 1.], dtype=float32)
    """

    def __init__(self, rate: float = 0.5, *, generator: Generator | None = None) -> None:
        self.rate, self.generator = rate, generator

    def forward(self, x: Any) -> NDArray:
        """Drop elements.

        x: an array of any shape. Returns an array of this shape; in evaluation mode, x itself.

        Raises ArgumentError for a rate outside [0, 1).

        >>> import tracejit as tj
        >>> tj.nn.Dropout(0.0).forward(tj.ones(3))
        NDArray([1., 1., 1.], dtype=float32)
        """
        return dropout(x, self.rate, training=self.training, generator=self.generator)


class MultiHeadAttention(Module):
    """`multi_head_attention` with its weights, and biases unless ``bias=False``, for arrays (batch, length,
    features).

    >>> import tracejit as tj
    >>> x = tj.ones((2, 5, 8))
    >>> tj.nn.MultiHeadAttention(8, 2)(x, causal=True).shape
    (2, 5, 8)
    """

    def __init__(
        self, features: int, heads: int, *, dropout: float = 0.0, bias: bool = True, dtype: Any = None
    ) -> None:
        self.input_weight = init.xavier_uniform((3 * features, features), dtype=dtype)
        self.output_weight = symmetric_uniform((features, features), features, dtype)
        self.input_bias = init.zeros(3 * features, dtype) if bias else None
        self.output_bias = init.zeros(features, dtype) if bias else None
        self.heads, self.dropout = heads, dropout

    def forward(
        self, query: Any, key: Any = None, value: Any = None, *, mask: Any = None, causal: bool = False
    ) -> NDArray:
        """Apply attention; by default the keys are the queries, and the values are the keys.

        query: (batch, queries, features).
        key, value: (batch, keys, features).
        mask: as for `multi_head_attention`.
        causal: whether query i attends only to keys up to i.

        Returns (batch, queries, features).
        Raises ShapeError for other shapes, ArgumentError if the heads do not divide the features.

        >>> import tracejit as tj
        >>> tj.nn.MultiHeadAttention(4, 2).forward(tj.ones((1, 3, 4)), tj.ones((1, 7, 4))).shape
        (1, 3, 4)
        """
        key = query if key is None else key
        return multi_head_attention(
            query,
            key,
            key if value is None else value,
            self.input_weight,
            self.input_bias,
            self.output_weight,
            self.output_bias,
            heads=self.heads,
            mask=mask,
            causal=causal,
            dropout_rate=self.dropout if self.training else 0.0,
        )


class Sequential(Module):
    """A composition of layers, or any functions: each is applied to the result of the preceding one.

    >>> import tracejit as tj
    >>> net = tj.nn.Sequential(tj.nn.Linear(2, 8), tj.nn.relu, tj.nn.Linear(8, 3))
    >>> net(tj.ones((5, 2))).shape
    (5, 3)
    """

    def __init__(self, *layers: Any) -> None:
        self.layers = layers

    def forward(self, x: Any) -> Any:
        """Apply all layers.

        x: the first layer's argument. Returns the last layer's result, or x if there are no layers.

        >>> import tracejit as tj
        >>> tj.nn.Sequential(tj.nn.relu, tj.exp).forward(tj.zeros(1))
        NDArray([1.], dtype=float32)
        """
        for layer in self.layers:
            x = layer(x)
        return x


__all__ = [
    "BatchNorm",
    "Conv1d",
    "Conv2d",
    "Dropout",
    "Embedding",
    "GroupNorm",
    "LayerNorm",
    "Linear",
    "MultiHeadAttention",
    "RMSNorm",
    "Sequential",
]
