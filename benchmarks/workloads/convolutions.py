"""Single convolutions of 3 x 3 as in VGG-16 and ResNet-50: the result and both gradients."""

from __future__ import annotations

import functools
from typing import Any

from benchmarks.workload import Side, Workload, normal

CONVOLUTIONS = {
    "conv-8x64x56": (8, 64, 56),
    "conv-8x128x28": (8, 128, 28),
    "conv-8x256x14": (8, 256, 14),
    "conv-8x512x7": (8, 512, 7),
    "conv-1x64x224": (1, 64, 224),
    "conv-1x256x56": (1, 256, 56),
}
"""Images, channels (and filters) and extent."""


def convolution_data(images: int, channels: int, extent: int) -> dict[str, Any]:
    shape = (images, channels, extent, extent)
    return {
        "x": normal(*shape),
        "w": normal(channels, channels, 3, 3, scale=0.05),
        "ct": normal(*shape, seed=1),
    }


def convolution_in_tracejit(tj: Any, data: dict[str, Any]) -> Side:
    @tj.jit
    def run(x, w, ct):
        y, back = tj.vjp(lambda x, w: tj.nn.conv2d(x, w, padding=1), x, w)
        return y, *back(ct)

    operands, found = [tj.asarray(data[name]) for name in ("x", "w", "ct")], None

    def step():
        nonlocal found
        found = run(*operands)

    return Side(step, lambda: dict(zip("yxw", (a.numpy() for a in found), strict=True)), run)


def convolution_in_torch(torch: Any, data: dict[str, Any], *, last: bool = False) -> Side:
    layout = torch.channels_last if last else torch.contiguous_format
    x, w, ct = (torch.from_numpy(data[n]).to(memory_format=layout) for n in ("x", "w", "ct"))
    backward, one, found = torch.ops.aten.convolution_backward, [1, 1], None

    @torch.no_grad()
    def step():
        nonlocal found
        y = torch.nn.functional.conv2d(x, w, padding=1)
        found = y, *backward(ct, x, w, None, one, one, one, False, [0, 0], 1, [True, True, False])[:2]

    return Side(step, lambda: dict(zip("yxw", (a.contiguous().numpy() for a in found), strict=True)))


def convolution(name: str, images: int, channels: int, extent: int) -> Workload:
    """A convolution and its two gradients."""
    sides = {
        "tracejit": convolution_in_tracejit,
        "torch": convolution_in_torch,
        "torch:last": functools.partial(convolution_in_torch, last=True),
    }
    return Workload(name, "graph", functools.partial(convolution_data, images, channels, extent), sides)


WORKLOADS = [convolution(name, *sizes) for name, sizes in CONVOLUTIONS.items()]
