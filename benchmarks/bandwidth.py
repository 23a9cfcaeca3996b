"""Memory-bound kernels on arrays of 256 MB, against the machine's triad bandwidth in the same process.

    python -m benchmarks.bandwidth THREADS ROUNDS

prints bytes per second as one line of JSON. Bytes are counted as in the STREAM benchmark: the bytes that the
kernel must read and write, once each. The triad ``a[i] = b[i] + s * c[i]`` is a Numba `prange` loop into
existing memory. The triad and the kernels take turns.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

import tracejit as tj
from benchmarks.peers import pin

SIDE = 8192
BYTES = 4 * SIDE * SIDE  # 256 MB
PAUSE = 0.01


@numba.njit(parallel=True, error_model="numpy")
def triad(a, b, c, s):
    """McCalpin's STREAM triad."""
    for i in numba.prange(a.size):
        a[i] = b[i] + s * c[i]


def kernels() -> dict[str, tuple[int, Callable[[], Any]]]:
    """Our kernels: the number of arrays moved, and the call."""
    x, y = (tj.asarray(np.full((SIDE, SIDE), value, np.float32)) for value in (1, 2))

    @tj.jit
    def triad_of_ours(x, y, s):
        return x + s * y

    @tj.jit
    def axpy(x, y, s):
        y += s * x

    @tj.jit
    def scale(x, s):
        x *= s

    @tj.jit
    def sum_of_squares(x):
        return (x * x).sum()

    @tj.jit
    def column_sums(x):
        return x.sum(axis=0)

    @tj.jit
    def softmax(x):
        return tj.nn.softmax(x, axis=1)

    @tj.jit
    def transpose_add(x):
        return x + x.T

    return {
        "x + s * y": (3, lambda: triad_of_ours(x, y, 1e-3)),
        "y += s * x": (3, lambda: axpy(x, y, 1e-3)),
        "x *= s": (2, lambda: scale(x, 1.0)),
        "sum(x * x)": (1, lambda: sum_of_squares(x)),
        "x.sum(axis=0)": (1, lambda: column_sums(x)),
        "softmax(x)": (2, lambda: softmax(x)),
        "x + x.T": (2, lambda: transpose_add(x)),
    }


def main() -> None:
    """Measure everything and print it."""
    threads, rounds = map(int, sys.argv[1:])
    pin(threads)
    numba.set_num_threads(threads)
    a, b, c = (np.full(SIDE * SIDE, value, np.float32) for value in (0, 1, 2))
    all_kernels = {"triad": (3, lambda: triad(a, b, c, np.float32(1e-3)))} | kernels()
    times: dict[str, list[float]] = {name: [] for name in all_kernels}
    for number in range(rounds + 1):
        for name, (_, call) in all_kernels.items():
            time.sleep(PAUSE)
            start = time.perf_counter()
            call()
            tj.wait_all()
            if number:  # the first round compiles
                times[name].append(time.perf_counter() - start)
    findings = {
        name: arrays * BYTES / statistics.median(times[name]) for name, (arrays, _) in all_kernels.items()
    }
    print(json.dumps(findings))


if __name__ == "__main__":
    main()
