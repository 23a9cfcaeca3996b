"""Kernels on a GPU: their memory bandwidth, and the cost of a launch. Prints one line of JSON.

    python -m benchmarks.gpu                    # on gpu:0, with arrays of 256 MB
    python -m benchmarks.gpu --bytes 1048576

Each function is checked against the CPU on a small array before it is timed; times are the minimum of
several runs of many replays, each run ended by a wait. `launch_us` is the time of a replay of a chain of ten
small kernels, `look_us` the time of the same step with a look at its result.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tracejit as tj


def axpy(x: Any, y: Any) -> Any:
    """Three arrays move."""
    return x + 0.5 * y


def gelu(x: Any, y: Any) -> Any:
    """A bias and GELU: two arrays move."""
    return tj.nn.gelu(x + y[0])


def softmax(x: Any, y: Any) -> Any:
    """Two arrays move."""
    return tj.nn.softmax(x, axis=-1)


def layer_norm(x: Any, y: Any) -> Any:
    """Two arrays move."""
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / tj.sqrt((centred * centred).mean(axis=-1, keepdims=True) + 1e-5)


def column_sums(x: Any, y: Any) -> Any:
    """One array moves."""
    return x.sum(axis=0)


def sum_of_squares(x: Any, y: Any) -> Any:
    """One array moves."""
    return (x * x).sum()


CASES: dict[str, tuple[Callable[[Any, Any], Any], int, int]] = {
    "x + s * y": (axpy, 1024, 3),
    "bias + gelu": (gelu, 1024, 2),
    "softmax": (softmax, 1024, 2),
    "layer norm": (layer_norm, 1024, 2),
    "column sums": (column_sums, 256, 1),
    "sum(x * x)": (sum_of_squares, 1024, 1),
}
"""Name to function, columns, and how many arrays of its size it moves."""


def operands(nbytes: int, columns: int, device: Any) -> list[Any]:
    """Two arrays of approximately the given number of bytes each."""
    rows = max(1, nbytes // (4 * columns))
    generator = np.random.default_rng(0)
    return [
        tj.asarray(generator.standard_normal((rows, columns), np.float32), device=device) for _ in range(2)
    ]


def check(name: str, device: Any) -> None:
    """Raise if the results of the function differ from the CPU's."""
    function, columns, _ = CASES[name]
    results = [tj.jit(function)(*operands(1 << 14, columns, where)).numpy() for where in (device, tj.cpu(0))]
    np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-4)


def shortest(call: Callable[[], Any], seconds: float) -> float:
    """Seconds per call, for many calls before each wait."""
    call().wait()
    start = time.perf_counter()
    call().wait()
    count = max(1, min(1000, int(seconds / 5 / max(time.perf_counter() - start, 1e-6))))
    best = math.inf
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(count):
            last = call()
        last.wait()
        best = min(best, (time.perf_counter() - start) / count)
    return best


def chain(x: Any) -> Any:
    """Ten dependent kernels: each sum needs the complete result of the previous one."""
    for _ in range(5):
        x = x - x.sum() * 0.5
    return x


def measure(device: Any, nbytes: int, seconds: float = 1.0) -> dict[str, Any]:
    """All numbers."""
    found: dict[str, Any] = {"device": str(device), "bytes": nbytes, "TB/s": {}}
    for name, (function, columns, moved) in CASES.items():
        check(name, device)
        x, y = operands(nbytes, columns, device)
        traced = tj.jit(function)
        took = shortest(lambda traced=traced, x=x, y=y: traced(x, y), seconds)
        found["TB/s"][name] = round(moved * x.size * 4 / took / 1e12, 4)
    small, step = tj.ones(1000, device=device), tj.jit(chain)
    found["launch_us"] = round(1e6 * shortest(lambda: step(small), seconds), 1)
    start, count = time.perf_counter(), 20
    for _ in range(count):
        float(step(small)[0])
    found["look_us"] = round(1e6 * (time.perf_counter() - start) / count, 1)
    return found


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bytes", type=int, default=256 << 20, help="of each array")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each number")
    chosen = parser.parse_args(arguments)
    print(json.dumps(measure(tj.gpu(0), chosen.bytes, chosen.seconds), indent=2))


if __name__ == "__main__":
    main()
