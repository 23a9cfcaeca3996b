"""Data-parallel steps of three nets: the programs behind docs/scaling.md.

    tracejit simulate -n 2,8,64,1000 benchmarks/scaling.py mlp
    TRACEJIT_LINK=1e-3,4e7 tracejit run -n 2 benchmarks/scaling.py mlp     # the measured time, for comparison

On several ranks it prints the time from step to step: the minimum and the median of several runs, because
other load of the machine can only add time.
"""

from __future__ import annotations

import argparse
import itertools
import json
import pathlib
import statistics
import time

import numpy as np

import tracejit as tj

STEPS = 6  # steps per run


class MLP(tj.nn.Module):
    """Eight layers."""

    shape = (256, 384)

    def __init__(self):
        self.layers = [tj.nn.Linear(384, 384) for _ in range(8)]

    def forward(self, x):
        for layer in self.layers:
            x = tj.tanh(layer(x))
        return (x * x).mean()


class Block(tj.nn.Module):
    """Attention and a small network, each with a residual connection."""

    def __init__(self, width):
        self.norms = [tj.nn.LayerNorm(width), tj.nn.LayerNorm(width)]
        self.attention = tj.nn.MultiHeadAttention(width, 4)
        self.widen, self.narrow = tj.nn.Linear(width, 4 * width), tj.nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.norms[0](x), causal=True)
        return x + self.narrow(tj.nn.gelu(self.widen(self.norms[1](x))))


class GPT(tj.nn.Module):
    """Four blocks of width 256 on eight texts of 64 tokens."""

    shape = (8, 64, 256)

    def __init__(self):
        self.blocks = [Block(256) for _ in range(4)]

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return (x * x).mean()


class Residual(tj.nn.Module):
    """Two convolutions with a residual connection."""

    def __init__(self, inputs, outputs):
        self.first = tj.nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.second = tj.nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norms = [tj.nn.BatchNorm(outputs), tj.nn.BatchNorm(outputs)]

    def forward(self, x):
        y = self.norms[1](self.second(tj.nn.relu(self.norms[0](self.first(x)))))
        return tj.nn.relu(y + x) if y.shape == x.shape else tj.nn.relu(y)


class ResNet(tj.nn.Module):
    """Six residual blocks of 16, 32 and 64 channels on 16 images of 32 by 32, with halved extents between
    them."""

    shape = (16, 16, 32, 32)

    def __init__(self):
        widths = (16, 16, 16, 32, 32, 64, 64)
        self.blocks = [Residual(a, b) for a, b in itertools.pairwise(widths)]

    def forward(self, x):
        for number, block in enumerate(self.blocks):
            x = block(x)
            if number in (1, 3):
                x = tj.nn.max_pool2d(x, 2)
        return (x * x).mean()


NETS = {"mlp": MLP, "gpt": GPT, "resnet": ResNet}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("net", choices=NETS)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="for the times, in seconds")
    options = parser.parse_args()
    tj.distributed.init()
    tj.random.seed(0)
    kind = NETS[options.net]
    net = kind()
    gradients_of = tj.distributed.data_parallel(lambda net, x: net(x))

    @tj.jit
    def step(net, x):
        loss, gradients = gradients_of(net, x)
        tj.optim.sgd(net, gradients, lr=1e-3)
        return loss

    x = tj.asarray(np.random.default_rng(0).standard_normal(kind.shape).astype(np.float32))
    times = []
    for _ in range(options.runs + 1):
        begun = time.perf_counter()
        for _ in range(STEPS):
            step(net, x)
        tj.wait_all()
        times.append((time.perf_counter() - begun) / STEPS)
    del times[0]  # recorded and compiled
    if tj.distributed.size() > 1 and tj.distributed.rank() == 0:
        best, usual = 1e3 * min(times), 1e3 * statistics.median(times)
        print(f"{options.net} on {tj.distributed.size()} ranks: best {best:.1f} ms, median {usual:.1f} ms")
        if options.json is not None:
            options.json.write_text(json.dumps({"best": best / 1e3, "median": usual / 1e3}))


if __name__ == "__main__":
    main()
