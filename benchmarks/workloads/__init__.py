"""All workloads, by name."""

from __future__ import annotations

from benchmarks.workload import Workload
from benchmarks.workloads import (
    black_scholes,
    convolutions,
    elementwise,
    images,
    kmeans,
    language,
    layer_norm,
    lenet,
    loops,
    lstm,
    many_small,
    mlp,
    optimizer,
    rate,
    rounds,
    softmax,
    stencil,
    transformer,
    undecorated,
    unet,
)

MODULES = (
    mlp,
    rate,
    black_scholes,
    softmax,
    layer_norm,
    optimizer,
    elementwise,
    stencil,
    lstm,
    transformer,
    language,
    lenet,
    images,
    convolutions,
    unet,
    kmeans,
    many_small,
    undecorated,
    loops,
    rounds,
)
WORKLOADS: dict[str, Workload] = {
    workload.name: workload for module in MODULES for workload in module.WORKLOADS
}
