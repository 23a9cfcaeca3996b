"""A dozen training steps as people write them: none is piecewise, each replays, and each equals NumPy's."""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import math
import time
import types
from enum import Enum

import numpy as np
import pytest

import tracejit as tj

EPS = 1e-5
Batch = collections.namedtuple("Batch", "x y")
Parameters = dict[str, object]


def data(i, rows=16, columns=4, classes=3):
    rng = np.random.default_rng(i)
    x = rng.normal(size=(rows, columns)).astype(np.float32)
    return x, rng.integers(0, classes, rows)


def replayed(function, calls, traces=1):
    text = function.explain()
    assert "runs piecewise" not in text, text
    info = function.cache_info()
    assert (info.traces, info.replays) == (traces, calls - traces), text


def close(given, expected, rtol=2e-4):
    np.testing.assert_allclose(np.asarray(given), expected, rtol=rtol, atol=1e-5)


def test_linear_regression():
    @tj.jit
    def step(w, b, x, y, lr):
        error = x @ w + b - y
        loss = (error * error).mean()
        w -= lr * (x.T @ error) * (2 / len(y))
        b -= lr * error.mean() * 2
        return loss

    w, b = tj.zeros(4), tj.zeros(())
    pw, pb = np.zeros(4), 0.0
    for i in range(10):
        x, y = data(i)
        lr = 0.1 * 0.9**i
        loss = step(w, b, tj.asarray(x), tj.asarray(y.astype(np.float32)), lr)
        error = x @ pw + pb - y
        close(loss, (error**2).mean())
        pw, pb = pw - lr * 2 / 16 * x.T @ error, pb - lr * 2 * error.mean()
    close(w, pw)
    close(b, pb)
    replayed(step, 10)


def logistic_gradient(w, x, y):
    logits = x @ w
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    loss = -np.log(p[np.arange(len(y)), y]).mean()
    p[np.arange(len(y)), y] -= 1
    return loss, x.T @ p / len(y)


def test_softmax_regression_with_grad_and_dicts():
    def loss_fn(params, batch):
        logits = batch.x @ params["w"]
        return tj.nn.cross_entropy(logits, batch.y)

    @tj.jit
    def step(params, batch, *, lr=0.5):
        loss, grads = tj.value_and_grad(loss_fn)(params, batch)
        for name, p in params.items():
            p -= lr * grads[name]
        return {"loss": loss, "rows": len(batch.x)}

    params, w = {"w": tj.zeros((4, 3))}, np.zeros((4, 3))
    for i in range(8):
        x, y = data(i)
        out = step(params, Batch(tj.asarray(x), tj.asarray(y)))
        loss, g = logistic_gradient(w, x, y)
        w -= 0.5 * g
        close(out["loss"], loss)
        assert out["rows"] == 16
    close(params["w"], w)
    replayed(step, 8)


class Linear:
    def __init__(self, rng, n_in, n_out, activation=None):
        bound = 1 / math.sqrt(n_in)
        self.weight = tj.asarray(rng.uniform(-bound, bound, (n_in, n_out)).astype(np.float32))
        self.bias = tj.zeros(n_out)
        self.activation = activation

    def __call__(self, x):
        y = x @ self.weight + self.bias
        return self.activation(y) if self.activation is not None else y

    def parameters(self):
        return [self.weight, self.bias]


class Sequential:
    def __init__(self, *layers):
        self.layers = list(layers)

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

    def parameters(self):
        return [p for layer in self.layers for p in layer.parameters()]


class Momentum:
    def __init__(self, params, lr=0.1, beta=0.9):
        self.params, self.lr, self.beta = params, lr, beta
        self.velocity = [tj.zeros_like(p) for p in params]
        self.steps = 0

    def step(self, grads):
        self.steps += 1
        for p, v, g in zip(self.params, self.velocity, grads, strict=True):
            v[...] = self.beta * v + g
            p -= self.lr * v


class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    @tj.jit
    def step(self, x, y):
        params = self.model.parameters()

        def loss_fn(params):
            return tj.nn.cross_entropy(self.model(x), y)

        loss, grads = tj.value_and_grad(loss_fn)(params)
        self.optimizer.step(grads)
        return loss


