"""Single convolutions of 3 x 3, those of VGG-16 (one image of 224 x 224) and ResNet-50 (8 images).

For each shape, the result is one workload, and both gradients are another; for first layers, whose images
have no gradient, only the gradient with respect to the weights.

Simonyan and Zisserman, Very deep convolutional networks, 2014; He et al., Deep residual learning, 2015.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks.workload import Side, Workload, normal


class Shape(NamedTuple):
    """A 3 x 3 convolution of square images, with padding 1."""

    images: int
    channels: int
    extent: int
    filters: int
    stride: int = 1

    @property
    def name(self) -> str:
        """The name of the shape, as used in workload names."""
        strided = f"-stride-{self.stride}" if self.stride > 1 else ""
        return f"{self.images}x{self.channels}x{self.extent}-{self.filters}{strided}"

    @property
    def is_first(self) -> bool:
        """Whether its images are the input of a net."""
        return self.channels == 3


VGG16 = (
    *(Shape(1, 3, 224, 64), Shape(1, 64, 224, 64), Shape(1, 64, 112, 128), Shape(1, 128, 112, 128)),
    *(Shape(1, 128, 56, 256), Shape(1, 256, 56, 256), Shape(1, 256, 28, 512), Shape(1, 512, 28, 512)),
    Shape(1, 512, 14, 512),
)
RESNET50 = (
    *(Shape(8, 64, 56, 64), Shape(8, 128, 28, 128), Shape(8, 256, 14, 256), Shape(8, 512, 7, 512)),
    *(Shape(8, 128, 56, 128, 2), Shape(8, 256, 28, 256, 2), Shape(8, 512, 14, 512, 2)),
)
SHAPES = VGG16 + RESNET50


def convolution_data(shape: Shape) -> dict[str, Any]:
    places = (shape.extent - 1) // shape.stride + 1
    return {
        "x": normal(shape.images, shape.channels, shape.extent, shape.extent),
        "w": normal(shape.filters, shape.channels, 3, 3, scale=0.05),
        "ct": normal(shape.images, shape.filters, places, places, seed=1),
    }


def forward_in_tracejit(shape: Shape, tj: Any, data: dict[str, Any]) -> Side:
    @tj.jit
    def run(x, w):
        return tj.nn.conv2d(x, w, padding=1, stride=shape.stride)

    return _in_tracejit(tj, data, run, "xw", "y")


def gradients_in_tracejit(shape: Shape, tj: Any, data: dict[str, Any]) -> Side:
    def convolved(x, w):
        return tj.nn.conv2d(x, w, padding=1, stride=shape.stride)

    @tj.jit
    def both(x, w, ct):
        return tj.vjp(convolved, x, w)[1](ct)

    @tj.jit
    def to_weights(x, w, ct):
        return tj.vjp(functools.partial(convolved, x), w)[1](ct)

    run, results = (to_weights, "w") if shape.is_first else (both, "xw")
    return _in_tracejit(tj, data, run, ("x", "w", "ct"), results)


def _in_tracejit(tj: Any, data: dict[str, Any], run: Callable[..., Any], operands: Any, results: str) -> Side:
    """A side that calls `run` with some of the data, and names its results."""
    arrays, found = [tj.asarray(data[name]) for name in operands], None

    def step():
        nonlocal found
        found = run(*arrays)

    def read():
        several = found if isinstance(found, tuple) else (found,)
        return dict(zip(results, (a.numpy() for a in several), strict=True))

    return Side(step, read, run)


def forward_in_torch(shape: Shape, torch: Any, data: dict[str, Any], *, last: bool = False) -> Side:
    x, w, _ = _laid_out(torch, data, last)
    found = None

    @torch.no_grad()
    def step():
        nonlocal found
        found = torch.nn.functional.conv2d(x, w, padding=1, stride=shape.stride)

    return Side(step, lambda: {"y": found.contiguous().numpy()})


def gradients_in_torch(shape: Shape, torch: Any, data: dict[str, Any], *, last: bool = False) -> Side:
    x, w, ct = _laid_out(torch, data, last)
    backward, one, found = torch.ops.aten.convolution_backward, [1, 1], None
    stride, wanted = [shape.stride] * 2, [not shape.is_first, True, False]

    @torch.no_grad()
    def step():
        nonlocal found
        found = backward(ct, x, w, None, stride, one, one, False, [0, 0], 1, wanted)

    def read():
        pairs = zip("xw", found[:2], strict=True)
        return {name: a.contiguous().numpy() for name, a in pairs if a is not None}

    return Side(step, read)


def _laid_out(torch: Any, data: dict[str, Any], last: bool) -> list[Any]:
    """The operands as tensors, with channels last or in their original order."""
    layout = torch.channels_last if last else torch.contiguous_format
    return [torch.from_numpy(data[n]).to(memory_format=layout) for n in ("x", "w", "ct")]


def workload(name: str, shape: Shape, ours: Callable[..., Side], theirs: Callable[..., Side]) -> Workload:
    """One of the two workloads of a shape."""
    sides = {
        "tracejit": functools.partial(ours, shape),
        "torch": functools.partial(theirs, shape),
        "torch:last": functools.partial(theirs, shape, last=True),
    }
    return Workload(name, "graph", functools.partial(convolution_data, shape), sides)


RESULTS = {f"conv-{shape.name}": shape for shape in SHAPES}
GRADIENTS = {f"conv-gradients-{shape.name}": shape for shape in SHAPES}
WORKLOADS = [
    *(workload(name, shape, forward_in_tracejit, forward_in_torch) for name, shape in RESULTS.items()),
    *(workload(name, shape, gradients_in_tracejit, gradients_in_torch) for name, shape in GRADIENTS.items()),
]
