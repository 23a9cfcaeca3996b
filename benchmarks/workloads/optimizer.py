"""One Adam update of four million parameters: four arrays read, three written, little arithmetic; and one
AdamW step over two thousand small arrays, which measures the cost per array.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from benchmarks.workload import Side, Workload, normal

COUNT = 4_000_000
LEARNING_RATE, BETA1, BETA2, EPSILON = 1e-3, 0.9, 0.999, 1e-8
ARRAYS, SHAPE, DECAY = 2000, (8, 8), 0.01


def make_data() -> dict[str, np.ndarray]:
    """Parameters and a gradient."""
    return {"p": normal(COUNT), "g": normal(COUNT, seed=1)}


def many_data() -> dict[str, np.ndarray]:
    """Two thousand small parameters and their gradients, each stacked into one array."""
    return {"p": normal(ARRAYS, *SHAPE), "g": normal(ARRAYS, *SHAPE, seed=1)}


def in_tracejit(tj: Any, data: dict[str, np.ndarray]) -> Side:
    @tj.jit
    def update(params, gradients, state):
        tj.optim.adam(params, gradients, state, LEARNING_RATE, BETA1, BETA2, EPSILON)

    p, g = tj.asarray(data["p"]), tj.asarray(data["g"])
    state = tj.optim.adam_state(p)
    return Side(
        lambda: update(p, g, state),
        lambda: {"p": p.numpy(), "m": state["first"].numpy(), "v": state["second"].numpy()},
        update,
    )


def in_jax(jax: Any, data: dict[str, np.ndarray]) -> Side:
    jnp = jax.numpy

    @functools.partial(jax.jit, donate_argnums=(0, 1, 2, 3))
    def update(p, m, v, t, g):
        t = t + 1
        m = BETA1 * m + (1 - BETA1) * g
        v = BETA2 * v + (1 - BETA2) * g * g
        p = p - LEARNING_RATE / (1 - BETA1**t) * m / (jnp.sqrt(v / (1 - BETA2**t)) + EPSILON)
        return p, m, v, t

    g = jnp.asarray(data["g"])
    state = (jnp.asarray(data["p"]), jnp.zeros_like(g), jnp.zeros_like(g), jnp.asarray(0.0, jnp.float32))

    def step():
        nonlocal state
        state = update(*state, g)
        return state

    return Side(step, lambda: dict(zip(("p", "m", "v"), map(np.asarray, state), strict=False)))


def in_torch(torch: Any, data: dict[str, np.ndarray]) -> Side:
    @torch.compile(fullgraph=True, dynamic=False)
    def update(p, m, v, t, g):
        t += 1
        m.mul_(BETA1).add_(g, alpha=1 - BETA1)
        v.mul_(BETA2).addcmul_(g, g, value=1 - BETA2)
        rate = LEARNING_RATE / (1 - BETA1**t)
        p.sub_(rate * m / ((v / (1 - BETA2**t)).sqrt() + EPSILON))

    p, g = torch.from_numpy(data["p"]).clone(), torch.from_numpy(data["g"])
    m, v, t = torch.zeros_like(p), torch.zeros_like(p), torch.zeros(())
    return Side(lambda: update(p, m, v, t, g), lambda: {"p": p.numpy(), "m": m.numpy(), "v": v.numpy()})


def in_torch_fused(torch: Any, data: dict[str, np.ndarray]) -> Side:
    p = torch.from_numpy(data["p"]).clone().requires_grad_()
    p.grad = torch.from_numpy(data["g"])
    adam = torch.optim.Adam([p], LEARNING_RATE, (BETA1, BETA2), EPSILON, fused=True)

    def read():
        state = adam.state[p]
        return {"p": p.detach().numpy(), "m": state["exp_avg"].numpy(), "v": state["exp_avg_sq"].numpy()}

    return Side(adam.step, read)


def in_numpy(numpy: Any, data: dict[str, np.ndarray]) -> Side:
    p, g = data["p"].copy(), data["g"]
    m, v, a, b = (np.zeros_like(p) for _ in range(4))
    t = 0

    def step():
        nonlocal t
        t += 1
        np.multiply(m, BETA1, out=m)
        np.multiply(g, 1 - BETA1, out=a)
        np.add(m, a, out=m)
        np.multiply(v, BETA2, out=v)
        np.multiply(g, g, out=a)
        np.multiply(a, 1 - BETA2, out=a)
        np.add(v, a, out=v)
        np.multiply(v, 1 / (1 - BETA2**t), out=a)
        np.sqrt(a, out=a)
        np.add(a, EPSILON, out=a)
        np.multiply(m, LEARNING_RATE / (1 - BETA1**t), out=b)
        np.divide(b, a, out=b)
        np.subtract(p, b, out=p)

    return Side(step, lambda: {"p": p, "m": m, "v": v})


def in_numba(numba: Any, data: dict[str, np.ndarray]) -> Side:
    f32, sqrt = np.float32, math.sqrt
    beta1, beta2, epsilon, one = f32(BETA1), f32(BETA2), f32(EPSILON), f32(1)

    @numba.njit(parallel=True, fastmath=True, error_model="numpy")
    def update(p, m, v, g, rate, scale):
        for i in numba.prange(p.size):
            m[i] = beta1 * m[i] + (one - beta1) * g[i]
            v[i] = beta2 * v[i] + (one - beta2) * g[i] * g[i]
            p[i] -= rate * m[i] / (sqrt(v[i] * scale) + epsilon)

    p, g = data["p"].copy(), data["g"]
    m, v = np.zeros_like(p), np.zeros_like(p)
    t = 0

    def step():
        nonlocal t
        t += 1
        update(p, m, v, g, f32(LEARNING_RATE / (1 - BETA1**t)), f32(1 / (1 - BETA2**t)))

    return Side(step, lambda: {"p": p, "m": m, "v": v})


def in_numexpr(numexpr: Any, data: dict[str, np.ndarray]) -> Side:
    names: dict[str, Any] = {"p": data["p"].copy(), "g": data["g"]}
    names |= {"m": np.zeros_like(names["p"]), "v": np.zeros_like(names["p"])}
    names |= {name: np.float32(value) for name, value in (("b1", BETA1), ("b2", BETA2), ("eps", EPSILON))}
    formulas = {
        "m": "b1 * m + (1 - b1) * g",
        "v": "b2 * v + (1 - b2) * g * g",
        "p": "p - rate * m / (sqrt(v * scale) + eps)",
    }
    t = 0

    def step():
        nonlocal t
        t += 1
        names["rate"] = np.float32(LEARNING_RATE / (1 - BETA1**t))
        names["scale"] = np.float32(1 / (1 - BETA2**t))
        for name, formula in formulas.items():
            numexpr.evaluate(formula, local_dict=names, global_dict={}, out=names[name])

    return Side(step, lambda: {name: names[name] for name in ("p", "m", "v")})


def many_in_tracejit(tj: Any, data: dict[str, np.ndarray]) -> Side:
    @tj.jit
    def update(params, gradients, state):
        tj.optim.adamw(params, gradients, state, LEARNING_RATE, BETA1, BETA2, EPSILON, weight_decay=DECAY)

    p, g = [tj.asarray(a) for a in data["p"]], [tj.asarray(a) for a in data["g"]]
    state = tj.optim.adam_state(p)

    def read():
        found = {"p": p, "m": state["first"], "v": state["second"]}
        return {name: np.stack([a.numpy() for a in arrays]) for name, arrays in found.items()}

    return Side(lambda: update(p, g, state), read, update)


def many_in_torch(torch: Any, data: dict[str, np.ndarray]) -> Side:
    """The multi-tensor functions; torch.compile takes minutes for so many arrays."""
    params = [torch.from_numpy(a).clone().requires_grad_() for a in data["p"]]
    for p, g in zip(params, data["g"], strict=True):
        p.grad = torch.from_numpy(g)
    adamw = torch.optim.AdamW(
        params, LEARNING_RATE, (BETA1, BETA2), EPSILON, weight_decay=DECAY, foreach=True
    )

    def read():
        states = [adamw.state[p] for p in params]
        found = {"p": [p.detach() for p in params]}
        found |= {name: [s[key] for s in states] for name, key in (("m", "exp_avg"), ("v", "exp_avg_sq"))}
        return {name: np.stack(tensors) for name, tensors in found.items()}

    return Side(adamw.step, read)


WORKLOADS = [
    Workload(
        "adam-4M",
        "kernel",
        make_data,
        {
            "tracejit": in_tracejit,
            "numpy": in_numpy,
            "jax": in_jax,
            "torch": in_torch,
            "torch:fused": in_torch_fused,
            "numba": in_numba,
            "numexpr": in_numexpr,
        },
    ),
    Workload(
        "adamw-2000", "graph", many_data, {"tracejit": many_in_tracejit, "torch:foreach": many_in_torch}
    ),
]