def test_modules_optimizers_and_a_trainer_of_classes():
    rng = np.random.default_rng(0)
    model = Sequential(Linear(rng, 4, 8, tj.tanh), Linear(rng, 8, 3))
    trainer = Trainer(model, Momentum(model.parameters()))
    w = [p.numpy().astype(np.float64) for p in model.parameters()]
    v = [np.zeros_like(p) for p in w]
    for i in range(8):
        x, y = data(i)
        loss = trainer.step(tj.asarray(x), tj.asarray(y))
        hidden = np.tanh(x @ w[0] + w[1])
        logits = hidden @ w[2] + w[3]
        p = np.exp(logits - logits.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        close(loss, -np.log(p[np.arange(16), y]).mean())
        p[np.arange(16), y] -= 1
        p /= 16
        back = p @ w[2].T * (1 - hidden**2)
        grads = [x.T @ back, back.sum(0), hidden.T @ p, p.sum(0)]
        v = [0.9 * a + g for a, g in zip(v, grads, strict=True)]
        w = [a - 0.1 * b for a, b in zip(w, v, strict=True)]
    for given, expected in zip(model.parameters(), w, strict=True):
        close(given, expected)
    assert trainer.optimizer.steps == 8
    replayed(Trainer.step, 8)
    trainer.optimizer.lr = 0.01
    trainer.step(tj.asarray(x), tj.asarray(y))
    assert Trainer.step.cache_info().traces == 2  # a plain attribute is guarded
    assert "lr: 0.1 -> 0.01" in Trainer.step.explain()


def test_adam_of_the_library():
    @tj.jit
    def step(params, state, x, y, lr):
        loss, grads = tj.value_and_grad(lambda p: ((x @ p["w"] - y) ** 2).mean())(params)
        tj.optim.adam(params, grads, state, lr)
        return loss

    params = {"w": tj.zeros(4)}
    state = tj.optim.adam_state(params)
    w, m, v = np.zeros(4), np.zeros(4), np.zeros(4)
    for i in range(10):
        x, y = data(i)
        lr = 0.1 / (1 + i)
        step(params, state, tj.asarray(x), tj.asarray(y.astype(np.float32)), lr)
        g = 2 / 16 * x.T @ (x @ w - y)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        w -= lr * (m / (1 - 0.9 ** (i + 1))) / (np.sqrt(v / (1 - 0.999 ** (i + 1))) + 1e-8)
    close(params["w"], w, rtol=2e-3)
    assert state["step"] == 10
    replayed(step, 10)


class Mode(Enum):
    TRAIN = "train"
    TEST = "test"


@dataclasses.dataclass
class Config:
    width: int = 8
    rate: float = 0.25
    mode: Mode = Mode.TRAIN
    names: tuple[str, ...] = ("w1", "w2")


@dataclasses.dataclass
class TrainState:
    params: dict
    step: int = 0
    average: object = None

    @property
    def warm(self):
        return self.average is not None


def test_dataclasses_enums_and_configuration():
    config = Config()

    @tj.jit
    def update(state, x, config):
        if config.mode is Mode.TEST:
            return None
        label = f"{config.mode.value}:{'/'.join(config.names)}"
        for k, name in enumerate(config.names):
            assert isinstance(state.params[name], tj.NDArray)
            state.params[name] = state.params[name] * (1 - config.rate) + x * (k + 1)
        state.step += 1
        total = sum(p.sum() for p in state.params.values())
        state.average = total if not state.warm else 0.5 * state.average + 0.5 * total
        return label

    state = TrainState({name: tj.zeros(8) for name in config.names})
    w, average = np.zeros((2, 8)), None
    for i in range(8):
        x = np.full(8, i, np.float32)
        assert update(state, tj.asarray(x), config) == "train:w1/w2"
        w = w * 0.75 + x * np.array([[1], [2]])
        average = w.sum() if average is None else 0.5 * average + 0.5 * w.sum()
        close(state.average, average)
        assert state.step == i + 1
    assert update(state, tj.asarray(x), Config(mode=Mode.TEST)) is None
    replayed(update, 9, traces=3)


@dataclasses.dataclass(frozen=True)
class Moments:
    mean: object
    square: object
    notes: dict = dataclasses.field(default_factory=dict)
    decay: float = 0.5


@dataclasses.dataclass
class Stamped:
    value: object
    at: float = dataclasses.field(default_factory=time.perf_counter)


def test_dataclasses_made_in_the_body():
    @tj.jit
    def update(moments, x):
        moments.notes["rows"] = len(x)
        decay = moments.decay
        mean, square = moments.mean * decay + x, moments.square * decay + x * x
        return Moments(mean, square, dict(moments.notes))

    moments, mean, square = Moments(tj.zeros(3), tj.zeros(3)), np.zeros(3), np.zeros(3)
    for i in range(4):
        x = np.full(3, i, np.float32)
        moments = update(moments, tj.asarray(x))
        mean, square = mean * 0.5 + x, square * 0.5 + x * x
        close(moments.mean, mean)
        close(moments.square, square)
        assert type(moments) is Moments
        assert moments.notes == {"rows": 3}
    assert "runs piecewise" not in update.explain()

    @tj.jit
    def stamp(x):
        return Stamped(x + 1).at

    assert len({stamp(tj.ones(2)) for _ in range(3)}) == 3
    assert "perf_counter() may have an effect" in stamp.explain()


def test_gradient_clipping_weight_decay_and_a_schedule():
    def schedule(step, warmup, total):
        return min(step / warmup, 1.0) * 0.5 * (1 + math.cos(math.pi * min(step, total) / total))

    @tj.jit
    def update(params, grads, lr, *, decay=0.01, clip=1.0):
        norm = tj.sqrt(sum((g * g).sum() for g in grads))
        scale = tj.minimum(1.0, clip / (norm + 1e-6))
        for p, g in zip(params, grads, strict=True):
            p *= 1 - lr * decay
            p -= lr * scale * g
        return norm

    rng = np.random.default_rng(0)
    plain = [rng.normal(size=(3, 2)), rng.normal(size=5)]
    params = [tj.asarray(p.astype(np.float32)) for p in plain]
    for i in range(1, 9):
        grads = [rng.normal(size=p.shape) for p in plain]
        lr = schedule(i, 3, 8)
        norm = update(params, [tj.asarray(g.astype(np.float32)) for g in grads], lr)
        expected = np.sqrt(sum((g * g).sum() for g in grads))
        close(norm, expected)
        plain = [
            p * (1 - lr * 0.01) - lr * min(1, 1 / (expected + 1e-6)) * g
            for p, g in zip(plain, grads, strict=True)
        ]
        for p, q in zip(params, plain, strict=True):
            close(p, q)
    replayed(update, 8)


def test_an_unrolled_recurrent_network():
    @tj.jit
    def forward(params, xs, h):
        states = []
        for t in range(xs.shape[0]):
            h = tj.tanh(xs[t] @ params["wx"] + h @ params["wh"] + params["b"])
            states.append(h)
        return tj.stack(states), h

    rng = np.random.default_rng(0)
    plain = {"wx": rng.normal(size=(3, 5)) * 0.3, "wh": rng.normal(size=(5, 5)) * 0.3, "b": np.zeros(5)}
    params = {k: tj.asarray(v.astype(np.float32)) for k, v in plain.items()}
    h, ph = tj.zeros((2, 5)), np.zeros((2, 5))
    for i in range(5):
        xs = np.random.default_rng(i).normal(size=(6, 2, 3))
        states, h = forward(params, tj.asarray(xs.astype(np.float32)), h)
        expected = []
        for x in xs:
            ph = np.tanh(x @ plain["wx"] + ph @ plain["wh"] + plain["b"])
            expected.append(ph)
        close(states, np.stack(expected), rtol=1e-3)
    replayed(forward, 5)


def test_batch_normalisation_with_running_statistics():
    class BatchNorm:
        def __init__(self, width):
            self.gamma, self.beta = tj.ones(width), tj.zeros(width)
            self.mean, self.var = tj.zeros(width), tj.ones(width)
            self.momentum, self.training, self.updates = 0.1, True, 0

        def __call__(self, x):
            if self.training:
                mean, var = x.mean(axis=0), x.var(axis=0)
                self.mean = (1 - self.momentum) * self.mean + self.momentum * mean
                self.var = (1 - self.momentum) * self.var + self.momentum * var
                self.updates += 1
            else:
                mean, var = self.mean, self.var
            return (x - mean) / tj.sqrt(var + EPS) * self.gamma + self.beta

    norm = BatchNorm(4)
    step = tj.jit(lambda x: norm(x))
    mean, var = np.zeros(4), np.ones(4)
    for i in range(9):
        norm.training = i % 3 != 2
        x, _ = data(i)
        result = step(tj.asarray(x))
        if norm.training:
            m, v = x.mean(0), x.var(0)
            mean, var = 0.9 * mean + 0.1 * m, 0.9 * var + 0.1 * v
        else:
            m, v = mean, var
        close(result, (x - m) / np.sqrt(v + EPS), rtol=2e-3)
        close(norm.mean, mean)
        assert norm.updates == i + 1 - (i + 1) // 3
    replayed(step, 9, traces=2)


def test_dropout_and_masks_under_a_flag():
    @tj.jit
    def forward(x, w, *, training=True, rate=0.5):
        h = tj.maximum(x @ w, 0.0)
        if training and rate > 0:
            keep = tj.random.bernoulli(1 - rate, shape=h.shape)
            h = tj.where(keep, h / (1 - rate), 0.0)
        h[:, 0] = 1.0
        return h.sum(axis=1)

    x, _ = data(0)
    w = tj.ones((4, 6))
    for i in range(6):
        out = forward(tj.asarray(x), w, training=i % 2 == 0)
        if i % 2:
            close(out, 1 + 5 * np.maximum(x.sum(1), 0))
    replayed(forward, 6, traces=2)


def test_attention_with_einsum_like_reshapes():
    heads = 2

    def split(x):
        batch, length, width = x.shape
        return x.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3)

    @tj.jit
    def attention(x, wq, wk, wv):
        q, k, v = (split(x @ w) for w in (wq, wk, wv))
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        length = x.shape[1]
        causal = tj.tril(tj.ones((length, length)))
        scores = tj.where(causal > 0, scores, -1e9)
        out = tj.nn.softmax(scores) @ v
        return out.transpose(0, 2, 1, 3).reshape(x.shape)

    def plain(x, *ws):
        q, k, v = ((x @ w).reshape(x.shape[0], x.shape[1], heads, -1).transpose(0, 2, 1, 3) for w in ws)
        scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
        scores = np.where(np.tril(np.ones((x.shape[1],) * 2)) > 0, scores, -1e9)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        return ((p / p.sum(-1, keepdims=True)) @ v).transpose(0, 2, 1, 3).reshape(x.shape)

    rng = np.random.default_rng(0)
    ws = [rng.normal(size=(8, 8)).astype(np.float32) for _ in range(3)]
    for i in range(4):
        x = np.random.default_rng(i).normal(size=(2, 5, 8)).astype(np.float32)
        close(attention(tj.asarray(x), *map(tj.asarray, ws)), plain(x, *ws), rtol=1e-3)
    replayed(attention, 4)


