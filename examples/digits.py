"""Train a classifier on the handwritten digits that ship inside scikit-learn (1,797 real scans, 8x8 pixels).

A 64-256-128-10 network, cross entropy, momentum, mini-batches of 64. The training step is ordinary imperative
code on a dict of parameters, which it updates in place; `@tj.jit` records it once and replays it afterwards.
An equivalent step in NumPy runs on the same batches; the times and losses of both are compared.

    python examples/digits.py [--epochs 30] [--seed 0]
"""

from __future__ import annotations

import argparse
import itertools
import os
import pathlib
import statistics
import sys
import time

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from sklearn.datasets import load_digits

import tracejit as tj

SIZES = (64, 256, 128, 10)
BATCH = 64
MOMENTUM = 0.9
COMMAND = os.path.relpath(pathlib.Path(sys.executable).with_name("tracejit"))
"""The path of the command ``tracejit`` in this environment."""


def forward(params, x):
    """Class scores, shape (batch, 10)."""
    hidden = tj.nn.relu(x @ params["w1"] + params["b1"])
    hidden = tj.nn.relu(hidden @ params["w2"] + params["b2"])
    return hidden @ params["w3"] + params["b3"]


@tj.jit
def train_step(params, velocity, x, y, learning_rate):
    """One step of momentum: update `params` and `velocity` in place, return the batch's loss."""

    def loss_of(params):
        return tj.nn.cross_entropy(forward(params, x), y)

    loss, gradients = tj.value_and_grad(loss_of)(params)
    for name, gradient in gradients.items():
        velocity[name] *= MOMENTUM
        velocity[name] += gradient
        params[name] -= learning_rate * velocity[name]
    return loss


@tj.jit
def predict(params, x):
    """The most likely class of each image."""
    return tj.argmax(forward(params, x), axis=1)


def train_step_numpy(params, velocity, x, y, learning_rate):
    """The same step in NumPy, with handwritten gradients."""
    h1 = np.maximum(x @ params["w1"] + params["b1"], 0)
    h2 = np.maximum(h1 @ params["w2"] + params["b2"], 0)
    scores = h2 @ params["w3"] + params["b3"]
    scores -= scores.max(axis=1, keepdims=True)
    exponentials = np.exp(scores)
    sums = exponentials.sum(axis=1, keepdims=True)
    rows = np.arange(len(y))
    loss = (np.log(sums[:, 0]) - scores[rows, y]).mean()
    d3 = exponentials / sums
    d3[rows, y] -= 1
    d3 /= np.float32(len(y))
    d2 = (d3 @ params["w3"].T) * (h2 > 0)
    d1 = (d2 @ params["w2"].T) * (h1 > 0)
    gradients = {
        "w1": x.T @ d1, "b1": d1.sum(axis=0),
        "w2": h1.T @ d2, "b2": d2.sum(axis=0),
        "w3": h2.T @ d3, "b3": d3.sum(axis=0),
    }  # fmt: skip
    for name, gradient in gradients.items():
        velocity[name] *= np.float32(MOMENTUM)
        velocity[name] += gradient
        params[name] -= np.float32(learning_rate) * velocity[name]
    return loss


def load(seed: int):
    """Images scaled to [0, 1] and labels, shuffled; a fifth is the test set."""
    digits = load_digits()
    order = np.random.default_rng(seed).permutation(len(digits.target))
    images, labels = (digits.data / 16).astype(np.float32)[order], digits.target.astype(np.int64)[order]
    held_out = len(labels) // 5
    return (images[held_out:], labels[held_out:]), (images[:held_out], labels[:held_out])


def initial(seed: int):
    """Parameters as NumPy arrays: He initialisation for the weights, zeros for the biases."""
    rng = np.random.default_rng(seed)
    params = {}
    for layer, (fan_in, fan_out) in enumerate(itertools.pairwise(SIZES), 1):
        weights = rng.standard_normal((fan_in, fan_out)) * np.sqrt(2 / fan_in)
        params[f"w{layer}"] = weights.astype(np.float32)
        params[f"b{layer}"] = np.zeros(fan_out, np.float32)
    return params


def batches(images, labels, epochs: int, seed: int):
    """All mini-batches of the training run with the learning rate of each step."""
    rng = np.random.default_rng(seed)
    for epoch in range(epochs):
        order = rng.permutation(len(labels))
        for start in range(0, len(labels) - BATCH + 1, BATCH):
            chosen = order[start : start + BATCH]
            yield images[chosen], labels[chosen], 0.05 * 0.95**epoch


def main() -> None:
    """Train, compare with NumPy, and report the results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    console = Console()

    (images, labels), (held_images, held_labels) = load(options.seed)
    steps = list(batches(images, labels, options.epochs, options.seed))
    by_hand = initial(options.seed)
    velocity_by_hand = {name: np.zeros_like(value) for name, value in by_hand.items()}
    params = {name: tj.asarray(value) for name, value in by_hand.items()}
    velocity = {name: tj.zeros(value.shape) for name, value in by_hand.items()}

    ours, numpys, difference = [], [], 0.0
    columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        for x, y, learning_rate in progress.track(steps):
            start = time.perf_counter()
            loss = train_step(params, velocity, x, y, learning_rate).wait()
            middle = time.perf_counter()
            loss_by_hand = train_step_numpy(by_hand, velocity_by_hand, x, y, learning_rate)
            end = time.perf_counter()
            ours.append(middle - start)
            numpys.append(end - middle)
            difference = max(difference, abs(float(loss) - float(loss_by_hand)))

    accuracy = float((predict(params, held_images).numpy() == held_labels).mean())
    report(console, accuracy, ours, numpys, float(loss), float(loss_by_hand), difference)


def report(console, accuracy, ours, numpys, loss, loss_by_hand, difference) -> None:
    """Print a short report."""
    schedule = train_step.schedules()[0]
    first, info = train_step.first_call(), train_step.cache_info()
    replay, numpy = (statistics.median(times[1:]) * 1e6 for times in (ours, numpys))
    source = (
        f"load {first.compile * 1e3:.0f} ms: every kernel came from the store, nothing was compiled"
        if info.kernels_compiled == 0
        else f"compile {first.compile * 1e3:.0f} ms: {info.kernels_compiled} kernels compiled, "
        f"{info.kernels_loaded} from the store"
    )
    lines = {
        "held-out accuracy": f"{accuracy:.4f}",
        "first call": f"{first.total * 1e3:.0f} ms: record {first.record * 1e3:.0f} ms, {source}, "
        f"run {first.run * 1e3:.1f} ms",
        "a step, median": f"{replay:.0f} us replayed, {numpy:.0f} us by hand in NumPy "
        f"({numpy / replay:.1f} times as long)",
        "last loss": f"{loss:.6f} and {loss_by_hand:.6f} (never more than {difference:.0e} apart)",
        "fusion": f"{schedule.operations} recorded operations became {len(schedule.tasks)} tasks of "
        f"{len(schedule.kernels)} kernels",
        "intermediate memory": f"{schedule.planned_bytes:,} bytes planned, {schedule.naive_bytes:,} naive",
        "the kernels": f"{COMMAND} cache list, {COMMAND} cache show NAME",
        "in Python": "train_step.explain(), train_step.schedules(), train_step.first_call()",
    }
    table = Table.grid(padding=(0, 2))
    for name, fact in lines.items():
        table.add_row(name, escape(fact))
    console.print(table)


if __name__ == "__main__":
    main()
