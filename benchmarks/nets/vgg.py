"""VGG-16: Simonyan and Zisserman, Very deep convolutional networks for large-scale image recognition, 2014.

Configuration D: thirteen convolutions of 3 x 3 in five stages, each followed by pooling, and three dense
layers with dropout.
"""

from __future__ import annotations

from typing import Any

import tracejit as tj
from benchmarks.nets.layers import CLASSES, Layers, Net

STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


class VGG16(Net):
    def declare(self) -> None:
        channels = 3
        for stage, widths in enumerate(STAGES, 1):
            for position, filters in enumerate(widths, 1):
                self.convolution(f"conv{stage}_{position}", channels, filters, 3)
                channels = filters
        self.dense("fc6", channels * 7 * 7, 4096)
        self.dense("fc7", 4096, 4096)
        self.dense("fc8", 4096, CLASSES)

    def scores(self, layers: Layers, x: Any) -> Any:
        for stage, widths in enumerate(STAGES, 1):
            for position in range(1, len(widths) + 1):
                x = layers.relu_of(f"conv{stage}_{position}", x, padding=1)
            x = tj.nn.max_pool2d(x, 2)
        x = layers.dropped(tj.nn.relu(layers.fully("fc6", x)), 0.5)
        x = layers.dropped(tj.nn.relu(layers.fully("fc7", x)), 0.5)
        return layers.fully("fc8", x)