def test_embedding_lookup_and_update():
    table = tj.asarray(np.arange(20, dtype=np.float32).reshape(10, 2))
    expected = np.arange(20, dtype=np.float64).reshape(10, 2)

    @tj.jit
    def step(index, lr):
        def loss(table):
            return (tj.take(table, index, axis=0) ** 2).sum()

        value, gradient = tj.value_and_grad(loss)(table)
        table[...] = table - lr * gradient
        return value

    for i in range(5):
        index = np.array([i, 3, 3, 9 - i])
        value = step(tj.asarray(index), 0.1)
        rows = expected[index]
        close(value, (rows**2).sum())
        np.add.at(expected, index, -0.1 * 2 * rows)
        close(table, expected)
    replayed(step, 5)


def test_power_iteration_and_k_means():
    @tj.jit
    def power(a, v, rounds):
        for _ in range(rounds):
            v = a @ v
            v = v / tj.sqrt((v * v).sum())
        return v, v @ (a @ v)

    @tj.jit
    def assign(points, centres):
        distances = ((points[:, None, :] - centres[None, :, :]) ** 2).sum(axis=-1)
        nearest = distances.argmin(axis=1)
        for k in range(len(centres)):
            member = (nearest == k).astype(points.dtype)[:, None]
            centres[k] = (points * member).sum(axis=0) / tj.maximum(member.sum(), 1.0)
        return nearest

    rng = np.random.default_rng(0)
    a = rng.normal(size=(5, 5))
    a = (a @ a.T).astype(np.float32)
    v = tj.ones(5)
    for _ in range(4):
        v, value = power(tj.asarray(a), v, 5)
    close(value, np.linalg.eigvalsh(a)[-1], rtol=1e-3)
    replayed(power, 4)
    points = rng.normal(size=(30, 2)).astype(np.float32)
    centres, plain = tj.asarray(points[:3]), points[:3].copy()
    for _ in range(5):
        nearest = assign(tj.asarray(points), centres)
        expected = ((points[:, None] - plain[None]) ** 2).sum(-1).argmin(1)
        np.testing.assert_array_equal(nearest.numpy(), expected)
        plain = np.stack([points[expected == k].mean(0) for k in range(3)])
        close(centres, plain)
    replayed(assign, 5)


