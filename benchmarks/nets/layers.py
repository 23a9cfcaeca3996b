"""Building blocks of the nets: a description of parameters by name, and layers that read them by name.

class SmallNet(Net):
    def declare(self):
        self.convolution("conv1", 3, 8, 3)
        self.dense("fc", 8 * 16 * 16, 10)

    def scores(self, layers, x):
        x = layers.relu_of("conv1", x, padding=1)
        return layers.fully("fc", tj.nn.max_pool2d(x, 2))

net = SmallNet()                                            # net.shapes: {"conv1.weight": (8, 3, 3, 3), ...}
net.scores(Layers(params, running, training=True), x)       # arrays under the same names
"""

from __future__ import annotations

from typing import Any

import tracejit as tj

Arrays = dict[str, Any]
Shapes = dict[str, tuple[int, ...]]

CLASSES = 1000


class Layers:
    """Layers that look up their arrays by name. `running`: batch norm statistics, updated in training."""

    def __init__(self, params: Arrays, running: Arrays, *, training: bool) -> None:
        self.params, self.running, self.training = params, running, training

    def convolved(self, name: str, x: Any, **options: Any) -> Any:
        """A convolution, with a bias if one is declared."""
        return tj.nn.conv2d(x, self.params[f"{name}.weight"], self.params.get(f"{name}.bias"), **options)

    def relu_of(self, name: str, x: Any, **options: Any) -> Any:
        """A convolution and its activation."""
        return tj.nn.relu(self.convolved(name, x, **options))

    def normed(self, name: str, x: Any) -> Any:
        """A batch norm."""
        return tj.nn.batch_norm(
            x,
            self.running[f"{name}.mean"],
            self.running[f"{name}.var"],
            self.params[f"{name}.weight"],
            self.params[f"{name}.bias"],
            training=self.training,
        )

    def fully(self, name: str, x: Any) -> Any:
        """A fully connected layer; images are flattened."""
        flat = x.reshape((x.shape[0], -1)) if x.ndim > 2 else x
        return flat @ self.params[f"{name}.weight"] + self.params[f"{name}.bias"]

    def dropped(self, x: Any, rate: float) -> Any:
        """Dropout, in training."""
        return tj.nn.dropout(x, rate) if self.training else x


class Net:
    """A net for images of `IMAGE` = (channels, height, width)."""

    IMAGE = (3, 224, 224)

    def __init__(self) -> None:
        self.shapes: Shapes = {}
        self.statistics: Shapes = {}
        self.declare()

    # ---- to be written by each net

    def declare(self) -> None:
        """Name all parameters."""
        raise NotImplementedError

    def scores(self, layers: Layers, x: Any) -> Any:
        """Scores of the classes for a batch of images."""
        raise NotImplementedError

    def loss(self, layers: Layers, x: Any, labels: Any) -> Any:
        """The training loss."""
        return tj.nn.cross_entropy(self.scores(layers, x), labels)

    # ---- parameters

    def convolution(
        self, name: str, channels: int, filters: int, window: int, *, groups: int = 1, bias: bool = True
    ) -> None:
        """Declare a convolution."""
        self.shapes[f"{name}.weight"] = (filters, channels // groups, window, window)
        if bias:
            self.shapes[f"{name}.bias"] = (filters,)

    def norm(self, name: str, channels: int) -> None:
        """Declare a batch norm."""
        self.shapes[f"{name}.weight"] = self.shapes[f"{name}.bias"] = (channels,)
        self.statistics[f"{name}.mean"] = self.statistics[f"{name}.var"] = (channels,)

    def dense(self, name: str, inputs: int, outputs: int) -> None:
        """Declare a fully connected layer."""
        self.shapes[f"{name}.weight"], self.shapes[f"{name}.bias"] = (inputs, outputs), (outputs,)
