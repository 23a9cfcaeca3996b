"""A small language model: it learns the Zen of Python character by character, then generates text.

The model has two blocks of causal attention, as in GPT-2, written as modules. The optimizer is AdamW with
warm-up, a cosine schedule and gradient clipping. The step updates the model in place and is recorded once.
Sampling draws from a separate generator, so the same seed generates the same text.

    python examples/gpt.py
"""

from __future__ import annotations

import codecs
import contextlib
import io

import numpy as np

import tracejit as tj

with contextlib.redirect_stdout(io.StringIO()):
    import this

TEXT = codecs.decode(this.s, "rot13")
CONTEXT, WIDTH, HEADS, BLOCKS = 32, 64, 4, 2
STEPS, BATCH, RATE = 200, 16, 3e-3

alphabet = sorted(set(TEXT))
codes = np.array([alphabet.index(c) for c in TEXT])


class Block(tj.nn.Module):
    """Attention and a small network, each with a residual connection."""

    def __init__(self):
        self.before_attention, self.before_mlp = tj.nn.LayerNorm(WIDTH), tj.nn.LayerNorm(WIDTH)
        self.attention = tj.nn.MultiHeadAttention(WIDTH, HEADS)
        self.widen, self.narrow = tj.nn.Linear(WIDTH, 4 * WIDTH), tj.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        x = x + self.attention(self.before_attention(x), causal=True)
        return x + self.narrow(tj.nn.gelu(self.widen(self.before_mlp(x))))


class GPT(tj.nn.Module):
    """Map characters (batch, time) to scores of the next character (batch, time, alphabet)."""

    def __init__(self):
        self.characters = tj.nn.Embedding(len(alphabet), WIDTH)
        self.positions = tj.nn.Embedding(CONTEXT, WIDTH)
        self.blocks = [Block() for _ in range(BLOCKS)]
        self.norm, self.head = tj.nn.LayerNorm(WIDTH), tj.nn.Linear(WIDTH, len(alphabet), bias=False)

    def forward(self, codes):
        x = self.characters(codes) + self.positions(tj.arange(codes.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


@tj.jit
def train_step(model, state, codes, step):
    """One step of AdamW on a batch of (batch, CONTEXT + 1) characters; return the loss."""

    def loss_of(model):
        return tj.nn.cross_entropy(model(codes[:, :-1]), codes[:, 1:])

    loss, gradients = tj.value_and_grad(loss_of)(model)
    rate = tj.optim.warm_up(step, 20) * tj.optim.cosine(step, STEPS, RATE)
    tj.optim.adamw(model, tj.optim.clip_by_global_norm(gradients, 1.0), state, rate)
    return loss


@tj.jit
def next_character(model, window, last, temperature, rng):
    """Draw the character after index `last` of a window (1, CONTEXT). `last` is an array, so its value is an
    input of each replay; a Python number would become a constant of the recording.
    """
    scores = model(window)[0, last]
    return tj.random.categorical(scores / temperature, generator=rng)


def write(model, start, count, temperature=0.5, seed=0):
    """Return `start`, continued by `count` characters of the model."""
    rng = tj.random.Generator(seed)
    text = [alphabet.index(c) for c in start]
    for _ in range(count):
        seen = text[-CONTEXT:]
        window = np.array([seen + [0] * (CONTEXT - len(seen))])
        text.append(int(next_character(model, window, np.array(len(seen) - 1), temperature, rng)))
    return "".join(alphabet[code] for code in text)


def batches(seed=0):
    """Windows of the text at random offsets."""
    rng = np.random.default_rng(seed)
    for _ in range(STEPS):
        starts = rng.integers(0, len(codes) - CONTEXT, BATCH)
        yield codes[starts[:, None] + np.arange(CONTEXT + 1)]


def main():
    """Train, and generate text; return the losses and the text."""
    tj.random.seed(1)
    model = GPT()
    state = tj.optim.adam_state(model)
    losses = [train_step(model, state, batch, i) for i, batch in enumerate(tj.data.prefetch(batches()))]
    losses = [float(loss) for loss in losses]
    print(f"{sum(x.size for x in model.parameters().values()):,} parameters")
    print("loss", " ".join(f"{loss:.2f}" for loss in losses[:: STEPS // 10]), f"{losses[-1]:.2f}")
    text = write(model, "Simple", 120)
    print(text)
    print("the step:", train_step.cache_info())
    return losses, text


if __name__ == "__main__":
    main()