def test_what_ordinary_bodies_do_in_python():
    options = types.SimpleNamespace(depth=2, names=["a", "b", "c"], table={"gain": 1.5})
    registry = {"relu": lambda x: tj.maximum(x, 0.0), "tanh": tj.tanh}

    def width(n):
        return max(n, 2) * 2

    @tj.jit(strict=True)
    def step(params, x, lr, flags=("fast", "safe")):
        state = copy.copy(params)
        shapes = {name: p.shape for name, p in params.items()}
        ordered = sorted(params, key=lambda name: (-params[name].size, name))
        assert all(isinstance(params[n], tj.NDArray) for n in ordered), "arrays expected"
        pairs = [(a, b) for a, b in zip(ordered, reversed(ordered), strict=True) if a != b]
        text = ", ".join(f"{k}={v!r}" for k, v in shapes.items()).upper()
        x = functools.reduce(lambda acc, name: registry[name](acc), ("relu", "tanh"), x)
        for depth, name in enumerate(options.names[: options.depth], start=1):
            x = x * options.table.get("gain", 1.0) + depth * len(name)
        total = math.fsum([1.0, 2.0]) + math.prod(shapes["w"]) + width(3) + len(pairs) + ("fast" in flags)
        *_, last = (x[i] for i in range(x.shape[0]))
        state["w"] = state["w"] - lr * last * total
        params.update({k: v for k, v in state.items() if k != "b"})
        return {"text": text, "max": max(x.shape), "slice": x[slice(0, 2)], "any": any(shapes.values())}

    w, b = np.zeros(3), np.ones(3)
    params = {"w": tj.zeros(3), "b": tj.ones(3)}
    for i in range(5):
        x = np.full((2, 3), i - 1.0, np.float32)
        lr = 0.1 + i
        out = step(params, tj.asarray(x), lr)
        y = np.tanh(np.maximum(x, 0))
        for depth in (1, 2):
            y = y * 1.5 + depth
        w = w - lr * y[-1] * (3 + 3 + 6 + 2 + 1)
        close(params["w"], w)
        close(params["b"], b)
        close(out["slice"], y)
        assert (out["text"], out["max"], out["any"]) == ("W=(3,), B=(3,)", 3, True)
    replayed(step, 5)


