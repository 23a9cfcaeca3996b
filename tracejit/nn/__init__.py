"""Functions for neural networks: activations, losses, dropout; convolution, pooling, norms of images.

>>> import tracejit as tj
>>> images, weight = tj.ones((1, 3, 8, 8)), tj.ones((4, 3, 3, 3))
>>> tj.nn.max_pool2d(tj.nn.relu(tj.nn.conv2d(images, weight, padding=1)), 2).shape
(1, 4, 4, 4)
"""

from tracejit.nn.functional import (
    cross_entropy,
    dropout,
    gelu,
    log_softmax,
    logsumexp,
    one_hot,
    relu,
    sigmoid,
    softmax,
    tanh,
)
from tracejit.nn.images import avg_pool2d, batch_norm, conv2d, local_response_norm, max_pool2d

__all__ = [
    "avg_pool2d",
    "batch_norm",
    "conv2d",
    "cross_entropy",
    "dropout",
    "gelu",
    "local_response_norm",
    "log_softmax",
    "logsumexp",
    "max_pool2d",
    "one_hot",
    "relu",
    "sigmoid",
    "softmax",
    "tanh",
]
