"""A network is trained, exported, saved, and used in a process that does not know how it was written.

1. A small network learns two spirals (NumPy makes them): one traced step, replayed.
2. `tj.export` makes a graph of its forward pass for any batch size; the file holds the graph and the weights.
3. Another process loads it, classifies, and trains the last layer further on spirals that turn the other way.
4. `draw` writes a picture of the training step.

    python examples/kept_graph.py [--folder FOLDER] [--steps 400]
"""

from __future__ import annotations

import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

import tracejit as tj

OTHER_PROCESS = """
import sys
import numpy as np
import tracejit as tj

net = tj.load_graph(sys.argv[1])
data = np.load(sys.argv[2])
x, labels = tj.asarray(data["x"]), tj.asarray(data["labels"])


@tj.jit
def tune(net, x, labels):
    loss, gradients = tj.value_and_grad(lambda net: tj.nn.cross_entropy(net(x), labels))(net)
    tj.optim.sgd(net, gradients, 0.5)
    return loss


def right(net):
    return float((net(x).argmax(1) == labels).mean())


print(f"  {net!r}")
print(f"  right on other spirals: {right(net):.0%}")
for _ in range(int(sys.argv[3])):
    tune(net, x, labels)
print(f"  after fine-tuning:      {right(net):.0%}")
net.save(sys.argv[1])
"""


def spirals(count: int, turn: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points of two spirals, shape (count, 2), and which one each is of."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, count)
    radius = rng.uniform(0.2, 1.0, count)
    angle = turn * 4 * radius + np.pi * labels
    x = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1) + rng.normal(0, 0.02, (count, 2))
    return x.astype("float32"), labels


def forward(params, x):
    """Class scores, shape (batch, 2)."""
    hidden = tj.tanh(x @ params["w1"] + params["b1"])
    return hidden @ params["w2"]


@tj.jit
def step(params, state, x, labels):
    """One step of Adam; returns the loss."""
    loss, gradients = tj.value_and_grad(lambda params: tj.nn.cross_entropy(forward(params, x), labels))(
        params
    )
    tj.optim.adam(params, gradients, state, 0.02)
    return loss


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=pathlib.Path, default=None, help="where files go (a new folder)")
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()
    folder = options.folder or pathlib.Path(tempfile.mkdtemp())

    tj.random.seed(0)
    params = {
        "w1": tj.random.normal(scale=3.0, shape=(2, 64)),
        "b1": tj.random.normal(scale=2.0, shape=64),
        "w2": tj.random.normal(scale=0.1, shape=(64, 2)),
    }
    state = tj.optim.adam_state(params)
    data, labels = map(tj.asarray, spirals(512, 1.0, 0))
    for _ in range(options.steps):
        loss = step(params, state, data, labels)
    print(f"trained: loss {float(loss):.3f}")

    def network(x):
        return forward(params, x)

    net = tj.export(network, tj.spec(("batch", 2)))
    path = folder / "spirals.safetensors"
    net.save(path)
    x, labels = spirals(256, 1.0, 1)
    right = (net(tj.asarray(x)).numpy().argmax(1) == labels).mean()
    print(f"exported to {path}: {right:.0%} right on new points")

    x, labels = spirals(512, -1.0, 2)
    np.savez(folder / "other.npz", x=x, labels=labels)
    print("in another process:", flush=True)
    command = [sys.executable, "-c", OTHER_PROCESS, path, folder / "other.npz", str(options.steps)]
    subprocess.run(command, check=True)

    tuned = tj.load_graph(path)
    right = (tuned(tj.asarray(x)).numpy().argmax(1) == labels).mean()
    print(f"loaded again: {right:.0%} right on the other spirals")
    for name in ("step.svg", "step.html"):
        step.draw(folder / name)
    print(f"pictures of the training step: {folder / 'step.svg'}, {folder / 'step.html'}")


if __name__ == "__main__":
    main()