def test_a_mean_over_a_batch_has_one_kernel_for_all_batch_sizes():
    """Also where the count is a power of two, by which a quotient could be a product."""

    @tj.jit
    def step(x, y):
        return tj.nn.cross_entropy(x, y), x.mean(axis=0)

    keys = []
    for batch in (8, 12, 16, 17):
        x = np.random.default_rng(batch).normal(size=(batch, 5)).astype(np.float32)
        _loss, mean = step(tj.asarray(x), tj.asarray(np.arange(batch) % 5))
        close(mean, x.mean(axis=0))
        keys.append({kernel.key for kernel in step.schedules()[-1].kernels})
    assert keys[0] == keys[1] == keys[2] == keys[3]


@pytest.mark.parametrize("rows", [3, 5])
def test_a_new_batch_size_retraces_and_shares_kernels(rows):
    @tj.jit
    def step(x, w):
        return tj.tanh(x * w + 1.0).sum(axis=0)

    w = tj.ones(4)
    for n in (rows, rows + 1, rows, rows + 2, rows + 1):
        x = np.full((n, 4), 0.5, np.float32)
        close(step(tj.asarray(x), w), n * np.tanh(np.full(4, 1.5)))
    replayed(step, 5, traces=3)
    assert len({k.key for s in step.schedules() for k in s.kernels}) == 1


@pytest.mark.parametrize("sizes", [range(100, 900, 100), range(800, 0, -100)])
def test_signatures_share_internal_memory(sizes):
    """As executors of different batch sizes do in MXNet."""

    @tj.jit
    def step(x, w):
        h = tj.tanh(x @ w)
        return (h @ w.T - x).sum()

    w = tj.asarray(np.full((64, 64), 0.01, np.float32))
    tj.wait_all()
    tj.engine.pool.trim()
    totals = []
    for size in sizes:
        totals.append(float(step(tj.ones((size, 64)), w)))
    planned = [schedule.planned_bytes for schedule in step.schedules()]
    assert len(set(planned)) == len(sizes)
    idle = sum(arena.nbytes for arena in tj.engine.pool.idle.values())
    assert idle < 1.5 * max(planned) < sum(planned)
    np.testing.assert_allclose(totals, [sum_of_errors(n) for n in sizes], rtol=1e-3)


def sum_of_errors(rows):
    x, w = np.ones((rows, 64)), np.full((64, 64), 0.01)
    return (np.tanh(x @ w) @ w.T - x).sum()
