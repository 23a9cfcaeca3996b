"""A training step of a U-Net: classes of the pixels of 4 images of 128 x 128, momentum.

Four levels of two convolutions each, with 32 to 256 filters and batch norm. The encoder downsamples by 2 x 2
max pooling; the decoder repeats each pixel four times and concatenates the encoder's features of the same
level.

Ronneberger, Fischer and Brox, U-Net, 2015. Layers and sides are those of `benchmarks.workloads.images`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from benchmarks.workload import Side, Workload
from benchmarks.workloads import images
from benchmarks.workloads.images import CLASSES, Block, Kit, Layer, Net

WIDTHS = (32, 64, 128, 256)
BATCH, EXTENT = 4, 128


class Words(NamedTuple):
    """The functions of a peer that `Kit` lacks: 2 x 2 max pooling, repetition of each pixel to 2 x 2,
    concatenation of channels of two images, and the channels of each pixel as a row.
    """

    halved: Callable[[Any], Any]
    doubled: Callable[[Any], Any]
    joined: Callable[[Any, Any], Any]
    pixels: Callable[[Any], Any]


def level(name: str, channels: int, width: int) -> Block:
    """Two convolutions."""
    return Block((Layer(f"{name}.a", channels, width), Layer(f"{name}.b", width, width)))


def blocks() -> Iterator[Block]:
    """The levels of the encoder, and of the decoder."""
    for n, width in enumerate(WIDTHS):
        yield level(f"down{n}", WIDTHS[n - 1] if n else 3, width)
    for n in reversed(range(len(WIDTHS) - 1)):
        yield level(f"up{n}", WIDTHS[n + 1] + WIDTHS[n], WIDTHS[n])


def scores(words: Words, kit: Kit, p: dict[str, Any], x: Any) -> Any:
    """The scores of all pixels, one row for each."""

    def relu_of(block: Block, x: Any) -> Any:
        for layer in block.layers:
            x = kit.relu(layer(kit, p, x))
        return x

    levels, found = list(blocks()), []
    for n, block in enumerate(levels[: len(WIDTHS)]):
        x = relu_of(block, words.halved(x) if n else x)
        found.append(x)
    for block, before in zip(levels[len(WIDTHS) :], reversed(found[:-1]), strict=True):
        x = relu_of(block, words.joined(words.doubled(x), before))
    return words.pixels(x) @ p["dense"]


def tracejit_words(tj: Any) -> Words:
    return Words(
        lambda x: tj.nn.max_pool2d(x, 2),
        lambda x: tj.nn.interpolate(x, scale=2),
        lambda x, y: tj.concat((x, y), axis=1),
        lambda x: tj.moveaxis(x, 1, -1).reshape((-1, x.shape[1])),
    )


def jax_words(jax: Any) -> Words:
    jnp = jax.numpy

    def halved(x):
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")

    return Words(
        halved,
        lambda x: x.repeat(2, 2).repeat(2, 3),
        lambda x, y: jnp.concatenate((x, y), 1),
        lambda x: jnp.moveaxis(x, 1, -1).reshape((-1, x.shape[1])),
    )


def torch_words(torch: Any) -> Words:
    functional = torch.nn.functional
    return Words(
        lambda x: functional.max_pool2d(x, 2),
        lambda x: functional.interpolate(x, scale_factor=2),
        lambda x, y: torch.cat((x, y), 1),
        lambda x: x.permute(0, 2, 3, 1).reshape((-1, x.shape[1])),
    )


def make_data() -> dict[str, Any]:
    """Images, classes of their pixels, and parameters."""
    net = Net(blocks, scores, (BATCH, 3, EXTENT, EXTENT), WIDTHS[0])
    labels = np.random.default_rng(1).integers(0, CLASSES, BATCH * EXTENT * EXTENT)
    return images.make_data(net) | {"y": labels}


Make = Callable[..., Side]


def side(
    make: Make, words: Callable[[Any], Words], module: Any, data: dict[str, Any], **options: Any
) -> Side:
    """A side of `images` with the functions of a peer."""
    net = Net(blocks, functools.partial(scores, words(module)), (BATCH, 3, EXTENT, EXTENT), WIDTHS[0])
    return make(net, module, data, **options)


def sides() -> dict[str, Any]:
    """The sides; those of torch differ in options."""
    torch = functools.partial(side, images.in_torch, torch_words)
    return {
        "tracejit": functools.partial(side, images.in_tracejit, tracejit_words),
        "jax": functools.partial(side, images.in_jax, jax_words),
        "torch": torch,
        "torch:eager": functools.partial(torch, compiled=False),
        "torch:last": functools.partial(torch, compiled=False, last=True),
    }


WORKLOADS = [Workload("u-net", "training", make_data, sides(), tolerance=0.2, steps=1)]
