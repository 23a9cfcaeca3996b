"""ResNet-50: He, Zhang, Ren and Sun, Deep residual learning for image recognition, 2015.

Sixteen bottlenecks (1 x 1, 3 x 3, 1 x 1, each with batch norm) with identity shortcuts; at the beginning of
a stage, the first convolution has stride 2 and the shortcut is a 1 x 1 convolution.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tracejit as tj
from benchmarks.nets.layers import CLASSES, Layers, Net

STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
"""Width and number of the bottlenecks of each stage."""

EXPANSION = 4


class ResNet50(Net):
    def blocks(self) -> Iterator[tuple[str, int, int, int]]:
        """Name, channels in, width and stride of each bottleneck."""
        channels = 64
        for stage, (width, count) in enumerate(STAGES, 2):
            for position in range(count):
                yield f"{stage}{'abcdef'[position]}", channels, width, 2 if position == 0 and stage > 2 else 1
                channels = width * EXPANSION

    def normed_convolution(self, name: str, channels: int, filters: int, window: int) -> None:
        self.convolution(name, channels, filters, window, bias=False)
        self.norm(f"{name}.norm", filters)

    def declare(self) -> None:
        self.normed_convolution("conv1", 3, 64, 7)
        for name, channels, width, _ in self.blocks():
            self.normed_convolution(f"{name}.reduce", channels, width, 1)
            self.normed_convolution(f"{name}.conv", width, width, 3)
            self.normed_convolution(f"{name}.expand", width, width * EXPANSION, 1)
            if channels != width * EXPANSION:
                self.normed_convolution(f"{name}.project", channels, width * EXPANSION, 1)
        self.dense("fc", STAGES[-1][0] * EXPANSION, CLASSES)

    def layer(self, layers: Layers, name: str, x: Any, **options: Any) -> Any:
        return layers.normed(f"{name}.norm", layers.convolved(name, x, **options))

    def bottleneck(self, layers: Layers, name: str, x: Any, stride: int) -> Any:
        y = tj.nn.relu(self.layer(layers, f"{name}.reduce", x, stride=stride))
        y = tj.nn.relu(self.layer(layers, f"{name}.conv", y, padding=1))
        y = self.layer(layers, f"{name}.expand", y)
        if f"{name}.project.weight" in layers.params:
            x = self.layer(layers, f"{name}.project", x, stride=stride)
        return tj.nn.relu(y + x)

    def scores(self, layers: Layers, x: Any) -> Any:
        x = tj.nn.relu(self.layer(layers, "conv1", x, stride=2, padding=3))
        x = tj.nn.max_pool2d(x, 3, stride=2, padding=1)
        for name, _, _, stride in self.blocks():
            x = self.bottleneck(layers, name, x, stride)
        return layers.fully("fc", x.mean(axis=(2, 3)))
