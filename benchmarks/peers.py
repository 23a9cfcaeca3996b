"""The peers: their import names, the functions that wait for results, and their settings."""

from __future__ import annotations

import importlib.util
import os
import pathlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from benchmarks.workload import OURS


def _at_once(_module: Any) -> Callable[[Any], Any]:
    """Do not wait: calls of these peers are synchronous."""
    return lambda result: result


def _wait_all(tracejit: Any) -> Callable[[Any], Any]:
    """Wait for everything launched, not only for the result: a step also updates its parameters."""
    wait = tracejit.wait_all
    return lambda _result: wait()


@dataclass(frozen=True)
class Peer:
    """A package to compare with. `finish(module)` returns the function that waits for a step's result."""

    name: str
    finish: Callable[[Any], Callable[[Any], Any]] = _at_once
    packages: tuple[str, ...] = ()

    def missing(self) -> bool:
        """Whether the package is not installed."""
        return importlib.util.find_spec(self.name) is None

    def versions(self) -> dict[str, str]:
        """Versions of the peer and of its backend."""
        return {package: metadata.version(package) for package in (self.name, *self.packages)}


PEERS = {
    peer.name: peer
    for peer in (
        Peer(OURS, _wait_all, ("llvmlite",)),
        Peer("numpy"),
        Peer("jax", lambda jax: jax.block_until_ready, ("jaxlib",)),
        Peer("torch"),
        Peer("numba"),
        Peer("numexpr"),
    )
}


def peer_of(side: str) -> str:
    """``"torch"`` for the side ``"torch:eager"``."""
    return side.partition(":")[0]


def environment(caches: pathlib.Path, threads: int) -> dict[str, str]:
    """The environment of a side's process: the same number of threads for all sides, and a separate folder
    for caches. Python caches the bytecode of our modules, as for installed packages."""
    count = str(threads)
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {
        "OMP_NUM_THREADS": count,
        "OPENBLAS_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "NUMBA_NUM_THREADS": count,
        "NUMEXPR_MAX_THREADS": count,
        "NUMEXPR_NUM_THREADS": count,
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(caches / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "torch"),
        "TRACEJIT_CACHE_DIR": str(caches / "tracejit"),
        "PYTHONHASHSEED": "0",
    }


def pin(threads: int) -> None:
    """Keep this process on the first `threads` processors, if the system supports it."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
