"""Training steps of language models, with Adam.

- a GPT of 12 layers, width 256, 4 heads, 4 sequences of 128 tokens, and of 1,024;
- two layers of LSTM, width 256, 16 sequences of 64 tokens.

Radford et al., Language models are unsupervised multitask learners, 2019; Zaremba et al., Recurrent neural
network regularization, 2014. A net is written once, over the functions of a *kit* that each peer
implements. Products have no biases: the gradient of a bias of keys is zero, so only noise would be
compared. Adam's epsilon is large, so that rounding errors of small gradients do not become steps.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks.workload import Side, Workload, normal, torch_training, training_results

LAYERS, WIDTH, HEADS, WORDS = 12, 256, 4, 1024
RATE, BETA1, BETA2, EPSILON = 1e-3, 0.9, 0.999, 1e-3


class Kit(NamedTuple):
    """The functions of a peer: ``embed(table, ids)``; ``norm(x, gain, shift)`` of rows; ``attend(q, k, v)``,
    causal, of (batch, heads, tokens, features); ``gelu``; ``lstm(x, input_weight, hidden_weight, bias)``, all
    hidden states; and ``loss(scores, labels)``, mean cross entropy.
    """

    embed: Callable[..., Any]
    norm: Callable[..., Any]
    attend: Callable[..., Any]
    gelu: Callable[..., Any]
    lstm: Callable[..., Any]
    loss: Callable[..., Any]


class Net(NamedTuple):
    """A net to train: the shapes of its parameters, its scores of the vocabulary (one row for each token),
    and the shape of a batch.
    """

    shapes: dict[str, tuple[int, ...]]
    scores: Callable[[Kit, dict[str, Any], Any], Any]
    batch: tuple[int, int]


def gpt_shapes(tokens: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"words": (WORDS, WIDTH), "places": (tokens, WIDTH)}
    for layer in range(LAYERS):
        for name, shape in (
            *(("qkv", (WIDTH, 3 * WIDTH)), ("out", (WIDTH, WIDTH))),
            *(("wide", (WIDTH, 4 * WIDTH)), ("back", (4 * WIDTH, WIDTH))),
            *((f"{part}{n}", (WIDTH,)) for n in (1, 2) for part in ("gain", "shift")),
        ):
            shapes[f"{layer}.{name}"] = shape
    return shapes | {"gain": (WIDTH,), "shift": (WIDTH,), "scores": (WIDTH, WORDS)}


def gpt_scores(kit: Kit, p: dict[str, Any], ids: Any) -> Any:
    """Pre-norm blocks: attention, then a perceptron with GELU, each with a residual connection."""
    batch, tokens = ids.shape
    rows, heads = (batch * tokens, WIDTH), (batch, tokens, HEADS, WIDTH // HEADS)
    x = (kit.embed(p["words"], ids) + p["places"]).reshape(rows)
    for layer in range(LAYERS):
        here = {name: p[f"{layer}.{name}"] for name in ("qkv", "out", "wide", "back")}
        qkv = kit.norm(x, p[f"{layer}.gain1"], p[f"{layer}.shift1"]) @ here["qkv"]
        q, k, v = (
            qkv[:, part * WIDTH : (part + 1) * WIDTH].reshape(heads).swapaxes(1, 2) for part in range(3)
        )
        x = x + kit.attend(q, k, v).swapaxes(1, 2).reshape(rows) @ here["out"]
        wide = kit.norm(x, p[f"{layer}.gain2"], p[f"{layer}.shift2"]) @ here["wide"]
        x = x + kit.gelu(wide) @ here["back"]
    return kit.norm(x, p["gain"], p["shift"]) @ p["scores"]


def lstm_shapes() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"words": (WORDS, WIDTH), "scores": (WIDTH, WORDS)}
    for layer in range(2):
        shapes |= {f"{layer}.{part}": (4 * WIDTH, WIDTH) for part in ("input", "hidden")}
        shapes[f"{layer}.bias"] = (4 * WIDTH,)
    return shapes


def lstm_scores(kit: Kit, p: dict[str, Any], ids: Any) -> Any:
    x = kit.embed(p["words"], ids)
    for layer in range(2):
        x = kit.lstm(x, *(p[f"{layer}.{part}"] for part in ("input", "hidden", "bias")))
    return x.reshape((-1, WIDTH)) @ p["scores"]


NETS = {
    "gpt-128": Net(gpt_shapes(128), gpt_scores, (4, 128)),
    "gpt-1024": Net(gpt_shapes(1024), gpt_scores, (4, 1024)),
    "lstm-language": Net(lstm_shapes(), lstm_scores, (16, 64)),
}


def make_data(net: Net) -> dict[str, Any]:
    """Tokens, each followed by the next one, and parameters."""
    params = {}
    for seed, (name, shape) in enumerate(net.shapes.items()):
        params[name] = normal(*shape, scale=WIDTH**-0.5, seed=seed)
        if "gain" in name:
            params[name] += 1
    ids = np.random.default_rng(1).integers(0, WORDS, (net.batch[0], net.batch[1] + 1))
    labels = np.ascontiguousarray(ids[:, 1:]).reshape(-1)
    return {"x": np.ascontiguousarray(ids[:, :-1]), "y": labels, "params": params}


# -- tracejit ------------------------------------------------------------------------------------------------


def tracejit_kit(tj: Any) -> Kit:
    nn = tj.nn
    return Kit(
        lambda table, ids: table[ids],
        lambda x, gain, shift: nn.layer_norm(x, gain, shift),
        lambda q, k, v: nn.attention(q, k, v, causal=True),
        lambda x: nn.gelu(x, approximate="tanh"),
        lambda x, w, u, b: nn.lstm(x, None, w, u, b)[0],
        nn.cross_entropy,
    )


def in_tracejit(net: Net, tj: Any, data: dict[str, Any]) -> Side:
    kit = tracejit_kit(tj)

    @tj.jit
    def train(params, state, x, y):
        loss, gradients = tj.value_and_grad(lambda p: kit.loss(net.scores(kit, p, x), y))(params)
        tj.optim.adam(params, gradients, state, RATE, BETA1, BETA2, EPSILON)
        return loss

    params = {name: tj.asarray(value) for name, value in data["params"].items()}
    state = tj.optim.adam_state(params)
    x, y, loss = tj.asarray(data["x"]), tj.asarray(data["y"]), None

    def step():
        nonlocal loss
        loss = train(params, state, x, y)

    def read():
        return training_results(loss.numpy(), {n: p.numpy() for n, p in params.items()}, data)

    return Side(step, read, train, lambda: (params, state, x, y))


# -- JAX -----------------------------------------------------------------------------------------------------


def jax_kit(jax: Any) -> Kit:
    jnp, nn = jax.numpy, jax.nn

    def norm(x, gain, shift):
        deviation = x - x.mean(-1, keepdims=True)
        return deviation * jax.lax.rsqrt((deviation**2).mean(-1, keepdims=True) + 1e-5) * gain + shift

    def attend(*operands):
        q, k, v = (x.swapaxes(1, 2) for x in operands)
        return nn.dot_product_attention(q, k, v, is_causal=True).swapaxes(1, 2)

    def lstm(x, w, u, b):
        def one(state, gates):
            hidden, cell = state
            i, f, g, o = jnp.split(gates + hidden @ u.T, 4, axis=-1)
            cell = nn.sigmoid(f) * cell + nn.sigmoid(i) * jnp.tanh(g)
            hidden = nn.sigmoid(o) * jnp.tanh(cell)
            return (hidden, cell), hidden

        zeros = jnp.zeros((x.shape[0], WIDTH), x.dtype)
        return jax.lax.scan(one, (zeros, zeros), (x @ w.T + b).swapaxes(0, 1))[1].swapaxes(0, 1)

    def loss(scores, y):
        return -jnp.take_along_axis(nn.log_softmax(scores), y[:, None], 1).mean()

    return Kit(lambda table, ids: table[ids], norm, attend, nn.gelu, lstm, loss)


def in_jax(net: Net, jax: Any, data: dict[str, Any]) -> Side:
    kit, jnp = jax_kit(jax), jax.numpy

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def train(params, state, x, y):
        loss, gradients = jax.value_and_grad(lambda p: kit.loss(net.scores(kit, p, x), y))(params)
        count, first, second = state
        count = count + 1
        first = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, first, gradients)
        second = jax.tree.map(lambda v, g: BETA2 * v + (1 - BETA2) * g * g, second, gradients)
        size, scale = RATE / (1 - BETA1**count), 1 / (1 - BETA2**count)
        params = jax.tree.map(
            lambda p, m, v: p - size * m / (jnp.sqrt(v * scale) + EPSILON), params, first, second
        )
        return params, (count, first, second), loss

    params = {name: jnp.asarray(value) for name, value in data["params"].items()}
    state = jnp.float32(0), *(jax.tree.map(jnp.zeros_like, params) for _ in range(2))
    x, y, loss = jnp.asarray(data["x"]), jnp.asarray(data["y"]), None

    def step():
        nonlocal params, state, loss
        params, state, loss = train(params, state, x, y)
        return params, loss

    return Side(step, lambda: training_results(loss, params, data), train, lambda: (params, state, x, y))


# -- PyTorch -------------------------------------------------------------------------------------------------


def torch_kit(torch: Any) -> Kit:
    functional = torch.nn.functional

    def lstm(x, w, u, b):
        zeros = x.new_zeros((1, x.shape[0], WIDTH))
        weights = [w, u, b, torch.zeros_like(b)]
        return torch._VF.lstm(x, (zeros, zeros), weights, True, 1, 0.0, True, False, True)[0]

    return Kit(
        lambda table, ids: functional.embedding(ids, table),
        lambda x, gain, shift: functional.layer_norm(x, (WIDTH,), gain, shift),
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True),
        lambda x: functional.gelu(x, approximate="tanh"),
        lstm,
        functional.cross_entropy,
    )


def in_torch(net: Net, torch: Any, data: dict[str, Any], *, compiled: bool = True) -> Side:
    """Autograd and a fused optimizer; `compiled`: scores and loss."""
    kit = torch_kit(torch)

    def loss_of(params, x, y):
        return kit.loss(net.scores(kit, params, x), y)

    evaluate = torch.compile(loss_of, dynamic=False) if compiled else loss_of
    params = {name: torch.tensor(value, requires_grad=True) for name, value in data["params"].items()}
    x, y = torch.from_numpy(data["x"]), torch.from_numpy(data["y"])
    updater = torch.optim.Adam(params.values(), RATE, (BETA1, BETA2), EPSILON, fused=True)
    return torch_training(updater, evaluate, params, (x, y), data)


def training(name: str, net: Net) -> Workload:
    """The workload of a net."""
    sides = {
        "tracejit": functools.partial(in_tracejit, net),
        "jax": functools.partial(in_jax, net),
        "torch": functools.partial(in_torch, net),
        "torch:eager": functools.partial(in_torch, net, compiled=False),
    }
    if net.scores is lstm_scores:  # torch.compile would unroll it, which takes minutes
        del sides["torch"]
    return Workload(name, "training", functools.partial(make_data, net), sides, tolerance=1e-2, steps=1)


WORKLOADS = [training(name, net) for name, net in NETS.items()]
