"""A residual network on handwritten digits: batch norm with running statistics, training and evaluation.

The data are the 1,797 scans that ship inside scikit-learn, 8x8 pixels. Training shifts images at random. The
trained network is saved as a safetensors file and loaded into a new one, whose predictions must be equal.

    python examples/resnet.py
"""

from __future__ import annotations

import os
import tempfile

import numpy as np
from sklearn.datasets import load_digits

import tracejit as tj

EPOCHS, BATCH, RATE = 3, 64, 0.1


class Residual(tj.nn.Module):
    """Two convolutions with a residual connection, which is convolved, too, if there is a stride."""

    def __init__(self, inputs, outputs, stride=1):
        self.first = tj.nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.second = tj.nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norms = [tj.nn.BatchNorm(outputs), tj.nn.BatchNorm(outputs)]
        self.shortcut = tj.nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False) if stride > 1 else None

    def forward(self, x):
        y = tj.nn.relu(self.norms[0](self.first(x)))
        y = self.norms[1](self.second(y))
        return tj.nn.relu(y + (x if self.shortcut is None else self.shortcut(x)))


class ResNet(tj.nn.Module):
    """Map images (batch, 1, 8, 8) to scores (batch, 10)."""

    def __init__(self):
        self.stem, self.norm = tj.nn.Conv2d(1, 16, 3, padding=1, bias=False), tj.nn.BatchNorm(16)
        self.blocks = tj.nn.Sequential(Residual(16, 16), Residual(16, 32, stride=2), Residual(32, 32))
        self.head = tj.nn.Linear(32, 10)

    def forward(self, x):
        x = tj.nn.relu(self.norm(self.stem(x)))
        return self.head(tj.nn.global_avg_pool(self.blocks(x)))


@tj.jit
def train_step(net, velocity, images, labels, rate):
    """One step of momentum, which also updates the running statistics; return the loss."""
    loss, gradients = tj.value_and_grad(lambda net: tj.nn.cross_entropy(net(images), labels))(net)
    tj.optim.momentum(net, gradients, velocity, rate)
    return loss


@tj.jit
def predict(net, images):
    """The most likely class of each image, by the running statistics if `net` is in evaluation mode."""
    return tj.argmax(net(images), axis=1)


def shifted(images, rng):
    """Images shifted by up to one pixel in each direction."""
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    down, right = rng.integers(0, 3, 2)
    return padded[:, :, down : down + 8, right : right + 8]


def batches(images, labels, seed=0):
    """All batches of the training run."""
    rng = np.random.default_rng(seed)
    for _ in range(EPOCHS):
        order = rng.permutation(len(labels))
        for start in range(0, len(labels) - BATCH + 1, BATCH):
            chosen = order[start : start + BATCH]
            yield shifted(images[chosen], rng), labels[chosen]


def load(seed=0):
    """Images in [0, 1] and labels, shuffled; a fifth is the test set."""
    digits = load_digits()
    order = np.random.default_rng(seed).permutation(len(digits.target))
    images = (digits.images / 16).astype(np.float32)[order, None]
    held_out = len(order) // 5
    labels = digits.target[order]
    return (images[held_out:], labels[held_out:]), (images[:held_out], labels[:held_out])


def main():
    """Train, save, load and evaluate; return the accuracy of the trained and of the loaded network."""
    tj.random.seed(0)
    train, (held_images, held_labels) = load()
    net = ResNet()
    velocity = tj.optim.zeros_like(net)
    steps = EPOCHS * (len(train[1]) // BATCH)
    for i, (images, labels) in enumerate(tj.data.prefetch(batches(*train))):
        loss = train_step(net, velocity, images, labels, tj.optim.one_cycle(i, steps, RATE))
        if i % 10 == 0:
            print(f"step {i:3} loss {float(loss):.3f}")
    accuracy = float((predict(net.eval(), held_images).numpy() == held_labels).mean())

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "resnet.safetensors")
        tj.save(path, net.state_dict())
        again = ResNet().eval()
        again.load_state_dict(tj.load(path))
    same = float((predict(again, held_images).numpy() == held_labels).mean())
    print(f"held-out accuracy {accuracy:.3f}, of the saved network {same:.3f}")
    print("the step:", train_step.cache_info())
    return accuracy, same


if __name__ == "__main__":
    main()
