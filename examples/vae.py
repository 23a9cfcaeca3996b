"""A variational autoencoder on handwritten digits (Kingma and Welling 2014).

The encoder returns the mean and standard deviation of a code. `tj.random.normal` draws a code from them, and
gradients propagate to both through it. The decoder returns the probability of each pixel. After training, the
example generates images of new digits.

    python examples/vae.py
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

import tracejit as tj

PIXELS, HIDDEN, CODE = 64, 128, 8
EPOCHS, BATCH, RATE = 12, 64, 2e-3


class VAE(tj.nn.Module):
    """An encoder, a decoder, and the generator that draws codes."""

    def __init__(self, seed):
        self.encoder = tj.nn.Linear(PIXELS, HIDDEN)
        self.mean, self.log_deviation = tj.nn.Linear(HIDDEN, CODE), tj.nn.Linear(HIDDEN, CODE)
        self.decoder = [tj.nn.Linear(CODE, HIDDEN), tj.nn.Linear(HIDDEN, PIXELS)]
        self.rng = tj.random.Generator(seed)

    def encode(self, x):
        """Mean and logarithm of the standard deviation of the codes of images, each (batch, CODE)."""
        hidden = tj.nn.silu(self.encoder(x))
        return self.mean(hidden), self.log_deviation(hidden)

    def decode(self, codes):
        """Log odds of the pixels, (batch, PIXELS)."""
        first, second = self.decoder
        return second(tj.nn.silu(first(codes)))

    def forward(self, x):
        """The negative evidence lower bound per image: a loss in nats."""
        mean, log_deviation = self.encode(x)
        codes = self.rng.normal(mean, tj.exp(log_deviation))
        pixels = tj.nn.binary_cross_entropy_with_logits(self.decode(codes), x, reduction="sum")
        divergence = tj.sum(mean**2 + tj.exp(2 * log_deviation) - 2 * log_deviation - 1) / 2
        return (pixels + divergence) / x.shape[0]


@tj.jit
def train_step(model, state, x):
    """One step of Adam; return the loss."""
    loss, gradients = tj.value_and_grad(lambda model: model(x))(model)
    tj.optim.adam(model, gradients, state, RATE)
    return loss


@tj.jit
def imagine(model, count):
    """Probabilities of the pixels of `count` new images."""
    return tj.nn.sigmoid(model.decode(model.rng.normal(shape=(count, CODE)))).reshape(count, 8, 8)


def shown(images):
    """Images side by side, as text."""
    shades = np.array(list(" .:-=+*#%@"))
    rows = np.concatenate(list(images), axis=1)
    return "\n".join("".join(np.repeat(shades[(row * 9.99).astype(int)], 2)) for row in rows)


def main():
    """Train and generate images; return the mean loss of each epoch and the new images."""
    images = tj.asarray((load_digits().data / 16).astype(np.float32))
    tj.random.seed(0)
    model = VAE(seed=1)
    state = tj.optim.adam_state(model)
    losses = []
    for epoch in range(EPOCHS):
        order = tj.random.permutation(images.shape[0])
        total = tj.zeros(())
        starts = range(0, len(images) - BATCH + 1, BATCH)
        for start in starts:
            total += train_step(model, state, images[order[start : start + BATCH]])
        losses.append(float(total) / len(starts))
        print(f"epoch {epoch:2} loss {losses[-1]:.2f}")
    new = imagine(model, 6).numpy()
    print(shown(new))
    print("the step:", train_step.cache_info())
    return losses, new


if __name__ == "__main__":
    main()
