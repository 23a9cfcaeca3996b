"""AlexNet: Krizhevsky, Sutskever and Hinton, ImageNet classification with deep convolutional neural networks,
2012.

Five convolutions (the second, fourth and fifth in two groups, as on the paper's two GPUs) and three dense
layers. Local response normalisation after the first two, overlapping pooling, dropout before the last.
"""

from __future__ import annotations

from typing import Any

import tracejit as tj
from benchmarks.nets.layers import CLASSES, Layers, Net


class AlexNet(Net):
    def declare(self) -> None:
        self.convolution("conv1", 3, 96, 11)
        self.convolution("conv2", 96, 256, 5, groups=2)
        self.convolution("conv3", 256, 384, 3)
        self.convolution("conv4", 384, 384, 3, groups=2)
        self.convolution("conv5", 384, 256, 3, groups=2)
        self.dense("fc6", 256 * 6 * 6, 4096)
        self.dense("fc7", 4096, 4096)
        self.dense("fc8", 4096, CLASSES)

    def scores(self, layers: Layers, x: Any) -> Any:
        x = smaller(response_normed(layers.relu_of("conv1", x, stride=4, padding=2)))
        x = smaller(response_normed(layers.relu_of("conv2", x, padding=2, groups=2)))
        x = layers.relu_of("conv3", x, padding=1)
        x = layers.relu_of("conv4", x, padding=1, groups=2)
        x = smaller(layers.relu_of("conv5", x, padding=1, groups=2))
        x = layers.dropped(tj.nn.relu(layers.fully("fc6", x)), 0.5)
        x = layers.dropped(tj.nn.relu(layers.fully("fc7", x)), 0.5)
        return layers.fully("fc8", x)


def smaller(x: Any) -> Any:
    return tj.nn.max_pool2d(x, 3, stride=2)


def response_normed(x: Any) -> Any:
    """Local response normalisation with the paper's constants; its alpha is for a sum, not a mean."""
    return tj.nn.local_response_norm(x, 5, alpha=5e-4, beta=0.75, k=2.0)
