"""The compared workloads: a `Workload` is data and one *side* per peer, written in the style of that
peer's users.

    def in_numpy(np, data):
        x, out = data["x"], np.empty_like(data["x"])
        return Side(lambda: np.exp(x, out=out), lambda: {"y": out})

    Workload("exp", data=lambda: {"x": normal(1 << 20)}, sides={"numpy": in_numpy})

``function(module, data)`` creates a side: `module` is the peer's module (imported by the worker process of
that side, which imports no other peer), `data` a dict of NumPy arrays, the same for all peers. The side's
`step` is one timed call and returns the objects to wait for; its `read` returns results as NumPy arrays,
which are compared with the first side's after the same number of steps.

A side's name is the peer's, or ``peer:variant`` if a peer has several good implementations
(``torch:eager``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]
OURS = "tracejit"


@dataclass(frozen=True)
class Side:
    """One peer's version of a workload, ready to run.

    step:      one call; returns the objects to wait for
    read:      the results after the steps so far
    function:  the compiled function, if the peer can report more about it (memory, time to record)
    arguments: the arguments of the next call by `step`
    """

    step: Callable[[], Any]
    read: Callable[[], Arrays]
    function: Any = None
    arguments: Callable[[], tuple[Any, ...]] | None = None


@dataclass(frozen=True)
class Workload:
    """A computation and its sides.

    kind:      "kernel", "training", "graph" (several kernels), "eager" (undecorated code) or "memory" (not
               timed; only its memory is planned and measured)
    tolerance: largest difference from the reference, relative to the reference's largest element
    steps:     calls before results are compared
    """

    name: str
    kind: str
    data: Callable[[], dict[str, Any]]
    sides: Mapping[str, Callable[[Any, dict[str, Any]], Side]]
    tolerance: float = 1e-4
    steps: int = 3


def normal(*shape: int, scale: float = 1.0, seed: int = 0) -> np.ndarray:
    """Normally distributed float32 numbers, the same in every process."""
    return (np.random.default_rng((seed, *shape)).standard_normal(shape) * scale).astype(np.float32)


def training_results(loss: Any, params: dict[str, Any], data: dict[str, Any]) -> Arrays:
    """The loss, and the change of each parameter (its value would hardly show a wrong gradient)."""
    found = {"loss": np.asarray(loss)}
    for name, initial in data["params"].items():
        found[name] = np.asarray(params[name]).astype(np.float64) - initial
    return found


def torch_training(
    optimizer: Any,
    loss_of: Callable[..., Any],
    params: dict[str, Any],
    batch: tuple[Any, Any],
    data: dict[str, Any],
    results: Callable[[Any, dict[str, Any], dict[str, Any]], Arrays] = training_results,
) -> Side:
    """Steps of one of PyTorch's optimizers along the gradient of ``loss_of(params, *batch)``."""
    x, y = batch
    loss = None

    def step() -> None:
        nonlocal loss
        optimizer.zero_grad()
        loss = loss_of(params, x, y)
        loss.backward()
        optimizer.step()

    def read() -> Arrays:
        assert loss is not None
        return results(loss.detach(), {name: p.detach() for name, p in params.items()}, data)

    return Side(step, read)


def largest_difference(found: Arrays, reference: Arrays) -> float:
    """The largest difference of any element, relative to the largest element of its reference array.

    >>> largest_difference({"x": np.array([1.0, 5.5])}, {"x": np.array([1.0, 5.0])})
    0.1
    """
    if found.keys() != reference.keys():
        raise ValueError(f"results {sorted(found)}, the reference has {sorted(reference)}")
    return max(_difference(name, found[name], reference[name]) for name in reference)


def _difference(name: str, found: np.ndarray, reference: np.ndarray) -> float:
    if found.shape != reference.shape:
        raise ValueError(f"{name} has shape {found.shape}, the reference has {reference.shape}")
    if not np.isfinite(reference).all():
        raise ValueError(f"{name}: the reference is not finite, so nothing can be compared with it")
    apart = np.abs(found.astype(np.float64) - reference).max(initial=0.0)
    size = np.abs(reference).max(initial=0.0)
    return float(apart / size if size > 0 else apart) if np.isfinite(apart) else float("inf")
