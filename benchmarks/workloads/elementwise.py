"""Three short kernels: ``x + x.T``, ``sum(x * x)``, and a chain around GELU (its tanh form, which numexpr
supports too).

Each is written once as a formula on arrays and their namespace; each peer adds only its best method of
running a formula. NumPy, Numba and numexpr have separate code, because they need explicit temporaries or
loops.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.workload import Side, Workload, normal

INNER, CUBIC = math.sqrt(2 / math.pi), 0.044715
PARALLEL = {"parallel": True, "fastmath": True, "error_model": "numpy"}


@dataclass(frozen=True)
class Kernel:
    """A formula, its inputs, and its code for the peers that need separate code."""

    name: str
    data: Callable[[], dict[str, np.ndarray]]
    formula: Callable[..., Any]
    by_hand: Callable[..., Any]
    loop: Callable[..., Any]
    expression: str
    scalar: bool = False


# -- how each peer runs a formula ----------------------------------------------------------------------------


def in_tracejit(tj: Any, data: dict[str, np.ndarray], *, kernel: Kernel) -> Side:
    @tj.jit
    def compiled(*arguments):
        return kernel.formula(tj, *arguments)

    arguments = [tj.asarray(value) for value in data.values()]
    return Side(
        lambda: compiled(*arguments), lambda: {"y": np.asarray(compiled(*arguments).numpy())}, compiled
    )


def in_jax(jax: Any, data: dict[str, np.ndarray], *, kernel: Kernel) -> Side:
    @functools.partial(jax.jit, donate_argnums=0, keep_unused=True)
    def compiled(old, *arguments):
        return kernel.formula(jax.numpy, *arguments)

    arguments = [jax.numpy.asarray(value) for value in data.values()]
    result = jax.numpy.zeros(()) if kernel.scalar else jax.numpy.empty_like(arguments[0])

    def step():
        nonlocal result
        result = compiled(result, *arguments)
        return result

    return Side(step, lambda: {"y": np.asarray(result)}, compiled)


def in_torch(torch: Any, data: dict[str, np.ndarray], *, kernel: Kernel) -> Side:
    @torch.compile(fullgraph=True, dynamic=False)
    def compiled(result, *arguments):
        result.copy_(kernel.formula(torch, *arguments))

    arguments = [torch.from_numpy(value) for value in data.values()]
    result = torch.zeros(()) if kernel.scalar else torch.empty_like(arguments[0])
    return Side(lambda: compiled(result, *arguments), lambda: {"y": result.numpy()})


def in_numpy(numpy: Any, data: dict[str, np.ndarray], *, kernel: Kernel) -> Side:
    result = np.zeros((), np.float32) if kernel.scalar else np.empty_like(data["x"])
    scratch = np.empty_like(data["x"])
    return Side(lambda: kernel.by_hand(result, scratch, **data), lambda: {"y": result})


def in_numba(numba: Any, data: dict[str, np.ndarray], *, kernel: Kernel) -> Side:
    result = np.zeros((), np.float32) if kernel.scalar else np.empty_like(data["x"])
    loop = kernel.loop(numba)
    return Side(lambda: loop(result, *data.values()), lambda: {"y": result})


def in_numexpr(numexpr: Any, data: dict[str, np.ndarray], *, kernel: Kernel) -> Side:
    """Sums in float64, because numexpr sums sequentially: the error in float32 is 3e-3."""
    names: dict[str, Any] = {"half": np.float32(0.5), "inner": np.float32(INNER), "cubic": np.float32(CUBIC)}
    names |= data
    if kernel.name == "transpose-add":
        names["xt"] = data["x"].T
    result = np.zeros((), np.float64) if kernel.scalar else np.empty_like(data["x"])

    def step():
        numexpr.evaluate(kernel.expression, local_dict=names, global_dict={}, out=result)

    return Side(step, lambda: {"y": result})


# -- x + x.T -------------------------------------------------------------------------------------------------


def transpose_add_by_hand(result, scratch, x):
    """One call of NumPy."""
    np.add(x, x.T, out=result)


def transpose_add_loop(numba: Any) -> Any:
    """A loop over tiles of 32 by 32, so that both reads stay in the cache."""

    @numba.njit(**PARALLEL)
    def loop(result, x):
        n, tile = x.shape[0], 32
        tiles = (n + tile - 1) // tile
        for block in numba.prange(tiles * tiles):
            top, left = block // tiles * tile, block % tiles * tile
            for i in range(top, min(top + tile, n)):
                for j in range(left, min(left + tile, n)):
                    result[i, j] = x[i, j] + x[j, i]

    return loop


# -- sum(x * x) ----------------------------------------------------------------------------------------------


def sum_squares_by_hand(result, scratch, x):
    """A dot product, which NumPy computes by BLAS."""
    result[()] = np.dot(x, x)


def sum_squares_loop(numba: Any) -> Any:
    """A parallel reduction."""

    @numba.njit(**PARALLEL)
    def loop(result, x):
        total = np.float32(0)
        for i in numba.prange(x.size):
            total += x[i] * x[i]
        result[()] = total

    return loop


# -- GELU chain ----------------------------------------------------------------------------------------------


def gelu_chain(xp: Any, x: Any, scale: Any, shift: Any, gate: Any) -> Any:
    """Scale and shift by rows, apply GELU, multiply by a gate."""
    h = x * scale + shift
    return 0.5 * h * (1 + xp.tanh(INNER * (h + CUBIC * h * h * h))) * gate


def gelu_chain_data() -> dict[str, np.ndarray]:
    """A matrix, a row of scales, a row of shifts, and a gate."""
    return {
        "x": normal(4096, 1024),
        "scale": 1 + normal(1024, scale=0.1),
        "shift": normal(1024, scale=0.1, seed=1),
        "gate": normal(4096, 1024, seed=1),
    }


def gelu_chain_by_hand(result, scratch, x, scale, shift, gate):
    """The chain with two buffers."""
    np.multiply(x, scale, out=result)
    result += shift
    np.multiply(result, result, out=scratch)
    scratch *= CUBIC
    scratch += 1
    scratch *= result
    scratch *= INNER
    np.tanh(scratch, out=scratch)
    scratch += 1
    result *= 0.5
    result *= scratch
    result *= gate


def gelu_chain_loop(numba: Any) -> Any:
    """One pass."""
    half, one, inner, cubic = (np.float32(value) for value in (0.5, 1, INNER, CUBIC))
    tanh = math.tanh

    @numba.njit(**PARALLEL)
    def loop(result, x, scale, shift, gate):
        for i in numba.prange(x.shape[0]):
            for j in range(x.shape[1]):
                h = x[i, j] * scale[j] + shift[j]
                result[i, j] = half * h * (one + tanh(inner * (h + cubic * h * h * h))) * gate[i, j]

    return loop


KERNELS = [
    Kernel(
        "transpose-add",
        lambda: {"x": normal(1024, 1024)},
        lambda _, x: x + x.T,
        transpose_add_by_hand,
        transpose_add_loop,
        "x + xt",
    ),
    Kernel(
        "sum-squares",
        lambda: {"x": normal(4_000_000)},
        lambda _, x: (x * x).sum(),
        sum_squares_by_hand,
        sum_squares_loop,
        "sum(1.0 * x * x)",
        scalar=True,
    ),
    Kernel(
        "gelu-chain",
        gelu_chain_data,
        gelu_chain,
        gelu_chain_by_hand,
        gelu_chain_loop,
        "half * (x * scale + shift) * (1 + tanh(inner * ((x * scale + shift) + cubic * (x * scale + shift)"
        " * (x * scale + shift) * (x * scale + shift)))) * gate",
    ),
]
FUNCTIONS = {
    "tracejit": in_tracejit,
    "numpy": in_numpy,
    "jax": in_jax,
    "torch": in_torch,
    "numba": in_numba,
    "numexpr": in_numexpr,
}
WORKLOADS = [
    Workload(
        kernel.name,
        "kernel",
        kernel.data,
        {name: functools.partial(side, kernel=kernel) for name, side in FUNCTIONS.items()},
    )
    for kernel in KERNELS
]
