"""All workloads, by name."""

from __future__ import annotations

from benchmarks.workload import Workload
from benchmarks.workloads import (
    black_scholes,
    convolutions,
    elementwise,
    images,
    kmeans,
    layer_norm,
    lenet,
    lstm,
    many_small,
    mlp,
    optimizer,
    rate,
    softmax,
    stencil,
    transformer,
    undecorated,
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
    lenet,
    images,
    convolutions,
    kmeans,
    many_small,
    undecorated,
)
WORKLOADS: dict[str, Workload] = {
    workload.name: workload for module in MODULES for workload in module.WORKLOADS
}
