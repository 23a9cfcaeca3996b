"""GoogLeNet: Szegedy et al., Going deeper with convolutions, 2014.

Nine inception modules, each with four parallel branches whose channels are concatenated: 1 x 1; 1 x 1 then
3 x 3; 1 x 1 then 5 x 5; pooling then 1 x 1. In training, the losses of two auxiliary classifiers are added
with weight 0.3 each. Pooling rounds extents up, so it pads at the end.
"""

from __future__ import annotations

from typing import Any

import tracejit as tj
from benchmarks.nets.layers import CLASSES, Layers, Net

# name: channels in; filters of 1 x 1, before 3 x 3, 3 x 3, before 5 x 5, 5 x 5, after pooling
INCEPTIONS = {
    "3a": (192, 64, 96, 128, 16, 32, 32),
    "3b": (256, 128, 128, 192, 32, 96, 64),
    "4a": (480, 192, 96, 208, 16, 48, 64),
    "4b": (512, 160, 112, 224, 24, 64, 64),
    "4c": (512, 128, 128, 256, 24, 64, 64),
    "4d": (512, 112, 144, 288, 32, 64, 64),
    "4e": (528, 256, 160, 320, 32, 128, 128),
    "5a": (832, 256, 160, 320, 32, 128, 128),
    "5b": (832, 384, 192, 384, 48, 128, 128),
}
AUXILIARY = {"4a": 512, "4d": 528}
"""After which module there is an auxiliary classifier, and of how many channels."""


class GoogLeNet(Net):
    def declare(self) -> None:
        self.convolution("conv1", 3, 64, 7)
        self.convolution("conv2_reduce", 64, 64, 1)
        self.convolution("conv2", 64, 192, 3)
        for name, (channels, one, reduce3, three, reduce5, five, pooled) in INCEPTIONS.items():
            self.convolution(f"{name}.1x1", channels, one, 1)
            self.convolution(f"{name}.3x3_reduce", channels, reduce3, 1)
            self.convolution(f"{name}.3x3", reduce3, three, 3)
            self.convolution(f"{name}.5x5_reduce", channels, reduce5, 1)
            self.convolution(f"{name}.5x5", reduce5, five, 5)
            self.convolution(f"{name}.pool", channels, pooled, 1)
        for name, channels in AUXILIARY.items():
            self.convolution(f"{name}.aux", channels, 128, 1)
            self.dense(f"{name}.aux_fc1", 128 * 4 * 4, 1024)
            self.dense(f"{name}.aux_fc2", 1024, CLASSES)
        self.dense("fc", 1024, CLASSES)

    def inception(self, layers: Layers, name: str, x: Any) -> Any:
        three = layers.relu_of(f"{name}.3x3_reduce", x)
        five = layers.relu_of(f"{name}.5x5_reduce", x)
        branches = [
            layers.relu_of(f"{name}.1x1", x),
            layers.relu_of(f"{name}.3x3", three, padding=1),
            layers.relu_of(f"{name}.5x5", five, padding=2),
            layers.relu_of(f"{name}.pool", tj.nn.max_pool2d(x, 3, stride=1, padding=1)),
        ]
        return tj.concat(branches, axis=1)

    def auxiliary(self, layers: Layers, name: str, x: Any) -> Any:
        x = layers.relu_of(f"{name}.aux", tj.nn.avg_pool2d(x, 5, stride=3))
        x = layers.dropped(tj.nn.relu(layers.fully(f"{name}.aux_fc1", x)), 0.7)
        return layers.fully(f"{name}.aux_fc2", x)

    def all_scores(self, layers: Layers, x: Any) -> list[Any]:
        """The scores; in training, preceded by those of the auxiliary classifiers."""
        found = []
        x = response_normed(smaller(layers.relu_of("conv1", x, stride=2, padding=3)))
        x = layers.relu_of("conv2", layers.relu_of("conv2_reduce", x), padding=1)
        x = smaller(response_normed(x))
        for name in INCEPTIONS:
            x = self.inception(layers, name, x)
            if name in AUXILIARY and layers.training:
                found.append(self.auxiliary(layers, name, x))
            if name in ("3b", "4e"):
                x = smaller(x)
        return [*found, layers.fully("fc", layers.dropped(x.mean(axis=(2, 3)), 0.4))]

    def scores(self, layers: Layers, x: Any) -> Any:
        return self.all_scores(layers, x)[-1]

    def loss(self, layers: Layers, x: Any, labels: Any) -> Any:
        *auxiliary, scores = self.all_scores(layers, x)
        loss = tj.nn.cross_entropy(scores, labels)
        for other in auxiliary:
            loss = loss + 0.3 * tj.nn.cross_entropy(other, labels)
        return loss


def smaller(x: Any) -> Any:
    return tj.nn.max_pool2d(x, 3, stride=2, padding=((0, 1), (0, 1)))


def response_normed(x: Any) -> Any:
    return tj.nn.local_response_norm(x, 5, alpha=1e-4, beta=0.75)
